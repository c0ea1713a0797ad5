//! `HugeRegion` (4.5): a gibibyte of huge pages with spans end on end across their boundaries.
//!
//! A region is described by the records of its huge pages; the first one also holds its place in
//! the list of regions, how many pages are used and a bound for its longest free range.

use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

use crate::bits::{Bits, PAGES};
use crate::huge_allocator::HugeAllocator;
use crate::huge_filler::Placed;
use crate::memory::Memory;
use crate::ranges::{Range, Ranges};
use crate::tracker::{Link, State, Table, Tracker};

/// Huge pages of a region: 1 GiB (4.5).
pub(crate) const REGION: HugeLength = HugeLength(512);
/// The bound of a region of which nothing is known.
const UNKNOWN: u16 = u16::MAX;

/// What regions hold; all sums can be had by counting over the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) regions: u32,
    pub(crate) used: u32,
    /// Huge pages that hold spans.
    pub(crate) occupied: u32,
    /// Huge pages that hold nothing and are backed.
    pub(crate) empty: u32,
}

/// All regions, the oldest first.
#[derive(Debug)]
pub(crate) struct HugeRegions {
    first: Link,
    last: Link,
    pub(crate) counts: Counts,
}

/// A stretch of pages on one huge page.
type Part = (HugePageId, u32, u32);

/// The huge pages under a stretch of pages.
fn parts(first: PageId, pages: u32) -> impl Iterator<Item = Part> {
    let (mut at, mut left) = (first, pages);
    core::iter::from_fn(move || {
        let count = left.min(PAGES - at.offset());
        let part = (at.hugepage(), at.offset(), count);
        at = at.after(Length(count));
        left -= count;
        (count > 0).then_some(part)
    })
}

/// What a search needs to know of a huge page: free pages at its beginning, in its longest free
/// range and at its end, nine bits each. The records of a region keep eight of them in the place
/// of unbacked pages, as its huge pages are backed or not as a whole: a search reads an eighth of
/// the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Summary(u32);

const SUMMARIES: u32 = 8;
const FIELD: u32 = (1 << 9) - 1;

impl Summary {
    const EMPTY: Self = Self(PAGES | PAGES << 9 | PAGES << 18);

    fn of(tracker: &Tracker) -> Self {
        let after = PAGES - tracker.used.last_below(PAGES);
        Self(tracker.used.next(0) | u32::from(tracker.longest) << 9 | after << 18)
    }

    fn before(self) -> u32 {
        self.0 & FIELD
    }

    fn longest(self) -> u32 {
        self.0 >> 9 & FIELD
    }

    fn after(self) -> u32 {
        self.0 >> 18 & FIELD
    }
}

/// The summaries that the `group`th record of a region keeps.
fn summaries(table: &Table, region: HugePageId, group: u32) -> [Summary; SUMMARIES as usize] {
    let [a, b, c, d] = table[region.after(HugeLength(group))].unbacked.0;
    let (low, high) = (|w: u64| Summary(w as u32), |w: u64| Summary((w >> 32) as u32));
    [low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)]
}

/// Notes what became of a huge page of a region.
fn sum_up(table: &mut Table, region: HugePageId, page: HugePageId) {
    let index = page.0.saturating_sub(region.0);
    let summary = u64::from(Summary::of(&table[page]).0);
    let words = &mut table[region.after(HugeLength(index / SUMMARIES))].unbacked.0;
    let (word, shift) = ((index % SUMMARIES / 2) as usize, index % 2 * 32);
    if let Some(word) = words.get_mut(word) {
        *word = *word & !(u64::from(u32::MAX) << shift) | summary << shift;
    }
}

fn summary(table: &Table, region: HugePageId, page: HugePageId) -> Option<Summary> {
    let index = page.0.saturating_sub(region.0);
    let group = summaries(table, region, index / SUMMARIES);
    group.get((index % SUMMARIES) as usize).copied()
}

/// Is what a region's records tell of a huge page right?
pub(crate) fn is_summed_up(table: &Table, region: HugePageId, page: HugePageId) -> bool {
    summary(table, region, page) == Some(Summary::of(&table[page]))
}

pub(crate) fn is_unbacked(tracker: &Tracker) -> bool {
    u32::from(tracker.unbacked_pages) == PAGES
}

fn set_backed(tracker: &mut Tracker, backed: bool) {
    tracker.unbacked_pages = if backed { 0 } else { PAGES as u16 };
    tracker.written = 0;
}

impl HugeRegions {
    pub(crate) const fn new() -> Self {
        Self {
            first: Link::NONE,
            last: Link::NONE,
            counts: Counts { regions: 0, used: 0, occupied: 0, empty: 0 },
        }
    }

    /// The regions, by their first huge pages.
    pub(crate) fn iter<'t>(&self, table: &'t Table<'_>) -> impl Iterator<Item = HugePageId> + 't {
        let mut at = self.first;
        core::iter::from_fn(move || {
            let region = at.get()?;
            at = table[region].next;
            Some(region)
        })
    }

    /// The region that was made last.
    pub(crate) fn newest(&self) -> Option<HugePageId> {
        self.last.get()
    }

    /// Makes one more region out of unbacked address space.
    pub(crate) fn add(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        vacant: &mut HugeAllocator,
    ) -> Option<()> {
        let range = vacant.allocate(table, memory, REGION, HugeLength(1))?;
        for index in 0..REGION.0 {
            let mut tracker = Tracker::with_state(State::Region);
            tracker.note = range.first.0;
            tracker.longest = PAGES as u16;
            set_backed(&mut tracker, false);
            let empty = u64::from(Summary::EMPTY.0);
            tracker.unbacked = Bits([empty | empty << 32; 4]);
            table[range.first.after(HugeLength(index))] = tracker;
        }
        table[range.first].leading = UNKNOWN;
        table[range.first].previous = self.last;
        match self.last.get() {
            Some(last) => table[last].next = Link::to(range.first),
            None => self.first = Link::to(range.first),
        }
        self.last = Link::to(range.first);
        self.counts.regions += 1;
        Some(())
    }

    /// Places a span in the oldest region that has room, at its lowest place.
    pub(crate) fn allocate(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        pages: u32,
        align: u32,
    ) -> Option<Placed> {
        let mut at = self.first;
        let first = loop {
            let region = at.get()?;
            let head = &table[region];
            if pages <= bound_of(head) && pages <= REGION.pages().0.saturating_sub(head.length) {
                match find(table, region, pages, align) {
                    Ok(first) => break first,
                    Err(longest) => set_bound(&mut table[region], longest),
                }
            }
            at = table[region].next;
        };
        let zeroed = self.occupy(table, memory, first, pages)?;
        let tracker = &mut table[first.hugepage()];
        tracker.starts.set(first.offset());
        tracker.allocations += 1;
        Some(Placed { first, zeroed })
    }

    /// Lets a span grow over these pages, if they are free and in its region; says whether they
    /// are zeroed.
    pub(crate) fn grow(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        region: u32,
        first: PageId,
        more: u32,
    ) -> Option<bool> {
        let end = HugePageId(region).after(REGION).first_page();
        let fits = end.0.checked_sub(first.0)? >= more
            && parts(first, more)
                .all(|(page, at, n)| table[page].used.and(Bits::range(at, n)).is_empty());
        if fits { self.occupy(table, memory, first, more) } else { None }
    }

    /// Is there a span of just these pages?
    pub(crate) fn holds(table: &Table, first: PageId, pages: u32) -> bool {
        let region = table[first.hugepage()].note;
        let end = HugePageId(region).after(REGION).first_page();
        let starts_here = table[first.hugepage()].starts.get(first.offset());
        if pages == 0 || !starts_here || end.0 - first.0 < pages {
            return false;
        }
        let whole = parts(first, pages).all(|(page, at, n)| {
            let (tracker, range) = (&table[page], Bits::range(at, n));
            let mut starts = tracker.starts;
            if page == first.hugepage() {
                starts.clear(first.offset());
            }
            tracker.used.contains(range) && starts.and(range).is_empty()
        });
        let next = first.after(Length(pages));
        let after = &table[next.hugepage()];
        let goes_on =
            next != end && after.used.get(next.offset()) && !after.starts.get(next.offset());
        whole && !goes_on
    }

    /// Frees a span that [`Self::holds`]; says how many huge pages hold nothing any more.
    pub(crate) fn free(&mut self, table: &mut Table, first: PageId, pages: u32) -> HugeLength {
        let region = HugePageId(table[first.hugepage()].note);
        let tracker = &mut table[first.hugepage()];
        tracker.starts.clear(first.offset());
        tracker.allocations = tracker.allocations.saturating_sub(1);
        let mut emptied = HugeLength::ZERO;
        for (page, at, n) in parts(first, pages) {
            let tracker = &mut table[page];
            tracker.used = tracker.used.without(Bits::range(at, n));
            tracker.used_pages -= n as u16;
            tracker.longest = tracker.used.not().longest() as u16;
            if tracker.used_pages == 0 {
                emptied.0 += 1;
            }
            sum_up(table, region, page);
        }
        self.counts.occupied -= emptied.0;
        self.counts.empty += emptied.0;
        self.counts.used -= pages;
        table[region].length -= pages;
        let row = row_around(table, region, first, pages);
        let bound = bound_of(&table[region]).max(row);
        set_bound(&mut table[region], bound);
        emptied
    }

    /// Releases the empty huge pages that a span was on. Returns how many went.
    pub(crate) fn unback_empty(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        first: PageId,
        pages: u32,
    ) -> HugeLength {
        let mut gone = HugeLength::ZERO;
        for (page, ..) in parts(first, pages) {
            let tracker = &mut table[page];
            let is_empty = tracker.used_pages == 0 && !is_unbacked(tracker);
            if is_empty && memory.unback(page.first_page(), Length(PAGES)) {
                set_backed(tracker, false);
                self.counts.empty -= 1;
                gone.0 += 1;
            }
        }
        gone
    }

    /// Ends a region that holds nothing: its backed huge pages go to the cache, the others to the
    /// unbacked ones.
    pub(crate) fn dissolve(
        &mut self,
        table: &mut Table,
        page: HugePageId,
        cached: &mut Ranges,
        free: &mut Ranges,
    ) {
        let region = HugePageId(table[page].note);
        if table[region].length > 0 {
            return;
        }
        let (next, previous) = (table[region].next, table[region].previous);
        match previous.get() {
            Some(previous) => table[previous].next = next,
            None => self.first = next,
        }
        match next.get() {
            Some(next) => table[next].previous = previous,
            None => self.last = previous,
        }
        self.counts.regions -= 1;
        let mut from = region;
        let end = region.after(REGION);
        while from < end {
            let unbacked = is_unbacked(&table[from]);
            let mut count = 0;
            while from.0 + count < end.0
                && is_unbacked(&table[HugePageId(from.0 + count)]) == unbacked
            {
                table[HugePageId(from.0 + count)] = Tracker::default();
                count += 1;
                if from.0 + count >= end.0
                    || table[HugePageId(from.0 + count)].state != State::Region
                {
                    break;
                }
            }
            let range = Range::new(from.0, count);
            if unbacked {
                free.insert(table, range);
            } else {
                self.counts.empty -= count;
                cached.insert(table, range);
            }
            from = range.end();
        }
    }

    /// Gives back up to `count` huge pages that hold nothing. Returns how many went.
    pub(crate) fn release(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        count: HugeLength,
    ) -> HugeLength {
        let mut released = HugeLength::ZERO;
        let mut at = self.last;
        while let Some(region) = at.get() {
            at = table[region].previous;
            for index in (0..REGION.0).rev() {
                if released >= count || self.counts.empty == 0 {
                    return released;
                }
                let page = region.after(HugeLength(index));
                if summary(table, region, page) != Some(Summary::EMPTY) || is_unbacked(&table[page])
                {
                    continue;
                }
                if !memory.unback(page.first_page(), Length::HUGEPAGE) {
                    return released;
                }
                set_backed(&mut table[page], false);
                self.counts.empty -= 1;
                released.0 += 1;
            }
        }
        released
    }

    /// Marks free pages of a region as used, backing huge pages where needed; says whether all
    /// are zeroed. `None`: the kernel refuses memory.
    fn occupy(
        &mut self,
        table: &mut Table,
        memory: &mut impl Memory,
        first: PageId,
        pages: u32,
    ) -> Option<bool> {
        for (page, ..) in parts(first, pages) {
            if is_unbacked(&table[page]) {
                if !memory.back(page, HugeLength(1)) {
                    return None;
                }
                set_backed(&mut table[page], true);
                self.counts.empty += 1;
            }
        }
        let region = HugePageId(table[first.hugepage()].note);
        let mut zeroed = true;
        for (page, at, n) in parts(first, pages) {
            let tracker = &mut table[page];
            if tracker.used_pages == 0 {
                self.counts.empty -= 1;
                self.counts.occupied += 1;
            }
            zeroed &= at >= u32::from(tracker.written);
            tracker.written = tracker.written.max((at + n) as u16);
            tracker.used = tracker.used.or(Bits::range(at, n));
            tracker.used_pages += n as u16;
            tracker.longest = tracker.used.not().longest() as u16;
            sum_up(table, region, page);
        }
        self.counts.used += pages;
        table[region].length += pages;
        Some(zeroed)
    }
}

/// No free range of the region is longer than this.
fn bound_of(head: &Tracker) -> u32 {
    if head.leading == UNKNOWN { u32::MAX } else { head.leading.into() }
}

fn set_bound(head: &mut Tracker, longest: u32) {
    head.leading = longest.min(UNKNOWN.into()) as u16;
}

/// Length of the free range that these free pages are part of.
fn row_around(table: &Table, region: HugePageId, first: PageId, pages: u32) -> u32 {
    let end = region.after(REGION);
    let (mut row, mut page) = (pages, first.hugepage());
    let mut before = first.offset();
    loop {
        let free = before - table[page].used.last_below(before);
        row += free;
        if free < before || page <= region {
            break;
        }
        (page, before) = (HugePageId(page.0 - 1), PAGES);
    }
    let next = first.after(Length(pages));
    let (mut page, mut from) = (next.hugepage(), next.offset());
    while page < end {
        let free = table[page].used.next(from) - from;
        row += free;
        if from + free < PAGES {
            break;
        }
        (page, from) = (page.after(HugeLength(1)), 0);
    }
    row
}

/// The lowest place for this number of free pages in a region; without one, the longest free range.
fn find(table: &Table, region: HugePageId, pages: u32, align: u32) -> Result<PageId, u32> {
    let mut longest = 0;
    let mut fits = |from: u32, end: u32| {
        longest = longest.max(end - from);
        let first = from.checked_next_multiple_of(align.max(1))?;
        (first.checked_add(pages)? <= end).then_some(PageId(first))
    };
    let mut open = region.first_page().0;
    let mut base = open;
    for group in 0..REGION.0 / SUMMARIES {
        for summary in summaries(table, region, group) {
            if summary != Summary::EMPTY {
                if let Some(first) = fits(open, base + summary.before()) {
                    return Ok(first);
                }
                if summary.longest() >= pages {
                    let mut rows = table[PageId(base).hugepage()].used.not().rows();
                    if let Some(first) = rows.find_map(|(at, n)| fits(base + at, base + at + n)) {
                        return Ok(first);
                    }
                } else {
                    // Short of what is wanted, but perhaps the longest there is.
                    fits(base, base + summary.longest());
                }
                open = base + PAGES - summary.after();
            }
            base += PAGES;
        }
    }
    fits(open, region.after(REGION).first_page().0).ok_or(longest)
}
