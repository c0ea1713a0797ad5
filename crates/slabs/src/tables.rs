//! Memory of the tables goes back too, once the data that they describe has gone back: a hundredth of the data of small objects.
//!
//! The background thread sees to it a while after much data has gone back. What went back a moment ago is often wanted again.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use spandrel_os::vm;
use spandrel_pages::{HugeLength, HugePageId, PAGE_BYTES, align_down, align_up};

use crate::heap;
use crate::kernel::page_of;
use crate::map::{self, CLASS_TABLE, NO_CLASS, SPAN_TABLES};
use crate::refuse::clock;

/// Huge pages that must have gone back since the last time. Their tables take at most 0.75 MiB.
const LEAST: u32 = 32;
/// Their number has been about the same for so long.
const REST_MS: u64 = 1000;
/// Huge pages at a time, between which others get the lock: 12 MiB of tables, a third of a millisecond.
const AT_A_TIME: HugeLength = HugeLength(512);

/// Huge pages that held nothing when the tables' memory went back last.
static SWEPT: AtomicU32 = AtomicU32::new(0);
/// About how many huge pages hold nothing, ...
static VACANT: AtomicU32 = AtomicU32::new(0);
/// ... and since when.
static SINCE_MS: AtomicU64 = AtomicU64::new(0);

/// Gives back what is due, as this number of huge pages hold nothing; when to look again, if there is more. For one thread at a time, without a lock.
pub fn tend(vacant: HugeLength) -> Option<u32> {
    let (vacant, now) = (vacant.0, clock::coarse_ms());
    let swept = SWEPT.fetch_min(vacant, Relaxed).min(vacant);
    if vacant - swept < LEAST {
        return None;
    }
    if VACANT.load(Relaxed).abs_diff(vacant) >= LEAST {
        VACANT.store(vacant, Relaxed);
        SINCE_MS.store(now, Relaxed);
    }
    let rested = now.saturating_sub(SINCE_MS.load(Relaxed));
    if rested < REST_MS {
        return Some((REST_MS - rested) as u32);
    }
    SWEPT.store(vacant, Relaxed);
    let mut next = Some(HugePageId(0));
    while let Some(from) = next {
        next = heap::give_back_tables(from, AT_A_TIME);
    }
    None
}

/// Gives back the tables' memory for huge pages of data. What was known of objects that lay there is forgotten: a second free of one is told
/// as that of an address without an object.
///
/// # Safety
/// The huge pages hold nothing, and the heap's lock is held.
pub unsafe fn give_back(first: HugePageId, count: HugeLength) {
    // The heap may have reached over more than the kernel let it open.
    let page = |at: HugePageId| page_of(at.first_page()).0.min(map::opened_pages());
    let pages = page(first)..page(first.after(count));
    let whole = |from: usize, to: usize| {
        let start = align_up(from, PAGE_BYTES).unwrap_or(to).min(to);
        start..align_down(to, PAGE_BYTES).max(start)
    };
    // Classes first: a class without its record would tell of an object that was none.
    let classes = CLASS_TABLE.entries(pages.clone());
    let inner = whole(classes.start, classes.end);
    for class in (classes.start..inner.start).chain(inner.end..classes.end) {
        // SAFETY: an entry of the table, open as its data was.
        unsafe { &*(class as *const AtomicU8) }.store(NO_CLASS, Relaxed);
    }
    let entries = SPAN_TABLES.iter().map(|table| table.entries(pages.clone()));
    for range in core::iter::once(inner).chain(entries.map(|range| whole(range.start, range.end))) {
        // SAFETY: entries of pages that hold nothing, which are written before anything lies there.
        if !range.is_empty() && !unsafe { vm::discard(range.start as *mut u8, range.len()) } {
            return;
        }
    }
}
