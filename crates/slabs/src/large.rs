//! Spans of large objects: what is known of each, and where that is written.
//!
//! The record of a span lies at its first page, among the records of all pages. Those of a huge page take 8 KiB, so that a program with many sparse objects
//! would have a page of records for each. A vast span, of a huge page or more, has its record in a table by huge pages instead: no two vast spans begin in
//! one huge page.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::*};

use spandrel_pages::{HEAP_PAGE_BYTES, HEAP_PAGES_PER_HUGEPAGE, LINE_BYTES};

use crate::map::Page;
use crate::span::SpanRecord;

/// Heap pages of the shortest vast span.
pub const VAST_PAGES: usize = HEAP_PAGES_PER_HUGEPAGE as usize;

/// What is known of a large span. The thread that has the object writes it.
#[repr(C, align(16))]
pub struct LargeRecord {
    /// The page at which the span begins, of a vast span; 0: none.
    first: AtomicU32,
    /// Heap pages of the span.
    pages: AtomicU32,
    /// Cache lines before the object.
    lines: AtomicU16,
    /// The object began with small pages.
    began_small: AtomicU8,
}

const _: () = assert!(size_of::<LargeRecord>() == 16);
const _: () = assert!(size_of::<LargeRecord>() <= size_of::<SpanRecord>());

impl Page {
    /// The record of the large span that begins here, or began here last.
    fn large(self) -> &'static LargeRecord {
        let vast = self.vast();
        if vast.first.load(Acquire) as usize == self.0 { vast } else { self.short() }
    }

    /// Records a large span of `pages` heap pages that begins here. The object begins `lines` cache lines behind its start.
    pub fn set_large(self, pages: usize, lines: usize) {
        let vast = self.vast();
        let record = if pages >= VAST_PAGES {
            vast.first.store(self.0 as u32, Release);
            vast
        } else {
            // A vast span that has been here may be noted still.
            let _ = vast.first.compare_exchange(self.0 as u32, 0, Relaxed, Relaxed);
            self.short()
        };
        record.pages.store(pages as u32, Relaxed);
        record.lines.store(lines as u16, Relaxed);
        record.began_small.store(0, Relaxed);
    }

    /// Records the new length of the large span that begins here: `pages` heap pages, more than before.
    pub fn lengthen_large(self, pages: usize) {
        let (old, vast) = (self.large(), self.vast());
        if pages >= VAST_PAGES && !core::ptr::eq(old, vast) {
            vast.pages.store(pages as u32, Relaxed);
            vast.lines.store(old.lines.load(Relaxed), Relaxed);
            vast.began_small.store(old.began_small.load(Relaxed), Relaxed);
            // A thread that finds it here finds all of it.
            vast.first.store(self.0 as u32, Release);
        } else {
            old.pages.store(pages as u32, Relaxed);
        }
    }

    /// Pages of the large span that begins here.
    pub fn large_pages(self) -> usize {
        self.large().pages.load(Relaxed) as usize
    }

    /// Bytes of the large object that begins in this page.
    pub fn large_bytes(self) -> usize {
        (self.large_pages() * HEAP_PAGE_BYTES).saturating_sub(self.large_offset())
    }

    /// Where it begins.
    pub fn large_object(self) -> usize {
        self.address() + self.large_offset()
    }

    /// Bytes of the page before it.
    pub fn large_offset(self) -> usize {
        usize::from(self.large().lines.load(Relaxed)) * LINE_BYTES
    }

    /// Whether the object began with small pages.
    pub fn began_small(self) -> bool {
        self.large().began_small.load(Relaxed) != 0
    }

    /// Notes whether it did.
    pub fn set_began_small(self, small: bool) {
        self.large().began_small.store(small.into(), Relaxed);
    }
}
