//! How many pages are live and how many are warm, in one word.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that objects use, and resident pages that no object uses. Both change
/// together on every growth; one word makes that one locked instruction.
pub struct Accounts(AtomicU64);

const WARM_BITS: u32 = 32;

impl Accounts {
    /// No pages.
    pub const fn new() -> Self {
        Accounts(AtomicU64::new(0))
    }

    /// Adds to both. Neither may become negative or exceed 2^32 pages (16 TiB).
    #[inline]
    pub fn change(&self, live: isize, warm: isize) {
        let delta = ((live as i64) << WARM_BITS).wrapping_add(warm as i64);
        self.0.fetch_add(delta as u64, Relaxed);
    }

    /// Pages that objects use.
    #[inline]
    pub fn live(&self) -> usize {
        (self.0.load(Relaxed) >> WARM_BITS) as usize
    }

    /// Resident pages that no object uses.
    #[inline]
    pub fn warm(&self) -> usize {
        self.0.load(Relaxed) as u32 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_kept_apart() {
        let accounts = Accounts::new();
        accounts.change(10, 5);
        accounts.change(-3, -5);
        accounts.change(7, 2);
        assert_eq!((accounts.live(), accounts.warm()), (14, 2));
        accounts.change(-14, 14);
        assert_eq!((accounts.live(), accounts.warm()), (0, 16));
    }
}
