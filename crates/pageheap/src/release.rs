//! Release of memory to the kernel: which pages, when, and why (4.3, 4.6).

use spandrel_pages::{HugeLength, HugePageId, Length};

use crate::bits::PAGES;
use crate::heap::PageHeap;
use crate::huge_filler::set;
use crate::lists::LISTS;
use crate::memory::Memory;
use crate::order;
use crate::tracker::flag;

/// A huge page is not broken for fewer free pages than this: a sixteenth of it. What they are
/// worth is less than what its other pages lose.
const BREAK_PAGES: u32 = 16;
/// Nor in the background for pages that lie alone: each takes a call.
const BREAK_ROW: u32 = 2;
/// The most huge pages that the kernel is advised at a time to keep broken: each may be a
/// mapping of its own and one more, and a process has 65,530 unless the administrator says otherwise.
const STAY_SMALL_MOST: u32 = 8192;
/// When asked to, huge pages are broken in rounds, those with this many used pages at most first, then those
/// with as many more.
const ROUND_PAGES: u32 = 32;
/// Huge pages that a release in the background looks at before it gives up until the next.
const EXAMINED: u32 = 4096;

/// Sets from which huge pages are broken; tails first: no request prefers them.
const WHOLE_SETS: [u8; 3] = [set::DONATED, set::SPARSE, set::DENSE];
const BROKEN_SETS: [u8; 2] = [set::PARTIAL, set::PARTIAL_DENSE];

/// On whose behalf memory is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// The program asked (`malloc_trim`): all that it wants.
    Asked,
    /// A limit is near, or others need the memory: the same, counted apart.
    Pressed,
    /// Another heap of the process takes memory, and demand may have moved there: the same, counted with what demand does not justify.
    Elsewhere,
    /// A steady trickle: nothing that recent demand will want again.
    Background,
}

impl PageHeap<'_> {
    /// Releases about `pages` pages, or all that can be released. On request: first empty huge
    /// pages, then free pages of huge pages that are in use, of the emptiest first. In the
    /// background only the latter, as far as demand allows: empty huge pages leave when demand's
    /// swing does not justify them. Returns how many went, which may be more.
    pub fn release(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        pages: Length,
        urgency: Urgency,
    ) -> Length {
        let mut released = 0;
        match urgency {
            Urgency::Asked | Urgency::Pressed | Urgency::Elsewhere => {
                released = self.release_whole(memory, pages.hugepages_up()).pages().0;
                let wanted = pages.0.saturating_sub(released);
                if wanted > 0 {
                    let broken = self.subrelease(memory, wanted, urgency);
                    self.demand.released(now_ms, broken);
                    released += broken;
                }
                let counter = match urgency {
                    Urgency::Pressed => &mut self.counters.released.pressure,
                    Urgency::Elsewhere => &mut self.counters.released.demand,
                    _ => &mut self.counters.released.asked,
                };
                *counter += u64::from(released);
            }
            Urgency::Background => {
                let wanted = self.unwanted(now_ms, pages.0);
                if wanted > 0 {
                    released = self.subrelease(memory, wanted, urgency);
                    self.demand.released(now_ms, released);
                }
                self.counters.released.background += u64::from(released);
            }
        }
        self.stepped();
        Length(released)
    }

    /// The part of these pages that recent demand for small spans will not refill.
    fn unwanted(&mut self, now_ms: u64, wanted: u32) -> u32 {
        let counts = &self.filler.counts;
        let free = counts.free_backed();
        let unwanted = if self.settings.release_guarded {
            let backed = counts.used.saturating_add(free);
            self.demand.unwanted(now_ms, backed, self.filler.wanted_again)
        } else {
            free
        };
        self.kept_for_demand = free.saturating_sub(unwanted);
        wanted.min(free).min(unwanted)
    }

    /// Says whether the cache keeps [`Settings::cache_least`](crate::Settings::cache_least), or only what recent demand justifies.
    pub fn keeps_least(&mut self, keeps: bool) {
        self.cache.least = if keeps { self.settings.cache_least } else { HugeLength::ZERO };
    }

    /// Gives back what recent demand does not justify keeping in the cache.
    pub(crate) fn trim_cache(&mut self, memory: &mut impl Memory, now_ms: u64) {
        let empty = self.cache.ranges.total.saturating_add(HugeLength(self.regions.counts.empty));
        if empty <= self.cache.least {
            return;
        }
        let excess = empty.saturating_sub(self.cache.limit(now_ms));
        if excess > HugeLength::ZERO {
            let released = self.release_whole(memory, excess);
            self.counters.released.demand += u64::from(released.pages().0);
        }
    }

    /// Gives back empty huge pages: regions' first, which only regions can use.
    pub(crate) fn release_whole(
        &mut self,
        memory: &mut impl Memory,
        count: HugeLength,
    ) -> HugeLength {
        let first = self.release_regions(memory, count);
        let rest = count.saturating_sub(first);
        first.saturating_add(self.cache.release(
            &mut self.table,
            &mut self.vacant.free,
            memory,
            rest,
        ))
    }

    /// Releases up to `count` empty huge pages of regions. A region without used and backed huge pages is dissolved.
    pub(crate) fn release_regions(
        &mut self,
        memory: &mut impl Memory,
        count: HugeLength,
    ) -> HugeLength {
        let released = self.regions.release(&mut self.table, memory, count);
        let counts = &self.regions.counts;
        if released > HugeLength::ZERO
            && counts.occupied == 0
            && counts.empty == 0
            && let Some(last) = self.regions.newest()
        {
            let (cached, free) = (&mut self.cache.ranges, &mut self.vacant.free);
            self.regions.dissolve(&mut self.table, last, cached, free);
        }
        released
    }

    /// Gives back free pages of huge pages that are in use: of broken ones first, which lose
    /// nothing by it.
    fn subrelease(&mut self, memory: &mut impl Memory, wanted: u32, urgency: Urgency) -> u32 {
        let examined = if urgency == Urgency::Background { EXAMINED } else { u32::MAX };
        let mut walk = Walk { wanted, released: 0, examined, refused: false };
        for set in BROKEN_SETS {
            self.walk(memory, set, PAGES, 0, &mut walk);
        }
        match urgency {
            // The lists know about which are empty: looking closer would take rounds over all.
            Urgency::Background => {
                for set in WHOLE_SETS {
                    let dense = set == set::DENSE;
                    let from =
                        order::worth_breaking(self.filler.order, dense, BREAK_PAGES, BREAK_ROW);
                    self.walk(memory, set, PAGES - BREAK_PAGES, from, &mut walk);
                }
            }
            Urgency::Asked | Urgency::Pressed | Urgency::Elsewhere => {
                let mut most = ROUND_PAGES;
                while most <= PAGES && walk.goes_on() {
                    for set in WHOLE_SETS {
                        self.walk(memory, set, most.min(PAGES - BREAK_PAGES), 0, &mut walk);
                    }
                    most += ROUND_PAGES;
                }
            }
        }
        self.counters.subreleased += u64::from(walk.released);
        walk.released
    }

    /// Gives back the free pages of a set's huge pages with no more than `most` used ones, on the
    /// lists from `from` on.
    fn walk(&mut self, memory: &mut impl Memory, set: u8, most: u32, from: u32, walk: &mut Walk) {
        let mut end = LISTS;
        while let Some(list) =
            self.filler.sets.get(usize::from(set)).and_then(|lists| lists.last_below(end))
        {
            if list < from {
                return;
            }
            end = list;
            let mut at = self.filler.sets.get(usize::from(set)).map(|lists| lists.head(list));
            while let Some(page) = at.and_then(|link| link.get()) {
                if !walk.goes_on() {
                    return;
                }
                walk.examined -= 1;
                let tracker = &self.table[page];
                at = Some(tracker.next);
                if u32::from(tracker.used_pages) <= most && !tracker.has(flag::RESTORING) {
                    self.break_up(memory, page, walk);
                }
            }
        }
    }

    /// Has a huge page of which a part is given back mapped by small pages from now on: else the kernel
    /// would make it whole some day. Where this heap could not make it whole again it is left to the kernel.
    pub(crate) fn keep_small(&mut self, memory: &mut impl Memory, page: HugePageId) {
        let may =
            self.filler.counts.broken < STAY_SMALL_MOST && !self.counters.collapse_unsupported;
        if may && !self.table[page].has(flag::TOLD) {
            self.table[page].flags |= flag::TOLD;
            memory.stay_small(page);
        }
    }

    /// Gives back all free pages of a huge page that are still backed.
    fn break_up(&mut self, memory: &mut impl Memory, page: HugePageId, walk: &mut Walk) {
        self.keep_small(memory, page);
        let tracker = &self.table[page];
        let mut unbacked = tracker.unbacked;
        for (at, count) in tracker.used.or(tracker.unbacked).not().rows() {
            if !memory.unback(page.first_page().after(Length(at)), Length(count)) {
                walk.refused = true;
                break;
            }
            unbacked = unbacked.or(crate::bits::Bits::range(at, count));
        }
        let count = unbacked.count() as u16;
        let gone = count.saturating_sub(tracker.unbacked_pages);
        if gone == 0 {
            return;
        }
        walk.released += u32::from(gone);
        self.counters.broken += u64::from(!tracker.has(flag::BROKEN));
        self.filler.edit(&mut self.table, page, |tracker| {
            tracker.flags |= flag::BROKEN;
            (tracker.unbacked, tracker.unbacked_pages) = (unbacked, count);
            if 2 * gone >= count {
                // Most of it was here.
                tracker.flags &= !flag::SMALL;
            }
            if !tracker.has(flag::SMALL) {
                tracker.length = count.into();
            }
            // A page that is broken for the first time may be restored as soon as it fills.
            tracker.note = 0;
        });
    }
}

/// How far a subrelease has come.
struct Walk {
    wanted: u32,
    released: u32,
    examined: u32,
    refused: bool,
}

impl Walk {
    fn goes_on(&self) -> bool {
        self.released < self.wanted && self.examined > 0 && !self.refused
    }
}
