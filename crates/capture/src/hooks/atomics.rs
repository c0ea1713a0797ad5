//! The functions behind `__tsan_atomic8_*` to `__tsan_atomic128_*`: the compiler leaves the operation to them
//! (LLVM, `compiler-rt/include/sanitizer/tsan_interface_atomic.h`).
//!
//! Each has the order as C has it. All orders of an operation that loads and stores are one instruction with a lock prefix on x86-64, so that
//! these are sequentially consistent whatever the order; stores and fences heed it. An exchange notes if it has stored. 16 bytes have one
//! instruction, `cmpxchg16b`: all operations are loops around it, loads among them, which need writable memory for that.

use core::arch::asm;
use core::ffi::c_int;
use core::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*, compiler_fence, fence,
};

use super::wrote;

/// `memory_order_seq_cst`.
const SEQ_CST: c_int = 5;

macro_rules! common {
    ($int:ty) => {
        /// A sum, modulo the integer's range. Returns the value before.
        ///
        /// # Safety
        /// As for `store`.
        #[inline]
        pub unsafe fn fetch_add(at: *mut $int, value: $int, _: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { update(at, |before| before.wrapping_add(value)) }
        }

        /// A difference, modulo the integer's range. Returns the value before.
        ///
        /// # Safety
        /// As for `store`.
        #[inline]
        pub unsafe fn fetch_sub(at: *mut $int, value: $int, _: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { update(at, |before| before.wrapping_sub(value)) }
        }

        /// Returns the value before.
        ///
        /// # Safety
        /// As for `store`.
        #[inline]
        pub unsafe fn fetch_and(at: *mut $int, value: $int, _: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { update(at, |before| before & value) }
        }

        /// Returns the value before.
        ///
        /// # Safety
        /// As for `store`.
        #[inline]
        pub unsafe fn fetch_or(at: *mut $int, value: $int, _: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { update(at, |before| before | value) }
        }

        /// Returns the value before.
        ///
        /// # Safety
        /// As for `store`.
        #[inline]
        pub unsafe fn fetch_xor(at: *mut $int, value: $int, _: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { update(at, |before| before ^ value) }
        }

        /// Returns the value before.
        ///
        /// # Safety
        /// As for `store`.
        #[inline]
        pub unsafe fn fetch_nand(at: *mut $int, value: $int, _: c_int) -> $int {
            // SAFETY: passed on from the caller.
            unsafe { update(at, |before| !(before & value)) }
        }

        /// Stores `value` if `expected` has the value that is there, and else the value that is there in `expected`. Strong: also for the
        /// function of the weak form.
        ///
        /// # Safety
        /// As for `store`; `expected` can be read and written.
        #[inline]
        pub unsafe fn compare_exchange(
            at: *mut $int,
            expected: *mut $int,
            value: $int,
            success: c_int,
            failure: c_int,
        ) -> bool {
            // SAFETY: passed on from the caller.
            unsafe {
                let wanted = expected.read();
                let before = compare_exchange_val(at, wanted, value, success, failure);
                if before != wanted {
                    wrote(expected as usize, size_of::<$int>());
                    expected.write(before);
                }
                before == wanted
            }
        }
    };
}

macro_rules! width {
    ($module:ident $int:ty, $atomic:ty) => {
        #[doc = concat!("`", stringify!($int), "`.")]
        pub mod $module {
            use super::*;

            /// A load.
            ///
            /// # Safety
            /// `at` can be read, and is aligned.
            #[inline]
            pub unsafe fn load(at: *const $int, order: c_int) -> $int {
                // SAFETY: passed on from the caller. A load writes nothing.
                let at = unsafe { <$atomic>::from_ptr(at.cast_mut()) };
                at.load(if order == SEQ_CST { SeqCst } else { Acquire })
            }

            /// A store.
            ///
            /// # Safety
            /// `at` can be read and written, and is aligned.
            #[inline]
            pub unsafe fn store(at: *mut $int, value: $int, order: c_int) {
                wrote(at as usize, size_of::<$int>());
                // SAFETY: passed on from the caller.
                let at = unsafe { <$atomic>::from_ptr(at) };
                at.store(value, if order == SEQ_CST { SeqCst } else { Release });
            }

            /// A store. Returns the value before.
            ///
            /// # Safety
            /// As for `store`.
            #[inline]
            pub unsafe fn exchange(at: *mut $int, value: $int, _: c_int) -> $int {
                wrote(at as usize, size_of::<$int>());
                // SAFETY: passed on from the caller.
                unsafe { <$atomic>::from_ptr(at) }.swap(value, SeqCst)
            }

            /// Stores `value` if the value that is there is `expected`. Returns the value before.
            ///
            /// # Safety
            /// As for `store`.
            #[inline]
            pub unsafe fn compare_exchange_val(
                at: *mut $int,
                expected: $int,
                value: $int,
                _: c_int,
                _: c_int,
            ) -> $int {
                // SAFETY: passed on from the caller.
                let atomic = unsafe { <$atomic>::from_ptr(at) };
                match atomic.compare_exchange(expected, value, SeqCst, SeqCst) {
                    Ok(before) => {
                        wrote(at as usize, size_of::<$int>());
                        before
                    }
                    Err(before) => before,
                }
            }

            // SAFETY: as for `store`.
            #[inline(always)]
            unsafe fn update(at: *mut $int, new: impl Fn($int) -> $int) -> $int {
                wrote(at as usize, size_of::<$int>());
                // SAFETY: passed on from the caller.
                let at = unsafe { <$atomic>::from_ptr(at) };
                let mut before = at.load(Relaxed);
                while let Err(now) = at.compare_exchange_weak(before, new(before), SeqCst, Relaxed)
                {
                    before = now;
                }
                before
            }

            common!($int);
        }
    };
}

width!(of8 u8, AtomicU8);
width!(of16 u16, AtomicU16);
width!(of32 u32, AtomicU32);
width!(of64 u64, AtomicU64);

/// `u128`.
pub mod of128 {
    use super::*;

    // SAFETY: `at` can be read and written, and is aligned to 16 bytes.
    unsafe fn swap_if(at: *mut u128, expected: u128, value: u128) -> u128 {
        let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
        // SAFETY: passed on from the caller. The compiler keeps `rbx` for itself: it has the low half of the value for the one instruction.
        unsafe {
            asm!(
                "xchg {half}, rbx",
                "lock cmpxchg16b [{at}]",
                "mov rbx, {half}",
                half = inout(reg) value as u64 => _,
                at = in(reg) at,
                in("rcx") (value >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        u128::from(high) << 64 | u128::from(low)
    }

    /// A load.
    ///
    /// # Safety
    /// As for `store`.
    pub unsafe fn load(at: *const u128, _: c_int) -> u128 {
        // SAFETY: passed on from the caller. Where zero is exchanged for zero nothing changes.
        unsafe { swap_if(at.cast_mut(), 0, 0) }
    }

    /// A store.
    ///
    /// # Safety
    /// `at` can be read and written, and is aligned.
    pub unsafe fn store(at: *mut u128, value: u128, _: c_int) {
        // SAFETY: passed on from the caller.
        unsafe { update(at, |_| value) };
    }

    /// A store. Returns the value before.
    ///
    /// # Safety
    /// As for `store`.
    pub unsafe fn exchange(at: *mut u128, value: u128, _: c_int) -> u128 {
        // SAFETY: passed on from the caller.
        unsafe { update(at, |_| value) }
    }

    /// Stores `value` if the value that is there is `expected`. Returns the value before.
    ///
    /// # Safety
    /// As for `store`.
    pub unsafe fn compare_exchange_val(
        at: *mut u128,
        expected: u128,
        value: u128,
        _: c_int,
        _: c_int,
    ) -> u128 {
        // SAFETY: passed on from the caller.
        let before = unsafe { swap_if(at, expected, value) };
        if before == expected {
            wrote(at as usize, size_of::<u128>());
        }
        before
    }

    // SAFETY: as for `store`.
    unsafe fn update(at: *mut u128, new: impl Fn(u128) -> u128) -> u128 {
        wrote(at as usize, size_of::<u128>());
        let mut before = 0;
        loop {
            // SAFETY: passed on from the caller.
            let now = unsafe { swap_if(at, before, new(before)) };
            if now == before {
                return before;
            }
            before = now;
        }
    }

    common!(u128);
}

/// `__tsan_atomic_thread_fence`.
#[inline]
pub fn thread_fence(order: c_int) {
    match order {
        0 => {}
        SEQ_CST => fence(SeqCst),
        _ => fence(AcqRel),
    }
}

/// `__tsan_atomic_signal_fence`.
#[inline]
pub fn signal_fence(order: c_int) {
    if order != 0 {
        compiler_fence(SeqCst);
    }
}
