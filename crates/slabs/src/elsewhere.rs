//! Release of free pages while another allocator of ours takes memory.
//!
//! Each of two allocators retains what its own demand swings by. A program that changes from sizes of the one to sizes of the other, or whose
//! arrays grow out of the one side by side, would have its memory resident twice. So this heap releases twice what the other allocator takes, as long as
//! its free pages exceed [`LEFT`] and half of what is in use. If the heap takes most of it again soon, free pages are retained for a while.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use spandrel_pageheap::{PageHeap, Urgency};
use spandrel_pages::{HEAP_PAGE_BYTES, Length, MIB};
use spandrel_recorder::{self as recorder, Event};

use crate::beside;
use crate::heap;
use crate::kernel::Kernel;
use crate::limit;

/// The heap is looked at once the other allocator has taken this number of bytes: the look takes less than a thousandth of what the page
/// faults for these take.
const STEP_BYTES: usize = 4 * MIB;
/// Free pages that stay, beside half of what is in use.
const LEFT: Length = Length((8 * MIB / HEAP_PAGE_BYTES) as u32);
/// What is wanted again later than this was given back for good reason.
const SOON_MS: u64 = 10_000;
/// Free pages stay for this time after the first ones that were wanted again soon, and for twice as long after each further time.
const STAY_MS: u64 = 1000;
/// Doublings of it at most.
const MOST_REGRETS: u32 = 6;

/// Bytes that the other allocator has taken since the last look.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Pages of the last release, backed pages after it, and its time. Accessed under the heap's lock, as are the two below.
static GONE: AtomicU32 = AtomicU32::new(0);
static BACKED: AtomicU32 = AtomicU32::new(0);
static GONE_MS: AtomicU64 = AtomicU64::new(0);
/// Times in a row that it was wanted again soon, and until when free pages stay.
static REGRETS: AtomicU32 = AtomicU32::new(0);
static STAY_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// Notes that another allocator of ours takes these bytes from the kernel. To be called without a lock.
#[inline]
pub fn note(bytes: usize) {
    // Lost counts do not matter.
    let taken = TAKEN.load(Relaxed).saturating_add(bytes);
    let is_much = taken >= STEP_BYTES;
    TAKEN.store(if is_much { 0 } else { taken }, Relaxed);
    if is_much {
        look(taken);
    }
}

#[cold]
#[inline(never)]
fn look(taken: usize) {
    beside::counted(|| heap::make_room(taken));
}

/// Gives back free pages of about these bytes, if that leaves enough; how many.
pub fn make_room(heap: &mut PageHeap<'static>, now: u64, bytes: usize) -> Length {
    let (backed, kept) = (heap.backed(), heap.kept());
    see_to_regret(backed, now);
    let left = LEFT.saturating_add(Length(backed.saturating_sub(kept).0 / 2));
    let pages = Length(u32::try_from(bytes / HEAP_PAGE_BYTES).unwrap_or(u32::MAX));
    let wanted = kept.saturating_sub(left).min(pages.saturating_add(pages));
    if wanted == Length::ZERO || now < STAY_UNTIL_MS.load(Relaxed) {
        return Length::ZERO;
    }
    recorder::span(&Event::Release { pages: wanted.0 });
    let released = heap.release(&mut Kernel::default(), now, wanted, Urgency::Elsewhere);
    limit::note(heap);
    GONE.store(GONE.load(Relaxed).saturating_add(released.0), Relaxed);
    BACKED.store(heap.backed().0, Relaxed);
    GONE_MS.store(now, Relaxed);
    released
}

/// Finds out whether the heap has taken again most of what went back.
fn see_to_regret(backed: Length, now: u64) {
    let gone = GONE.load(Relaxed);
    if gone == 0 {
        return;
    }
    let is_soon = now.saturating_sub(GONE_MS.load(Relaxed)) < SOON_MS;
    let is_back = backed.saturating_sub(Length(BACKED.load(Relaxed))).0 > gone / 2;
    if is_soon && is_back {
        let regrets = REGRETS.load(Relaxed);
        STAY_UNTIL_MS.store(now + (STAY_MS << regrets), Relaxed);
        REGRETS.store((regrets + 1).min(MOST_REGRETS), Relaxed);
        GONE.store(0, Relaxed);
    } else if !is_soon {
        REGRETS.store(0, Relaxed);
        GONE.store(0, Relaxed);
    }
}
