//! A stack of addresses of free objects, of one class.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::class::CLASSES;

/// Bytes that processors pass to and fro.
const LINE_BYTES: usize = 64;

/// It is empty where `top` is `bottom`, and full where it is `limit`. Assembly
/// knows this layout.
#[repr(C)]
pub struct Stack {
    pub top: *mut usize,
    pub bottom: *mut usize,
    pub limit: *mut usize,
    /// Objects that the next refill asks for: doubles from few, so that whoever
    /// needs one object does not hold a span's worth.
    refill: AtomicU32,
}

impl Stack {
    /// One that is empty and full.
    pub const fn none() -> Self {
        let nowhere = ptr::null_mut();
        Self { top: nowhere, bottom: nowhere, limit: nowhere, refill: AtomicU32::new(0) }
    }

    /// An empty one with room for so many objects from `slot` on.
    fn new(slot: *mut usize, slots: usize) -> Self {
        Self { top: slot, bottom: slot, limit: slot.wrapping_add(slots), refill: AtomicU32::new(0) }
    }

    /// Lays stacks out one behind the other from `slot` on, with so many slots each; none
    /// for class 0.
    ///
    /// # Safety
    /// `stacks` may be written to, and there is room for all slots.
    pub unsafe fn lay_out(
        stacks: *mut [Self; CLASSES],
        mut slot: *mut usize,
        slots: &[usize; CLASSES],
    ) {
        for (class, count) in slots.iter().copied().enumerate().skip(1) {
            // SAFETY: promised by the caller.
            unsafe {
                stacks.cast::<Self>().add(class).write(Self::new(slot, count));
                slot = slot.add(count);
            }
        }
    }

    /// How many objects of `size` bytes the next refill of a stack asks for, up to `most`: at
    /// least a cache line of them, or neighbours would be handed to threads that write to them
    /// at the same time.
    ///
    /// # Safety
    /// There is such a stack. Others may change its top meanwhile.
    pub unsafe fn next_refill(stack: *const Self, size: usize, most: usize) -> usize {
        // SAFETY: promised by the caller; the count is atomic, and nothing else is looked at.
        let refill = unsafe { &(*stack).refill };
        let least = (LINE_BYTES / size).max(1);
        let wanted = (refill.load(Relaxed) as usize).max(least).min(most);
        refill.store(2 * wanted as u32, Relaxed);
        wanted
    }

    /// Refills begin anew with few objects.
    pub fn forget_refills(&mut self) {
        *self.refill.get_mut() = 0;
    }

    /// Objects in a stack; while others use it, some number that was true a moment ago.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn count(stack: *const Self) -> usize {
        // SAFETY: promised by the caller; each is one word, and only the top changes.
        let (top, bottom) = unsafe { ((&raw const (*stack).top).read_volatile(), (*stack).bottom) };
        (top as usize).wrapping_sub(bottom as usize) / size_of::<usize>()
    }
}
