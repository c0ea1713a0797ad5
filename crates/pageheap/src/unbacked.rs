//! Which huge pages are not backed, for a caller that closes them, or gives their address space back.

use spandrel_pages::{HEAP_PAGES_PER_HUGEPAGE, HugeLength, HugePageId};

use crate::heap::PageHeap;
use crate::huge_region::is_unbacked;
use crate::tracker::State;

/// Where huge pages are that are not backed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere.
    Vacant,
    /// In a region. If they are never backed again the region serves what else it has.
    Region,
}

impl PageHeap<'_> {
    /// Shows each range of huge pages below the frontier that are not backed: nothing lies on them, and they are backed again before
    /// anything does. Linear in the number of ranges, large spans and huge pages in use.
    pub fn unbacked(&self, mut each: impl FnMut(HugePageId, HugeLength, Place)) {
        let mut at = HugePageId(0);
        while at < self.frontier() {
            let tracker = &self.table[at];
            let (count, place) = match tracker.state {
                State::Free => (tracker.length, Some(Place::Vacant)),
                State::Cached => (tracker.length, None),
                State::Large => (tracker.length / HEAP_PAGES_PER_HUGEPAGE, None),
                State::Region if is_unbacked(tracker) => {
                    (self.unbacked_in_region(at), Some(Place::Region))
                }
                _ => (1, None),
            };
            if let Some(place) = place {
                each(at, HugeLength(count), place);
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

    use spandrel_pages::Length;

    use super::*;
    use crate::{Collapse, Paper, Request, Settings, Tracker, Urgency};

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
            heap.unbacked(|first, count, _| ranges.push((first.0, count.0)));
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
}
