//! `HugeFiller` (4.4): packs spans onto single huge pages, so that some are full and others drain.

use spandrel_pages::{HugePageId, Length, PageId};

use crate::bits::{Bits, Fit, PAGES};
use crate::lists::{LISTS, Lists};
use crate::order::{self, Order};
use crate::tracker::{State, Table, Tracker, flag};

/// Sets of huge pages with room, in the order in which a request looks at them. The last four are
/// broken: what is put there does not lie on a huge page, and they are left to drain.
pub(crate) mod set {
    pub(crate) const SPARSE: u8 = 0;
    pub(crate) const DENSE: u8 = 1;
    /// Tails of large spans, and nothing else yet.
    pub(crate) const DONATED: u8 = 2;
    /// Broken, with free pages that are still backed.
    pub(crate) const PARTIAL: u8 = 3;
    pub(crate) const PARTIAL_DENSE: u8 = 4;
    /// Broken, all free pages unbacked.
    pub(crate) const BROKEN: u8 = 5;
    pub(crate) const BROKEN_DENSE: u8 = 6;
    pub(crate) const COUNT: usize = 7;
}

const _: () =
    assert!(set::COUNT as u32 * LISTS < u16::MAX as u32, "a list's number fits its record");

/// Where requests look. Dense ones never take a tail: it would hold many objects for long.
const FOR_SPARSE: [u8; 4] = [set::SPARSE, set::DONATED, set::PARTIAL, set::BROKEN];
const FOR_DENSE: [u8; 3] = [set::DENSE, set::PARTIAL_DENSE, set::BROKEN_DENSE];

/// How many lists an aligned request tries before it asks for so long a range that any would do.
const ALIGNED_TRIES: usize = 8;

/// A broken huge page has filled again when this many of its pages are in use: a half, from which
/// on restoring it was measured to pay …
const RESTORE_PAGES: u16 = 128;
/// … and no more than three quarters of what went back are still gone. Without that, what was
/// just given back would be restored at once.
const STILL_GONE: (u32, u32) = (3, 4);

/// Where a span went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub(crate) first: PageId,
    /// None of its pages was written since it came from the kernel.
    pub(crate) zeroed: bool,
}

/// What the filler holds; all sums can be had by counting over the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) hugepages: u32,
    pub(crate) used: u32,
    pub(crate) unbacked: u32,
    pub(crate) broken: u32,
    /// Broken ones that have filled again.
    pub(crate) refilled: u32,
    /// Used pages on broken ones.
    pub(crate) used_broken: u32,
    pub(crate) abandoned: u32,
}

impl Counts {
    fn change(&mut self, tracker: &Tracker, by: fn(u32, u32) -> u32) {
        let broken = tracker.has(flag::BROKEN);
        self.hugepages = by(self.hugepages, 1);
        self.used = by(self.used, tracker.used_pages.into());
        self.unbacked = by(self.unbacked, tracker.unbacked_pages.into());
        self.broken = by(self.broken, broken.into());
        self.refilled = by(self.refilled, is_refilled(tracker).into());
        let used_broken = if broken { tracker.used_pages.into() } else { 0 };
        self.used_broken = by(self.used_broken, used_broken);
        self.abandoned = by(self.abandoned, tracker.abandoned().into());
    }

    pub(crate) fn add(&mut self, tracker: &Tracker) {
        self.change(tracker, u32::saturating_add);
    }

    pub(crate) fn remove(&mut self, tracker: &Tracker) {
        self.change(tracker, u32::saturating_sub);
    }

    /// Free pages that are backed.
    pub(crate) fn free_backed(&self) -> u32 {
        (self.hugepages.saturating_mul(PAGES)).saturating_sub(self.used + self.unbacked)
    }
}

/// The huge pages that are partly used.
#[derive(Debug)]
pub(crate) struct HugeFiller {
    pub(crate) sets: [Lists; set::COUNT],
    pub(crate) order: Order,
    pub(crate) counts: Counts,
    /// Pages that had gone back and were wanted again, since the beginning.
    pub(crate) wanted_again: u64,
}

impl HugeFiller {
    pub(crate) const fn new(order: Order) -> Self {
        const EMPTY: Lists = Lists::new();
        Self {
            sets: [EMPTY; set::COUNT],
            order,
            counts: Counts {
                hugepages: 0,
                used: 0,
                unbacked: 0,
                broken: 0,
                refilled: 0,
                used_broken: 0,
                abandoned: 0,
            },
            wanted_again: 0,
        }
    }

    /// Places a span on a huge page that is here.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        table: &mut Table,
        pages: u32,
        align: u32,
        dense: bool,
    ) -> Option<Placed> {
        let sets: &[u8] = if dense { &FOR_DENSE } else { &FOR_SPARSE };
        for &set in sets {
            let Some(lists) = self.sets.get(usize::from(set)) else { continue };
            if lists.members == 0 {
                continue;
            }
            let found = if align > 1 {
                find_aligned(lists, table, self.order, pages, align)
            } else if self.order == Order::BestFit && !dense {
                find_best(lists, table, pages)
            } else {
                find(lists, table, order::stretches(self.order, dense, pages), pages)
            };
            if let Some((page, fit)) = found {
                return Some(self.place(table, page, fit, pages));
            }
        }
        None
    }

    /// Adds a huge page that is on nothing, with a span from its page `at` on. That is 0 unless it is a small span.
    pub(crate) fn contribute(
        &mut self,
        table: &mut Table,
        page: HugePageId,
        fresh: bool,
        at: u32,
        pages: u32,
        kind: Contribution,
    ) {
        let used = Bits::range(at, pages);
        let mut tracker = Tracker {
            used,
            longest: at.max(PAGES - (at + pages).min(PAGES)) as u16,
            used_pages: pages as u16,
            allocations: 1,
            written: if fresh { (at + pages) as u16 } else { PAGES as u16 },
            ..Tracker::with_state(State::Filler)
        };
        match kind {
            Contribution::Span { dense } => {
                tracker.starts = Bits::range(at, 1);
                tracker.flags = if dense { flag::DENSE } else { 0 };
            }
            Contribution::Large => {
                tracker.starts = Bits::range(0, 1);
                tracker.flags = flag::DONATED;
                tracker.leading = pages as u16;
            }
            Contribution::Tail => {
                tracker.flags = flag::DONATED;
                tracker.leading = pages as u16;
            }
        }
        self.counts.add(&tracker);
        table[page] = tracker;
        self.relist(table, page);
    }

    /// The huge page has just been contributed, and has small pages: those that are free have not
    /// come yet.
    pub(crate) fn begin_small(&mut self, table: &mut Table, page: HugePageId) {
        self.edit(table, page, |tracker| {
            tracker.flags |= flag::BROKEN | flag::SMALL;
            tracker.unbacked = tracker.used.not();
            tracker.unbacked_pages = PAGES as u16 - tracker.used_pages;
            // It never was here: what fills is no sign of anything that was just given back.
            tracker.length = PAGES;
        });
    }

    #[inline]
    fn place(&mut self, table: &mut Table, page: HugePageId, fit: Fit, pages: u32) -> Placed {
        let tracker = &mut table[page];
        let zeroed = self.take(tracker, fit.at, pages);
        tracker.starts.set(fit.at);
        tracker.longest = fit.longest as u16;
        tracker.allocations += 1;
        // Now that a small span lies here it is a huge page like any other.
        tracker.flags &= !flag::DONATED;
        self.relist(table, page);
        Placed { first: page.first_page().after(Length(fit.at)), zeroed }
    }

    /// Is there a span of just these pages?
    #[inline]
    pub(crate) fn holds(tracker: &Tracker, at: u32, pages: u32) -> bool {
        let end = at.saturating_add(pages);
        if pages == 0 || end > PAGES || !tracker.starts.get(at) {
            return false;
        }
        // It ends where the next span begins or free pages do.
        let next = tracker.starts.next(at + 1).min(tracker.used.not().next(at));
        next == end
    }

    /// Frees a span that [`Self::holds`]. True when the huge page is empty now; it is on no list
    /// then, and [`Self::withdraw`] is to follow.
    #[inline]
    pub(crate) fn free(
        &mut self,
        table: &mut Table,
        page: HugePageId,
        at: u32,
        pages: u32,
    ) -> bool {
        let tracker = &mut table[page];
        tracker.starts.clear(at);
        self.vacate(table, page, at, pages)
    }

    /// Frees the pages of a span, or of the tail of a large one.
    #[inline]
    pub(crate) fn vacate(
        &mut self,
        table: &mut Table,
        page: HugePageId,
        at: u32,
        pages: u32,
    ) -> bool {
        let tracker = &mut table[page];
        let was_refilled = is_refilled(tracker);
        tracker.used = tracker.used.without(Bits::range(at, pages));
        tracker.used_pages = tracker.used_pages.saturating_sub(pages as u16);
        tracker.allocations = tracker.allocations.saturating_sub(1);
        let row = tracker.used.next(at) - tracker.used.last_below(at);
        tracker.longest = tracker.longest.max(row as u16);
        self.counts.used = self.counts.used.saturating_sub(pages);
        if tracker.has(flag::BROKEN) {
            self.counts.used_broken = self.counts.used_broken.saturating_sub(pages);
            if was_refilled && !is_refilled(tracker) {
                self.counts.refilled = self.counts.refilled.saturating_sub(1);
            }
        }
        let empty = tracker.used_pages == 0;
        if empty && !tracker.has(flag::RESTORING) {
            self.unlist(table, page);
        } else {
            self.relist(table, page);
        }
        empty
    }

    /// Lets a span grow over the free pages behind it; says whether they are zeroed.
    pub(crate) fn grow(
        &mut self,
        table: &mut Table,
        page: HugePageId,
        at: u32,
        more: u32,
    ) -> Option<bool> {
        let tracker = &mut table[page];
        if at.checked_add(more)? > PAGES || !tracker.used.and(Bits::range(at, more)).is_empty() {
            return None;
        }
        let zeroed = self.take(tracker, at, more);
        tracker.longest = tracker.used.not().longest() as u16;
        self.relist(table, page);
        Some(zeroed)
    }

    /// Takes a huge page out of the filler, whatever lies on it. Its record is for the caller.
    pub(crate) fn withdraw(&mut self, table: &mut Table, page: HugePageId) {
        self.unlist(table, page);
        self.counts.remove(&table[page]);
    }

    /// Is a huge page on the list that it belongs to?
    pub(crate) fn is_listed(tracker: &Tracker, order: Order) -> bool {
        u32::from(tracker.list) == place_of(tracker, order)
    }

    /// Changes a record whose huge page is here, keeping sums and lists right.
    pub(crate) fn edit(
        &mut self,
        table: &mut Table,
        page: HugePageId,
        change: impl FnOnce(&mut Tracker),
    ) {
        self.counts.remove(&table[page]);
        change(&mut table[page]);
        self.counts.add(&table[page]);
        self.relist(table, page);
    }

    /// Marks pages as used; says whether they are all zeroed.
    #[inline]
    fn take(&mut self, tracker: &mut Tracker, at: u32, pages: u32) -> bool {
        let counts = &mut self.counts;
        let range = Bits::range(at, pages);
        let was_refilled = is_refilled(tracker);
        tracker.used = tracker.used.or(range);
        tracker.used_pages += pages as u16;
        counts.used += pages;
        let mut zeroed = at >= u32::from(tracker.written);
        if tracker.has(flag::BROKEN) {
            let returned = tracker.unbacked.and(range);
            let count = returned.count() as u16;
            // What the kernel gives for them is zeroed as well.
            zeroed = range.without(returned).next(0) >= u32::from(tracker.written);
            tracker.unbacked = tracker.unbacked.without(range);
            tracker.unbacked_pages -= count;
            if !tracker.has(flag::SMALL) {
                self.wanted_again += u64::from(count);
            }
            counts.unbacked -= u32::from(count);
            counts.used_broken += pages;
            if !was_refilled && is_refilled(tracker) {
                counts.refilled += 1;
            }
        }
        tracker.written = tracker.written.max((at + pages) as u16);
        zeroed
    }

    /// Moves a huge page to the list that it belongs to now.
    #[inline]
    fn relist(&mut self, table: &mut Table, page: HugePageId) {
        let tracker = &table[page];
        let list = place_of(tracker, self.order);
        if u32::from(tracker.list) == list {
            return;
        }
        self.unlist(table, page);
        let Some(place) = list.checked_sub(1) else { return };
        if let Some(lists) = self.sets.get_mut((place / LISTS) as usize) {
            lists.push(table, place % LISTS, page);
            table[page].list = list as u16;
        }
    }

    #[inline]
    fn unlist(&mut self, table: &mut Table, page: HugePageId) {
        let list = core::mem::take(&mut table[page].list);
        let Some(place) = u32::from(list).checked_sub(1) else { return };
        if let Some(lists) = self.sets.get_mut((place / LISTS) as usize) {
            lists.remove(table, place % LISTS, page);
        }
    }
}

/// How a huge page comes to the filler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contribution {
    /// A span that found no room elsewhere.
    Span { dense: bool },
    /// A span of more than half a huge page.
    Large,
    /// The last huge page of a span that begins on another.
    Tail,
}

/// Was a huge page broken, and has it filled again since?
#[inline]
pub(crate) fn is_refilled(tracker: &Tracker) -> bool {
    let (of, all) = STILL_GONE;
    tracker.has(flag::BROKEN)
        && tracker.used_pages >= RESTORE_PAGES
        && u32::from(tracker.unbacked_pages) * all <= tracker.length * of
}

/// The list that a huge page belongs to, counted over all sets, plus one; 0 for none.
#[inline]
fn place_of(tracker: &Tracker, order: Order) -> u32 {
    match set_of(tracker) {
        Some(set) => u32::from(set) * LISTS + order::list_of(order, tracker) + 1,
        None => 0,
    }
}

/// The set that a huge page belongs to; none when it is full.
#[inline]
fn set_of(tracker: &Tracker) -> Option<u8> {
    if u32::from(tracker.used_pages) >= PAGES {
        return None;
    }
    let partial = u32::from(tracker.used_pages + tracker.unbacked_pages) < PAGES;
    Some(match (tracker.has(flag::BROKEN), tracker.has(flag::DENSE)) {
        (false, true) => set::DENSE,
        (false, false) if tracker.has(flag::DONATED) => set::DONATED,
        (false, false) => set::SPARSE,
        (true, false) if partial => set::PARTIAL,
        (true, true) if partial => set::PARTIAL_DENSE,
        (true, false) => set::BROKEN,
        (true, true) => set::BROKEN_DENSE,
    })
}

#[inline]
fn find(
    lists: &Lists,
    table: &Table,
    stretches: order::Stretches,
    pages: u32,
) -> Option<(HugePageId, Fit)> {
    for (from, end) in stretches {
        if let Some(list) = lists.first_from(from).filter(|l| *l < end) {
            let page = lists.head(list).get()?;
            let tracker = &table[page];
            return Some((page, tracker.used.best_fit(pages, tracker.longest.into())?));
        }
    }
    None
}

/// The longest free range says nothing about alignment: the first few lists are tried, then one
/// whose free ranges are long enough for any alignment.
fn find_aligned(
    lists: &Lists,
    table: &Table,
    order: Order,
    pages: u32,
    align: u32,
) -> Option<(HugePageId, Fit)> {
    let fit = |list| {
        let page = lists.head(list).get()?;
        Some((page, table[page].used.aligned_fit(pages, align)?))
    };
    let (lowest, any) = (pages, pages.saturating_add(align - 1));
    let listed = |pages| {
        order::stretches(order, false, pages).flat_map(|(from, end)| {
            let next = move |from| lists.first_from(from).filter(|l| *l < end);
            core::iter::successors(next(from), move |l| next(l + 1))
        })
    };
    let tried = listed(lowest).take(ALIGNED_TRIES).find_map(fit);
    tried.or_else(|| (any <= PAGES).then(|| listed(any).find_map(fit)).flatten())
}

fn find_best(lists: &Lists, table: &Table, pages: u32) -> Option<(HugePageId, Fit)> {
    let all = order::stretches(Order::BestFit, false, pages).flat_map(|(from, _)| {
        core::iter::successors(lists.first_from(from), |l| lists.first_from(l + 1))
    });
    let mut best: Option<(u32, HugePageId, Fit)> = None;
    for page in all.flat_map(|list| lists.iter(table, list)) {
        let tracker = &table[page];
        let Some(fit) = tracker.used.best_fit(pages, tracker.longest.into()) else { continue };
        let length = tracker.used.next(fit.at) - fit.at;
        if best.is_none_or(|b| (length, page) < (b.0, b.1)) {
            best = Some((length, page, fit));
        }
    }
    best.map(|b| (b.1, b.2))
}
