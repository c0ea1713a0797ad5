//! How many pages are live and how many are warm, and how many may be.

use spandrel_pages::{MIB, PAGE_BYTES};

use super::regret::Regret;

/// Warm pages are kept up to this many and a part of those that are live: a sixteenth, or, where some
/// were given back that would have been of use, as many more, up to a quarter and what is missing to what
/// was live a moment ago, unless that is more than is left. (An object that grows by copies leaves much and
/// wants none of it.)
const WARM_LEAST: usize = 32 * MIB / PAGE_BYTES;
const WARM_PART: usize = 16;
const REGRETTED_PART: usize = 4;
/// A moment: between one and two of these, in units of stamps. A second.
const WINDOW: u32 = 64;

/// Kept under the lock of the lists; a slot tells its changes now and then.
#[derive(Clone, Copy)]
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
    /// What should have stayed warm.
    pub regret: Regret,
}

impl Accounts {
    /// No pages.
    pub const EMPTY: Self = Accounts {
        live: 0,
        warm: 0,
        slots: 0,
        reused: 0,
        peaks: [0; 2],
        since: 0,
        regret: Regret::NONE,
    };

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
            self.regret.pass(age / WINDOW);
        }
    }

    /// Warm pages that may be kept.
    pub fn warm_limit(&self) -> usize {
        let recent = self.peaks[0].max(self.peaks[1]).saturating_sub(self.live);
        let most = recent.min(self.live) + self.live / REGRETTED_PART;
        WARM_LEAST + (self.live / WARM_PART).max(self.regret.pages().min(most))
    }

    /// A new object uses `pages`, of which `reused` are warm.
    pub fn open(&mut self, pages: usize, reused: usize) {
        self.regret.fetched(pages, pages - reused);
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
    fn what_was_given_back_too_early_may_stay_warm() {
        let mut accounts = Accounts::EMPTY;
        accounts.pass(1000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST);
        accounts.open(100_000, 0);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 100_000 / WARM_PART);
        accounts.regret.gave_back(90_000, 60_000);
        accounts.open(90_000, 30_000);
        accounts.close(90_000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 60_000, "as much was live");
        accounts.close(60_000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 50_000, "most is gone");
        accounts.pass(1064);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 30_000, "half is forgotten");
        accounts.pass(1128);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 40_000 / REGRETTED_PART, "long ago");
        accounts.pass(9000);
        assert_eq!(accounts.warm_limit(), WARM_LEAST + 40_000 / WARM_PART);
    }

    #[test]
    fn what_a_copy_leaves_goes_back() {
        let mut accounts = Accounts::EMPTY;
        let mut pages = 100_000;
        accounts.open(pages, 0);
        for _ in 0..5 {
            accounts.open(2 * pages, 0);
            accounts.close(pages);
            accounts.regret.gave_back(pages, pages);
            pages *= 2;
            assert_eq!(accounts.warm_limit(), WARM_LEAST + pages / WARM_PART);
        }
    }
}
