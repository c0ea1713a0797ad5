//! Addresses of the process's own memory in a state: where they lead, the next process has something else.

mod frames;
mod place;

use std::fmt;
use std::ops::Range;
use std::prelude::v1::*;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use spandrel_durable::notes::How;
use spandrel_os::message::say;
use spandrel_os::modules::{LIBC, Module};
use spandrel_os::slices::FIXED_BASE_WINDOW;
use spandrel_os::{personality, slices, vm};
use spandrel_pages::{ADDRESS_SPACE_END, AllocatorId, PAGE_BYTES, TIB};

use frames::Frames;
pub use place::Place;

use super::Arena;

/// A word of a state that is an address of the process's own memory: an object of an allocator, a part of a stack, a mapping; where the kernel draws the addresses of the program and
/// its libraries, a function or a variable of these.
///
/// It is a pointer, if the state leads to what a command has not allocated in it: after the end of the process it leads nowhere. It may also be a number that
/// looks like an address. Its `Display` names the allocator, or the file and the symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Escaped {
    /// Where the word lies.
    pub at: usize,
    /// The address that it is.
    pub address: usize,
    /// The allocator that has the address. [`AllocatorId::Sys`]: none of Spandrel's.
    pub allocator: AllocatorId,
}

impl fmt::Display for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (Place::of(self.address), self.allocator) {
            (Some(place), _) => place.fmt(f),
            (None, AllocatorId::Sys) => {
                f.write_str("memory of the process (the C library's allocator, a stack, a mapping)")
            }
            (None, allocator) => {
                write!(f, "memory of the process ({} allocator)", allocator.name())
            }
        }
    }
}

/// Where the files of the process lie.
#[derive(Debug)]
struct Files {
    /// Those that the next process has elsewhere, and those that it has at the same addresses. In order of address.
    drawn: Vec<Range<usize>>,
    fixed: Vec<Range<usize>>,
    /// Where the program lies, and where the lowest library begins.
    program: Range<usize>,
    first: Option<usize>,
    /// All files have the same addresses each time.
    are_fixed: bool,
}

impl Files {
    fn now() -> Self {
        let are_fixed = personality::has_fixed_addresses();
        let (drawn, fixed, program) = (Vec::new(), Vec::new(), 0..0);
        let mut this = Self { drawn, fixed, program, first: None, are_fixed };
        let mut is_program = true;
        Module::each(&mut |module| {
            let addresses = module.addresses();
            if is_program {
                this.program = addresses.clone();
            } else {
                let first = this.first.map_or(addresses.start, |at| at.min(addresses.start));
                this.first = Some(first);
            }
            // A program that has addresses of its own is loaded there.
            let is_kept = are_fixed || is_program && module.base() == 0;
            if is_kept { &mut this.fixed } else { &mut this.drawn }.push(addresses);
            is_program = false;
        });
        this.drawn.sort_unstable_by_key(|addresses| addresses.start);
        this.fixed.sort_unstable_by_key(|addresses| addresses.start);
        this
    }

    /// Whether some of these have an address.
    fn have(files: &[Range<usize>], at: usize) -> bool {
        let next = files.partition_point(|addresses| addresses.start <= at);
        next.checked_sub(1).and_then(|file| files.get(file)).is_some_and(|file| file.contains(&at))
    }
}

/// Lines that are said of a state: each store of a command may have the same fault.
const MOST_SAID: usize = 8;
/// Mappings of the process lie behind the lowest library that it has begun with, or as far before it as the kernel and the allocators have got by then.
const MAPPINGS_BYTES: usize = TIB;
/// Where mappings lie in a program without libraries, and where the lowest slice does: see `spandrel_os::slices`.
const LOWEST_MAPPING: usize = 120 * TIB;
const LOWEST_SLICE: usize = 18 * TIB;
/// Other allocators take any address that is no small number (mimalloc: from 2 TiB on).
const LOWEST_OTHER: usize = TIB;

/// Where states and other heaps with addresses of their own lie.
const STATES: Range<usize> = FIXED_BASE_WINDOW.start * TIB..FIXED_BASE_WINDOW.end * TIB;
/// Words that are looked at together.
const CHUNK: usize = 8;

/// Looks at what commands have stored.
#[derive(Debug)]
pub(super) struct Escapes {
    first: Mutex<Option<Escaped>>,
    /// Lines that were said, and the word that was said last.
    said: AtomicUsize,
    last: [AtomicUsize; 2],
    /// No address of the process lies before this one, but those of glibc's heap.
    lowest: usize,
    files: Files,
    /// Where the kernel maps what the process asks for.
    mappings: usize,
    /// An allocator of the process has memory elsewhere, and is none of this library's.
    has_others: bool,
    /// Objects of the process lie in mappings too. Those of this library's allocator do not, and code in Rust has no other references: what looks like one is what an enumeration
    /// has where its variant has no field.
    has_mappings: bool,
    /// Commands are ordinary code, which stores more than it says.
    frames: Option<Frames>,
}

/// One look.
#[derive(Clone, Copy)]
struct Look<'a> {
    arena: &'a Arena,
    frame: usize,
}

/// Whether a page can be read: it is no hole, and no part of a reservation that is not open. It need not be used yet.
fn is_open(page: *mut u8) -> bool {
    let mut byte = 0u8;
    let into = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: page.cast(), iov_len: 1 };
    // SAFETY: the kernel looks at what it reads, and writes to a byte of this function's own.
    let read = || unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
    vm::is_resident(page) || read() == 1
}

impl Escapes {
    /// `has_allocator`: the program's allocator is this library's.
    pub fn new(how: How, has_allocator: bool) -> Self {
        let files = Files::now();
        let mappings = files.first.unwrap_or(LOWEST_MAPPING).saturating_sub(MAPPINGS_BYTES);
        let mut this = Self {
            first: Mutex::default(),
            said: AtomicUsize::new(0),
            last: Default::default(),
            lowest: LOWEST_SLICE,
            files,
            mappings,
            has_others: false,
            has_mappings: !has_allocator,
            frames: (how != How::Notes).then(Frames::default),
        };
        this.has_others = this.has_others();
        if this.has_others {
            this.lowest = LOWEST_OTHER;
        }
        this
    }

    /// Whether another allocator than those that are known may be in front of these: it has the name `malloc`, or the objects of the process.
    fn has_others(&self) -> bool {
        let is_cs = |module: Module| module.name() == Some(LIBC);
        if Module::defining(c"malloc").is_some_and(|module| !is_cs(module)) {
            return true;
        }
        let heap = self.heap();
        let is_elsewhere = |object: usize| {
            let is_known = heap.contains(&object) || object >= self.mappings;
            !is_known && slices::owner(object) == AllocatorId::Sys
        };
        let own = Box::new(0u64);
        // SAFETY: an object of its own, which is freed.
        unsafe {
            let c = libc::malloc(1);
            let is_one = is_elsewhere(c as usize) || is_elsewhere(&raw const *own as usize);
            libc::free(c);
            is_one
        }
    }

    /// glibc's heap begins behind the program.
    fn heap(&self) -> Range<usize> {
        self.files.program.end..vm::main_heap_end()
    }

    /// The first that was found.
    pub fn first(&self) -> Option<Escaped> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the runs of a batch: `each` calls its argument with each of them. `frame`: an address in the frame that has called the commands.
    ///
    /// # Safety
    /// The runs lie in the open bytes of the arena, which begin at a page, and no thread stores there meanwhile.
    pub unsafe fn look(
        &self,
        arena: &Arena,
        frame: usize,
        each: impl FnOnce(&mut dyn FnMut(*const u8, usize)),
    ) {
        if self.said.load(Relaxed) >= MOST_SAID {
            return;
        }
        let (heap, look) = (self.heap(), Look { arena, frame });
        // The heap of a program that has addresses of its own lies right behind it.
        let lowest = if heap.is_empty() { self.lowest } else { self.lowest.min(heap.start) };
        let span = ADDRESS_SPACE_END.saturating_sub(lowest);
        let mut found = None;
        each(&mut |at, len| {
            let word = size_of::<usize>();
            let from = at as usize & !(word - 1);
            let count = (at as usize + len - from).div_ceil(word);
            let words = std::ptr::with_exposed_provenance::<usize>(from);
            // SAFETY: promised by the caller; pages are whole words.
            let words = unsafe { core::slice::from_raw_parts(words, count) };
            let mut chunks = words.chunks(CHUNK);
            let mut at = from;
            while let Some(chunk) = chunks.next().filter(|_| found.is_none()) {
                // One branch for a chunk of numbers and texts.
                let may_be = |any, word: &usize| any | (word.wrapping_sub(lowest) < span);
                if chunk.iter().fold(false, may_be) {
                    found = self.find(look, &heap, at, chunk);
                }
                at += size_of_val(chunk);
            }
        });
        if let Some(escaped) = found {
            self.report(escaped);
        }
    }

    /// The first word of a few that is such an address. Addresses of the state itself are many.
    fn find(
        &self,
        look: Look<'_>,
        heap: &Range<usize>,
        at: usize,
        words: &[usize],
    ) -> Option<Escaped> {
        let places = (at..).step_by(size_of::<usize>()).zip(words);
        let mut others = places.filter(|(_, word)| {
            // What lies in another state does not end with the process.
            !STATES.contains(*word)
                && (word.wrapping_sub(self.lowest) < ADDRESS_SPACE_END - self.lowest
                    || heap.contains(*word))
        });
        others.find_map(|(at, word)| self.judge(look, heap, at, *word))
    }

    /// Whether a word is an address of the process's memory, in an object of the state: memory that is free has what was there before.
    #[cold]
    fn judge(
        &self,
        look: Look<'_>,
        heap: &Range<usize>,
        at: usize,
        word: usize,
    ) -> Option<Escaped> {
        let allocator = slices::owner(word);
        let may_be = allocator != AllocatorId::Sys
            || word >= self.mappings
            || self.has_others
            || heap.contains(&word)
            || self.files.program.contains(&word);
        let is_last = || self.last.each_ref().map(|it| it.load(Relaxed)) == [at, word];
        if !may_be || Files::have(&self.files.fixed, word) || is_last() {
            return None;
        }
        let page: *mut u8 = std::ptr::with_exposed_provenance_mut(word & !(PAGE_BYTES - 1));
        // Libraries that were loaded later lie at the same addresses, where the others do.
        let is_no_file = || !self.files.are_fixed || Module::around(word).is_none();
        let is_one = heap.contains(&word)
            || Files::have(&self.files.drawn, word)
            || match allocator {
                AllocatorId::Sys if word >= self.mappings => {
                    let has_left = |frames: &Frames| frames.have_left(word, look.frame);
                    self.has_mappings
                        && is_open(page)
                        && is_no_file()
                        && !self.frames.as_ref().is_some_and(has_left)
                }
                AllocatorId::Sys => self.has_others && is_open(page) && is_no_file(),
                // It claims tebibytes, in which many a number lies.
                _ => is_open(page),
            };
        let place = NonNull::new(std::ptr::with_exposed_provenance_mut(at))?;
        (is_one && look.arena.is_in_object(place)).then_some(Escaped {
            at,
            address: word,
            allocator,
        })
    }

    #[cold]
    fn report(&self, escaped: Escaped) {
        let Escaped { at, address, .. } = escaped;
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(escaped);
        self.said.fetch_add(1, Relaxed);
        self.last.iter().zip([at, address]).for_each(|(place, word)| place.store(word, Relaxed));
        match Place::of(address) {
            Some(place) => say(format_args!(
                "a durable state has at {at:#x} the address {address:#x} ({place}), which lies elsewhere in the next process: have the addresses of the program and its libraries be the same each time (fix_addresses, or `setarch -R`), or store no such address"
            )),
            None => say(format_args!(
                "a durable state has at {at:#x} the address {address:#x}, which is {escaped}: if that is a pointer, the next process finds nothing there; a command must allocate what it puts into the state"
            )),
        }
    }
}
