//! Which huge pages are not backed, for a caller that closes them or releases their address space.

use core::ops::ControlFlow;

use spandrel_pages::{HEAP_PAGES_PER_HUGEPAGE, HugeLength, HugePageId};

use crate::heap::PageHeap;
use crate::huge_region::is_unbacked;
use crate::tracker::State;

impl PageHeap<'_> {
    /// Shows each range of huge pages below the frontier that are not backed: nothing lies on them, and they are backed again before
    /// anything does. Linear in the number of ranges, large spans and huge pages in use.
    pub fn unbacked(&self, mut each: impl FnMut(HugePageId, HugeLength)) {
        self.unbacked_from(HugePageId(0), |first, count| {
            each(first, count);
            ControlFlow::Continue(())
        });
    }

    /// The same from a huge page on with which a range began that was shown before, until `each` breaks.
    pub fn unbacked_from(
        &self,
        from: HugePageId,
        mut each: impl FnMut(HugePageId, HugeLength) -> ControlFlow<()>,
    ) {
        let mut at = from;
        while at < self.frontier() {
            let tracker = &self.table[at];
            let (count, is_unbacked) = match tracker.state {
                State::Free => (tracker.length, true),
                State::Cached | State::Gone => (tracker.length, false),
                State::Large => (tracker.length / HEAP_PAGES_PER_HUGEPAGE, false),
                State::Region if is_unbacked(tracker) => (self.unbacked_in_region(at), true),
                _ => (1, false),
            };
            if is_unbacked && each(at, HugeLength(count)).is_break() {
                return;
            }
            at = HugePageId(at.0.saturating_add(count.max(1)));
        }
    }

    /// The number of huge pages in a row from this one on that are the same region's and not backed.
    fn unbacked_in_region(&self, first: HugePageId) -> u32 {
        let region = self.table[first].note;
        let is_one = |page: &HugePageId| {
            let tracker = &self.table[*page];
            tracker.state == State::Region && tracker.note == region && is_unbacked(tracker)
        };
        (first.0..self.frontier().0).map(HugePageId).take_while(is_one).count() as u32
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use spandrel_pages::{Length, PageId};

    use super::*;
    use crate::{Collapse, Memory, Paper, Request, Settings, Tracker, Urgency};

    #[test]
    fn all_that_is_vacant_is_shown_once() {
        let mut records = vec![Tracker::default(); 4096];
        let settings = Settings { region_slack: Length(0), ..Settings::DEFAULT };
        let mut heap = PageHeap::new(&mut records, settings);
        let mut paper = Paper { collapse: Collapse::Unsupported };
        let mut live = Vec::new();
        // Small spans, spans of a region, and spans of several huge pages with and without a tail.
        for pages in [1, 300, 7, 512, 700, 130, 3, 300, 1024, 90] {
            let request = Request::pages(Length(pages));
            live.push((heap.allocate(&mut paper, 0, request).unwrap(), pages));
        }
        let check = |heap: &PageHeap| {
            let mut ranges: Vec<(u32, u32)> = Vec::new();
            heap.unbacked(|first, count| ranges.push((first.0, count.0)));
            assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{ranges:?}");
            let sum: u32 = ranges.iter().map(|(_, count)| count).sum();
            assert_eq!(sum, heap.stats().vacant.0);
        };
        check(&heap);
        while let Some((span, pages)) = live.pop() {
            assert!(heap.free(&mut paper, 0, span.first, Length(pages)));
            check(&heap);
            heap.release(&mut paper, 0, Length::MAX, Urgency::Asked);
            check(&heap);
        }
        assert_eq!(heap.stats().vacant.0, heap.frontier().0);
    }

    /// A kernel that has released the address space of some huge pages.
    struct Holes(core::ops::Range<u32>);

    impl Memory for Holes {
        fn back(&mut self, first: HugePageId, count: HugeLength) -> bool {
            !self.is_gone(first, count)
        }

        fn is_gone(&self, first: HugePageId, count: HugeLength) -> bool {
            first.0 < self.0.end && self.0.start < first.0 + count.0
        }

        fn unback(&mut self, _: PageId, _: Length) -> bool {
            true
        }

        fn collapse(&mut self, _: HugePageId) -> Collapse {
            Collapse::Unsupported
        }
    }

    #[test]
    fn what_is_gone_is_never_handed_out_again() {
        let mut records = vec![Tracker::default(); 4096];
        let mut heap = PageHeap::new(&mut records, Settings::DEFAULT);
        let mut memory = Holes(0..0);
        let get = |heap: &mut PageHeap, memory: &mut Holes, pages| {
            heap.allocate(memory, 0, Request::pages(Length(pages))).unwrap().first
        };
        let large = get(&mut heap, &mut memory, 100 * 256);
        let behind = get(&mut heap, &mut memory, 256);
        assert!(heap.free(&mut memory, 0, large, Length(100 * 256)));
        heap.release(&mut memory, 0, Length::MAX, Urgency::Asked);
        // A hole in the middle of the vacant range.
        memory.0 = 10..60;
        let spans: Vec<PageId> = (0..60).map(|_| get(&mut heap, &mut memory, 256)).collect();
        assert!(spans.iter().all(|span| !memory.0.contains(&span.hugepage().0)));
        assert_eq!(heap.check(), Ok(()));
        // The 50 huge pages on both sides were used first.
        assert_eq!(spans.iter().filter(|span| span.hugepage().0 < 100).count(), 50);
        // A span that is longer than either side lies behind.
        for span in spans {
            assert!(heap.free(&mut memory, 0, span, Length(256)));
        }
        heap.release(&mut memory, 0, Length::MAX, Urgency::Asked);
        assert!(get(&mut heap, &mut memory, 45 * 256).hugepage() > behind.hugepage());
        assert_eq!(heap.check(), Ok(()));
    }
}
