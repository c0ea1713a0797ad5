//! What the page heap tells about itself.

use spandrel_pages::{HugeLength, HugePageId, Length};

use crate::bits::PAGES;
use crate::heap::PageHeap;
use crate::huge_region::REGION;
use crate::tracker::{State, flag};

/// Pages that went back to the kernel since the beginning, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Released {
    /// Empty huge pages that recent demand did not justify keeping.
    pub demand: u64,
    /// The program asked for it.
    pub asked: u64,
    /// The steady release in the background.
    pub background: u64,
    /// A broken huge page had drained.
    pub drained: u64,
    /// The kernel had refused memory.
    pub pressure: u64,
}

impl Released {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.demand + self.asked + self.background + self.drained + self.pressure
    }
}

/// Events since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Pages that went back.
    pub released: Released,
    /// Of these, pages of huge pages that were still in use.
    pub subreleased: u64,
    /// Huge pages that were broken by it.
    pub broken: u64,
    /// Huge pages that began with small pages.
    pub begun_small: u64,
    /// Huge pages that came out of the cache.
    pub from_cache: u64,
    /// Huge pages that the kernel had to give.
    pub from_kernel: u64,
    /// Times that the kernel refused to back huge pages.
    pub refused: u64,
    /// Attempts to restore a broken huge page.
    pub collapse_attempts: u64,
    /// Of these, failures.
    pub collapse_failures: u64,
    /// Huge pages that are or were whole again by it.
    pub restored: u64,
    /// Time that the attempts took.
    pub collapse_micros: u64,
    /// The longest of them.
    pub collapse_max_micros: u32,
    /// The kernel cannot do it at all.
    pub collapse_unsupported: bool,
}

impl Counters {
    pub(crate) const NONE: Self = Self {
        released: Released { demand: 0, asked: 0, background: 0, drained: 0, pressure: 0 },
        subreleased: 0,
        broken: 0,
        begun_small: 0,
        from_cache: 0,
        from_kernel: 0,
        refused: 0,
        collapse_attempts: 0,
        collapse_failures: 0,
        restored: 0,
        collapse_micros: 0,
        collapse_max_micros: 0,
        collapse_unsupported: false,
    };
}

/// Where the memory is. Up to the frontier, `live + cached + free + unbacked + vacant` is all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Spans that are handed out.
    pub spans: u32,
    /// Their pages.
    pub live: Length,
    /// Empty huge pages that are kept backed, those of regions included.
    pub cached: HugeLength,
    /// Backed free pages on huge pages that are partly used.
    pub free: Length,
    /// Unbacked free pages on huge pages that are partly used.
    pub unbacked: Length,
    /// Unbacked empty huge pages that were used once, those of regions and those that are gone included.
    pub vacant: HugeLength,
    /// Huge pages that lie in the filler.
    pub filler: HugeLength,
    /// Of these, broken ones.
    pub broken: HugeLength,
    /// Of these, those that have filled again: to half, by a quarter of what went back.
    pub refilled: HugeLength,
    /// Used pages that lie on whole huge pages.
    pub covered: Length,
    /// Regions of 1 GiB.
    pub regions: u32,
    /// Pages of spans in regions.
    pub region_live: Length,
    /// Pages behind living large spans on their last huge pages, used or not.
    pub slack: Length,
    /// Pages that large spans have left on huge pages that others still use.
    pub abandoned: Length,
    /// The largest empty range, backed or not.
    pub largest: HugeLength,
    /// Pages that had gone back and were wanted again, since the beginning.
    pub wanted_again: u64,
    /// Of the free pages those that were kept, when a release was due last, because recent demand
    /// will want them.
    pub kept_for_demand: Length,
    /// Seconds of past demand for which free pages are kept.
    pub patience_s: u32,
    /// What has happened so far.
    pub counters: Counters,
}

impl Stats {
    /// Pages that are backed.
    pub fn resident(&self) -> Length {
        self.live.saturating_add(self.cached.pages()).saturating_add(self.free)
    }
}

impl PageHeap<'_> {
    /// Begins to count anew what happens, as in the child of a fork.
    pub fn forget_counters(&mut self) {
        let collapse_unsupported = self.counters.collapse_unsupported;
        self.counters = Counters { collapse_unsupported, ..Counters::NONE };
    }

    /// Pages that could go back: of the cache what is beyond its least, and free backed pages on
    /// huge pages that are in use.
    pub fn idle(&self) -> Length {
        let empty = self.cache.ranges.total.saturating_add(HugeLength(self.regions.counts.empty));
        let cached = empty.saturating_sub(self.cache.least).pages();
        cached.saturating_add(Length(self.filler.counts.free_backed()))
    }

    /// Free pages that are not given back: [`Self::idle`] and what the cache keeps whatever demand says.
    pub fn kept(&self) -> Length {
        let empty = self.cache.ranges.total.saturating_add(HugeLength(self.regions.counts.empty));
        empty.pages().saturating_add(Length(self.filler.counts.free_backed()))
    }

    /// Pages that the heap has from the kernel, in use or not: [`Stats::resident`], quickly.
    pub fn backed(&self) -> Length {
        let (filler, region) = (&self.filler.counts, &self.regions.counts);
        let region_free = (region.occupied.saturating_mul(PAGES)).saturating_sub(region.used);
        let cached = self.cache.ranges.total.saturating_add(HugeLength(region.empty));
        cached
            .pages()
            .saturating_add(Length(self.live))
            .saturating_add(Length(filler.free_backed().saturating_add(region_free)))
    }

    /// Used pages that would count as covered, and lie on huge pages that are not advised to be huge.
    fn used_not_advised(&self) -> u32 {
        let end = self.settings.not_advised.0;
        let (mut at, mut used) = (0, 0);
        while at < end {
            let tracker = &self.table[HugePageId(at)];
            let whole = match tracker.state {
                State::Large => Length(tracker.length).hugepages_down().0.min(end - at),
                _ => 0,
            };
            if whole == 0 && !tracker.has(flag::BROKEN) {
                used += u32::from(tracker.used_pages);
            }
            used += whole * PAGES;
            at += whole.max(1);
        }
        used
    }

    /// Where the memory is at present, and what has happened so far.
    pub fn stats(&self) -> Stats {
        let (filler, region) = (&self.filler.counts, &self.regions.counts);
        let hugepages = region.regions.saturating_mul(REGION.0);
        let unbacked = hugepages.saturating_sub(region.occupied + region.empty);
        let region_free = (region.occupied.saturating_mul(PAGES)).saturating_sub(region.used);
        Stats {
            spans: self.spans,
            live: Length(self.live),
            cached: self.cache.ranges.total.saturating_add(HugeLength(region.empty)),
            free: Length(filler.free_backed().saturating_add(region_free)),
            unbacked: Length(filler.unbacked),
            vacant: self
                .vacant
                .free
                .total
                .saturating_add(self.vacant.gone.total)
                .saturating_add(HugeLength(unbacked)),
            filler: HugeLength(filler.hugepages),
            broken: HugeLength(filler.broken),
            refilled: HugeLength(filler.refilled),
            covered: Length(self.live.saturating_sub(filler.used_broken + self.used_not_advised())),
            regions: region.regions,
            region_live: Length(region.used),
            slack: Length(self.slack),
            abandoned: Length(filler.abandoned),
            largest: self
                .vacant
                .free
                .largest(&self.table)
                .max(self.cache.ranges.largest(&self.table)),
            wanted_again: self.filler.wanted_again,
            kept_for_demand: Length(self.kept_for_demand.min(filler.free_backed())),
            patience_s: self.demand.seconds(),
            counters: self.counters,
        }
    }
}
