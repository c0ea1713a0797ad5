//! Instructions that write lines back: CLWB, which keeps them in the cache, where the processor has it, else CLFLUSHOPT or CLFLUSH.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _mm_sfence};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::line::{LINE_BYTES, lines};

/// The instruction that writes a line back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WriteBack {
    /// Writes back and keeps the line in the cache.
    Clwb = 1,
    /// Writes back and drops the line; ordered by fences only.
    Clflushopt = 2,
    /// The same, ordered among its like.
    Clflush = 3,
    /// Caches are part of what survives (eADR): nothing to be done but to keep the order.
    None = 4,
}

static CHOSEN: AtomicU8 = AtomicU8::new(0);

impl WriteBack {
    /// The best that the processor has. Whether caches survive a power failure no processor tells: the platform's
    /// owner does, by [`survive_in_caches`].
    pub fn of_processor() -> Self {
        match CHOSEN.load(Relaxed) {
            1 => Self::Clwb,
            2 => Self::Clflushopt,
            3 => Self::Clflush,
            4 => Self::None,
            _ => {
                let found = Self::find();
                CHOSEN.store(found as u8, Relaxed);
                found
            }
        }
    }

    /// CPUID leaf 7: bit 24 of EBX is CLWB, bit 23 CLFLUSHOPT (Intel SDM 2A, AMD APM 3).
    fn find() -> Self {
        if __cpuid(0).eax < 7 {
            return Self::Clflush;
        }
        let features = __cpuid_count(7, 0).ebx;
        match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => Self::Clwb,
            (_, 1) => Self::Clflushopt,
            _ => Self::Clflush,
        }
    }

    /// Its name in capitals, as manuals have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "CLWB",
            Self::Clflushopt => "CLFLUSHOPT",
            Self::Clflush => "CLFLUSH",
            Self::None => "none (caches survive)",
        }
    }
}

/// From now on nothing is written back, as the machine's caches survive a power failure.
pub fn survive_in_caches() {
    CHOSEN.store(WriteBack::None as u8, Relaxed);
}

/// Writes the lines of `len` bytes from `at` on back.
///
/// # Safety
/// They can be read.
#[inline]
pub unsafe fn write_back(at: *const u8, len: usize) {
    let how = WriteBack::of_processor();
    if how == WriteBack::None {
        return;
    }
    for line in lines(at as usize, len) {
        let line = line * LINE_BYTES;
        // SAFETY: promised by the caller; the instructions change no memory, and the processor has them.
        unsafe {
            match how {
                WriteBack::Clwb => {
                    asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                WriteBack::Clflushopt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
}

/// What was written back before is durable before what is stored after.
#[inline]
pub fn fence() {
    // SAFETY: every x86-64 processor has it.
    unsafe { _mm_sfence() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_back_changes_nothing() {
        let bytes = [7u8; 300];
        // SAFETY: they are there.
        unsafe { write_back(bytes.as_ptr(), bytes.len()) };
        fence();
        assert_eq!(bytes, [7; 300]);
        assert_ne!(WriteBack::of_processor(), WriteBack::None);
        assert!(WriteBack::of_processor().name().starts_with("CL"));
    }
}
