//! google's tcmalloc as a library to preload.

use libtcmalloc_sys as _;

include!("../../export.rs");

mod peer {
    use core::ffi::{c_int, c_void};

    unsafe extern "C" {
        #[link_name = "TCMallocInternalMalloc"]
        pub fn malloc(size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalCalloc"]
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalRealloc"]
        pub fn realloc(object: *mut c_void, size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalFree"]
        pub fn free(object: *mut c_void);
        #[link_name = "TCMallocInternalMemalign"]
        pub fn memalign(alignment: usize, size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalAlignedAlloc"]
        pub fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalPosixMemalign"]
        pub fn posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
        #[link_name = "TCMallocInternalValloc"]
        pub fn valloc(size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalPvalloc"]
        pub fn pvalloc(size: usize) -> *mut c_void;
        #[link_name = "TCMallocInternalMallocSize"]
        pub fn malloc_usable_size(object: *mut c_void) -> usize;
    }
}
