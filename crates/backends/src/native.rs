//! Our own general-purpose allocator: see `spandrel-slabs`.

use spandrel_pages::AllocatorId;
use spandrel_slabs as slabs;

use crate::Backend;

pub use slabs::{
    figures as native_figures, measure_resident, set_release_rate, start_cpu_caches,
    watch_main_thread,
};

/// Size classes and caches over a hugepage-aware page heap.
pub enum Native {}

impl Native {
    /// Whether it has been started, and there was address space for it.
    pub fn is_started() -> bool {
        slabs::is_started()
    }

    /// As `alloc`, if such an object is cached; else null. Quick.
    ///
    /// # Safety
    /// `size` is at most [`Self::SMALL_MAX`].
    #[inline(always)]
    pub unsafe fn alloc_cached_small(size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { slabs::alloc_cached_small(size) }
    }

    /// The same for requests that are not small; null for those that are.
    #[inline(always)]
    pub fn alloc_cached_larger(size: usize) -> *mut u8 {
        slabs::alloc_cached_larger(size)
    }

    /// The largest request that is small.
    pub const SMALL_MAX: usize = slabs::TABLE_MAX;

    /// As `alloc`, with a span of its own; see `spandrel_slabs::alloc_apart`.
    pub fn alloc_apart(size: usize) -> *mut u8 {
        slabs::alloc_apart(size)
    }

    /// As `alloc`, when no object is cached.
    pub fn alloc_uncached(size: usize) -> *mut u8 {
        slabs::alloc_uncached(size)
    }

    /// As `free`, for what is small, without a look at the owner; false: nothing was done, the address is another's or the
    /// object goes the long way.
    ///
    /// # Safety
    /// As for `free`, if the address is one of this allocator.
    #[inline(always)]
    pub unsafe fn free_direct(object: *mut u8) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { slabs::free_direct(object) }
    }

    /// As `free`, after [`free_direct`](Self::free_direct) has done nothing.
    ///
    /// # Safety
    /// As for `free`.
    #[inline(never)]
    pub unsafe fn free_seldom(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { slabs::free(object) }
    }
}

impl Backend for Native {
    const ID: AllocatorId = AllocatorId::Native;

    fn start() -> bool {
        slabs::start()
    }

    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        slabs::alloc(size)
    }

    #[inline]
    fn alloc_zeroed(size: usize) -> *mut u8 {
        slabs::alloc_zeroed(size)
    }

    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        slabs::alloc_aligned(align, size)
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        slabs::alloc_zeroed_aligned(align, size)
    }

    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { slabs::realloc(object, size) }
    }

    #[inline(always)]
    unsafe fn free(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { slabs::free(object) }
    }

    #[inline(always)]
    unsafe fn free_sized(object: *mut u8, _size: usize, _align: usize) {
        // An object that was shrunk in place has a larger class than its size
        // says; the page knows, one load away.
        // SAFETY: passed on from the caller.
        unsafe { slabs::free(object) }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { slabs::usable_size(object) }
    }

    unsafe fn size_to_resize(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { slabs::usable_size_in("realloc", object) }
    }

    fn trim() -> bool {
        slabs::trim()
    }
}
