// The plain malloc interface of one peer. Included by each peer's `lib.rs` after
// it has declared a module `peer` with these functions under these names.
//
// Only calls in tail position: each exported function is one jump.

use core::ffi::{c_int, c_void};

macro_rules! export {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library's interface.")]
        ///
        /// # Safety
        /// As the C standard, POSIX or the C library's manual says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: the peer's function has the same contract.
            unsafe { peer::$name($($arg),*) }
        }
    )*};
}

export! {
    malloc(size: usize) -> *mut c_void;
    calloc(count: usize, size: usize) -> *mut c_void;
    realloc(object: *mut c_void, size: usize) -> *mut c_void;
    free(object: *mut c_void);
    memalign(alignment: usize, size: usize) -> *mut c_void;
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    valloc(size: usize) -> *mut c_void;
    pvalloc(size: usize) -> *mut c_void;
    malloc_usable_size(object: *mut c_void) -> usize;
}
