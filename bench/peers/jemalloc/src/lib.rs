//! jemalloc as a library to preload.

use tikv_jemalloc_sys as _;

include!("../../export.rs");

mod peer {
    use core::ffi::{c_int, c_void};

    unsafe extern "C" {
        #[link_name = "_rjem_malloc"]
        pub fn malloc(size: usize) -> *mut c_void;
        #[link_name = "_rjem_calloc"]
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        #[link_name = "_rjem_realloc"]
        pub fn realloc(object: *mut c_void, size: usize) -> *mut c_void;
        #[link_name = "_rjem_free"]
        pub fn free(object: *mut c_void);
        #[link_name = "_rjem_aligned_alloc"]
        pub fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        #[link_name = "_rjem_posix_memalign"]
        pub fn posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
        #[link_name = "_rjem_malloc_usable_size"]
        pub fn malloc_usable_size(object: *mut c_void) -> usize;
    }

    const PAGE: usize = 4096;

    /// jemalloc's `aligned_alloc` takes any size.
    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn memalign(alignment: usize, size: usize) -> *mut c_void {
        // SAFETY: the caller's promise is the same.
        unsafe { aligned_alloc(alignment, size) }
    }

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn valloc(size: usize) -> *mut c_void {
        // SAFETY: a page is a valid alignment.
        unsafe { aligned_alloc(PAGE, size) }
    }

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn pvalloc(size: usize) -> *mut c_void {
        // SAFETY: a page is a valid alignment; a size that wraps becomes the largest one and fails.
        unsafe { aligned_alloc(PAGE, size.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)) }
    }
}
