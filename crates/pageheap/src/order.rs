//! In which order huge pages are filled: the paper's choice and those it was compared with
//! (4.4, Fig. 11).

use crate::lists::{CHUNKS, LISTS, RANGES};
use crate::tracker::{Tracker, flag};

/// Dense huge pages whose allocations differ by less are alike, so that not every call moves one
/// from list to list.
const DENSE_STEP: u32 = 4;

/// Which huge page a span goes to, among those that have room.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Order {
    /// The shortest longest free range first, then the most allocations: the paper's.
    #[default]
    RangeThenAllocations,
    /// The shortest longest free range first, then the most used pages.
    RangeThenPages,
    /// The most allocations first, then the shortest longest free range.
    AllocationsThenRange,
    /// The free range that fits best, wherever it is. It looks at every huge page with room: for
    /// comparison, not for use.
    BestFit,
}

/// The chunk of a count: 0 for the fullest, 7 for a single allocation, one per power of two.
#[inline]
pub(crate) fn chunk(count: u16) -> u32 {
    let log = 16 - count.saturating_sub(1).leading_zeros();
    (CHUNKS - 1).saturating_sub(log)
}

/// The list that a huge page belongs to.
#[inline]
pub(crate) fn list_of(order: Order, tracker: &Tracker) -> u32 {
    if tracker.has(flag::DENSE) {
        // All its spans are single pages: whatever has room has room enough, and fullness is all
        // that distinguishes them.
        return u32::from(255u16.saturating_sub(tracker.allocations)) / DENSE_STEP;
    }
    let range = u32::from(tracker.longest);
    match order {
        Order::RangeThenAllocations | Order::BestFit => CHUNKS * range + chunk(tracker.allocations),
        Order::RangeThenPages => CHUNKS * range + chunk(tracker.used_pages),
        Order::AllocationsThenRange => RANGES * chunk(tracker.allocations) + range,
    }
}

/// The lists whose huge pages have `pages` free in a row, as stretches from and up to.
#[inline]
pub(crate) fn stretches(order: Order, dense: bool, pages: u32) -> Stretches {
    let (from, end, step) = match order {
        _ if dense => (0, 256, LISTS),
        Order::AllocationsThenRange => (pages, RANGES, RANGES),
        _ => (CHUNKS * pages, LISTS, LISTS),
    };
    Stretches { from, end, step }
}

/// The first list whose huge pages may be worth breaking for `free` pages in all and
/// `row` in a row: those before are not looked at, however many they are.
pub(crate) fn worth_breaking(order: Order, dense: bool, free: u32, row: u32) -> u32 {
    match order {
        _ if dense => free / DENSE_STEP,
        Order::AllocationsThenRange => 0,
        _ => CHUNKS * row,
    }
}

/// See [`stretches`].
pub(crate) struct Stretches {
    from: u32,
    end: u32,
    step: u32,
}

impl Iterator for Stretches {
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        let stretch = (self.from, self.end);
        if self.end > LISTS {
            return None;
        }
        self.from += self.step;
        self.end += self.step;
        Some(stretch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn few_allocations_are_told_apart() {
        let chunks: Vec<u32> = [1, 2, 3, 4, 5, 8, 9, 64, 65, 256].map(chunk).into();
        assert_eq!(chunks, [7, 6, 5, 5, 4, 4, 3, 1, 0, 0]);
    }

    #[test]
    fn stretches_cover_what_fits() {
        let all = |order, dense| stretches(order, dense, 9).collect::<Vec<_>>();
        assert_eq!(all(Order::RangeThenPages, false), [(72, LISTS)]);
        assert_eq!(all(Order::BestFit, true), [(0, 256)]);
        let by_allocations = all(Order::AllocationsThenRange, false);
        assert_eq!(by_allocations.len(), 8);
        assert_eq!((by_allocations[0], by_allocations[7]), ((9, 257), (7 * 257 + 9, LISTS)));
        for order in [Order::RangeThenAllocations, Order::AllocationsThenRange] {
            let tracker = Tracker { longest: 9, allocations: 3, ..Tracker::default() };
            let list = list_of(order, &tracker);
            assert!(stretches(order, false, 9).any(|(from, end)| (from..end).contains(&list)));
            assert!(!stretches(order, false, 10).any(|(from, end)| (from..end).contains(&list)));
        }
    }
}
