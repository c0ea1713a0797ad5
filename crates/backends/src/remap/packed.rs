//! Objects that are better packed with others on huge pages than on small pages of their own.
//!
//! An object smaller than a huge page has one page fault for each page of a fresh slot. Where objects of its size use their
//! pages (`density`), another allocator packs them on huge pages. What is warm already is here, and quicker.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;

use spandrel_slabs::density::Contents;

use super::layout::class_for;
use super::lists::{Want, pages_of};
use super::{REMAP, Remap};

/// As [`alloc`](super::alloc), for objects that another allocator may pack on huge pages: null also where that is better, as no warm slot
/// is at hand and objects of the size were seen to use their pages.
pub fn alloc_unless_packed(size: usize) -> *mut u8 {
    REMAP.allocate_unless_packed(size).map_or(ptr::null_mut(), |at| at.as_ptr())
}

impl Remap {
    /// See [`alloc_unless_packed`].
    fn allocate_unless_packed(&self, size: usize) -> Option<NonNull<u8>> {
        if !self.is_ready() {
            return None;
        }
        let (class, pages) = (class_for(size)?, pages_of(size));
        if let Some((place, _)) = self.unpark(class, size, 1, Want::Near(pages)) {
            return NonNull::new(place.object());
        }
        if self.is_packed(pages) {
            if self.warm_seen.load(Relaxed) < pages {
                return None;
            }
            return self.allocate(size, 1, Want::Fitting(pages), Contents::Any).map(|(at, _)| at);
        }
        let (at, dirty) = self.allocate(size, 1, Want::Near(pages), Contents::Any)?;
        if dirty == 0
            && let Some(place) = self.find(at.as_ptr())
        {
            self.note_small(place);
        }
        Some(at)
    }
}
