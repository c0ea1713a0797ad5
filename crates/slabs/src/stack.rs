//! A stack of addresses of free objects, of one class.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

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
    pub fn new(slot: *mut usize, slots: usize) -> Self {
        Self { top: slot, bottom: slot, limit: slot.wrapping_add(slots), refill: AtomicU32::new(0) }
    }

    /// How many objects of `size` bytes the next refill asks for, up to `most`: at least
    /// a cache line of them, or neighbours would be handed to threads that write to them
    /// at the same time.
    pub fn next_refill(&self, size: usize, most: usize) -> usize {
        let least = (LINE_BYTES / size).max(1);
        let wanted = (self.refill.load(Relaxed) as usize).max(least).min(most);
        self.refill.store(2 * wanted as u32, Relaxed);
        wanted
    }

    /// Refills begin anew with one object.
    pub fn forget_refills(&self) {
        self.refill.store(0, Relaxed);
    }
}
