//! `HugeAllocator` (4.2): unbacked address space.
//!
//! Ranges that were used before are taken first, so that the slice grows only when none fits.

use spandrel_pages::{HugeLength, HugePageId};

use crate::memory::Memory;
use crate::ranges::{Range, Ranges};
use crate::tracker::{State, Table};

/// Unbacked ranges below the frontier; everything from the frontier on was never used.
#[derive(Debug)]
pub(crate) struct HugeAllocator {
    pub(crate) free: Ranges,
    /// Ranges whose address space was released for good, as far as a request has met them.
    pub(crate) gone: Ranges,
    pub(crate) frontier: HugePageId,
}

impl HugeAllocator {
    pub(crate) const fn new() -> Self {
        Self {
            free: Ranges::new(State::Free, State::FreeEnd),
            gone: Ranges::new(State::Gone, State::GoneEnd),
            frontier: HugePageId(0),
        }
    }

    /// A range of unbacked huge pages, `align` a power of two.
    pub(crate) fn allocate(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        count: HugeLength,
        align: HugeLength,
    ) -> Option<Range> {
        let (whole, part) = match self.free.find(table, count, align) {
            Some(found) => found,
            None => self.grow(table, memory, count, align)?,
        };
        self.free.take(table, whole, part);
        Some(part)
    }

    /// Takes a huge page's successors, if they are free or were never used.
    pub(crate) fn allocate_at(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        part: Range,
    ) -> bool {
        if part.end().0 > self.frontier.0 {
            if part.end().0 > table.hugepages().0 {
                return false;
            }
            let open =
                self.free.ending_at(table, self.frontier).is_some_and(|r| r.first <= part.first);
            if part.first != self.frontier && !open {
                return false;
            }
            if !self.move_frontier(table, memory, part.end()) {
                return false;
            }
        }
        match self.free.starting_at(table, part.first) {
            Some(whole) if whole.count >= part.count => {
                self.free.take(table, whole, part);
                true
            }
            _ => false,
        }
    }

    /// Moves the frontier until the range that ends there has an aligned part, unless it happens to
    /// have one already.
    fn grow(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        count: HugeLength,
        align: HugeLength,
    ) -> Option<(Range, Range)> {
        let start = self.free.ending_at(table, self.frontier).map_or(self.frontier, |r| r.first);
        let first = start.0.checked_next_multiple_of(align.0.max(1))?;
        let end = first.checked_add(count.0)?;
        if end > table.hugepages().0 {
            return None;
        }
        if !self.move_frontier(table, memory, self.frontier.max(HugePageId(end))) {
            return None;
        }
        let whole = self.free.ending_at(table, self.frontier)?;
        Some((whole, Range::new(first, count.0)))
    }

    /// False: there are no records for what lies beyond.
    fn move_frontier(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        end: HugePageId,
    ) -> bool {
        if end <= self.frontier {
            return true;
        }
        let grown = Range::new(self.frontier.0, end.0 - self.frontier.0);
        if !memory.extend(end) {
            return false;
        }
        self.frontier = end;
        self.free.insert(table, grown);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collapse, Paper, Tracker};
    extern crate std;
    use std::vec;

    const PAPER: Paper = Paper { collapse: Collapse::Unsupported };

    #[test]
    fn the_slice_grows_only_when_nothing_fits() {
        let mut records = vec![Tracker::default(); 16];
        let mut table = Table::new(&mut records);
        let mut vacant = HugeAllocator::new();
        let mut get = |vacant: &mut HugeAllocator, n, align| {
            vacant
                .allocate(&mut table, &mut { PAPER }, HugeLength(n), HugeLength(align))
                .map(|r| r.first.0)
        };
        assert_eq!(get(&mut vacant, 3, 1), Some(0));
        // 3 is skipped for the alignment and used next.
        assert_eq!(get(&mut vacant, 4, 4), Some(4));
        assert_eq!(get(&mut vacant, 1, 1), Some(3));
        assert_eq!(vacant.frontier, HugePageId(8));
        assert_eq!(get(&mut vacant, 9, 1), None);
        assert_eq!(get(&mut vacant, 7, 1), Some(8));
        vacant.free.insert(&mut table, Range::new(10, 5));
        // The end of what is free grows by what is missing.
        let part = vacant.allocate(&mut table, &mut { PAPER }, HugeLength(6), HugeLength(1));
        assert_eq!(part, Some(Range::new(10, 6)));
    }

    #[test]
    fn the_last_range_may_be_aligned_already() {
        let mut records = vec![Tracker::default(); 64];
        let mut table = Table::new(&mut records);
        let mut vacant = HugeAllocator::new();
        assert!(
            vacant.allocate(&mut table, &mut { PAPER }, HugeLength(20), HugeLength(1)).is_some()
        );
        for (first, count) in [(1, 1), (7, 3), (15, 5)] {
            vacant.free.insert(&mut table, Range::new(first, count));
        }
        let part = vacant.allocate(&mut table, &mut { PAPER }, HugeLength(1), HugeLength(8));
        assert_eq!((part, vacant.frontier), (Some(Range::new(16, 1)), HugePageId(20)));
    }

    #[test]
    fn a_place_is_taken_when_it_is_free() {
        let mut records = vec![Tracker::default(); 8];
        let mut table = Table::new(&mut records);
        let mut vacant = HugeAllocator::new();
        assert!(
            vacant.allocate(&mut table, &mut { PAPER }, HugeLength(2), HugeLength(1)).is_some()
        );
        assert!(vacant.allocate_at(&mut table, &mut { PAPER }, Range::new(2, 2)));
        assert!(!vacant.allocate_at(&mut table, &mut { PAPER }, Range::new(1, 2)));
        assert!(!vacant.allocate_at(&mut table, &mut { PAPER }, Range::new(5, 1)));
        assert!(!vacant.allocate_at(&mut table, &mut { PAPER }, Range::new(4, 5)));
        vacant.free.insert(&mut table, Range::new(3, 1));
        assert!(vacant.allocate_at(&mut table, &mut { PAPER }, Range::new(3, 3)));
        assert_eq!(vacant.frontier, HugePageId(6));
    }
}
