//! Giving reserved address space back, when a limit of it comes while the program runs.
//!
//! Slots have room to grow and are reserved in advance; a limit of the address space counts all of it. What
//! holds no object is given back then for good, and so is the room behind objects. Slots that are left are used as before;
//! none is opened further, as what lies behind it may be another's by then.

use core::sync::atomic::{AtomicBool, Ordering::*};

use super::layout::{CLASSES, ROOM, SlotId};
use super::lists::pages_of;
use super::slot::LIVE;
use super::{PAGES_PER_HUGE, Remap};

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
        // Large slots first: they are few.
        let ids =
            (0..CLASSES).rev().flat_map(|c| (0..frontiers[c]).map(move |i| SlotId::new(c, i)));
        let live = ids.filter(|id| self.place(*id).slot.state() == LIVE);
        live.take(MOST_OBJECTS).for_each(|id| self.give_back_room(id, again));
    }

    /// Gives the room behind a live object back.
    fn give_back_room(&self, id: SlotId, again: bool) {
        let slot = self.place(id).slot;
        if !slot.begin_trim() {
            return;
        }
        let used = pages_of(slot.used.load(Relaxed)).max(slot.touched.load(Relaxed) as usize);
        // Where huge pages are advised the mapping ends with one.
        let pages = used.max(slot.huge().next_multiple_of(PAGES_PER_HUGE));
        if pages < ROOM[id.class()] / spandrel_pages::PAGE_BYTES {
            // SAFETY: the object's owner changes nothing meanwhile, and what lies behind was never touched.
            unsafe { self.lists.lock().give_back_behind(id, pages, again) };
        }
        slot.end_trim();
    }
}
