//! The record that is kept for every huge page, and the table of them.

use core::ops::{Index, IndexMut};

use spandrel_pages::{HugeLength, HugePageId};

use crate::bits::Bits;

/// What a huge page is at present. The ends of a range say what the range is; whatever lies
/// between them is [`State::Inside`], so that a record that nothing refers to is never mistaken
/// for the end of something.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// Never used, or inside a range or a large span.
    #[default]
    Inside = 0,
    /// The first of a range of unbacked huge pages.
    Free,
    /// The last of such a range, unless it is also the first.
    FreeEnd,
    /// The first of a range of backed, empty huge pages.
    Cached,
    /// The last of such a range, unless it is also the first.
    CachedEnd,
    /// In the filler: spans lie on it.
    Filler,
    /// In a region.
    Region,
    /// The first of a large span.
    Large,
    /// The first of a range of huge pages whose address space was released for good.
    Gone,
    /// The last of such a range, unless it is also the first.
    GoneEnd,
}

/// A reference to another record. The number is stored plus one: zero bytes refer to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(crate) struct Link(u32);

impl Link {
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn to(page: HugePageId) -> Self {
        Self(page.0.saturating_add(1))
    }

    #[inline]
    pub(crate) const fn get(self) -> Option<HugePageId> {
        match self.0.checked_sub(1) {
            Some(index) => Some(HugePageId(index)),
            None => None,
        }
    }
}

/// A range's node in the tree of ranges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Node {
    pub(crate) parent: Link,
    pub(crate) left: Link,
    pub(crate) right: Link,
    /// Huge pages of the largest range in the subtree.
    pub(crate) largest: u32,
}

/// Properties of a huge page in the filler.
pub(crate) mod flag {
    /// Holds spans of many small objects.
    pub(crate) const DENSE: u8 = 1;
    /// Holds the end of a larger span and nothing else yet.
    pub(crate) const DONATED: u8 = 2;
    /// Some of its pages went back to the kernel, or have not come: it is mapped by small pages.
    pub(crate) const BROKEN: u8 = 4;
    /// Being made whole at this moment, outside of the page heap.
    pub(crate) const RESTORING: u8 = 8;
    /// The large span that brought it along is gone; others hold on to it.
    pub(crate) const ABANDONED: u8 = 16;
    /// It began with small pages: what is unbacked never was here.
    pub(crate) const SMALL: u8 = 32;
    /// The kernel was told to map it by small pages until it is made whole or comes back.
    pub(crate) const TOLD: u8 = 64;
}

/// The record of one huge page. All bytes zero is the record of one that was never used, so that
/// untouched memory serves as a table. Aligned so that it takes two lines of the processor's cache
/// and not three.
#[derive(Clone, Default, Debug)]
#[repr(C, align(128))]
pub struct Tracker {
    /// Pages that belong to spans.
    pub(crate) used: Bits,
    /// First pages of spans. A tail that a large span donated has none: it is no span by itself.
    pub(crate) starts: Bits,
    /// Free pages that went back to the kernel, or have not come. In the first record of a range, which has no
    /// pages to describe, the range's [`Node`]; in a region, summaries for its searches.
    pub(crate) unbacked: Bits,
    pub(crate) next: Link,
    pub(crate) previous: Link,
    /// Huge pages of a range (in both its ends), pages of a large span, used pages of a region
    /// (in its first record), pages that were gone when a huge page was broken last.
    pub(crate) length: u32,
    /// When restoring may be tried again, in seconds; of a region's page the region's first.
    pub(crate) note: u32,
    /// The longest free range.
    pub(crate) longest: u16,
    pub(crate) used_pages: u16,
    pub(crate) unbacked_pages: u16,
    pub(crate) allocations: u16,
    /// Pages from this one on were never written since they came from the kernel.
    pub(crate) written: u16,
    /// Pages of the large span that brought this huge page along; of a region's first record a
    /// bound for the longest free range of the region.
    pub(crate) leading: u16,
    /// The list that it is on, counted over all sets, plus one.
    pub(crate) list: u16,
    pub(crate) state: State,
    pub(crate) flags: u8,
}

/// Spandrel's bound for what a terabyte of address space may cost (`docs/targets.md`, B4).
const _: () = assert!(size_of::<Tracker>() <= 128);

impl Tracker {
    /// An otherwise empty record.
    pub(crate) fn with_state(state: State) -> Self {
        Self { state, ..Self::default() }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Pages that a large span has left here.
    pub(crate) fn abandoned(&self) -> u16 {
        if self.has(flag::ABANDONED) { self.leading } else { 0 }
    }

    pub(crate) fn node(&self) -> Node {
        let [first, second, ..] = self.unbacked.0;
        Node {
            parent: Link(first as u32),
            left: Link((first >> 32) as u32),
            right: Link(second as u32),
            largest: (second >> 32) as u32,
        }
    }

    pub(crate) fn set_node(&mut self, node: Node) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.unbacked =
            Bits([pair(node.parent.0, node.left.0), pair(node.right.0, node.largest), 0, 0]);
    }
}

/// The caller's records. A number beyond them reads as a record that was never used, and writes
/// to it go nowhere: no number can make the page heap panic.
pub(crate) struct Table<'a> {
    records: &'a mut [Tracker],
    beyond: Tracker,
}

impl<'a> Table<'a> {
    pub(crate) const fn new(records: &'a mut [Tracker]) -> Self {
        const UNUSED: Tracker = Tracker {
            used: Bits::NONE,
            starts: Bits::NONE,
            unbacked: Bits::NONE,
            next: Link::NONE,
            previous: Link::NONE,
            length: 0,
            note: 0,
            longest: 0,
            used_pages: 0,
            unbacked_pages: 0,
            allocations: 0,
            written: 0,
            leading: 0,
            list: 0,
            state: State::Inside,
            flags: 0,
        };
        Self { records, beyond: UNUSED }
    }

    /// Huge pages of the slice: as many as have a record and 32-bit page numbers.
    pub(crate) fn hugepages(&self) -> HugeLength {
        const MOST: usize = 1 << 24;
        HugeLength(self.records.len().min(MOST) as u32)
    }
}

impl Index<HugePageId> for Table<'_> {
    type Output = Tracker;

    #[inline]
    fn index(&self, page: HugePageId) -> &Tracker {
        self.records.get(page.0 as usize).unwrap_or(&self.beyond)
    }
}

impl IndexMut<HugePageId> for Table<'_> {
    #[inline]
    fn index_mut(&mut self, page: HugePageId) -> &mut Tracker {
        match self.records.get_mut(page.0 as usize) {
            Some(record) => record,
            None => {
                self.beyond = Tracker::default();
                &mut self.beyond
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn a_record_is_small_and_zero_means_never_used() {
        assert!(size_of::<Tracker>() <= 128);
        let tracker = Tracker::default();
        assert_eq!(tracker.state, State::Inside);
        assert_eq!(tracker.next.get(), None);
        assert_eq!(tracker.node(), Node::default());
    }

    #[test]
    fn nodes_survive_packing() {
        let link = |n| Link::to(HugePageId(n));
        let node = Node { parent: link(7), left: link(u32::MAX - 1), right: link(0), largest: 9 };
        let mut tracker = Tracker::default();
        tracker.set_node(node);
        assert_eq!(tracker.node(), node);
    }

    #[test]
    fn beyond_the_table_nothing_sticks() {
        let mut records = std::vec![Tracker::default(); 2];
        let mut table = Table::new(&mut records);
        table[HugePageId(5)].state = State::Large;
        table[HugePageId(6)].length = 1;
        assert_eq!(table[HugePageId(6)].state, State::Inside);
    }
}
