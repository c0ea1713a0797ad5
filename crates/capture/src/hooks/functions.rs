//! The functions behind `__tsan_write1` to `__tsan_write16`, `__tsan_unaligned_write2` to `16`, `__tsan_write_range` and
//! `__tsan_vptr_update` (LLVM, `compiler-rt/lib/tsan/rtl/tsan_interface.h`). They note an address and access nothing there.
//!
//! The volatile and the compound forms (`__tsan_volatile_write4`, `__tsan_read_write8`) note as the plain ones do. Hooks of loads, of
//! function entries and of exits note nothing, and need no function here.

use core::ffi::c_void;

use super::wrote;

macro_rules! writes {
    ($($name:ident $unaligned:ident $bytes:literal)*) => {$(
        #[doc = concat!("A store of ", $bytes, " bytes.")]
        #[inline(always)]
        pub fn $name(at: *const c_void) {
            wrote(at as usize, $bytes);
        }

        #[doc = concat!("A store of ", $bytes, " bytes at any address.")]
        #[inline(always)]
        pub fn $unaligned(at: *const c_void) {
            wrote(at as usize, $bytes);
        }
    )*};
}

writes! {
    write1 unaligned_write1 1
    write2 unaligned_write2 2
    write4 unaligned_write4 4
    write8 unaligned_write8 8
    write16 unaligned_write16 16
}

/// Stores to a range.
#[inline(always)]
pub fn write_range(at: *const c_void, bytes: usize) {
    wrote(at as usize, bytes);
}

/// A store of an object's pointer to its virtual functions.
#[inline(always)]
pub fn vptr_update(at: *const *const c_void, _: *const c_void) {
    wrote(at as usize, size_of::<*const c_void>());
}
