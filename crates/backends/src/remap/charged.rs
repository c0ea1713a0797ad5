//! What is open and not used, when that begins to count while the program runs: under a limit of the data segment, or because the program
//! is about to lock its memory, which makes all of it resident.
//!
//! Slots are opened in advance as long as that costs nothing. From then on they are opened as far as they are used.

use core::sync::atomic::Ordering::*;

use super::{Remap, STRICT};

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
        self.live_below(frontiers)
            .take(MOST_SLOTS)
            .for_each(|place| Self::at_room(place, |pages| self.close_behind(place, pages)));
        true
    }
}
