//! The allocators behind one trait, each in slices of its own.
//!
//! Invariants: a pointer that a backend returns lies in that backend's slices
//! (for glibc: in none), so that the owner table alone finds its way back. A
//! backend never calls `malloc`; a hosted allocator gets its memory from its
//! slice because its system calls were redirected when it was built. Nothing
//! here panics; out of memory is null.
//!
//! This room must never know which requests it is given, or why.
#![no_std]

pub mod guarded;
#[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
mod hosted;
mod native;
pub mod remap;
mod reservations;
pub mod stack;
mod sys;
mod without_glibc;

use spandrel_os::budget;
use spandrel_pages::AllocatorId;

pub use guarded::Guarded;
#[cfg(feature = "jemalloc")]
pub use hosted::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use hosted::Mimalloc;
#[cfg(feature = "tcmalloc")]
pub use hosted::Tcmalloc;
pub use native::{
    Native, measure_resident, native_figures, set_release_rate, start_cpu_caches, watch_main_thread,
};
pub use reservations::{heed_limit, heed_limit_now_and_then, look_for_limits, open_sparingly};
pub use sys::{Sys, libc_function, register_atfork, resolve_early};

/// An allocator as the request handler sees it. All functions are associated:
/// a backend is a type without values, and a call to it is a direct call.
///
/// Sizes may be zero; every success is a pointer of its own. Alignments are
/// powers of two. Failure is null, and the object, if any, is as it was.
pub trait Backend {
    /// Which allocator it is.
    const ID: AllocatorId;

    /// Makes the allocator ready. Called before the first request to it, and
    /// again at will. False: it cannot be had here (there is no address space
    /// for it), and must not be called.
    fn start() -> bool {
        true
    }

    /// `size` bytes, aligned to 16.
    fn alloc(size: usize) -> *mut u8;

    /// `size` zero bytes, aligned to 16.
    fn alloc_zeroed(size: usize) -> *mut u8;

    /// `size` bytes, aligned to `align`.
    fn alloc_aligned(align: usize, size: usize) -> *mut u8;

    /// `size` zero bytes, aligned to `align`.
    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8;

    /// The object with a new size (not zero), aligned to 16.
    ///
    /// # Safety
    /// `object` is a live object of this backend; if the result is not null,
    /// only that address is the object's.
    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8;

    /// Gives an object back.
    ///
    /// # Safety
    /// `object` is a live object of this backend and not used any more.
    unsafe fn free(object: *mut u8);

    /// Gives back an object whose size and alignment are known.
    ///
    /// # Safety
    /// As for [`Backend::free`]; the object was requested with this size and
    /// alignment.
    unsafe fn free_sized(object: *mut u8, size: usize, align: usize);

    /// Bytes that the object may use; at least what was requested.
    ///
    /// # Safety
    /// `object` is a live object of this backend.
    unsafe fn usable_size(object: *mut u8) -> usize;

    /// As [`usable_size`](Self::usable_size), for a reallocation: ours say of that call what is wrong
    /// with the address.
    ///
    /// # Safety
    /// As for [`usable_size`](Self::usable_size).
    #[inline(always)]
    unsafe fn size_to_resize(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { Self::usable_size(object) }
    }

    /// Gives unused memory back to the kernel; true if there was any and the
    /// allocator tells.
    fn trim() -> bool;
}

/// The page-mapped backend; see [`remap`].
pub enum Remap {}

impl Backend for Remap {
    const ID: AllocatorId = AllocatorId::Mmap;

    fn start() -> bool {
        remap::start()
    }

    fn alloc(size: usize) -> *mut u8 {
        remap::alloc(size, 1)
    }

    fn alloc_zeroed(size: usize) -> *mut u8 {
        remap::alloc_zeroed(size, 1)
    }

    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        remap::alloc(size, align)
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        remap::alloc_zeroed(size, align)
    }

    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { remap::realloc(object, size) }
    }

    unsafe fn free(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { remap::free(object) }
    }

    unsafe fn free_sized(object: *mut u8, _size: usize, _align: usize) {
        // SAFETY: passed on from the caller.
        unsafe { remap::free(object) }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { remap::usable_size(object) }
    }

    unsafe fn size_to_resize(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { remap::usable_size_in("realloc", object) }
    }

    fn trim() -> bool {
        remap::trim()
    }
}

/// The program of one thread is about to fork: pages that it shares with a child stay so.
pub fn note_fork() {
    spandrel_slabs::note_fork();
}

/// Takes every lock of this room before a `fork`, hosted allocators' included.
pub fn fork_prepare() {
    #[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
    hosted::fork_prepare();
    guarded::fork_prepare();
    remap::fork_prepare();
    spandrel_slabs::fork_prepare();
}

/// Gives back what our own allocators keep for later, if that may make room for
/// a request of `size` bytes; false: it would not.
pub fn reclaim(size: usize) -> bool {
    // At a limit every byte counts, those in caches as well.
    let counts = budget::counts();
    let kept = || spandrel_slabs::idle_bytes() + remap::warm_bytes();
    if budget::can_never_be(size) || !counts && size > kept() {
        return false;
    }
    // Each is asked, whatever the other says.
    let any = Native::trim() | Remap::trim();
    // Another thread may have given back what was missing.
    any || counts
}

/// In the child of a `fork`, before anything else: forgets what was the parent's.
pub fn fork_forget() {
    remap::forget_counts();
    spandrel_slabs::fork_forget();
}

/// Resident bytes of what hosted allocators have mapped.
pub fn hosted_resident_bytes() -> usize {
    #[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
    return hosted::resident_bytes();
    #[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc")))]
    return 0;
}

/// Gives the locks back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork; `in_child` says
/// on which side it is.
pub unsafe fn fork_done(in_child: bool) {
    // SAFETY: passed on from the caller.
    unsafe {
        spandrel_slabs::fork_done();
        remap::fork_done();
        guarded::fork_done();
    }
    #[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
    // SAFETY: passed on from the caller.
    unsafe {
        hosted::fork_done(in_child);
    }
    #[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc")))]
    let _ = in_child;
}
