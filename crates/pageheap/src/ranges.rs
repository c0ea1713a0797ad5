//! Empty ranges of huge pages of one kind: merging with neighbours, and taking parts out.
//!
//! Both ends of a range carry its length, so a neighbour is found by looking beside, not by
//! searching; the tree is only asked which range fits.

use spandrel_pages::{HugeLength, HugePageId};

use crate::tracker::{State, Table, Tracker};
use crate::tree::Tree;

/// Huge pages `first` up to `first + count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) first: HugePageId,
    pub(crate) count: HugeLength,
}

impl Range {
    pub(crate) const fn new(first: u32, count: u32) -> Self {
        Self { first: HugePageId(first), count: HugeLength(count) }
    }

    pub(crate) const fn end(self) -> HugePageId {
        self.first.after(self.count)
    }

    fn last(self) -> HugePageId {
        HugePageId(self.end().0.saturating_sub(1))
    }

    /// The part of it, if any, that holds `count` huge pages at a multiple of `align`.
    pub(crate) fn aligned(self, count: HugeLength, align: HugeLength) -> Option<Self> {
        let first = self.first.0.checked_next_multiple_of(align.0.max(1))?;
        let end = first.checked_add(count.0)?;
        (end <= self.end().0).then_some(Self { first: HugePageId(first), count })
    }
}

/// Ranges of one kind.
#[derive(Debug)]
pub(crate) struct Ranges {
    tree: Tree,
    first: State,
    end: State,
    /// Huge pages in all of them.
    pub(crate) total: HugeLength,
}

impl Ranges {
    pub(crate) const fn new(first: State, end: State) -> Self {
        Self { tree: Tree::new(), first, end, total: HugeLength::ZERO }
    }

    /// Adds huge pages that are on nothing, as one range with the neighbours of this kind.
    pub(crate) fn insert(&mut self, table: &mut Table, range: Range) {
        if range.count.0 == 0 {
            return;
        }
        let mut whole = range;
        if let Some(left) = self.ending_at(table, range.first) {
            self.unlink(table, left);
            whole = Range::new(left.first.0, left.count.0 + whole.count.0);
        }
        if let Some(right) = self.starting_at(table, range.end()) {
            self.unlink(table, right);
            whole.count = whole.count.saturating_add(right.count);
        }
        self.link(table, whole);
    }

    /// Takes `part` out of `whole`, one of these ranges. Its records are empty afterwards.
    pub(crate) fn take(&mut self, table: &mut Table, whole: Range, part: Range) {
        self.unlink(table, whole);
        let before = part.first.0.saturating_sub(whole.first.0);
        let after = whole.end().0.saturating_sub(part.end().0);
        if before > 0 {
            self.link(table, Range::new(whole.first.0, before));
        }
        if after > 0 {
            self.link(table, Range::new(part.end().0, after));
        }
    }

    /// A range that closely fits `count` huge pages at a multiple of `align`, and the part.
    pub(crate) fn find(
        &self,
        table: &Table,
        count: HugeLength,
        align: HugeLength,
    ) -> Option<(Range, Range)> {
        // The close fit may happen to be aligned; a range that is longer by the alignment always
        // holds a part that is.
        let spare = align.0.saturating_sub(1);
        [count.0, count.0.saturating_add(spare)].into_iter().find_map(|enough| {
            let first = self.tree.find(table, enough)?;
            let whole = Range { first, count: HugeLength(table[first].length) };
            Some((whole, whole.aligned(count, align)?))
        })
    }

    /// The range with the highest address.
    pub(crate) fn last(&self, table: &Table) -> Option<Range> {
        let first = self.tree.last(table)?;
        Some(Range { first, count: HugeLength(table[first].length) })
    }

    /// The range of this kind that begins here.
    pub(crate) fn starting_at(&self, table: &Table, first: HugePageId) -> Option<Range> {
        let record = &table[first];
        (record.state == self.first).then_some(Range { first, count: HugeLength(record.length) })
    }

    /// The range of this kind that ends before this huge page.
    pub(crate) fn ending_at(&self, table: &Table, end: HugePageId) -> Option<Range> {
        let record = &table[HugePageId(end.0.checked_sub(1)?)];
        // A first record beside us is that of a range of one.
        (record.state == self.first || record.state == self.end)
            .then(|| Range::new(end.0.saturating_sub(record.length), record.length))
    }

    /// Huge pages of the largest range.
    pub(crate) fn largest(&self, table: &Table) -> HugeLength {
        HugeLength(self.tree.largest(table))
    }

    fn link(&mut self, table: &mut Table, range: Range) {
        let record = |state| Tracker { length: range.count.0, ..Tracker::with_state(state) };
        table[range.last()] = record(self.end);
        table[range.first] = record(self.first);
        self.tree.insert(table, range.first);
        self.total = self.total.saturating_add(range.count);
    }

    fn unlink(&mut self, table: &mut Table, range: Range) {
        self.tree.remove(table, range.first);
        table[range.last()] = Tracker::default();
        table[range.first] = Tracker::default();
        self.total = self.total.saturating_sub(range.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec;

    #[test]
    fn neighbours_become_one() {
        let mut records = vec![Tracker::default(); 32];
        let mut table = Table::new(&mut records);
        let mut ranges = Ranges::new(State::Free, State::FreeEnd);
        for (first, count) in [(0, 2), (4, 1), (2, 2), (10, 5), (5, 5)] {
            ranges.insert(&mut table, Range::new(first, count));
        }
        assert_eq!(ranges.last(&table), Some(Range::new(0, 15)));
        assert_eq!(ranges.total, HugeLength(15));
        let (whole, part) = ranges.find(&table, HugeLength(3), HugeLength(1)).unwrap();
        ranges.take(&mut table, whole, part);
        assert_eq!((part, ranges.last(&table)), (Range::new(0, 3), Some(Range::new(3, 12))));
        let (whole, part) = ranges.find(&table, HugeLength(2), HugeLength(8)).unwrap();
        ranges.take(&mut table, whole, part);
        assert_eq!(part, Range::new(8, 2));
        assert_eq!(ranges.starting_at(&table, HugePageId(10)), Some(Range::new(10, 5)));
        assert_eq!(ranges.ending_at(&table, HugePageId(8)), Some(Range::new(3, 5)));
        assert_eq!(ranges.find(&table, HugeLength(6), HugeLength(1)), None);
        assert_eq!(ranges.find(&table, HugeLength(5), HugeLength(16)), None);
    }
}
