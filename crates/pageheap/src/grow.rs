//! Growing a span where it lies.

use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

use crate::bits::PAGES;
use crate::heap::PageHeap;
use crate::huge_filler::{Contribution, HugeFiller};
use crate::huge_region::HugeRegions;
use crate::memory::Memory;
use crate::ranges::Range;
use crate::request::Span;
use crate::tracker::{State, Tracker, flag};

impl PageHeap<'_> {
    /// Lets the span of `pages` pages at `first` have `wanted`, if what follows it is free.
    /// Returns the pages that it gained. `None`: there is no such span, it is no smaller than
    /// wanted, something lies behind it, or the kernel refuses memory; nothing was done then.
    pub fn try_grow(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        first: PageId,
        pages: Length,
        wanted: Length,
    ) -> Option<Span> {
        let more = wanted.0.checked_sub(pages.0).filter(|more| *more > 0)?;
        let page = first.hugepage();
        let gained = first.after(pages);
        let refilled = self.filler.counts.refilled;
        let tracker = &self.table[page];
        let zeroed = match tracker.state {
            State::Filler if HugeFiller::holds(tracker, first.offset(), pages.0) => {
                let zeroed =
                    self.filler.grow(&mut self.table, page, first.offset() + pages.0, more)?;
                self.grow_leading(page, first.offset(), pages.0, more);
                zeroed
            }
            State::Region if HugeRegions::holds(&self.table, first, pages.0) => {
                let occupied = self.regions.counts.occupied;
                let region = self.table[page].note;
                let zeroed = self.regions.grow(&mut self.table, memory, region, gained, more);
                let more = self.regions.counts.occupied.saturating_sub(occupied);
                self.cache.taken(now_ms, HugeLength(more));
                zeroed?
            }
            State::Large if first.offset() == 0 && tracker.length == pages.0 => {
                self.grow_large(memory, now_ms, page, pages, wanted)?
            }
            _ => return None,
        };
        if self.filler.counts.refilled > refilled {
            self.repair.note(gained.hugepage());
        }
        self.live = self.live.saturating_add(more);
        self.demand.observe(now_ms, self.filler.counts.used);
        self.stepped();
        Some(Span { first: gained, pages: Length(more), zeroed })
    }

    /// A span that brought its huge page along leaves less of it to others.
    fn grow_leading(&mut self, page: HugePageId, at: u32, pages: u32, more: u32) {
        let tracker = &mut self.table[page];
        let brought = u32::from(tracker.leading) == pages && !tracker.has(flag::ABANDONED);
        if at == 0 && brought {
            tracker.leading += more as u16;
            self.slack = self.slack.saturating_sub(more);
        }
    }

    fn grow_large(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        page: HugePageId,
        pages: Length,
        wanted: Length,
    ) -> Option<bool> {
        let whole = pages.hugepages_down();
        let tail = pages.beyond_hugepages().0;
        let last = page.after(whole);
        if tail > 0 && wanted.hugepages_down() == whole {
            // It stays within its last huge page.
            let more = wanted.0 - pages.0;
            let zeroed = self.filler.grow(&mut self.table, last, tail, more)?;
            self.grow_leading(last, 0, tail, more);
            self.table[page].length = wanted.0;
            return Some(zeroed);
        }
        let mut zeroed = true;
        if tail > 0 {
            // All of the last huge page must be its own, and not just being restored.
            let tracker = &self.table[last];
            if tracker.allocations > 1 || tracker.has(flag::RESTORING) || tracker.has(flag::BROKEN)
            {
                return None;
            }
            zeroed = u32::from(tracker.written) <= tail;
        }
        let next = page.after(pages.hugepages_up());
        let count = wanted.hugepages_up().saturating_sub(pages.hugepages_up());
        let fresh = self.hugepages_at(memory, now_ms, Range { first: next, count })?;
        if tail > 0 {
            self.filler.withdraw(&mut self.table, last);
            self.table[last] = Tracker::default();
            self.slack = self.slack.saturating_sub(PAGES - tail);
        }
        let rest = wanted.beyond_hugepages().0;
        if rest > 0 {
            let end = HugePageId(page.after(wanted.hugepages_up()).0 - 1);
            // Nothing to withdraw: growth that stays on its last huge page was dealt with.
            self.filler.contribute(&mut self.table, end, fresh, 0, rest, Contribution::Tail);
            self.slack = self.slack.saturating_add(PAGES - rest);
        }
        self.table[page].length = wanted.0;
        Some(zeroed && fresh)
    }

    /// Takes just these huge pages, whether cached or unbacked; true when all of them come from
    /// the kernel just now.
    fn hugepages_at(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        wanted: Range,
    ) -> Option<bool> {
        let (mut taken, mut fresh) = (Range { first: wanted.first, count: HugeLength::ZERO }, true);
        while taken.count < wanted.count {
            let rest = wanted.count.saturating_sub(taken.count);
            let at = taken.end();
            let got = if let Some(whole) = self.cache.ranges.starting_at(&self.table, at) {
                let part = Range { first: at, count: whole.count.min(rest) };
                self.cache.ranges.take(&mut self.table, whole, part);
                fresh = false;
                Some(part.count)
            } else {
                self.unbacked_at(memory, at, rest)
            };
            let Some(got) = got else {
                self.cache.ranges.insert(&mut self.table, taken);
                return None;
            };
            taken.count = taken.count.saturating_add(got);
        }
        self.cache.taken(now_ms, wanted.count);
        Some(fresh)
    }

    fn unbacked_at(
        &mut self,
        memory: &mut impl Memory,
        at: HugePageId,
        rest: HugeLength,
    ) -> Option<HugeLength> {
        // Below the frontier as many as are free, from there on as many as are wanted.
        let free = self.vacant.free.starting_at(&self.table, at);
        let count = match free {
            Some(whole) if whole.end() < self.vacant.frontier => whole.count.min(rest),
            _ => rest,
        };
        let part = Range { first: at, count };
        if !self.vacant.allocate_at(&mut self.table, memory, part) {
            return None;
        }
        if !memory.back(at, count) {
            self.vacant.free.insert(&mut self.table, part);
            return None;
        }
        Some(count)
    }
}
