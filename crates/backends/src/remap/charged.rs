//! What is open and not used, when that begins to count while the program runs: under a limit of the data segment, or because the program
//! is about to lock its memory, which makes all of it resident.
//!
//! Slots are opened in advance as long as that costs nothing. From then on they are opened as far as they are used.

use spandrel_pages::PAGE_BYTES;

use super::layout::{CLASSES, ROOM, SlotId};
use super::lists::pages_of;
use super::slot::LIVE;
use super::{PAGES_PER_HUGE, Remap, STRICT};
use core::sync::atomic::Ordering::*;

/// Slots that are closed at most: each is a mapping apart from then on, and the kernel has a limit of these (65,530).
const MOST_SLOTS: usize = 16384;

impl Remap {
    /// Closes what is open and holds nothing; slots are opened as far as they are used from now on. False: that is so already.
    pub(super) fn open_sparingly(&self) -> bool {
        if STRICT.swap(true, AcqRel) || !self.ready.load(Acquire) {
            return false;
        }
        self.trim_all();
        let _trimming = self.trimming.lock();
        let mut lists = self.lists.lock();
        lists.close_empty(MOST_SLOTS);
        let frontiers = lists.frontiers();
        drop(lists);
        // Large slots first: they are few.
        let ids =
            (0..CLASSES).rev().flat_map(|c| (0..frontiers[c]).map(move |i| SlotId::new(c, i)));
        let live = ids.filter(|id| self.place(*id).slot.state() == LIVE);
        live.take(MOST_SLOTS).for_each(|id| self.close_room(id));
        true
    }

    /// Closes the room behind a live object.
    fn close_room(&self, id: SlotId) {
        let place = self.place(id);
        let slot = place.slot;
        if !slot.begin_trim() {
            return;
        }
        let used = pages_of(slot.used.load(Relaxed)).max(slot.touched.load(Relaxed) as usize);
        // Where huge pages are advised the mapping ends with one.
        let pages = used.max(slot.huge().next_multiple_of(PAGES_PER_HUGE));
        if pages < ROOM[id.class()] / PAGE_BYTES {
            self.close_behind(place, pages);
        }
        slot.end_trim();
    }
}
