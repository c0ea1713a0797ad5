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
    #[inline(always)]
    pub fn alloc_cached(size: usize) -> *mut u8 {
        slabs::alloc_cached(size)
    }

    /// As `alloc`, for whom [`alloc_cached`](Self::alloc_cached) had none.
    pub fn alloc_uncached(size: usize) -> *mut u8 {
        slabs::alloc_uncached(size)
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
