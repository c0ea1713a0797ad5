//! A stack of addresses of free objects, of one class.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::check::{Fault, ensure};
use crate::class::CLASSES;

/// Bytes that processors pass to and fro.
const LINE_BYTES: usize = 64;

/// Refills that come sooner are worth more objects, and those that come later fewer. One takes less
/// than a microsecond: the first of these makes that two thousandths of the time.
const SOON_US: u32 = 500;
/// See [`SOON_US`].
const LATE_US: u32 = 4000;

/// Marks a stack in `Stack::refill` that has ebbed since the last flood.
const EBBED: u32 = 1 << 31;
/// Marks one whose last flood came long after the one before.
const SELDOM: u32 = 1 << 30;
const MARKS: u32 = EBBED | SELDOM;

/// It is empty where `top` is `bottom`, and full where it is `limit`. Assembly
/// knows this layout.
#[repr(C)]
pub struct Stack {
    pub top: *mut usize,
    pub bottom: *mut usize,
    pub limit: *mut usize,
    /// Objects that the next refill asks for: doubles from few while refills come soon after each
    /// other, so that a thread that needs one object does not hold a span's worth.
    refill: AtomicU32,
    /// When the last one was, in microseconds.
    refilled: AtomicU32,
}

impl Stack {
    /// One that is empty and full.
    pub const fn none() -> Self {
        let nowhere = ptr::null_mut();
        let (refill, refilled) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { top: nowhere, bottom: nowhere, limit: nowhere, refill, refilled }
    }

    /// An empty one with room for this number of objects from `slot` on.
    fn new(slot: *mut usize, slots: usize) -> Self {
        Self { top: slot, bottom: slot, limit: slot.wrapping_add(slots), ..Self::none() }
    }

    /// Lays stacks out one behind the other from `slot` on, with this number of slots each; none
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

    /// How many objects of `size` bytes a refill of a stack at `now`, in microseconds, asks for, up
    /// to `most`: at least a cache line of them, or neighbours would be handed to threads that write
    /// to them at the same time.
    ///
    /// # Safety
    /// There is such a stack. Others may change its top meanwhile.
    pub unsafe fn next_refill(stack: *const Self, now: u32, size: usize, most: usize) -> usize {
        // SAFETY: promised by the caller; both are atomic, and nothing else is looked at.
        let (refill, refilled) = unsafe { (&(*stack).refill, &(*stack).refilled) };
        let since = now.wrapping_sub(refilled.load(Relaxed));
        refilled.store(now, Relaxed);
        let value = refill.load(Relaxed);
        let last = (value & !MARKS) as usize;
        let next = match since {
            ..SOON_US => 2 * last,
            SOON_US..LATE_US => last,
            _ => last / 2,
        };
        let least = (LINE_BYTES / size).max(1);
        let wanted = next.max(least).min(most);
        refill.store(wanted as u32 | value & MARKS, Relaxed);
        wanted
    }

    /// A stack was empty, and so was what lies between it and the spans.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn note_ebb(stack: *const Self) {
        // SAFETY: promised by the caller; it is atomic, and nothing else is looked at.
        unsafe { (*stack).refill.fetch_or(EBBED, Relaxed) };
    }

    /// Whether a stack has ebbed since the last flood.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn has_ebbed(stack: *const Self) -> bool {
        // SAFETY: promised by the caller; it is atomic, and nothing else is looked at.
        unsafe { (*stack).refill.load(Relaxed) & EBBED != 0 }
    }

    /// A stack is full, and so is what lies between it and the spans.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn note_flood(stack: *const Self) {
        // SAFETY: promised by the caller; it is atomic, and nothing else is looked at.
        unsafe { (*stack).refill.fetch_and(!EBBED, Relaxed) };
    }

    /// Notes whether the last flood came long after the one before.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn note_seldom(stack: *const Self, seldom: bool) {
        // SAFETY: promised by the caller; it is atomic, and nothing else is looked at.
        let refill = unsafe { &(*stack).refill };
        if seldom {
            refill.fetch_or(SELDOM, Relaxed);
        } else {
            refill.fetch_and(!SELDOM, Relaxed);
        }
    }

    /// What [`Self::note_seldom`] noted last.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn floods_seldom(stack: *const Self) -> bool {
        // SAFETY: promised by the caller; it is atomic, and nothing else is looked at.
        unsafe { (*stack).refill.load(Relaxed) & SELDOM != 0 }
    }

    /// An empty stack is as large as it was in the beginning, and refills begin with few objects.
    ///
    /// # Safety
    /// No other thread takes from the stack or puts there. Others may ask how many objects a refill takes, or note
    /// ebb and flood.
    pub unsafe fn begin_anew(stack: *mut Self, slots: usize) {
        // SAFETY: promised by the caller; what others may be at is atomic.
        unsafe {
            (*stack).limit = (*stack).bottom.wrapping_add(slots);
            (*stack).refill.store(0, Relaxed);
        }
    }

    /// Objects for which a stack has room; some number if another thread changes its ends meanwhile.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn slots(stack: *const Self) -> usize {
        // SAFETY: promised by the caller; each is one word.
        let (bottom, limit) = unsafe {
            (
                (&raw const (*stack).bottom).read_volatile(),
                (&raw const (*stack).limit).read_volatile(),
            )
        };
        (limit as usize).wrapping_sub(bottom as usize) / size_of::<usize>()
    }

    /// Microseconds since the last refill.
    ///
    /// # Safety
    /// As for [`Self::next_refill`].
    pub unsafe fn since_refill(stack: *const Self, now: u32) -> u32 {
        // SAFETY: promised by the caller; it is atomic, and nothing else is looked at.
        now.wrapping_sub(unsafe { &(*stack).refilled }.load(Relaxed))
    }

    /// Gives a stack room for more objects; others may push meanwhile.
    ///
    /// # Safety
    /// As for [`Self::slots`], and there is this number of slots, no fewer than before.
    pub unsafe fn set_slots(stack: *mut Self, slots: usize) {
        // SAFETY: promised by the caller; the limit is one word.
        unsafe {
            let limit = (*stack).bottom.wrapping_add(slots);
            (&raw mut (*stack).limit).write_volatile(limit);
        }
    }

    /// Moves a stack to other slots, of which there are no fewer.
    ///
    /// # Safety
    /// No thread uses the stack, and the slots are not in use.
    pub unsafe fn move_to(stack: *mut Self, slots: *mut usize) {
        // SAFETY: promised by the caller.
        unsafe {
            let (count, room) = (Self::count(stack), Self::slots(stack));
            slots.copy_from_nonoverlapping((*stack).bottom, count);
            (*stack).bottom = slots;
            (*stack).top = slots.add(count);
            (*stack).limit = slots.add(room);
        }
    }

    /// Whether the ends of a stack, which has room for up to `room` objects, can be; shows each object.
    ///
    /// # Errors
    /// What is not as it should be, or that of the caller.
    ///
    /// # Safety
    /// No other thread uses the stack.
    pub unsafe fn visit(
        stack: *const Self,
        room: usize,
        mut object: impl FnMut(usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // SAFETY: promised by the caller.
        let (first, top, limit) = unsafe { ((*stack).bottom, (*stack).top, (*stack).limit) };
        let bottom = first as usize;
        ensure(bottom, first <= top && top <= limit, "the ends of a stack")?;
        // SAFETY: as above.
        ensure(bottom, unsafe { Self::slots(stack) } <= room, "a stack beyond its room")?;
        // SAFETY: as above; what lies below the top are objects.
        let objects = unsafe { core::slice::from_raw_parts(first, Self::count(stack)) };
        objects.iter().try_for_each(|at| object(*at))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_are_as_large_as_they_are_frequent() {
        let stack = Stack::none();
        // SAFETY: the test's own stack.
        let refill = |now, size| unsafe { Stack::next_refill(&raw const stack, now, size, 128) };
        let start = u32::MAX - 100;
        assert_eq!(refill(start, 16), 4, "a cache line of them");
        assert_eq!(refill(start.wrapping_add(SOON_US - 1), 16), 8, "the clock has wrapped");
        assert_eq!(refill(1000, 16), 8);
        assert_eq!(refill(1001, 16), 16);
        let sizes: [usize; 5] = core::array::from_fn(|at| refill(1002 + at as u32, 16));
        assert_eq!(sizes, [32, 64, 128, 128, 128]);
        assert_eq!(refill(1006 + LATE_US, 16), 64);
        assert_eq!(refill(2000 + 2 * LATE_US, 1000), 32);
    }

    #[test]
    fn a_stack_ebbs_until_it_floods() {
        let stack = Stack::none();
        let stack = &raw const stack;
        // SAFETY: the test's own stack.
        unsafe {
            let refill = || Stack::next_refill(stack, 0, 16, 128);
            assert_eq!((refill(), Stack::has_ebbed(stack)), (4, false));
            Stack::note_ebb(stack);
            assert_eq!((refill(), Stack::has_ebbed(stack)), (8, true));
            Stack::note_flood(stack);
            assert_eq!((refill(), Stack::has_ebbed(stack)), (16, false));
        }
    }
}
