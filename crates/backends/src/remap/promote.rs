//! Large objects that have filled their small pages get huge pages: see [`spandrel_slabs::promotion`].
//!
//! The background thread visits a slot as trimming does, so that its object is neither freed nor resized meanwhile.

use core::sync::atomic::Ordering::*;

use spandrel_slabs::promotion::{News, Objects, Pages, Promotion};

use super::layout::{CLASSES, SlotId, has_huge};
use super::lists::pages_of;
use super::slot::LIVE;
use super::{PAGES_PER_HUGE, Remap};

/// Slots whose records are read to find one that holds a large object.
const READ_MOST: u32 = 256;

static NEWS: News = News::new();

/// A large object was given small pages.
pub fn tell() {
    NEWS.tell();
}

impl Remap {
    /// One pass over large objects; see [`Promotion::pass`].
    pub(super) fn promote(&self, leisure: bool) -> Option<u32> {
        // Where open memory is charged or locked, advice splits what is opened slot by slot.
        if self.lists_strict() {
            return None;
        }
        let Some(_trimming) = self.trimming.try_lock() else { return Promotion::later() };
        self.promotion.lock().pass(self, &NEWS, leisure)
    }
}

/// Numbers are those of slots.
impl Objects for Remap {
    fn next(&self, cursor: &mut u32) -> Option<u32> {
        let frontiers = self.lists.lock().frontiers();
        let mut read = 0;
        loop {
            let id = SlotId::from_raw(*cursor);
            if id.class() >= CLASSES {
                return None;
            }
            if !has_huge(id) || id.index() >= frontiers[id.class()] {
                *cursor = SlotId::new(id.class() + 1, 0).raw();
                continue;
            }
            *cursor = SlotId::new(id.class(), id.index() + 1).raw();
            read += 1;
            if self.pages(id.raw()).is_some() || read == READ_MOST {
                return Some(id.raw());
            }
        }
    }

    fn pages(&self, id: u32) -> Option<Pages> {
        let place = self.place(SlotId::from_raw(id));
        let pages = pages_of(place.slot.used.load(Relaxed));
        let end = pages - pages % PAGES_PER_HUGE;
        let is_large = place.slot.state() == LIVE && end > 0;
        is_large.then(|| Pages { at: place.at, huge: place.slot.huge().min(end), end })
    }

    fn visit<T>(&self, id: u32, work: impl FnOnce() -> T) -> Option<T> {
        let slot = self.place(SlotId::from_raw(id)).slot;
        slot.begin_trim().then(|| {
            let result = work();
            slot.end_trim();
            result
        })
    }

    fn advise_huge(&self, id: u32, end: usize) -> bool {
        let place = self.place(SlotId::from_raw(id));
        self.advise_pages_huge(place, place.slot.huge(), end)
    }
}
