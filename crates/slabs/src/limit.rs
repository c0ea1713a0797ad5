//! The page heap within a limit: see `spandrel_os::budget`.
//!
//! All of this happens under the heap's lock.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use spandrel_os::budget;
use spandrel_pageheap::{PageHeap, Urgency};
use spandrel_pages::{HEAP_PAGE_BYTES, Length};
use spandrel_recorder::{self as recorder, Event};

use crate::kernel::Kernel;

/// When nothing could be given back it is not tried again for so long.
const PAUSE_MS: u64 = 1000;

static NOTHING_UNTIL: AtomicU64 = AtomicU64::new(0);
/// Bytes that the budget knows of.
static TOLD: AtomicUsize = AtomicUsize::new(0);

fn pages_for(bytes: usize) -> Length {
    Length(u32::try_from(bytes.div_ceil(HEAP_PAGE_BYTES)).unwrap_or(u32::MAX))
}

/// Tells the budget what the heap holds; how many bytes more than before.
fn tell(heap: &PageHeap<'static>) -> usize {
    let held = heap.backed().0 as usize * HEAP_PAGE_BYTES;
    let told = TOLD.swap(held, Relaxed);
    budget::change(told, held);
    held.saturating_sub(told)
}

/// Tells the budget what the heap holds after something came back or went.
#[inline]
pub fn note(heap: &PageHeap<'static>) {
    if budget::counts() {
        tell(heap);
    }
}

/// Whether `bytes` more would be within both limits.
pub fn has_room(bytes: usize) -> bool {
    budget::missing(bytes) == 0 && budget::excess() == 0
}

/// Whether what the heap has just handed out is within the limit, if need be after giving back
/// what it keeps.
#[cold]
pub fn admit(heap: &mut PageHeap<'static>, now: u64) -> bool {
    let more = tell(heap);
    let missing = budget::missing(0);
    if more == 0 || missing == 0 {
        return true;
    }
    release(heap, now, pages_for(missing));
    budget::missing(0) == 0
}

/// After [`admit`] said no and the span is free again: releases as much as it had taken.
#[cold]
pub fn give_up(heap: &mut PageHeap<'static>, now: u64, pages: Length) {
    release(heap, now, pages);
    budget::refuse();
}

/// Gives back what is beyond the limits, as far as there is anything; how much that was.
pub fn release_excess(heap: &mut PageHeap<'static>, now: u64) -> Length {
    if !budget::counts() {
        return Length::ZERO;
    }
    tell(heap);
    let excess = budget::excess();
    if excess == 0 || now < NOTHING_UNTIL.load(Relaxed) {
        return Length::ZERO;
    }
    let released = release_for_others(heap, now, excess);
    if released == Length::ZERO {
        // All is in use, and to see that took a look at every huge page.
        NOTHING_UNTIL.store(now + PAUSE_MS, Relaxed);
    }
    released
}

/// Releases `bytes` of free memory, or all of it where there is less. Returns the pages that were released.
pub fn release_for_others(heap: &mut PageHeap<'static>, now: u64, bytes: usize) -> Length {
    if bytes == 0 {
        return Length::ZERO;
    }
    release(heap, now, pages_for(bytes))
}

/// Releases `pages` of free memory, or all of them where there are fewer; recent demand keeps none.
fn release(heap: &mut PageHeap<'static>, now: u64, pages: Length) -> Length {
    recorder::span(&Event::Release { pages: pages.0 });
    let released = heap.release(&mut Kernel::default(), now, pages, Urgency::Pressed);
    note(heap);
    released
}
