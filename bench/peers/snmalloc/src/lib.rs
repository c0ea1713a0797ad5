//! snmalloc as a library to preload.

use snmalloc_sys as _;

include!("../../export.rs");

mod peer {
    use core::ffi::{c_int, c_void};

    unsafe extern "C" {
        #[link_name = "sn_malloc"]
        pub fn malloc(size: usize) -> *mut c_void;
        #[link_name = "sn_calloc"]
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        #[link_name = "sn_realloc"]
        pub fn realloc(object: *mut c_void, size: usize) -> *mut c_void;
        #[link_name = "sn_free"]
        pub fn free(object: *mut c_void);
        #[link_name = "sn_malloc_usable_size"]
        pub fn malloc_usable_size(object: *mut c_void) -> usize;
        #[link_name = "sn_rust_alloc"]
        fn aligned(alignment: usize, size: usize) -> *mut c_void;
    }

    const PAGE: usize = 4096;

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn memalign(alignment: usize, size: usize) -> *mut c_void {
        // SAFETY: the alignment is a power of two by the caller's promise, and not zero.
        unsafe { aligned(alignment, size.max(1)) }
    }

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
        // SAFETY: the caller's promise is the same.
        unsafe { memalign(alignment, size) }
    }

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
        const EINVAL: c_int = 22;
        const ENOMEM: c_int = 12;
        if !alignment.is_power_of_two() || alignment < size_of::<usize>() {
            return EINVAL;
        }
        // SAFETY: the alignment was checked above.
        let object = unsafe { memalign(alignment, size) };
        if object.is_null() {
            return ENOMEM;
        }
        // SAFETY: `place` is writable by the caller's promise.
        unsafe { place.write(object) };
        0
    }

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn valloc(size: usize) -> *mut c_void {
        // SAFETY: a page is a valid alignment.
        unsafe { memalign(PAGE, size) }
    }

    /// # Safety
    /// As for the C function of this name.
    pub unsafe fn pvalloc(size: usize) -> *mut c_void {
        match size.checked_next_multiple_of(PAGE) {
            // SAFETY: a page is a valid alignment.
            Some(size) => unsafe { memalign(PAGE, size) },
            None => core::ptr::null_mut(),
        }
    }
}
