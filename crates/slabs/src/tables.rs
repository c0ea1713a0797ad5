//! Memory of the tables goes back too, once the data that they describe has gone back: a hundredth of the data of small objects.
//!
//! The background thread sees to it a while after much data has gone back. What went back a moment ago is often wanted again.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use spandrel_os::vm;
use spandrel_pages::{
    HEAP_PAGE_BYTES, HugeLength, HugePageId, MIB, PAGE_BYTES, align_down, align_up,
};

use crate::heap;
use crate::kernel::page_of;
use crate::map::{self, CLASS_TABLE, NO_CLASS, SPAN_TABLES};
use crate::refuse::clock;

/// Pages that must have gone back since the last time: 64 MiB, whose tables take at most 0.75 MiB.
const LEAST: u64 = (64 * MIB / HEAP_PAGE_BYTES) as u64;
/// And their number has been about the same for so long.
const REST_MS: u64 = 1000;
/// Huge pages at a time, between which others get the lock: 12 MiB of tables, a third of a millisecond.
const AT_A_TIME: HugeLength = HugeLength(512);

/// Pages that had gone back, since the beginning, when the tables' memory did last.
static SWEPT: AtomicU64 = AtomicU64::new(0);
/// About how many have, ...
static RELEASED: AtomicU64 = AtomicU64::new(0);
/// ... and since when.
static SINCE_MS: AtomicU64 = AtomicU64::new(0);

/// Gives back what is due, as this number of pages has gone back since the beginning; when to look again, if there is more. Without a lock.
pub fn tend(released: u64) -> Option<u32> {
    let now = clock::coarse_ms();
    if !is_worth(released) {
        return None;
    }
    if RELEASED.load(Relaxed).abs_diff(released) >= LEAST {
        RELEASED.store(released, Relaxed);
        SINCE_MS.store(now, Relaxed);
    }
    let rested = now.saturating_sub(SINCE_MS.load(Relaxed));
    if rested < REST_MS {
        return Some((REST_MS - rested) as u32);
    }
    give_back_all(released);
    None
}

/// Gives back what can go, as this number of pages has gone back since the beginning. Without a lock.
pub fn give_back_now(released: u64) {
    if is_worth(released) {
        give_back_all(released);
    }
}

fn is_worth(released: u64) -> bool {
    // The child of a fork counts anew.
    released - SWEPT.fetch_min(released, Relaxed).min(released) >= LEAST
}

fn give_back_all(released: u64) {
    SWEPT.store(released, Relaxed);
    let mut next = Some((HugePageId(0), HugePageId(0)));
    while let Some(cursor) = next {
        next = heap::give_back_tables(cursor, AT_A_TIME);
    }
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
