//! The requests that one combiner executes together.

use super::slot::Slot;

/// The most seats of a combiner: a batch names its members by a bit each, on the combiner's stack.
pub const MAX_SEATS: usize = 1024;

const BITS: usize = u64::BITS as usize;

/// Slots by number, below [`MAX_SEATS`].
pub(super) struct Members([u64; MAX_SEATS / BITS]);

impl Members {
    pub(super) const fn none() -> Self {
        Self([0; MAX_SEATS / BITS])
    }

    pub(super) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / BITS) {
            *word |= 1 << (index % BITS);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The members, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < BITS).then_some(at * BITS + bit)
            })
        })
    }
}

/// What became of a request: a word whose meaning is the caller's, but for two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome(u64);

impl Outcome {
    /// The batch ran to its end and said nothing else of the request.
    pub const DONE: Self = Self(0);
    /// The batch unwound. The request may have been executed in part or not at all.
    pub const ABANDONED: Self = Self(u64::MAX);

    /// An outcome of the caller's own.
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// The word.
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// The requests that one combiner executes together, while no other thread is inside. At least one.
pub struct Batch<'b> {
    pub(super) slots: &'b [Slot],
    pub(super) members: &'b Members,
}

impl<'b> Batch<'b> {
    /// The requests, in the order of their slots. May be walked more than once.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'b>> + Clone + 'b {
        let slots = self.slots;
        self.members.iter().filter_map(|index| slots.get(index)).map(|slot| Entry { slot })
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never: the combiner's own request is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request of a batch.
pub struct Entry<'b> {
    slot: &'b Slot,
}

impl Entry<'_> {
    /// What [`super::Seat::write`] was called with. All that the calling thread wrote before is visible.
    pub fn request(&self) -> *mut () {
        self.slot.request()
    }

    /// What [`super::Seat::write`] is going to return, if the batch does not unwind.
    pub fn set_outcome(&self, outcome: Outcome) {
        self.slot.set_outcome(outcome.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn members_come_in_order_and_once() {
        let mut members = Members::none();
        for index in [1023, 64, 0, 63, 64, 500, MAX_SEATS] {
            members.insert(index);
        }
        assert_eq!(members.iter().collect::<Vec<_>>(), [0, 63, 64, 500, 1023]);
        assert_eq!(members.len(), 5);
    }
}
