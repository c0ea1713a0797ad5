//! How many pages are live and how many are warm.

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
}

impl Accounts {
    /// No pages.
    pub const EMPTY: Self = Accounts { live: 0, warm: 0, slots: 0, reused: 0 };

    /// Adds to live and warm pages. Neither becomes negative: a slot never takes
    /// back more than it has told.
    pub fn change(&mut self, live: isize, warm: isize) {
        self.live = self.live.saturating_add_signed(live);
        self.warm = self.warm.saturating_add_signed(warm);
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
}
