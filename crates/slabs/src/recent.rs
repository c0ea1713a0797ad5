//! Where the objects that were given back lately lie in a cache: one that is given back again while it
//! is there is found, without a mark in the object and whatever came between.
//!
//! A table has the slot that an object was put into, by a hash of its address. Nothing is taken out of
//! the table: an object lies in its slot still if the slot is below the top of the object's stack and
//! holds the object's address.

use core::ptr;

/// Objects that are remembered, at most. Of those that are freed twice with `n` others between, about
/// `(1 - 1/256)^n` are found: 96 of 100 after ten others, 68 after a hundred.
const ENTRIES: usize = 1 << (u32::BITS - SHIFT);
/// Fibonacci hashing (Knuth, TAOCP 3, section 6.4) of the lower half of the address: 2^32 divided by the
/// golden ratio. It scatters objects that lie side by side, whatever their size.
pub const MULTIPLIER: i32 = 0x9E37_79B1_u32 as i32;
/// What of the product is not the entry's number.
pub const SHIFT: u32 = 24;

/// The table of one cache. Assembly knows this layout.
#[repr(transparent)]
pub struct Recent([*mut usize; ENTRIES]);

impl Recent {
    /// One for a cache that nothing is put into.
    pub const fn none() -> Self {
        Self([ptr::null_mut(); ENTRIES])
    }

    /// Makes a table empty.
    ///
    /// # Safety
    /// It may be written to, and at `never` is a word that is no object's address, ever.
    pub unsafe fn begin(recent: *mut Self, never: *mut usize) {
        for at in 0..ENTRIES {
            // SAFETY: promised by the caller.
            unsafe { recent.cast::<*mut usize>().add(at).write(never) };
        }
    }

    /// The entry for an object.
    ///
    /// # Safety
    /// There is such a table.
    #[inline(always)]
    pub unsafe fn entry(recent: *mut Self, object: usize) -> *mut *mut usize {
        let number = (object as u32).wrapping_mul(MULTIPLIER as u32) >> SHIFT;
        // SAFETY: as many entries as there are such numbers.
        unsafe { recent.cast::<*mut usize>().add(number as usize) }
    }

    /// Whether an object that is to be put at `top` seems to lie in a slot below it. It does if that slot
    /// is of the same stack.
    ///
    /// # Safety
    /// The entry is of a table that was begun and holds slots, which are there for good.
    #[inline(always)]
    pub unsafe fn seems_cached(slot: *mut usize, top: *mut usize, object: usize) -> bool {
        // SAFETY: promised by the caller; it is one word.
        slot < top && unsafe { slot.read_volatile() } == object
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::class::CLASS;

    #[test]
    fn neighbours_have_entries_of_their_own() {
        let mut recent = Recent::none();
        for size in CLASS.iter().map(|class| class.size as usize).filter(|size| *size > 0) {
            let mut entries: Vec<_> = (0..64)
                // SAFETY: the test's own table.
                .map(|at| unsafe { Recent::entry(&mut recent, 0x7f12_3456_0000 + at * size) })
                .collect();
            entries.sort();
            entries.dedup();
            assert!(entries.len() > 32, "{} of 64 objects of {size} bytes", entries.len());
        }
    }

    #[test]
    fn what_is_no_longer_in_its_slot_or_above_the_top_is_not_cached() {
        let mut slots = [16, 32, 48];
        let slot = slots.as_mut_ptr();
        // SAFETY: the test's own slots.
        let seems =
            |at, top, object| unsafe { Recent::seems_cached(slot.add(at), slot.add(top), object) };
        assert!(seems(1, 3, 32));
        assert!(!seems(1, 1, 32), "taken since");
        assert!(!seems(1, 3, 64), "another lies there");
    }
}
