//! How many pages are live and how many are warm, and how many may be.

use spandrel_pages::{MIB, PAGE_BYTES};

/// Warm pages are kept up to so many and a part of those that are live: a sixteenth, or, where as
/// many were live a moment ago, what is missing to that, up to an eighth. Objects that come and go would
/// have their pages given back and fetched again otherwise.
const WARM_LEAST: usize = 32 * MIB / PAGE_BYTES;
const WARM_PART: usize = 16;
const RECENT_PART: usize = 8;
/// A moment: between one and two of these, in units of stamps. A second.
const WINDOW: u32 = 64;

/// Kept under the lock of the lists; a slot tells its changes now and then.
#[derive(Clone, Copy, Default)]
pub struct Accounts {
    /// Pages that objects use.
    pub live: usize,
    /// Resident pages that no object uses.
    pub warm: usize,
    /// Objects.
    pub slots: usize,
    /// Pages that objects were given warm.
    pub reused: u64,
    /// The most pages that were live in this window, and in the one before.
    peaks: [usize; 2],
    /// When this window began.
    since: u32,
}

impl Accounts {
    /// No pages.
    pub const EMPTY: Self =
        Accounts { live: 0, warm: 0, slots: 0, reused: 0, peaks: [0; 2], since: 0 };

    /// Adds to live and warm pages. Neither becomes negative: a slot never takes
    /// back more than it has told.
    pub fn change(&mut self, live: isize, warm: isize) {
        self.live = self.live.saturating_add_signed(live);
        self.warm = self.warm.saturating_add_signed(warm);
        self.peaks[0] = self.peaks[0].max(self.live);
    }

    /// Tells the time, as stamps have it.
    pub fn pass(&mut self, stamp: u32) {
        let age = stamp.wrapping_sub(self.since);
        if age >= WINDOW {
            self.peaks = [self.live, if age < 2 * WINDOW { self.peaks[0] } else { self.live }];
            self.since = stamp;
        }
    }

    /// Warm pages that may be kept.
    pub fn warm_limit(&self) -> usize {
        let recent = self.peaks[0].max(self.peaks[1]).saturating_sub(self.live);
        WARM_LEAST + (self.live / WARM_PART).max(recent.min(self.live / RECENT_PART))
    }

    /// A new object uses `pages`, of which `reused` are warm.
    pub fn open(&mut self, pages: usize, reused: usize) {
        self.change(pages as isize, -(reused as isize));
        self.slots += 1;
        self.reused += reused as u64;
    }

    /// An object of `pages` is gone; its pages stay warm.
    pub fn close(&mut self, pages: usize) {
        self.change(-(pages as isize), pages as isize);
        self.slots = self.slots.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_object_used_is_warm_when_it_is_gone() {
        let mut accounts = Accounts::EMPTY;
        accounts.open(10, 0);
        accounts.change(6, 2);
        accounts.close(16);
        assert_eq!((accounts.live, accounts.warm, accounts.slots), (0, 18, 0));
        accounts.open(4, 4);
        assert_eq!((accounts.live, accounts.warm, accounts.reused), (4, 14, 4));
    }

    #[test]
    fn what_was_live_a_moment_ago_may_stay_warm() {
        let mut accounts = Accounts::EMPTY;
        accounts.pass(1000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST);
        accounts.open(100_000, 0);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 100_000 / WARM_PART);
        accounts.close(8_000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 8_000);
        accounts.close(82_000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 10_000 / RECENT_PART, "most is gone");
        accounts.open(82_000, 82_000);
        for (stamp, recent) in [(1063, 8_000), (1064, 8_000), (1127, 8_000), (1128, 0)] {
            accounts.pass(stamp);
            let least = accounts.live / WARM_PART;
            assert_eq!(accounts.warm_limit(), WARM_LEAST + least.max(recent), "{stamp}");
        }
        accounts.close(8_000);
        accounts.pass(9000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 84_000 / WARM_PART, "long ago");
    }
}
