//! Loads and stores (LLVM, `compiler-rt/lib/tsan/rtl/tsan_interface.h`), and what a program of the sanitizer calls beside them.

use std::ffi::c_void;

use super::wrote;

macro_rules! stores {
    ($($name:ident $bytes:literal)*) => {$(
        #[doc = concat!("A store of ", $bytes, " bytes.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(at: *const c_void) {
            wrote(at as usize, $bytes);
        }
    )*};
}

stores! {
    __tsan_write1 1 __tsan_write2 2 __tsan_write4 4 __tsan_write8 8 __tsan_write16 16
    __tsan_unaligned_write2 2 __tsan_unaligned_write4 4 __tsan_unaligned_write8 8 __tsan_unaligned_write16 16
    __tsan_volatile_write1 1 __tsan_volatile_write2 2 __tsan_volatile_write4 4 __tsan_volatile_write8 8
    __tsan_volatile_write16 16 __tsan_unaligned_volatile_write2 2 __tsan_unaligned_volatile_write4 4
    __tsan_unaligned_volatile_write8 8 __tsan_unaligned_volatile_write16 16
    __tsan_read_write1 1 __tsan_read_write2 2 __tsan_read_write4 4 __tsan_read_write8 8 __tsan_read_write16 16
    __tsan_unaligned_read_write2 2 __tsan_unaligned_read_write4 4 __tsan_unaligned_read_write8 8
    __tsan_unaligned_read_write16 16
}

macro_rules! others {
    ($($name:ident($($argument:ty),*))*) => {$(
        /// Stores nothing.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $argument),*) {}
    )*};
}

others! {
    __tsan_init() __tsan_func_entry(*const c_void) __tsan_func_exit()
    __tsan_ignore_thread_begin() __tsan_ignore_thread_end()
    __tsan_read1(*const c_void) __tsan_read2(*const c_void) __tsan_read4(*const c_void) __tsan_read8(*const c_void)
    __tsan_read16(*const c_void) __tsan_unaligned_read2(*const c_void) __tsan_unaligned_read4(*const c_void)
    __tsan_unaligned_read8(*const c_void) __tsan_unaligned_read16(*const c_void)
    __tsan_volatile_read1(*const c_void) __tsan_volatile_read2(*const c_void) __tsan_volatile_read4(*const c_void)
    __tsan_volatile_read8(*const c_void) __tsan_volatile_read16(*const c_void)
    __tsan_unaligned_volatile_read2(*const c_void) __tsan_unaligned_volatile_read4(*const c_void)
    __tsan_unaligned_volatile_read8(*const c_void) __tsan_unaligned_volatile_read16(*const c_void)
    __tsan_read_range(*const c_void, usize) __tsan_vptr_read(*const c_void)
}

/// Stores to a range.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_write_range(at: *const c_void, bytes: usize) {
    wrote(at as usize, bytes);
}

/// A store of an object's pointer to its virtual functions.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_vptr_update(at: *const c_void, _: *const c_void) {
    wrote(at as usize, size_of::<*const c_void>());
}
