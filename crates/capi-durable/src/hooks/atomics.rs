//! Atomic operations (LLVM, `compiler-rt/include/sanitizer/tsan_interface_atomic.h`).

use std::ffi::c_int;

use spandrel_capture::hooks::atomics;

macro_rules! width {
    ($of:ident $int:ty: $load:ident $store:ident $exchange:ident $strong:ident $weak:ident $val:ident
     $($fetch:ident $operation:ident)*) => {
        /// A load.
        ///
        /// # Safety
        /// `at` can be read and written, and is aligned.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $load(at: *const $int, order: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { atomics::$of::load(at, order) }
        }

        /// A store.
        ///
        /// # Safety
        /// `at` can be read and written, and is aligned.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $store(at: *mut $int, value: $int, order: c_int) {
            // SAFETY: passed on from the caller.
            unsafe { atomics::$of::store(at, value, order) }
        }

        /// A store. Returns the value before.
        ///
        /// # Safety
        /// `at` can be read and written, and is aligned.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $exchange(at: *mut $int, value: $int, order: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { atomics::$of::exchange(at, value, order) }
        }

        /// Stores `value` if `expected` has the value that is there, and else the value that is there in `expected`.
        ///
        /// # Safety
        /// `at` can be read and written, and is aligned; `expected` can be read and written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $strong(
            at: *mut $int,
            expected: *mut $int,
            value: $int,
            success: c_int,
            failure: c_int,
        ) -> c_int {
            // SAFETY: passed on from the caller.
            unsafe { atomics::$of::compare_exchange(at, expected, value, success, failure) }.into()
        }

        /// The same.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $weak(
            at: *mut $int,
            expected: *mut $int,
            value: $int,
            success: c_int,
            failure: c_int,
        ) -> c_int {
            // SAFETY: passed on from the caller.
            unsafe { atomics::$of::compare_exchange(at, expected, value, success, failure) }.into()
        }

        /// Stores `value` if the value that is there is `expected`. Returns the value before.
        ///
        /// # Safety
        /// `at` can be read and written, and is aligned.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $val(
            at: *mut $int,
            expected: $int,
            value: $int,
            success: c_int,
            failure: c_int,
        ) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { atomics::$of::compare_exchange_val(at, expected, value, success, failure) }
        }

        $(
            /// Returns the value before.
            ///
            /// # Safety
            /// `at` can be read and written, and is aligned.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fetch(at: *mut $int, value: $int, order: c_int) -> $int {
                // SAFETY: passed on from the caller.
                unsafe { atomics::$of::$operation(at, value, order) }
            }
        )*
    };
}

width! {
    of8 u8: __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange
    __tsan_atomic8_compare_exchange_strong __tsan_atomic8_compare_exchange_weak
    __tsan_atomic8_compare_exchange_val
    __tsan_atomic8_fetch_add fetch_add
    __tsan_atomic8_fetch_sub fetch_sub
    __tsan_atomic8_fetch_and fetch_and
    __tsan_atomic8_fetch_or fetch_or
    __tsan_atomic8_fetch_xor fetch_xor
    __tsan_atomic8_fetch_nand fetch_nand
}
width! {
    of16 u16: __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange
    __tsan_atomic16_compare_exchange_strong __tsan_atomic16_compare_exchange_weak
    __tsan_atomic16_compare_exchange_val
    __tsan_atomic16_fetch_add fetch_add
    __tsan_atomic16_fetch_sub fetch_sub
    __tsan_atomic16_fetch_and fetch_and
    __tsan_atomic16_fetch_or fetch_or
    __tsan_atomic16_fetch_xor fetch_xor
    __tsan_atomic16_fetch_nand fetch_nand
}
width! {
    of32 u32: __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange
    __tsan_atomic32_compare_exchange_strong __tsan_atomic32_compare_exchange_weak
    __tsan_atomic32_compare_exchange_val
    __tsan_atomic32_fetch_add fetch_add
    __tsan_atomic32_fetch_sub fetch_sub
    __tsan_atomic32_fetch_and fetch_and
    __tsan_atomic32_fetch_or fetch_or
    __tsan_atomic32_fetch_xor fetch_xor
    __tsan_atomic32_fetch_nand fetch_nand
}
width! {
    of64 u64: __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange
    __tsan_atomic64_compare_exchange_strong __tsan_atomic64_compare_exchange_weak
    __tsan_atomic64_compare_exchange_val
    __tsan_atomic64_fetch_add fetch_add
    __tsan_atomic64_fetch_sub fetch_sub
    __tsan_atomic64_fetch_and fetch_and
    __tsan_atomic64_fetch_or fetch_or
    __tsan_atomic64_fetch_xor fetch_xor
    __tsan_atomic64_fetch_nand fetch_nand
}
width! {
    of128 u128: __tsan_atomic128_load __tsan_atomic128_store __tsan_atomic128_exchange
    __tsan_atomic128_compare_exchange_strong __tsan_atomic128_compare_exchange_weak
    __tsan_atomic128_compare_exchange_val
    __tsan_atomic128_fetch_add fetch_add
    __tsan_atomic128_fetch_sub fetch_sub
    __tsan_atomic128_fetch_and fetch_and
    __tsan_atomic128_fetch_or fetch_or
    __tsan_atomic128_fetch_xor fetch_xor
    __tsan_atomic128_fetch_nand fetch_nand
}

/// A fence between threads.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_thread_fence(order: c_int) {
    atomics::thread_fence(order);
}

/// A fence between a thread and its handlers of signals.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_signal_fence(order: c_int) {
    atomics::signal_fence(order);
}
