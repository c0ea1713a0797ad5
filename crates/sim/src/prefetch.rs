//! Hints to the processor. A simulation of millions of spans waits for memory most of its time;
//! what a batch of operations will look at is known before, and can be fetched side by side.

/// Fetches the line of an element, if there is such an element.
#[inline(always)]
pub(crate) fn element<T>(slice: &[T], at: usize) {
    if let Some(element) = slice.get(at) {
        line(std::ptr::from_ref(element).cast());
    }
}

/// Fetches the line at an address, which may be any.
#[inline(always)]
pub(crate) fn line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program could see, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
