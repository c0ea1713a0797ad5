//! What went back too early: for want of room, and then a new object had to fetch as much from the kernel.

use super::lists::{BINS, bin};

/// Kept with the accounts, in pages.
#[derive(Clone, Copy)]
pub struct Regret {
    /// What of empty slots went back for want of room in this window, by the power of two of all that
    /// was resident of each.
    gone: [usize; BINS],
    /// What of it would have been taken again; half of that of the windows before.
    pages: usize,
}

impl Regret {
    pub const NONE: Self = Regret { gone: [0; BINS], pages: 0 };

    /// How much more room would have been of use.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Of a slot that had `resident`, this much went back.
    pub fn gave_back(&mut self, resident: usize, pages: usize) {
        self.gone[bin(resident)] += pages;
    }

    /// A new object of `pages` has to fetch that many of them. It would have had a slot that is not
    /// smaller than half of it: see [`super::lists::Lists::warm_near`].
    pub fn fetched(&mut self, pages: usize, fresh: usize) {
        if fresh == 0 {
            return;
        }
        let mut missing = fresh;
        for gone in &mut self.gone[bin(pages / 2)..] {
            let part = missing.min(*gone);
            *gone -= part;
            missing -= part;
        }
        self.pages += fresh - missing;
    }

    /// `windows` windows have passed.
    pub fn pass(&mut self, windows: u32) {
        self.gone = [0; BINS];
        self.pages = self.pages.checked_shr(windows).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_have_served_is_regretted_once() {
        let mut regret = Regret::NONE;
        regret.fetched(1000, 1000);
        assert_eq!(regret.pages(), 0, "nothing went back");
        regret.gave_back(1000, 1000);
        regret.fetched(1000, 600);
        assert_eq!(regret.pages(), 600);
        regret.fetched(1000, 1000);
        assert_eq!(regret.pages(), 1000, "no more than went back");
    }

    #[test]
    fn what_is_too_small_would_not_have_served() {
        let mut regret = Regret::NONE;
        regret.gave_back(1000, 1000);
        regret.fetched(4096, 4096);
        assert_eq!(regret.pages(), 0, "a growing object's former place");
        regret.fetched(1100, 1100);
        assert_eq!(regret.pages(), 1000);
    }

    #[test]
    fn regret_fades() {
        let mut regret = Regret::NONE;
        regret.gave_back(8000, 4000);
        regret.fetched(5000, 5000);
        regret.gave_back(8000, 4000);
        regret.pass(1);
        assert_eq!(regret.pages(), 2000);
        regret.fetched(5000, 5000);
        assert_eq!(regret.pages(), 2000, "what went back long ago is forgotten");
        regret.pass(u32::MAX);
        assert_eq!(regret.pages(), 0);
    }
}
