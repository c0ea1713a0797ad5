//! The native allocator: size classes, caches, central lists and spans over a
//! hugepage-aware page heap.
//!
//! ```text
//! malloc  cache of the processor -> transfer cache -> spans of the class -> page heap
//! free    class of the page -> cache of the processor -> ... and back
//! ```
//!
//! Invariants: an object's class is that of its page, one byte in a flat table.
//! A span's record and bits belong to the lock of its class; the page heap has
//! one lock, which is taken last. Free objects are not written to.
//!
//! This room must never know what else hands out memory, nor by what policy a
//! request came here.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p spandrel-slabs --release --test shuttle` (part of
//! `make unit`) interrupts operations on caches of processors after any of their instructions.
#![no_std]

mod beside;
mod cache;
mod central;
mod check;
mod class;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod components;
mod cpu_cache;
pub mod density;
mod elsewhere;
mod figures;
pub mod fresh;
mod heap;
mod hits;
mod kept;
mod kernel;
mod large;
mod limit;
mod map;
mod peak;
pub mod promotion;
mod recent;
mod refuse;
mod report;
#[cfg(not(shuttle))]
mod restartable;
#[cfg(shuttle)]
#[path = "restartable_model.rs"]
pub mod restartable;
mod span;
mod sparse;
mod stack;
mod tables;
mod thread_cache;
mod transfer;

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use spandrel_pages::{HEAP_PAGE_BYTES, LINE_BYTES, MIB, MIN_ALIGN, PAGE_BYTES};

use class::{
    CLASS, CLASSES, SMALL_MAX, begin_if_small, begin_of, class_aligned, class_of, class_of_larger,
    given_out, seldom, stack_of,
};
use density::Contents;
use map::{LARGE, page_of};

pub use beside::{
    Companion, Done, Turn, note_kept, see_to_kept, set_companion, set_look, step as step_beside,
    want as want_background,
};
pub use check::{Census, Fault, check};
pub use class::TABLE_MAX;
pub use cpu_cache::start as start_cpu_caches;
pub use elsewhere::note as note_elsewhere;
pub use figures::{figures, measure_resident};
pub use heap::{
    fork_forget, give_back_reserve, idle_bytes, is_started, note_fork, open_sparingly,
    set_release_rate, start, stats,
};
pub use thread_cache::watch_main_thread;

/// A large object that outgrows its place gets this part of its size as room to grow.
const GROWTH_PART: usize = 8;
/// Objects from this size on have no page for the sake of their line: several of whole huge pages lie in as many.
const PAGE_MORE_TO: usize = MIB;

/// `size` bytes aligned to 16; null when there is no memory.
#[inline]
pub fn alloc(size: usize) -> *mut u8 {
    let object = alloc_cached(size);
    if object.is_null() { alloc_uncached(size) } else { object }
}

/// As [`alloc`], if such an object is cached; else null.
#[inline(always)]
fn alloc_cached(size: usize) -> *mut u8 {
    if size <= TABLE_MAX {
        // SAFETY: just compared.
        return unsafe { alloc_cached_small(size) };
    }
    seldom();
    alloc_cached_larger(size)
}

/// As [`alloc`], if such an object is cached and `size` is more than [`TABLE_MAX`]; else null.
#[inline(always)]
pub fn alloc_cached_larger(size: usize) -> *mut u8 {
    let Some(class) = class_of_larger(size) else { return ptr::null_mut() };
    given_out_if_any(class, cache::pop(class), size)
}

/// As [`alloc`], if such an object is cached; else null.
///
/// # Safety
/// `size` is at most [`TABLE_MAX`].
#[inline(always)]
pub unsafe fn alloc_cached_small(size: usize) -> *mut u8 {
    // SAFETY: promised by the caller.
    cache::pop_at(unsafe { stack_of(size) }) as *mut u8
}

/// What is given out of a new object for a request of `size` bytes; null for none.
#[inline(always)]
fn given_out_if_any(class: usize, object: usize, size: usize) -> *mut u8 {
    (if object == 0 { 0 } else { given_out(class, object, size) }) as *mut u8
}

/// As [`alloc`], after [`alloc_cached`] had none.
#[cold]
#[inline(never)]
pub fn alloc_uncached(size: usize) -> *mut u8 {
    class_of(size).map_or_else(
        || alloc_large(size, MIN_ALIGN, Contents::Any).0,
        |class| given_out_if_any(class, cache::fetch(class), size),
    )
}

/// As [`alloc`], with a span of its own whatever its size. Such objects begin at different lines of their pages; those of a class lie a whole
/// number of pages apart, so that a walk through many of them at once finds few of them in the processor's caches.
pub fn alloc_apart(size: usize) -> *mut u8 {
    alloc_large(size, MIN_ALIGN, Contents::Any).0
}

/// As [`alloc`], zeroed.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    alloc_zeroed_aligned(MIN_ALIGN, size)
}

/// `size` bytes aligned to `align`, a power of two.
#[inline]
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    if align <= MIN_ALIGN { alloc(size) } else { aligned(align, size, Contents::Any).0 }
}

/// As [`alloc_aligned`], zeroed; what came fresh from the kernel is not cleared.
pub fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
    let (object, zeroed) = aligned(align, size, Contents::Zeros);
    if !object.is_null() && !zeroed {
        // SAFETY: the object has `size` bytes.
        unsafe { ptr::write_bytes(object, 0, size) };
    }
    object
}

/// An aligned object, and whether it is zero.
fn aligned(align: usize, size: usize, contents: Contents) -> (*mut u8, bool) {
    if size.max(align) <= SMALL_MAX
        && let Some(class) = class_aligned(align, size)
    {
        let cached = cache::pop(class);
        let object = if cached == 0 { cache::fetch(class) } else { cached };
        // What is to be aligned to more than a line begins where its object does.
        let size = if align <= LINE_BYTES { size } else { 0 };
        return (given_out_if_any(class, object, size), false);
    }
    alloc_large(size.max(1), align, contents)
}

/// A large object. If it need not be aligned to more than a line it begins at any line of its first heap page; what is so
/// small that this does not matter has a page more for it.
fn alloc_large(size: usize, align: usize, contents: Contents) -> (*mut u8, bool) {
    let mut pages = size.div_ceil(HEAP_PAGE_BYTES);
    let mut lines = 1;
    if align <= LINE_BYTES {
        let mut rest = pages.saturating_mul(HEAP_PAGE_BYTES) - size;
        if rest < PAGE_BYTES && size < PAGE_MORE_TO {
            pages += 1;
            rest += HEAP_PAGE_BYTES;
        }
        lines = (rest / LINE_BYTES + 1).min(HEAP_PAGE_BYTES / LINE_BYTES);
    }
    let align_pages = align.div_ceil(HEAP_PAGE_BYTES);
    let object = heap::allocate_large(pages, align_pages, lines, contents);
    beside::see_to_background(beside::LOOK_EVERY);
    check::stepped();
    object.map_or((ptr::null_mut(), false), |(at, zeroed)| (at as *mut u8, zeroed))
}

/// Gives an object back. An address that is none ends the process, with a line
/// that says so.
///
/// # Safety
/// `object` is a live object of this allocator and not used any more.
#[inline(always)]
pub unsafe fn free(object: *mut u8) {
    let class = page_of(object as usize).class().load(Relaxed) as usize;
    let is_aligned = object.addr().is_multiple_of(MIN_ALIGN);
    if class.wrapping_sub(1) < CLASSES - 1 && is_aligned {
        return cache::push(class, begin_of(class, object as usize));
    }
    free_large(object as usize);
}

/// As [`free`], for small objects, when frees are not counted; false: nothing was done. Any address may be asked about.
///
/// # Safety
/// As for [`free`] if the address is one of this allocator.
#[inline(always)]
pub unsafe fn free_direct(object: *mut u8) -> bool {
    let Some(class) = map::class_of_direct(object as usize) else { return false };
    let begin = begin_if_small(class, object as usize);
    if begin == 0 {
        return false;
    }
    cache::push(class.into(), begin);
    true
}

/// Gives back an object that is not small, or says what is wrong with the address.
#[cold]
#[inline(never)]
fn free_large(object: usize) {
    let page = page_of(object);
    match page.class().load(Relaxed) {
        LARGE if page.large_object() == object => {
            heap::free_large(page);
            beside::see_to_kept();
            beside::step_now_and_then(beside::LOOK_EVERY);
        }
        _ => report::not_live("free", object),
    }
    check::stepped();
}

/// Bytes that an object may use.
///
/// # Safety
/// `object` is a live object of this allocator.
#[inline]
pub unsafe fn usable_size(object: *mut u8) -> usize {
    // SAFETY: passed on from the caller.
    unsafe { usable_size_in("malloc_usable_size", object) }
}

/// As [`usable_size`], in a call of that name: what is wrong with the address is said of it.
///
/// # Safety
/// As for [`usable_size`].
#[inline]
pub unsafe fn usable_size_in(call: &str, object: *mut u8) -> usize {
    let page = page_of(object as usize);
    let class = page.class().load(Relaxed) as usize;
    if class.wrapping_sub(1) < CLASSES - 1 {
        return CLASS[class].size as usize - (object.addr() - begin_of(class, object.addr()));
    }
    if class != LARGE as usize || page.large_object() != object as usize {
        report::not_live(call, object as usize);
    }
    page.large_bytes()
}

/// The object with a new size, aligned to 16: where it is if it fits and is not
/// much too large, else copied; null when there is no memory.
///
/// # Safety
/// As for [`free`]; if the result is not null, only that address is the object's.
pub unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: passed on from the caller.
    let usable = unsafe { usable_size_in("realloc", object) };
    if size <= usable && size >= usable / 2 {
        return object;
    }
    let grows_large = size > usable && size > SMALL_MAX;
    if grows_large && usable > SMALL_MAX {
        let page = page_of(object as usize);
        let end = size.saturating_add(page.large_offset());
        if heap::grow_large(page, end.div_ceil(HEAP_PAGE_BYTES)) {
            return object;
        }
    }
    // An object that grows once grows again: room that was not touched costs no memory.
    let room = size / GROWTH_PART;
    let room = if grows_large && limit::has_room(size.saturating_add(room)) { room } else { 0 };
    let mut moved = alloc(size.saturating_add(room));
    if moved.is_null() && room > 0 {
        moved = alloc(size);
    }
    if moved.is_null() {
        return if size <= usable { object } else { moved };
    }
    // SAFETY: both are live and distinct; the old one is given up.
    unsafe {
        ptr::copy_nonoverlapping(object, moved, usable.min(size));
        free(object);
    }
    moved
}

/// Gives back what processors, or the calling thread, have cached and then all empty pages; true
/// if pages went to the kernel.
pub fn trim() -> bool {
    cache::flush();
    transfer::flush();
    central::flush();
    let released = heap::release_all();
    check::stepped();
    released
}

/// Takes every lock of this room before a `fork`.
pub fn fork_prepare() {
    cache::fork_prepare();
    transfer::fork_prepare();
    central::fork_prepare();
    heap::fork_prepare();
}

/// Gives the locks back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe {
        heap::fork_done();
        central::fork_done();
        transfer::fork_done();
        cache::fork_done();
    }
}
