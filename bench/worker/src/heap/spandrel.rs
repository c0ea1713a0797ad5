//! The recoverable heap, with flushes and fences as on persistent memory, and a small library for sections on top of it.

use super::sections::Section;
use super::{Allocator, file};
use crate::suites::Report;
use spandrel_pheap::{Choice, Heap, Medium, Options};
use std::ptr::NonNull;

/// A heap in a file that is gone when the process ends.
pub struct OnHeap {
    heap: Heap,
}

/// Ends the process: there is nothing to be measured.
#[cold]
fn give_up(why: spandrel_pheap::Error) -> ! {
    eprintln!("spandrel-bench-worker: the heap: {why}");
    std::process::exit(1);
}

impl OnHeap {
    pub fn create(directory: &str) -> Result<Self, String> {
        let path = file(directory, "heap");
        let heap = Options::new().medium(Choice::Mapped).create(&path);
        let heap = heap.map_err(|why| format!("{path}: {why}"))?;
        std::fs::remove_file(&path).map_err(|why| format!("{path}: {why}"))?;
        Ok(Self { heap })
    }
}

impl Allocator for OnHeap {
    type Section<'a> = Logged<'a>;

    #[inline]
    fn alloc(&self, bytes: usize) -> NonNull<u8> {
        self.heap.alloc(bytes).unwrap_or_else(|why| give_up(why))
    }

    #[inline]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { self.heap.free(object) }.unwrap_or_else(|why| give_up(why));
    }

    fn section(&self) -> Result<Logged<'_>, String> {
        let log = self.heap.alloc_zeroed(LOG_BYTES).map_err(|why| why.to_string())?;
        Ok(Logged {
            heap: &self.heap,
            log: log.cast(),
            entries: 0,
            version: 1,
            changed: Vec::new(),
            freed: Vec::new(),
        })
    }

    fn record(&self, report: &mut Report) {
        let counted = self.heap.counters();
        report.insert("flushes".into(), counted.flushes.into());
        report.insert("fences".into(), counted.fences.into());
        report.insert("lazy_flushes".into(), counted.lazy_flushes.into());
        report.insert("fresh_blocks".into(), counted.fresh_blocks.into());
        report.insert("returned_blocks".into(), counted.returned_blocks.into());
        report.insert("refills".into(), counted.refills.into());
    }
}

/// Words of a line, of which an entry has one: where, how many, up to five words that were there, and a check.
const ENTRY_WORDS: usize = 8;
const ENTRY_STORES: usize = 5;
/// A line with the version, and entries.
const LOG_BYTES: usize = 64 << 10;
const ENTRIES: usize = LOG_BYTES / 64 - 1;

/// A section with an undo log of its own: an entry is durable before what it names is changed. A line that says itself whether it
/// is whole needs one write-back and one fence; the entries of a section that has ended are those of an older version.
pub struct Logged<'a> {
    heap: &'a Heap,
    log: NonNull<u64>,
    entries: usize,
    version: u64,
    /// What was stored to, to be written back at the end.
    changed: Vec<(usize, usize)>,
    freed: Vec<NonNull<u8>>,
}

impl Logged<'_> {
    fn offset(&self, at: *const u64) -> usize {
        at as usize - self.heap.base().as_ptr() as usize
    }

    fn write_back(&self, at: *const u64, bytes: usize) {
        self.heap.medium().write_back(self.offset(at), bytes);
    }

    /// Has what was there before written down.
    ///
    /// # Safety
    /// As for [`Section::store`]; no more words than an entry has room for.
    unsafe fn note(&mut self, at: *const u64, count: usize) {
        if self.entries == ENTRIES {
            eprintln!("spandrel-bench-worker: a section stores more than its log has room for");
            std::process::exit(1);
        }
        self.entries += 1;
        let mut entry = [0; ENTRY_WORDS];
        entry[0] = self.offset(at) as u64;
        entry[1] = count as u64;
        // SAFETY: promised by the caller; the entry lies in the log.
        unsafe {
            at.copy_to_nonoverlapping(entry[2..].as_mut_ptr(), count);
            let check = entry.iter().fold(self.version, |sum, word| sum.rotate_left(7) ^ word);
            entry[ENTRY_WORDS - 1] = check.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let place = self.log.as_ptr().add(self.entries * ENTRY_WORDS);
            place.copy_from_nonoverlapping(entry.as_ptr(), ENTRY_WORDS);
            self.write_back(place, 64);
        }
    }
}

impl Section for Logged<'_> {
    fn begin(&mut self) {}

    fn alloc(&mut self, bytes: usize) -> NonNull<u8> {
        // What nothing leads to after a failure is free.
        self.heap.alloc(bytes).unwrap_or_else(|why| give_up(why))
    }

    unsafe fn free(&mut self, object: NonNull<u8>) {
        self.freed.push(object);
    }

    fn scratch(&mut self, bytes: usize) -> NonNull<u8> {
        self.alloc(bytes)
    }

    unsafe fn free_scratch(&mut self, object: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { self.heap.safe_free(object) }.unwrap_or_else(|why| give_up(why));
    }

    fn made(&mut self, object: NonNull<u8>, bytes: usize) {
        self.write_back(object.as_ptr().cast(), bytes);
    }

    unsafe fn store(&mut self, at: *mut u64, words: &[u64]) {
        for (number, part) in words.chunks(ENTRY_STORES).enumerate() {
            // SAFETY: promised by the caller.
            unsafe { self.note(at.add(number * ENTRY_STORES), part.len()) };
        }
        self.heap.medium().fence();
        // SAFETY: promised by the caller.
        unsafe { at.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        self.changed.push((self.offset(at), words.len() * 8));
    }

    fn end(&mut self) {
        for (at, bytes) in self.changed.drain(..) {
            self.heap.medium().write_back(at, bytes);
        }
        self.heap.medium().fence();
        if self.entries > 0 {
            self.version += 1;
            // SAFETY: the log's first word.
            unsafe { self.log.as_ptr().write_volatile(self.version) };
            self.write_back(self.log.as_ptr(), 8);
            self.heap.medium().fence();
            self.entries = 0;
        }
        for object in self.freed.drain(..) {
            // SAFETY: promised when it was freed; that nothing leads to it is durable.
            unsafe { self.heap.safe_free(object) }.unwrap_or_else(|why| give_up(why));
        }
    }
}
