//! Whether new objects are expected to use most of their pages: see [`spandrel_slabs::density`].

use core::sync::atomic::Ordering::*;

use spandrel_slabs::density::{Contents, Found, is_filled};

use super::layout::SlotId;
use super::lists::pages_of;
use super::slot::LIVE;
use super::{PAGES_PER_HUGE, Place, Remap, promote};

impl Remap {
    /// Whether pages from the first up to `to` of a new object come in huge pages. If not, the object is one of those that tell of others.
    pub(super) fn begins_huge(&self, place: Place, to: usize, contents: Contents) -> bool {
        if place.slot.huge() > 0 {
            // The object before had them, and left some.
            return true;
        }
        let huge = self.densities.begins_huge(contents, to, |id| self.live_pages(id));
        if !huge {
            self.densities.note(place.id.raw(), contents);
            promote::tell();
        }
        huge
    }

    /// Whether a new object of `pages` pages is to be packed with others.
    pub(super) fn is_packed(&self, pages: usize) -> bool {
        self.densities.is_packed(pages, |id| self.live_pages(id))
    }

    /// Notes a new object that begins with small pages, all of them fresh: it tells of others.
    pub(super) fn note_small(&self, place: Place) {
        self.densities.note(place.id.raw(), Contents::Any);
    }

    /// Where a live object lies, and its pages.
    fn live_pages(&self, id: u32) -> Option<(*mut u8, usize)> {
        let place = self.place(SlotId::from_raw(id));
        let pages = pages_of(place.slot.used.load(Relaxed));
        (place.slot.state() == LIVE).then_some((place.at, pages))
    }

    /// Whether an object that grows behind page `from` has used most of the small pages that it has. What it has of huge ones tells nothing:
    /// it was found worth them before.
    pub(super) fn is_dense(&self, place: Place, from: usize) -> bool {
        let huge = place.slot.huge();
        from <= huge || is_filled(place.at, huge, from)
    }

    /// An object of `pages` pages is gone from an entered slot. Returns whether it has left few of them: they are not worth to be kept
    /// for the next object, as they would be counted and cleared as if all were there.
    pub(super) fn was_sparse(&self, place: Place, pages: usize) -> bool {
        // Where open memory is charged, what is warm is closed by other rules.
        if place.slot.huge() > 0 || self.lists_strict() {
            return false;
        }
        let found = self.densities.note_freed(place.id.raw(), place.at, pages);
        found == Some(Found::Sparse) && pages >= PAGES_PER_HUGE
    }
}
