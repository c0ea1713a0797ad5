//! The slot that was given back last, kept at hand.
//!
//! A program that takes and gives back a large object in a loop gets the same
//! slot each time, without the lists, the queue and the accounts: to them the
//! slot holds its object still. One slot, of a few mebibytes at most; it goes
//! the usual way when another takes its place and when a thread reads statistics
//! or cleans up.

use core::sync::atomic::Ordering::*;

use spandrel_pages::{MIB, PAGE_BYTES};
use spandrel_sync::exchange;

use super::colour;
use super::layout::SlotId;
use super::lists::{Want, pages_of};
use super::slot::{LIVE, PARKED};
use super::{Place, Remap};

/// Larger slots are not parked.
const MOST_PAGES: usize = 4 * MIB / PAGE_BYTES;
/// One in this many looks at the clock.
const LOOK_EVERY: u32 = 64;
/// No slot.
pub const NO_SLOT: u32 = SlotId::NONE.raw();

impl Remap {
    /// Parks an entered slot whose object is gone; it stays entered. False: it is
    /// too large, or part of it has been warm for longer.
    pub(super) fn park(&self, place: Place) -> bool {
        let slot = place.slot;
        let (pages, touched) =
            (pages_of(slot.used.load(Relaxed)), slot.touched.load(Relaxed) as usize);
        // A place in the queue means nothing where the object had most of the slot, as one that
        // grew into it: so it is in `release`.
        let is_old = slot.is_queued() && touched > 2 * pages;
        if touched > MOST_PAGES || is_old {
            return false;
        }
        slot.set_state(PARKED);
        let before = exchange(&self.parked, place.id.raw());
        if before != NO_SLOT {
            self.release(self.place(SlotId::from_raw(before)));
        }
        // Lost counts do not matter.
        let parks = self.parks.load(Relaxed).wrapping_add(1);
        self.parks.store(parks, Relaxed);
        if parks.is_multiple_of(LOOK_EVERY) {
            self.tick();
        }
        true
    }

    /// The parked slot, live again for an object of `size` bytes aligned to `align`,
    /// and how many bytes from its start may not be zero; `None` if there is none that suits.
    ///
    /// What is rare is called by the slot's number alone, so that nothing but registers is
    /// needed here.
    #[inline(always)]
    pub(super) fn unpark(
        &self,
        class: usize,
        size: usize,
        align: usize,
        want: Want,
    ) -> Option<(Place, usize)> {
        let seen = self.parked.load(Relaxed);
        // As the lists choose: not in a much larger class.
        let distance = SlotId::from_raw(seen).class().wrapping_sub(class);
        if seen == NO_SLOT || distance >= 3 || want == Want::Cold {
            return None;
        }
        let taken = SlotId::from_raw(exchange(&self.parked, NO_SLOT));
        if taken == SlotId::NONE {
            return None;
        }
        let place = self.place(taken);
        let slot = place.slot;
        let touched = slot.touched.load(Relaxed) as usize;
        let offset = colour::offset(taken, size, align, want, touched);
        let pages = pages_of(offset + size);
        let suits = touched >= pages
            && (touched <= 2 * pages || matches!(want, Want::Warm(_)))
            && place.at as usize & (align - 1) == 0
            // Another may be there by now.
            && taken.class() >= class;
        if !suits {
            self.release_parked(taken);
            return None;
        }
        let before = pages_of(slot.used.load(Relaxed));
        slot.used.store(offset + size, Relaxed);
        slot.set_offset(offset);
        slot.counter.store(0, Relaxed);
        slot.streak.store(0, Relaxed);
        slot.early.store(0, Relaxed);
        slot.reused.store(slot.reused.load(Relaxed).saturating_add(pages as u32), Relaxed);
        if pages != before {
            self.note_other_size(taken, before, pages);
        }
        slot.set_state(LIVE);
        slot.leave();
        Some((place, touched * PAGE_BYTES - offset))
    }

    /// The object in a parked slot has other pages than the one before.
    #[inline(never)]
    fn note_other_size(&self, id: SlotId, before: usize, pages: usize) {
        let place = self.place(id);
        let more = pages as i32 - before as i32;
        self.note(place, more, -more);
        self.queue_spare(place, pages);
    }

    #[cold]
    fn release_parked(&self, id: SlotId) {
        self.release(self.place(id));
    }

    /// Gives the parked slot, if there is one, back the usual way.
    pub(super) fn unpark_to_lists(&self) {
        if self.parked.load(Relaxed) == NO_SLOT {
            return;
        }
        let taken = exchange(&self.parked, NO_SLOT);
        if taken != NO_SLOT {
            self.release(self.place(SlotId::from_raw(taken)));
        }
    }
}
