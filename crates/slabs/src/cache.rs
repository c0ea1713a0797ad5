//! Caches of free objects: what nearly every request is served from.
//!
//! One for each processor where there are restartable sequences, else one for
//! each thread. Free objects are not written to while they are cached, so that a
//! program that uses one after freeing it finds what it left and the allocator
//! finds what it needs.

use spandrel_os::rseq::Area;
use spandrel_sync::ThreadSlot;

use crate::class::seldom;
use crate::stack::Stack;
use crate::{beside, check, cpu_cache, restartable, thread_cache};

/// A cached object of `class`, which is that of a size, and in effect of the cache's home; 0: there
/// is none.
#[inline(always)]
pub fn pop(class: usize) -> usize {
    pop_at(restartable::offset(class))
}

/// As [`pop`], by where stacks have the class: in bytes from the first.
#[inline(always)]
pub fn pop_at(stack: usize) -> usize {
    let area = ThreadSlot::current_cpu().cast::<Area>();
    if area.is_null() {
        seldom();
        return thread_cache::pop(stack / size_of::<Stack>());
    }
    // SAFETY: the slot holds this thread's area, once the blocks are there.
    unsafe { restartable::pop(area, stack) }
}

/// An object of `class`, as in [`pop`], when none is cached, and some more for the cache; 0 when
/// there is no memory.
pub fn fetch(class: usize) -> usize {
    let object = match cpu_cache::attached() {
        Some(area) => cpu_cache::refill(area, class),
        None => thread_cache::refill(class),
    };
    beside::see_to_background(1);
    check::stepped();
    object
}

/// Gives an object of `class` back.
#[inline(always)]
pub fn push(class: usize, object: usize) {
    if !push_short(class, object) {
        push_slow(class, object);
    }
}

/// The short way of [`push`]; false: the cache had no room, and the object is still the caller's.
#[inline(always)]
pub fn push_short(class: usize, object: usize) -> bool {
    let area = ThreadSlot::current_cpu().cast::<Area>();
    if area.is_null() {
        seldom();
        return thread_cache::push(class, object);
    }
    // SAFETY: as in `pop`.
    unsafe { restartable::push(area, class, object) }
}

#[cold]
#[inline(never)]
fn push_slow(class: usize, object: usize) {
    spill(class, object);
    beside::see_to_kept();
    beside::step_now_and_then(1);
    check::stepped();
}

/// Gives an object back that did not go the short way.
#[inline]
pub fn spill(class: usize, object: usize) {
    match cpu_cache::attached() {
        Some(area) => cpu_cache::spill(area, class, object),
        None => thread_cache::spill(class, object),
    }
}

/// Gives back what all processors, or the calling thread, have cached.
pub fn flush() {
    thread_cache::flush_own();
    cpu_cache::flush();
}

/// Takes the locks before a `fork`.
pub fn fork_prepare() {
    cpu_cache::fork_prepare();
    thread_cache::fork_prepare();
}

/// Gives the locks back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe {
        thread_cache::fork_done();
        cpu_cache::fork_done();
    }
}
