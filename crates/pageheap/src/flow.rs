//! Which component serves which span (4.1, Fig. 7), and where freed pages go.

use spandrel_pages::{HEAP_PAGES_PER_HUGEPAGE, HugeLength, HugePageId, Length, PageId, spread};

use crate::bits::PAGES;
use crate::heap::PageHeap;
use crate::huge_filler::{Contribution, HugeFiller, Placed};
use crate::huge_region::{HugeRegions, REGION};
use crate::memory::Memory;
use crate::ranges::Range;
use crate::request::{Request, Span};
use crate::tracker::{State, Tracker, flag};

/// A huge page for a span up to this may begin with small pages. Longer ones would have it made
/// whole soon, perhaps before anything of it is touched.
const MOST_BY_ONE: u32 = HEAP_PAGES_PER_HUGEPAGE / 8;
const ONE: HugeLength = HugeLength(1);

/// Spans from this number of pages on begin at different pages of huge pages: 32 KiB.
const COLOURED_PAGES: u32 = HEAP_PAGES_PER_HUGEPAGE / 64;
/// The last page that the first of them begins at: 120 KiB.
const MOST_COLOUR: u32 = HEAP_PAGES_PER_HUGEPAGE / 16 - 1;
/// Spans that fill huge pages, and lose one in 16 to 32 of them for it.
const FILLING_PAGES: core::ops::RangeInclusive<u32> =
    HEAP_PAGES_PER_HUGEPAGE / 32..=HEAP_PAGES_PER_HUGEPAGE / 16;

/// The page of a fresh huge page at which its first span begins. As many fit as from page 0 on, unless they fill the huge page. (1,000 rows of 160,000 B, walked by
/// columns: 2.3 ns an element where all huge pages have them at the same places, 1.3 so; of 80,000 B 2.6 and 0.8.)
fn colour(page: HugePageId, pages: u32) -> u32 {
    if pages < COLOURED_PAGES {
        return 0;
    }
    let left = match PAGES % pages {
        0 if FILLING_PAGES.contains(&pages) => pages - 1,
        left => left,
    };
    spread(page.0 as usize, left.min(MOST_COLOUR) as usize + 1) as u32
}

/// Empty huge pages that are backed.
#[derive(Clone, Copy)]
enum Pool {
    /// For any span.
    Cache,
    /// For spans of regions.
    Regions,
}

impl PageHeap<'_> {
    /// Hands out a span. `None`: the slice is full, the kernel refuses memory, or the request
    /// makes no sense (no pages, an alignment that is no power of two).
    pub fn allocate(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        request: Request,
    ) -> Option<Span> {
        let (pages, align) = (request.pages.0, request.align.0.max(1));
        if pages == 0 || !align.is_power_of_two() {
            return None;
        }
        let refilled = self.filler.counts.refilled;
        let placed = if pages <= self.settings.within_hugepage.0 && align <= PAGES {
            self.allocate_small(memory, now_ms, pages, align, request.objects)
        } else {
            self.allocate_large(memory, now_ms, pages, align)
        }?;
        if self.filler.counts.refilled > refilled {
            self.repair.note(placed.first.hugepage());
        }
        self.live = self.live.saturating_add(pages);
        self.spans = self.spans.saturating_add(1);
        self.demand.observe(now_ms, self.filler.counts.used);
        self.stepped();
        Some(Span { first: placed.first, pages: request.pages, zeroed: placed.zeroed })
    }

    #[inline]
    fn allocate_small(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        pages: u32,
        align: u32,
        objects: u32,
    ) -> Option<Placed> {
        // Only single pages are dense: on a huge page of theirs every free page fits.
        let dense = pages == 1 && objects > self.settings.sparse_objects;
        if let Some(placed) = self.filler.allocate(&mut self.table, pages, align, dense) {
            return Some(placed);
        }
        let (page, fresh, small) = self.hugepage(memory, now_ms, pages)?;
        let kind = Contribution::Span { dense };
        let is_coloured = self.settings.coloured && !dense && align == 1 && !small;
        let at = if is_coloured { colour(page, pages) } else { 0 };
        self.filler.contribute(&mut self.table, page, fresh, at, pages, kind);
        if small {
            self.counters.begun_small += 1;
            self.filler.begin_small(&mut self.table, page);
        }
        Some(Placed { first: page.first_page().after(Length(at)), zeroed: fresh })
    }

    fn allocate_large(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        pages: u32,
        align: u32,
    ) -> Option<Placed> {
        let whole = Length(pages).beyond_hugepages() == Length::ZERO;
        if !whole && align <= PAGES {
            if pages < PAGES
                && let Some(placed) = self.filler.allocate(&mut self.table, pages, align, false)
            {
                return Some(placed);
            }
            if pages <= REGION.pages().0
                && let Some(placed) = self.allocate_in_region(memory, now_ms, pages, align)
            {
                return Some(placed);
            }
        }
        let (count, align) = (Length(pages).hugepages_up(), Length(align).hugepages_up());
        let (range, fresh) = self.hugepages(memory, now_ms, count, align)?;
        let tail = Length(pages).beyond_hugepages().0;
        if pages >= PAGES {
            self.table[range.first] =
                Tracker { length: pages, ..Tracker::with_state(State::Large) };
        }
        if tail > 0 {
            let last = HugePageId(range.end().0 - 1);
            let kind = if pages < PAGES { Contribution::Large } else { Contribution::Tail };
            self.filler.contribute(&mut self.table, last, fresh, 0, tail, kind);
            self.slack = self.slack.saturating_add(PAGES - tail);
        }
        Some(Placed { first: range.first.first_page(), zeroed: fresh })
    }

    /// Regions serve when there are any; they are made when large spans have left more pages
    /// behind them than small ones fill.
    fn allocate_in_region(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        pages: u32,
        align: u32,
    ) -> Option<Placed> {
        let occupied = self.regions.counts.occupied;
        let backed = occupied.saturating_add(self.regions.counts.empty);
        let mut placed = self.regions.allocate(&mut self.table, memory, pages, align);
        let wasted = self.slack.saturating_add(self.filler.counts.abandoned);
        if placed.is_none() && wasted >= self.settings.region_slack.0 {
            self.regions.add(&mut self.table, memory, &mut self.vacant)?;
            placed = self.regions.allocate(&mut self.table, memory, pages, align);
            if let Some(newest) = self.regions.newest() {
                // It stays empty, and must not, when the kernel refuses memory for it.
                let (cached, free) = (&mut self.cache.ranges, &mut self.vacant.free);
                self.regions.dissolve(&mut self.table, newest, cached, free);
            }
        }
        let counts = &self.regions.counts;
        let more = counts.occupied.saturating_sub(occupied);
        let from_kernel = counts.occupied.saturating_add(counts.empty).saturating_sub(backed);
        self.cache.taken(now_ms, HugeLength(more));
        self.give_for(memory, HugeLength(from_kernel), Pool::Cache);
        placed
    }

    /// A backed huge page for small spans, from the cache or the kernel; whether the kernel gave
    /// it just now, and whether in small pages.
    fn hugepage(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        pages: u32,
    ) -> Option<(HugePageId, bool, bool)> {
        let may_be_small = pages <= MOST_BY_ONE
            && self.cache.ranges.total == HugeLength::ZERO
            && !self.counters.collapse_unsupported;
        if may_be_small && memory.begins_small() {
            let range = self.vacant.allocate(&mut self.table, memory, ONE, ONE)?;
            if memory.back_small(range.first) {
                self.counters.from_kernel += 1;
                self.cache.taken(now_ms, ONE);
                return Some((range.first, true, true));
            }
            self.vacant.free.insert(&mut self.table, range);
        }
        let (range, fresh) = self.hugepages(memory, now_ms, ONE, ONE)?;
        Some((range.first, fresh, false))
    }

    /// Backed huge pages, from the cache or the kernel; true when the kernel gave them just now.
    pub(crate) fn hugepages(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        count: HugeLength,
        align: HugeLength,
    ) -> Option<(Range, bool)> {
        let (range, fresh) = match self.cache.allocate(&mut self.table, count, align) {
            Some(range) => (range, false),
            None => (self.fresh_hugepages(memory, count, align)?, true),
        };
        let from =
            if fresh { &mut self.counters.from_kernel } else { &mut self.counters.from_cache };
        *from += u64::from(count.0);
        self.cache.taken(now_ms, count);
        Some((range, fresh))
    }

    fn fresh_hugepages(
        &mut self,
        memory: &mut impl Memory,
        count: HugeLength,
        align: HugeLength,
    ) -> Option<Range> {
        self.give_for(memory, count, Pool::Regions);
        let range = loop {
            let range = self.vacant.allocate(&mut self.table, memory, count, align)?;
            if memory.back(range.first, count) {
                return Some(range);
            }
            if !memory.is_gone(range.first, count) {
                break range;
            }
            self.part_with(memory, range);
        };
        // The kernel may have room for them once it has what lies in the cache.
        let cached = self.cache.ranges.total;
        let given = self.release_whole(memory, cached);
        self.counters.refused = self.counters.refused.saturating_add(1);
        self.counters.released.pressure += u64::from(given.pages().0);
        if given > HugeLength::ZERO && memory.back(range.first, count) {
            return Some(range);
        }
        self.vacant.free.insert(&mut self.table, range);
        None
    }

    /// Releases up to `count` empty huge pages of a pool, because a span that the pool cannot serve takes this number from the kernel. Otherwise
    /// both would stay resident.
    fn give_for(&mut self, memory: &mut impl Memory, count: HugeLength, pool: Pool) {
        let empty = match pool {
            Pool::Cache => self.cache.ranges.total,
            Pool::Regions => HugeLength(self.regions.counts.empty),
        };
        let count = count.min(empty);
        if count == HugeLength::ZERO {
            return;
        }
        let gone = match pool {
            Pool::Cache => {
                let free = &mut self.vacant.free;
                self.cache.release(&mut self.table, free, memory, count)
            }
            Pool::Regions => self.release_regions(memory, count),
        };
        self.counters.released.demand += u64::from(gone.pages().0);
    }

    /// Enters those of a range's huge pages that are gone as such, and the others as vacant.
    #[cold]
    fn part_with(&mut self, memory: &impl Memory, range: Range) {
        for page in (range.first.0..range.end().0).map(HugePageId) {
            let one = Range { first: page, count: ONE };
            let is_gone = memory.is_gone(page, ONE);
            let ranges = if is_gone { &mut self.vacant.gone } else { &mut self.vacant.free };
            ranges.insert(&mut self.table, one);
        }
    }

    /// Takes a span back. False: there is no such span, and nothing was done.
    pub fn free(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        first: PageId,
        pages: Length,
    ) -> bool {
        self.take_back(memory, now_ms, first, pages, false)
    }

    /// As [`Self::free`], for a span whose huge pages are mapped by small pages: those that are empty now go back to the kernel, as they are whole when
    /// they come again.
    pub fn free_broken(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        first: PageId,
        pages: Length,
    ) -> bool {
        self.take_back(memory, now_ms, first, pages, true)
    }

    fn take_back(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        first: PageId,
        pages: Length,
        broken: bool,
    ) -> bool {
        let page = first.hugepage();
        let tracker = &self.table[page];
        match tracker.state {
            State::Filler if HugeFiller::holds(tracker, first.offset(), pages.0) => {
                let at = first.offset();
                let brought = at == 0
                    && u32::from(tracker.leading) == pages.0
                    && !tracker.has(flag::ABANDONED);
                let empty = self.filler.free(&mut self.table, page, at, pages.0);
                self.settle(memory, now_ms, page, empty, brought);
            }
            State::Region if HugeRegions::holds(&self.table, first, pages.0) => {
                let emptied = self.regions.free(&mut self.table, first, pages.0);
                self.cache.returned(now_ms, emptied);
                if broken && emptied > HugeLength::ZERO {
                    let gone = self.regions.unback_empty(&mut self.table, memory, first, pages.0);
                    self.counters.released.drained += u64::from(gone.pages().0);
                }
                // What fills and empties a region again and again finds its pages there.
                if self.regions.counts.regions > 1 {
                    let (cached, free) = (&mut self.cache.ranges, &mut self.vacant.free);
                    self.regions.dissolve(&mut self.table, page, cached, free);
                }
                self.trim_cache(memory, now_ms);
            }
            State::Large if first.offset() == 0 && tracker.length == pages.0 => {
                let whole = pages.hugepages_down();
                let tail = pages.beyond_hugepages().0;
                self.table[page] = Tracker::default();
                if tail > 0 {
                    let last = page.after(whole);
                    let empty = self.filler.vacate(&mut self.table, last, 0, tail);
                    self.settle(memory, now_ms, last, empty, true);
                }
                let range = Range { first: page, count: whole };
                if broken && memory.unback(page.first_page(), whole.pages()) {
                    self.counters.released.drained += u64::from(whole.pages().0);
                    self.cache.returned(now_ms, whole);
                    self.vacant.free.insert(&mut self.table, range);
                } else {
                    self.put_cached(now_ms, range);
                }
                self.trim_cache(memory, now_ms);
            }
            _ => return false,
        }
        self.live = self.live.saturating_sub(pages.0);
        self.spans = self.spans.saturating_sub(1);
        self.demand.observe(now_ms, self.filler.counts.used);
        self.stepped();
        true
    }

    /// What becomes of a huge page of the filler on which something was freed. `brought`: the
    /// span for which it was taken.
    #[inline]
    fn settle(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        page: HugePageId,
        empty: bool,
        brought: bool,
    ) {
        if brought {
            self.slack = self.slack.saturating_sub(PAGES - u32::from(self.table[page].leading));
            self.filler.edit(&mut self.table, page, |tracker| {
                // What the span left behind waits for others as long as another span holds on.
                tracker.flags |= flag::ABANDONED;
            });
        }
        if empty && !self.table[page].has(flag::RESTORING) {
            self.dispose(memory, now_ms, page);
        }
    }

    /// Takes an empty huge page out of the filler. A whole one is worth keeping; a broken one is
    /// whole again when it comes back from the kernel.
    pub(crate) fn dispose(&mut self, memory: &mut impl Memory, now_ms: u64, page: HugePageId) {
        self.filler.withdraw(&mut self.table, page);
        let tracker = core::mem::take(&mut self.table[page]);
        let range = Range { first: page, count: ONE };
        if tracker.has(flag::BROKEN) && memory.unback(page.first_page(), Length::HUGEPAGE) {
            let backed = PAGES - u32::from(tracker.unbacked_pages);
            self.counters.released.drained += u64::from(backed);
            self.cache.returned(now_ms, ONE);
            self.vacant.free.insert(&mut self.table, range);
            return;
        }
        self.put_cached(now_ms, range);
        self.trim_cache(memory, now_ms);
    }

    /// Puts backed huge pages that hold nothing into the cache.
    pub(crate) fn put_cached(&mut self, now_ms: u64, range: Range) {
        self.cache.ranges.insert(&mut self.table, range);
        self.cache.returned(now_ms, range.count);
    }
}
