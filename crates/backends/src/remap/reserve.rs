//! Giving reserved address space back, when a limit of it comes while the program runs.
//!
//! Slots have room to grow and are reserved in advance; a limit of the address space counts all of it. What
//! holds no object is given back then for good, and so is the room behind objects. Slots that are left are used as before;
//! none is opened further, as what lies behind it may be another's by then.

use core::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_pages::PAGE_BYTES;

use super::layout::{CLASSES, ROOM, SlotId};
use super::lists::pages_of;
use super::slot::LIVE;
use super::{PAGES_PER_HUGE, Place, Remap};

/// Whether slots are opened no further.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Room is given back behind this number of objects at most: each is a mapping apart from then on, and the kernel has
/// a limit of these (65,530).
const MOST_OBJECTS: usize = 16384;

pub(super) fn has_ended() -> bool {
    ENDED.load(Acquire)
}

impl Remap {
    /// Gives all address space back in which no object lies, as far as its owner is not at it just now.
    pub(super) fn give_back_reserve(&self) {
        if !self.ready.load(Acquire) {
            return;
        }
        self.trim_all();
        let _trimming = self.trimming.lock();
        let mut lists = self.lists.lock();
        let again = ENDED.swap(true, AcqRel);
        lists.give_back_empty(again);
        let frontiers = lists.frontiers();
        drop(lists);
        self.live_below(frontiers)
            .take(MOST_OBJECTS)
            .for_each(|place| self.give_back_room(place, again));
    }

    /// Slots with live objects, of those below these frontiers. Large slots first: they are few.
    pub(super) fn live_below(&self, frontiers: [u32; CLASSES]) -> impl Iterator<Item = Place> {
        let of = move |class| (0..frontiers[class]).map(move |index| SlotId::new(class, index));
        let places = (0..CLASSES).rev().flat_map(of).map(|id| self.place(id));
        places.filter(|place| place.slot.state() == LIVE)
    }

    /// Works on the room behind a live object, from a page of its slot on, while its owner does not resize it. Not done where there is no room, or
    /// the owner is just resizing it.
    pub(super) fn at_room(place: Place, work: impl FnOnce(usize)) {
        let slot = place.slot;
        if !slot.begin_trim() {
            return;
        }
        let used = pages_of(slot.used.load(Relaxed)).max(slot.touched.load(Relaxed) as usize);
        // Where huge pages are advised the mapping ends with one.
        let pages = used.max(slot.huge().next_multiple_of(PAGES_PER_HUGE));
        if pages < ROOM[place.id.class()] / PAGE_BYTES {
            work(pages);
        }
        slot.end_trim();
    }

    /// Releases the room behind a live object.
    fn give_back_room(&self, place: Place, again: bool) {
        Self::at_room(place, |pages| {
            // SAFETY: the object's owner changes nothing meanwhile, and what lies behind was never touched.
            unsafe { self.lists.lock().give_back_behind(place.id, pages, again) };
        });
    }
}
