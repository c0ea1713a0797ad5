//! Counts everything again, over all records, and compares.

use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

use crate::bits::{Bits, PAGES};
use crate::heap::PageHeap;
use crate::huge_filler::{self, HugeFiller};
use crate::huge_region::{self, HugeRegions, REGION};
use crate::ranges::Ranges;
use crate::tracker::{State, Tracker, flag};

/// A record, or a count over all records, that is wrong. For tests: there is no way that a caller
/// could bring it about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The huge page at which it was found; the frontier for counts.
    pub page: HugePageId,
    /// What is wrong.
    pub what: &'static str,
}

/// What the records add up to.
#[derive(Default)]
struct Sums {
    gone: HugeLength,
    free: HugeLength,
    cached: HugeLength,
    large: HugeLength,
    slack: u32,
    filler: huge_filler::Counts,
    listed: u32,
    region: huge_region::Counts,
}

fn ensure(page: HugePageId, holds: bool, what: &'static str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault { page, what }) }
}

impl PageHeap<'_> {
    /// Ends an operation. In debug builds all records are checked, of a larger heap after as many operations as
    /// it has huge pages: about one record for each.
    #[inline]
    pub(crate) fn stepped(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.unchecked += 1;
            if self.unchecked >= self.vacant.frontier.0 {
                self.unchecked = 0;
                assert_eq!(self.check(), Ok(()));
            }
        }
    }

    /// Whether a span of exactly this number of pages begins at a page.
    pub fn holds(&self, first: PageId, pages: Length) -> bool {
        let tracker = &self.table[first.hugepage()];
        match tracker.state {
            State::Filler => HugeFiller::holds(tracker, first.offset(), pages.0),
            State::Region => HugeRegions::holds(&self.table, first, pages.0),
            State::Large => first.offset() == 0 && tracker.length == pages.0,
            _ => false,
        }
    }

    /// Walks all records up to the frontier.
    ///
    /// # Errors
    /// The first thing that is not as it should be.
    pub fn check(&self) -> Result<(), Fault> {
        let mut sums = Sums::default();
        let end = self.vacant.frontier;
        let mut at = HugePageId(0);
        while at < end {
            let count = match self.table[at].state {
                State::Free => self.check_range(at, &self.vacant.free, &mut sums.free)?,
                State::Gone => self.check_range(at, &self.vacant.gone, &mut sums.gone)?,
                State::Cached => self.check_range(at, &self.cache.ranges, &mut sums.cached)?,
                State::Large => self.check_large(at, &mut sums)?,
                State::Filler => self.check_filler(at, &mut sums)?,
                State::Region => self.check_region(at, &mut sums)?,
                State::Inside | State::FreeEnd | State::CachedEnd | State::GoneEnd => {
                    return Err(Fault { page: at, what: "no beginning of anything" });
                }
            };
            at = at.after(count);
        }
        ensure(end, at == end, "the last thing goes beyond the frontier")?;
        ensure(end, sums.free == self.vacant.free.total, "vacant huge pages")?;
        ensure(end, sums.gone == self.vacant.gone.total, "huge pages that are gone")?;
        ensure(end, sums.cached == self.cache.ranges.total, "cached huge pages")?;
        ensure(end, sums.filler == self.filler.counts, "sums of the filler")?;
        let members: u32 = self.filler.sets.iter().map(|lists| lists.members).sum();
        ensure(end, sums.listed == members, "members of lists")?;
        ensure(end, sums.region == self.regions.counts, "sums of regions")?;
        let regions = self.regions.iter(&self.table).count();
        ensure(end, regions == sums.region.regions as usize, "list of regions")?;
        ensure(end, sums.slack == self.slack, "slack")?;
        let live = sums.filler.used + sums.region.used + sums.large.pages().0;
        ensure(end, live == self.live, "pages of spans")?;
        let in_use = sums.filler.hugepages + sums.large.0 + sums.region.occupied;
        ensure(end, in_use == self.cache.in_use(), "huge pages in use")
    }

    fn check_range(
        &self,
        at: HugePageId,
        ranges: &Ranges,
        sum: &mut HugeLength,
    ) -> Result<HugeLength, Fault> {
        let whole = ranges.starting_at(&self.table, at);
        let whole = whole.ok_or(Fault { page: at, what: "range of no kind" })?;
        ensure(at, whole.count > HugeLength::ZERO, "empty range")?;
        let ends = ranges.ending_at(&self.table, whole.end()) == Some(whole);
        ensure(at, ends, "range whose ends differ")?;
        self.check_inside(at, whole.count.0.saturating_sub(2))?;
        let alone = ranges.starting_at(&self.table, whole.end()).is_none();
        ensure(at, alone, "neighbours that are not one range")?;
        *sum = sum.saturating_add(whole.count);
        Ok(whole.count)
    }

    fn check_inside(&self, at: HugePageId, count: u32) -> Result<(), Fault> {
        for index in 1..=count {
            let page = at.after(HugeLength(index));
            ensure(page, self.table[page].state == State::Inside, "not inside")?;
        }
        Ok(())
    }

    fn check_large(&self, at: HugePageId, sums: &mut Sums) -> Result<HugeLength, Fault> {
        let pages = Length(self.table[at].length);
        let whole = pages.hugepages_down();
        self.check_inside(at, whole.0.saturating_sub(1))?;
        let tail = pages.beyond_hugepages().0;
        if tail > 0 {
            let last = &self.table[at.after(whole)];
            let donated = last.state == State::Filler
                && u32::from(last.leading) == tail
                && !last.has(flag::ABANDONED)
                && last.used.contains(Bits::range(0, tail))
                && last.starts.next(0) >= tail;
            ensure(at, donated, "tail of a large span")?;
        }
        sums.large = sums.large.saturating_add(whole);
        Ok(whole)
    }

    fn check_filler(&self, at: HugePageId, sums: &mut Sums) -> Result<HugeLength, Fault> {
        let tracker = &self.table[at];
        check_bitmaps(at, tracker)?;
        let tail = tracker.leading > 0 && !tracker.has(flag::ABANDONED);
        let fictitious = tail && !tracker.starts.get(0);
        let allocations = tracker.starts.count() + u32::from(fictitious);
        ensure(at, u32::from(tracker.allocations) == allocations, "allocations")?;
        let draining = tracker.used_pages == 0 && !tracker.has(flag::RESTORING);
        ensure(at, !draining, "an empty huge page stayed")?;
        let broken = tracker.has(flag::BROKEN) || tracker.unbacked_pages == 0;
        ensure(at, broken, "unbacked pages of a whole huge page")?;
        ensure(at, HugeFiller::is_listed(tracker, self.filler.order), "wrong list")?;
        sums.listed += u32::from(tracker.list != 0);
        sums.filler.add(tracker);
        if tail {
            sums.slack += PAGES - u32::from(tracker.leading);
        }
        Ok(HugeLength(1))
    }

    fn check_region(&self, at: HugePageId, sums: &mut Sums) -> Result<HugeLength, Fault> {
        let mut used = 0;
        for index in 0..REGION.0 {
            let page = at.after(HugeLength(index));
            let tracker = &self.table[page];
            let ours = tracker.state == State::Region && tracker.note == at.0;
            ensure(page, ours, "a stranger in a region")?;
            check_bitmap(page, tracker)?;
            let summed_up = huge_region::is_summed_up(&self.table, at, page);
            ensure(page, summed_up, "summary of a region's page")?;
            let allocations = u32::from(tracker.allocations);
            ensure(page, allocations == tracker.starts.count(), "allocations")?;
            used += u32::from(tracker.used_pages);
            if tracker.used_pages > 0 {
                sums.region.occupied += 1;
            } else if tracker.unbacked_pages == 0 {
                sums.region.empty += 1;
            }
        }
        ensure(at, used == self.table[at].length, "used pages of a region")?;
        ensure(at, used > 0 || self.regions.counts.regions == 1, "an empty region beside others")?;
        sums.region.used += used;
        sums.region.regions += 1;
        Ok(REGION)
    }
}

fn check_bitmaps(page: HugePageId, tracker: &Tracker) -> Result<(), Fault> {
    check_bitmap(page, tracker)?;
    ensure(page, u32::from(tracker.unbacked_pages) == tracker.unbacked.count(), "unbacked pages")?;
    let apart = tracker.used.and(tracker.unbacked).is_empty();
    ensure(page, apart, "a page is used and unbacked")
}

fn check_bitmap(page: HugePageId, tracker: &Tracker) -> Result<(), Fault> {
    ensure(page, u32::from(tracker.used_pages) == tracker.used.count(), "used pages")?;
    ensure(page, u32::from(tracker.longest) == tracker.used.not().longest(), "longest range")?;
    ensure(page, tracker.used.contains(tracker.starts), "a span that begins on a free page")?;
    let written = tracker.used.last_below(PAGES) <= u32::from(tracker.written);
    ensure(page, written, "a used page counts as never written")
}

#[cfg(all(test, debug_assertions))]
mod tests {
    extern crate std;
    use super::*;
    use crate::memory::{Collapse, Paper};
    use crate::request::{Request, Settings};
    use std::vec;

    const HUGEPAGES: u32 = 64;

    /// Whether a heap of this number of huge pages, with this done to it, goes on for this number of spans.
    fn goes_on(hugepages: u32, spoil: fn(&mut PageHeap), spans: u32) -> bool {
        std::panic::catch_unwind(|| {
            let mut records = vec![Tracker::default(); HUGEPAGES as usize];
            let mut heap = PageHeap::new(&mut records, Settings::DEFAULT);
            let mut memory = Paper { collapse: Collapse::Unsupported };
            let mut take = |heap: &mut PageHeap, pages| {
                let request = Request { pages: Length(pages), align: Length(1), objects: 1 };
                heap.allocate(&mut memory, 0, request).expect("there is room");
            };
            (0..hugepages - 1).for_each(|_| take(&mut heap, PAGES));
            take(&mut heap, 1);
            spoil(&mut heap);
            (0..spans).for_each(|_| take(&mut heap, 1));
        })
        .is_ok()
    }

    #[test]
    fn what_is_wrong_with_a_small_heap_is_found_at_once() {
        assert!(goes_on(1, |_| (), 100));
        assert!(!goes_on(1, |heap| heap.live += 1, 1));
        assert!(!goes_on(1, |heap| heap.table[HugePageId(0)].allocations += 1, 1));
        assert!(!goes_on(1, |heap| heap.filler.counts.hugepages += 1, 1));
    }

    #[test]
    fn and_with_a_larger_one_after_as_many_steps_as_it_has_huge_pages() {
        assert!(goes_on(50, |_| (), 100));
        assert!(!goes_on(50, |heap| heap.slack += 1, 50));
    }
}
