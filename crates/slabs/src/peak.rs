//! What was resident when most was live: realised fragmentation where it counts.
//!
//! Only the kernel knows what is resident, and it looks at each page to tell. So it is asked when the spans
//! in use, or what the heap has from it, have grown by a quarter since it was asked last, and once a second
//! while they grow at all; but for statistics, not before a hundred times as long has passed as the last answer took.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use spandrel_os::live::{get, set};
use spandrel_pages::{Figure, MIB};

use crate::refuse::clock;
use crate::{figures, map};

/// By this part they have to grow for it to be asked at once, ...
const PART: u64 = 4;
/// ... and to this many bytes: short programs do without.
const LEAST: u64 = 8 * MIB as u64;

/// An answer took this part of the time to the next question, at most: the design's rule for work beside the program.
const PAUSE_PARTS: u64 = 99;

/// Bytes of spans, and of all that the heap had, when it was asked last at a height.
static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// They have grown since.
static HAS_GROWN: AtomicBool = AtomicBool::new(false);
/// By so much that it is to be asked at once.
static IS_DUE: AtomicBool = AtomicBool::new(false);
/// As it is in a large heap, not before then.
static NOT_BEFORE_MS: AtomicU64 = AtomicU64::new(0);

/// Bytes of spans, and of all that the heap has, as they were written down last.
fn now() -> [u64; 2] {
    let live = get(Figure::Live);
    [live, live + get(Figure::Cached) + get(Figure::Free)]
}

/// The figures of the heap have been written down: whether it is to be asked, becomes known to threads without
/// the lock.
pub fn see() {
    for (now, seen) in now().into_iter().zip(&SEEN) {
        let seen = seen.load(Relaxed);
        if now > seen {
            HAS_GROWN.store(true, Relaxed);
            if now >= LEAST && now - seen > seen / PART {
                IS_DUE.store(true, Relaxed);
            }
        }
    }
}

/// Whether it is to be asked at once.
#[inline]
pub fn is_due() -> bool {
    IS_DUE.load(Relaxed) && may_be_asked()
}

#[cold]
fn may_be_asked() -> bool {
    clock::coarse_ms() >= NOT_BEFORE_MS.load(Relaxed)
}

/// Asks if anything has grown since the last time.
pub fn note_growth() {
    if HAS_GROWN.load(Relaxed) && may_be_asked() {
        note();
    }
}

/// Has the kernel look at each page, and writes down what is resident; also as that of
/// the peak, if more is live than ever.
/// To be called without a lock.
#[cold]
#[inline(never)]
pub fn note() {
    // One at a time has the work.
    HAS_GROWN.store(false, Relaxed);
    IS_DUE.store(false, Relaxed);
    for (now, seen) in now().into_iter().zip(&SEEN) {
        seen.fetch_max(now, Relaxed);
    }
    let start = clock::micros();
    let resident = map::resident();
    let pause_ms = clock::micros().saturating_sub(start) * PAUSE_PARTS / 1000;
    NOT_BEFORE_MS.store(clock::coarse_ms() + pause_ms, Relaxed);
    let Some(resident) = resident else { return };
    set(Figure::Resident, resident.heap as u64);
    set(Figure::Tables, resident.tables as u64);
    set(Figure::PageHeap, resident.trackers as u64);
    figures::publish_caches();
    let free = [Figure::InCaches, Figure::InTransfer, Figure::InSpans].map(get);
    let live = get(Figure::Live).saturating_sub(free.iter().sum());
    if live > get(Figure::PeakLive) {
        set(Figure::PeakLive, live);
        set(Figure::PeakResident, (resident.heap + resident.tables) as u64);
    }
}

/// The child of a fork has a peak of its own. What it has from its parent is not looked at anew before it grows beyond that, as most children are short.
pub fn fork_forget() {
    set(Figure::PeakResident, 0);
    set(Figure::PeakLive, 0);
    for (now, seen) in now().into_iter().zip(&SEEN) {
        seen.store(now, Relaxed);
    }
    IS_DUE.store(false, Relaxed);
    HAS_GROWN.store(true, Relaxed);
    NOT_BEFORE_MS.store(0, Relaxed);
}
