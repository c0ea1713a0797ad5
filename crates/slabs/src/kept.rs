//! Empty spans that are kept for a moment, and whether the heap is small enough for that.
//!
//! What a processor has just freed is in its caches. In a small heap it gets that again: objects come
//! from spans of its own shard, and of what becomes empty some is kept. In a larger one memory counts
//! for more: objects come from the fullest spans there are, and what is empty leaves, so that whole huge
//! pages can.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spandrel_os::{budget, live};
use spandrel_pages::{Figure, KIB, MIB};

/// The largest heap that is small. (A server that lives long in 200 MiB has 7 to 11 % more memory where
/// this does not end; programs that allocate all the time in 30 take 5 to 12 % less time.)
const SMALL_HEAP: usize = 64 * MIB;
/// At most this many bytes are kept of each class and shard,
const OF_CLASS: usize = 512 * KIB;
/// and of all together at most this many, or this part of what was in use of late.
const MOST: usize = 8 * MIB;
const PART: usize = 4;

/// Bytes that are kept.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// The most bytes that were in use since the last look, and in the time before.
static USED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Whether the heap is small, and has been of late.
pub fn is_small_heap() -> bool {
    used() <= SMALL_HEAP
}

/// The most bytes that were in use of late, and now.
pub fn used() -> usize {
    let now = live::get(Figure::Live) as usize;
    let [most, before] = USED.each_ref().map(|most| most.load(Relaxed));
    if now > most {
        USED[0].store(now, Relaxed);
    }
    now.max(most).max(before)
}

/// What was in use before the last call is forgotten.
pub fn look() {
    let now = live::get(Figure::Live) as usize;
    USED[1].store(USED[0].swap(now, Relaxed), Relaxed);
}

/// Whether an empty span may be kept besides others of its class and shard, all of `bytes`.
pub fn has_room(bytes: usize, others: usize) -> bool {
    let used = used();
    // Near a limit every byte counts.
    (others + 1) * bytes <= OF_CLASS
        && used <= SMALL_HEAP
        && KEPT.load(Relaxed) + bytes <= (used / PART).min(MOST)
        && !budget::counts()
}

/// Bytes that are kept.
pub fn bytes() -> usize {
    KEPT.load(Relaxed)
}

/// `bytes` more are kept.
pub fn enter(bytes: usize) {
    KEPT.fetch_add(bytes, Relaxed);
}

/// `bytes` fewer are kept.
pub fn leave(bytes: usize) {
    KEPT.fetch_sub(bytes, Relaxed);
}
