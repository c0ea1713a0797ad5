//! The release of table memory: the tables of small objects take a hundredth of their data, and describe nothing once the data is released.
//!
//! The background thread releases tables a second after the last large release of data: memory that was released a moment ago is often allocated again.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use spandrel_os::vm;
use spandrel_pages::{
    HEAP_PAGE_BYTES, HugeLength, HugePageId, MIB, PAGE_BYTES, align_down, align_up,
};

use crate::heap;
use crate::kernel::page_of;
use crate::map::{self, CLASS_TABLE, NO_CLASS, SPAN_TABLES};
use crate::refuse::clock;

/// Pages that the heap must release between two releases of tables: 64 MiB, whose tables take at most 0.75 MiB.
const LEAST: u64 = (64 * MIB / HEAP_PAGE_BYTES) as u64;
/// The duration without another such release, in milliseconds.
const REST_MS: u64 = 1000;
/// Huge pages for each hold of the heap's lock: 12 MiB of tables, a third of a millisecond.
const AT_A_TIME: HugeLength = HugeLength(512);

/// Pages that the process had released at the last release of tables.
static SWEPT: AtomicU64 = AtomicU64::new(0);
/// Pages released, as of the last large change, ...
static RELEASED: AtomicU64 = AtomicU64::new(0);
/// ... and the time of that change.
static SINCE_MS: AtomicU64 = AtomicU64::new(0);

/// Releases the tables that are due. `released`: pages that the process has released so far. Returns the milliseconds until the next look, if a release is pending. The caller holds no lock.
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

/// Releases tables at once. `released`: pages that the process has released so far. The caller holds no lock.
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

/// Releases the tables of huge pages of data. A later double free of an object that lay there is still detected, and reported as one of an
/// unknown address.
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
