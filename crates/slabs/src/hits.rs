//! How many requests a cache has served for certain, told without counting them.
//!
//! A request takes an object off a stack, and nothing is written down. But a thread on the slow way looks at
//! the stack: what was in it at the last look and is no longer went to requests, as what others take off is
//! looked at before and after. What came and went between two looks is not known: there may have been many
//! more.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::class::CLASSES;

/// What is known of the stacks of one cache. Valid when zero.
pub struct Hits {
    /// Objects in each stack at the last look.
    left: [AtomicU32; CLASSES],
    served: AtomicU64,
}

impl Hits {
    /// Of stacks that were not looked at.
    pub const fn none() -> Self {
        Self { left: [const { AtomicU32::new(0) }; CLASSES], served: AtomicU64::new(0) }
    }

    /// Looks at the stack at some place, of which `count` tells how many objects it has now. Threads that
    /// only request and free may be at it meanwhile, or look too: rather too few requests are counted then.
    pub fn look(&self, place: usize, count: impl Fn() -> usize) {
        let left = self.left[place].swap(0, Relaxed);
        let here = count() as u32;
        if left > here {
            self.served.fetch_add(u64::from(left - here), Relaxed);
        }
        self.left[place].store(here, Relaxed);
    }

    /// The stack at some place has `count` objects after others than requests took some off.
    pub fn note(&self, place: usize, count: usize) {
        self.left[place].store(count as u32, Relaxed);
    }

    /// Requests that were served for certain.
    pub fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    /// They are counted anew.
    pub fn forget(&self) {
        self.served.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_between_two_looks_was_served() {
        let hits = Hits::none();
        hits.look(3, || 0);
        hits.note(3, 20);
        hits.look(3, || 12);
        assert_eq!(hits.served(), 8);
        // More came than went.
        hits.look(3, || 30);
        hits.look(4, || 30);
        assert_eq!(hits.served(), 8);
        // Others took ten off.
        hits.look(3, || 29);
        hits.note(3, 19);
        hits.look(3, || 0);
        hits.look(3, || 0);
        assert_eq!(hits.served(), 28);
        hits.forget();
        hits.look(4, || 29);
        assert_eq!(hits.served(), 1);
    }
}
