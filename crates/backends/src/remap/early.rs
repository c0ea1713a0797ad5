//! A slot from the first byte for objects that will grow.
//!
//! A small object that grows is copied into a slot when it comes to two pages. A
//! thread that has done so a few times expects the same of its next object of a
//! page or more: that one gets the slot at hand at once, and nothing is copied.
//!
//! An expectation is wrong if the object has not grown by the time the next one
//! would be given a slot. It is given up then, and comes back after twice as many
//! copies as it took before: a thread whose objects do not go on as they began has
//! one of them in a slot now and then, ever more seldom.

use core::ptr;
use core::sync::atomic::Ordering::*;

use spandrel_sync::thread_slot;

use super::layout::{SlotId, class_for};
use super::lists::{Want, pages_of};
use super::{REMAP, Remap};

/// Copies after which a thread expects the first time that its objects will grow.
const COPIES: u16 = 4;
/// Doublings of [`COPIES`] at most.
const MOST_MISSES: u8 = 13;
/// A slot is given if it has so many times the pages resident: as many as it would
/// have had for an object that grew twice.
const WORTH: usize = 4;

/// Copies that it takes after so many wrong expectations.
fn needed(misses: u8) -> u16 {
    COPIES << misses.min(MOST_MISSES)
}

/// Notes that an object of a page or more was copied to a slot because it grew.
/// Whether this thread expects that of its next one.
pub fn note_late() -> bool {
    let own = thread_slot();
    let wanted = own.early_wanted.get().saturating_add(1);
    own.early_wanted.set(wanted);
    wanted >= needed(own.early_misses.get())
}

/// The slot at hand for a new object of `size` bytes, a page at least, if this thread
/// expects it to grow; else null. The contents are arbitrary. Never waits.
pub fn alloc_early(size: usize) -> *mut u8 {
    let own = thread_slot();
    if own.early_wanted.get() < needed(own.early_misses.get()) || !REMAP.has_worthy(size) {
        return ptr::null_mut();
    }
    let last = SlotId::from_raw(own.early_slot.get().wrapping_sub(1));
    if last != SlotId::NONE && REMAP.was_wrong(last) {
        own.early_misses.set((own.early_misses.get() + 1).min(MOST_MISSES));
        own.early_wanted.set(0);
        own.early_slot.set(0);
        return ptr::null_mut();
    }
    let want = Want::Warm(pages_of(size));
    let taken = class_for(size).and_then(|class| REMAP.unpark(class, size, 1, want));
    let Some((place, _)) = taken else { return ptr::null_mut() };
    place.slot.early.store(1, Relaxed);
    own.early_slot.set(place.id.raw().wrapping_add(1));
    place.at
}

impl Remap {
    /// Whether the slot at hand is worth it for an object of `size` bytes. Another thread
    /// may take it before this one does.
    #[inline]
    fn has_worthy(&self, size: usize) -> bool {
        let seen = SlotId::from_raw(self.parked.load(Relaxed));
        seen != SlotId::NONE
            && self.place(seen).slot.touched.load(Relaxed) as usize >= WORTH * pages_of(size)
    }

    /// Whether the object that the slot holds, or held last, was expected to grow and
    /// never did.
    #[inline]
    fn was_wrong(&self, id: SlotId) -> bool {
        let slot = self.place(id).slot;
        slot.early.load(Relaxed) != 0 && slot.counter.load(Relaxed) == 0
    }
}
