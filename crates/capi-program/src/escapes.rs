//! Addresses of the process's own memory in the state, or of a library: the next process has something else there.
//!
//! A word that is such an address is a pointer, or a number that looks like one: data of a client can be any number. So it is said once, and the program goes on.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spandrel::durable::LoadedPlace;
use spandrel_os::message::say;
use spandrel_os::modules::Module;
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::batch;

/// Where a program without random addresses has its mappings: the last tebibyte of the address space. Its heap begins behind the program.
const MAPPINGS: std::ops::Range<usize> = 0x7f00_0000_0000..0x7fff_ffff_f000;
/// What its heap takes at most.
const HEAP_BYTES: usize = 1 << 40;

static HAS_SAID: AtomicBool = AtomicBool::new(false);

fn program_end() -> usize {
    static END: OnceLock<usize> = OnceLock::new();
    *END.get_or_init(|| Module::program().map_or(usize::MAX, |program| program.addresses().end))
}

/// Words that are looked at together.
const CHUNK: usize = 8;
/// log2 of a tebibyte: the upper bits of an address tell most of it.
const SHIFT: u32 = 40;
const _: () =
    assert!(HEAP_BYTES == 1 << SHIFT && MAPPINGS.start >> SHIFT == (MAPPINGS.end - 1) >> SHIFT);

/// Looks at bytes that a batch has stored.
pub fn look(at: *const u8, bytes: usize) {
    if HAS_SAID.load(Relaxed) {
        return;
    }
    let heap = program_end();
    let from = (at as usize).next_multiple_of(size_of::<usize>());
    let count = (at as usize + bytes).saturating_sub(from) / size_of::<usize>();
    // SAFETY: whole words of the state, which no thread stores to.
    let words = unsafe { std::slice::from_raw_parts(from as *const usize, count) };
    let (first, mappings) = ((heap >> SHIFT) as u32, (MAPPINGS.start >> SHIFT) as u32);
    let may_be = |word: &usize| {
        let upper = (word >> SHIFT) as u32;
        (upper == mappings) | (upper == first) | (upper == first.wrapping_add(1))
    };
    for chunk in words.chunks(CHUNK) {
        // One branch for all, as nearly none is one.
        if chunk.iter().fold(false, |any, word| any | may_be(word)) {
            look_at_each(chunk, heap);
        }
    }
}

#[cold]
fn look_at_each(words: &[usize], heap: usize) {
    let is_one = |word: &usize| MAPPINGS.contains(word) || word.wrapping_sub(heap) < HEAP_BYTES;
    for word in words.iter().filter(|word| is_one(word)) {
        if !HAS_SAID.load(Relaxed) {
            report(std::ptr::from_ref(word) as usize, *word);
        }
    }
}

/// Whether a place lies in an object that is not freed: what was there before is left in others.
fn is_live(place: usize) -> bool {
    let at = NonNull::new(place as *mut u8);
    batch::arena().zip(at).is_some_and(|(arena, at)| arena.is_in_object(at))
}

#[cold]
fn report(place: usize, word: usize) {
    let page = (word & !(PAGE_BYTES - 1)) as *mut u8;
    let is_programs = Module::program().is_some_and(|program| program.addresses().contains(&word));
    if is_programs || !vm::is_mapped(page) || !is_live(place) {
        return;
    }
    HAS_SAID.store(true, Relaxed);
    let rest = "if that is a pointer, the next process finds something else there, and the adapter lacks a rule";
    match LoadedPlace::of(word) {
        Some(file) => say(format_args!(
            "the state has at {place:#x} the address {word:#x} of a library ({file}): {rest}"
        )),
        None => say(format_args!(
            "the state has at {place:#x} the address {word:#x}, which is memory of the process: {rest}"
        )),
    }
}
