//! Promotion: a live object on small pages that has filled them gets huge pages.
//!
//! What an object begins with is a guess ([`crate::density`]). A table of zeros begins with small pages; if the program then fills it, each access to
//! it misses more translations than it has to. So the background thread sweeps over the large objects that have small pages:
//!
//! * an object of which 12 of 16 spots are its own has huge pages as a whole from now on;
//! * an object whose first huge pages are filled, and the rest not yet, has them for four times as many, as it is being filled in order;
//! * what it has of its own is made whole, one huge page in a pass, where at least three quarters are there.
//!
//! A page is an object's own if this process has written it and maps it alone. The kernel copies pages that a child of a fork shares, and gives memory to
//! pages that were only read, when it makes them part of a huge page: such objects stay as they are. So they do where the kernel does not tell
//! (`/proc` is not mounted), and where the process comes near the limit of its control group.
//!
//! This takes a hundredth of a processor; a tenth while the program does nothing. The first sweep comes 10 ms after a new large object; one that
//! finds nothing doubles the time to the next, up to a minute.
//!
//! Both of our allocators use this, each with a [`Promotion`] of its own. An object's pages from the first up to some are advised to be huge, the others
//! small.

use core::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_os::pagemap::Pagemap;
use spandrel_os::{clock, pressure, vm};
use spandrel_pages::{HUGEPAGE_BYTES, PAGE_BYTES};
use spandrel_sync::background;

use crate::density::{is_filled, is_own};
use crate::fresh;

const PAGES_PER_HUGE: usize = HUGEPAGE_BYTES / PAGE_BYTES;
/// Objects that one pass meets, ...
const MET_MOST: u32 = 256;
/// ... and those whose pages it looks at: 0.1 ms.
const LOOKED_AT_MOST: u32 = 8;
/// Huge pages of an object that one pass counts: 5 us each.
const COUNTED_MOST: usize = 32;
/// A huge page is made whole from this number of own pages on.
const FILLED_PAGES: usize = PAGES_PER_HUGE / 4 * 3;
/// See above: an object that is being filled in order.
const AHEAD_PARTS: usize = 4;
/// After a huge page was made whole this number of times as long is nothing done, ...
const PAUSE_PARTS: u64 = 99;
/// ... and this where the program does nothing.
const PAUSE_PARTS_AT_LEISURE: u64 = 9;
/// From one pass to the next, while there is more to look at.
const GO_ON_MS: u32 = 10;
/// From one sweep to the next, at least ...
const SWEEP_LEAST_MS: u64 = 10;
/// ... and at most.
const SWEEP_MOST_MS: u64 = 60_000;
/// After a sweep that found nothing among many objects this number of times as long is none made.
const SWEEP_PARTS: u64 = 9;
/// But no longer than this: the thread may have slept meanwhile.
const SWEEP_LONGEST_MS: u64 = 600_000;
/// From one sweep to the next where no large object is on small pages.
const SWEEP_IDLE_MS: u64 = 1000;
/// New objects shorten the time to the next sweep once in this time.
const NEWS_MS: u64 = 1000;
/// After this growth of the process limits are looked at: that takes 0.1 ms.
const GROWTH_BYTES: usize = 8 << 20;
/// Nothing is tried for this time near a limit.
const CROWDED_MS: u64 = 10_000;
/// After a refusal nothing is tried for this time, doubled for each one in a row ...
const REFUSED_MS: u64 = 1000;
/// ... up to this number of times.
const MOST_DOUBLINGS: u32 = 6;

/// The large objects of an allocator.
pub trait Objects {
    /// The first large object from number `cursor` on, which moves behind it. It need not have small pages: one call looks at a bounded number of
    /// records. `None`: there is none.
    fn next(&self, cursor: &mut u32) -> Option<u32>;

    /// The pages of an object now; `None`: it is gone.
    fn pages(&self, id: u32) -> Option<Pages>;

    /// Does something with an object while it is neither freed nor resized. `None`: it is gone or in use.
    fn visit<T>(&self, id: u32, work: impl FnOnce() -> T) -> Option<T>;

    /// Advises the pages of an object up to page `end` to be huge, during a visit. False: the kernel refuses.
    fn advise_huge(&self, id: u32, end: usize) -> bool;
}

/// The pages of a large object. Pages are counted from the first, at a huge page's boundary.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// Where they lie.
    pub at: *mut u8,
    /// Up to here they are advised to be huge.
    pub huge: usize,
    /// Up to here they are the object's: whole huge pages.
    pub end: usize,
}

/// How promotion stands.
pub struct Promotion {
    cursor: u32,
    /// What this sweep has met: large objects on small pages, and some that were filled.
    has_seen: bool,
    has_found: bool,
    /// When it began.
    begun_ms: u64,
    /// From the last sweep to the next.
    sweep_ms: u64,
    sweep_at_ms: u64,
    /// When new objects were heard of last.
    heard_ms: u64,
    /// No object was on small pages.
    is_idle: bool,
    under_way: Option<UnderWay>,
    work_at_ms: u64,
    refusals: u32,
    /// What was made resident since limits were looked at.
    grown: usize,
}

/// Pages of an object that are being made whole.
#[derive(Clone, Copy)]
struct UnderWay {
    id: u32,
    next: usize,
    end: usize,
}

/// Small pages that are worth huge pages.
#[derive(Clone, Copy)]
struct Worth {
    /// Up to here they are filled.
    filled: usize,
    end: usize,
}

/// Tells of new large objects on small pages.
pub struct News(AtomicBool);

impl Default for News {
    fn default() -> Self {
        Self::new()
    }
}

impl News {
    /// None.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// A large object was given small pages.
    pub fn tell(&self) {
        if !self.0.load(Relaxed) {
            self.0.store(true, Relaxed);
            if background::is_running() {
                background::wake();
            }
        }
    }
}

impl Default for Promotion {
    fn default() -> Self {
        Self::new()
    }
}

impl Promotion {
    /// Nothing was looked at.
    pub const fn new() -> Self {
        Self {
            cursor: 0,
            has_seen: false,
            has_found: false,
            begun_ms: 0,
            sweep_ms: SWEEP_LEAST_MS,
            sweep_at_ms: 0,
            heard_ms: 0,
            is_idle: true,
            under_way: None,
            work_at_ms: 0,
            refusals: 0,
            grown: GROWTH_BYTES,
        }
    }

    /// One pass. `leisure`: the program does nothing just now. Returns when there is something to do again; `None`: not before there is another
    /// large object on small pages.
    pub fn pass(&mut self, objects: &impl Objects, news: &News, leisure: bool) -> Option<u32> {
        if !vm::can_collapse() {
            return None;
        }
        let now = clock::coarse_ms();
        if news.0.load(Relaxed) && self.hear(now) {
            news.0.store(false, Relaxed);
        }
        let sweeps = now >= self.sweep_at_ms;
        let works = now >= self.work_at_ms && self.under_way.is_some();
        let may_look = (sweeps || works) && background::may_open_files();
        let map = if may_look { Pagemap::open() } else { None };
        if (sweeps || works) && map.is_none() {
            (self.sweep_at_ms, self.work_at_ms) = (now + SWEEP_MOST_MS, now + SWEEP_MOST_MS);
        }
        if let Some(map) = map.as_ref().filter(|_| sweeps) {
            self.sweep(objects, map, now);
        }
        if let Some(map) = map.as_ref().filter(|_| works) {
            self.make_next_whole(objects, map, now, leisure);
            if self.under_way.is_none() {
                // Others have waited for that.
                self.sweep_at_ms = self.sweep_at_ms.min(now + SWEEP_LEAST_MS);
            }
        }
        self.again_in_ms(now)
    }

    /// In this time a pass finds what another thread keeps it from now.
    pub const fn later() -> Option<u32> {
        Some(GO_ON_MS)
    }

    /// Looks for objects that have filled their small pages.
    fn sweep(&mut self, objects: &impl Objects, map: &Pagemap, now_ms: u64) {
        if self.cursor == 0 {
            self.begun_ms = now_ms;
        }
        let mut looked_at = 0;
        for _ in 0..MET_MOST {
            if looked_at == LOOKED_AT_MOST {
                break;
            }
            let Some(id) = objects.next(&mut self.cursor) else { return self.end_sweep(now_ms) };
            let small = |pages: &Pages| pages.huge < pages.end;
            let Some(pages) = objects.pages(id).filter(small) else { continue };
            self.has_seen = true;
            let under_way = self.under_way.filter(|under_way| under_way.id == id);
            if self.under_way.is_some() && under_way.is_none() {
                // Its turn comes.
                continue;
            }
            looked_at += 1;
            let worth = Worth::of(map, pages);
            if let Some(end) = worth.and_then(|worth| advise_worthy(objects, id, worth)) {
                self.has_found = true;
                let next = under_way.map_or(pages.huge, |under_way| under_way.next);
                self.under_way = Some(UnderWay { id, next, end });
            }
        }
        self.is_idle = false;
        self.sweep_at_ms = now_ms + u64::from(GO_ON_MS);
    }

    /// Makes the next huge page whole of those that are under way.
    fn make_next_whole(
        &mut self,
        objects: &impl Objects,
        map: &Pagemap,
        now_ms: u64,
        leisure: bool,
    ) {
        if self.grown >= GROWTH_BYTES {
            if pressure::is_tight() {
                self.work_at_ms = now_ms + CROWDED_MS;
                return;
            }
            self.grown = 0;
        }
        let Some(UnderWay { id, next, end }) = self.under_way.take() else { return };
        let Some(pages) = objects.pages(id) else { return };
        let end = end.min(pages.end);
        let last = end.min(next + COUNTED_MOST * PAGES_PER_HUGE);
        let mut rest = (next..last).step_by(PAGES_PER_HUGE);
        let is_filled = |page: &usize| pages.own(map, *page) >= FILLED_PAGES;
        let Some(page) = rest.find(is_filled) else {
            self.under_way = (last < end).then_some(UnderWay { id, next: last, end });
            return;
        };
        self.grown += (PAGES_PER_HUGE - pages.own(map, page)) * PAGE_BYTES;
        let behind = page + PAGES_PER_HUGE;
        // Before the visit, as it may take long.
        fresh::fetch();
        let tried = objects.visit(id, || make_whole(objects, id, page));
        match tried {
            Some(Some((outcome, micros))) => {
                self.under_way = (behind < end).then_some(UnderWay { id, next: behind, end });
                self.settle(outcome, micros, now_ms, leisure);
            }
            Some(None) => {}
            None => self.under_way = Some(UnderWay { id, next: page, end }),
        }
    }

    /// A sweep has ended.
    fn end_sweep(&mut self, now_ms: u64) {
        let in_vain = self.has_seen && !self.has_found;
        self.sweep_ms =
            if in_vain { (self.sweep_ms * 2).min(SWEEP_MOST_MS) } else { SWEEP_LEAST_MS };
        self.is_idle = !self.has_seen;
        (self.cursor, self.has_seen, self.has_found) = (0, false, false);
        let least = if self.is_idle { SWEEP_IDLE_MS } else { self.sweep_ms };
        let took = if in_vain { now_ms.saturating_sub(self.begun_ms) } else { 0 };
        self.sweep_at_ms = now_ms + least.max((took * SWEEP_PARTS).min(SWEEP_LONGEST_MS));
    }

    /// When there is something to do again; `None`: not before there is another large object on small pages.
    fn again_in_ms(&self, now_ms: u64) -> Option<u32> {
        let sweep = (!self.is_idle).then_some(self.sweep_at_ms);
        let work = self.under_way.map(|_| self.work_at_ms);
        let at = [sweep, work].into_iter().flatten().min()?;
        let wait = u32::try_from(at.saturating_sub(now_ms)).unwrap_or(u32::MAX);
        Some(wait.max(GO_ON_MS))
    }

    /// There is a new large object on small pages. False: that is for later.
    fn hear(&mut self, now_ms: u64) -> bool {
        self.is_idle = false;
        if now_ms < self.heard_ms + NEWS_MS {
            return false;
        }
        self.heard_ms = now_ms;
        self.sweep_ms = SWEEP_LEAST_MS;
        self.sweep_at_ms = self.sweep_at_ms.min(now_ms + SWEEP_LEAST_MS);
        true
    }

    /// An attempt to make a huge page whole has ended.
    fn settle(&mut self, outcome: vm::Whole, micros: u64, now_ms: u64, leisure: bool) {
        let parts = if leisure { PAUSE_PARTS_AT_LEISURE } else { PAUSE_PARTS };
        let mut pause_ms = (micros * parts / 1000).max(1);
        match outcome {
            vm::Whole::Done => self.refusals = 0,
            vm::Whole::Busy => {
                pause_ms = pause_ms.max(REFUSED_MS << self.refusals.min(MOST_DOUBLINGS));
                self.refusals += 1;
            }
            vm::Whole::Unsupported => self.under_way = None,
        }
        self.work_at_ms = now_ms + pause_ms;
    }
}

/// Has the small pages of a live object come huge from now on, up to where that is worth it. Returns the end of those that do; `None`: the object is
/// gone or in use, or the kernel refuses.
fn advise_worthy(objects: &impl Objects, id: u32, worth: Worth) -> Option<usize> {
    if !fresh::are_allowed() {
        return None;
    }
    objects.visit(id, || {
        let before = objects.pages(id)?;
        if worth.end <= before.end && worth.end > before.huge {
            let end = advise_first(objects, id, before, worth);
            objects.advise_huge(id, end);
        }
        let after = objects.pages(id)?.huge;
        (after > before.huge).then_some(after)
    })?
}

/// Where pages are not used yet that are worth huge pages, finds out on the first one how long these take. Returns up to where they had better be huge.
fn advise_first(objects: &impl Objects, id: u32, pages: Pages, worth: Worth) -> usize {
    // The object is being filled in the one before.
    let first = worth.filled + PAGES_PER_HUGE;
    let behind = first + PAGES_PER_HUGE;
    if behind > worth.end {
        return worth.end;
    }
    let is_slow = fresh::begin_small((worth.end - worth.filled) / PAGES_PER_HUGE);
    if is_slow || !objects.advise_huge(id, behind) {
        return worth.filled;
    }
    // SAFETY: open pages of a live object, which is neither freed nor resized before the visit ends.
    match unsafe { fresh::populate(pages.at.add(first * PAGE_BYTES)) } {
        fresh::Speed::Quick => worth.end,
        fresh::Speed::Slow => behind,
    }
}

/// Makes a huge page whole during a visit, and how long that took; `None`: it is no longer the object's.
fn make_whole(objects: &impl Objects, id: u32, page: usize) -> Option<(vm::Whole, u64)> {
    let pages = objects.pages(id)?;
    if page + PAGES_PER_HUGE > pages.huge.min(pages.end) {
        return None;
    }
    let start = clock::micros();
    // SAFETY: open pages of a live object, which is neither freed nor resized before the visit ends.
    let outcome = unsafe { vm::collapse(pages.at.add(page * PAGE_BYTES), HUGEPAGE_BYTES) };
    Some((outcome, clock::micros() - start))
}

impl Pages {
    /// How many pages of the huge page from page `page` on are the process's own.
    fn own(self, map: &Pagemap, page: usize) -> usize {
        map.own(self.at.wrapping_add(page * PAGE_BYTES), PAGES_PER_HUGE)
    }
}

impl Worth {
    /// Those among the small pages of an object.
    fn of(map: &Pagemap, pages: Pages) -> Option<Self> {
        let Pages { at, huge, end } = pages;
        // The cheaper look first.
        if is_filled(at, huge, end) && is_own(map, at, huge, end) {
            return Some(Self { filled: end, end });
        }
        let first = (huge..end).step_by(PAGES_PER_HUGE).take(COUNTED_MOST);
        let is_whole = |page: &usize| pages.own(map, *page) == PAGES_PER_HUGE;
        let filled = first.take_while(is_whole).count() * PAGES_PER_HUGE;
        let end = (huge + AHEAD_PARTS * filled).min(end);
        (filled > 0).then_some(Self { filled: huge + filled, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_in_vain_become_rare_until_there_is_something_new() {
        let mut promotion = Promotion::new();
        let mut now = 1000;
        let waits = [(); 15].map(|()| {
            (promotion.has_seen, promotion.begun_ms) = (true, now);
            promotion.end_sweep(now);
            let wait = promotion.again_in_ms(now).unwrap_or(0);
            now += u64::from(wait);
            wait
        });
        assert_eq!(waits[..4], [20, 40, 80, 160]);
        assert_eq!(waits[11..], [40_960, 60_000, 60_000, 60_000]);
        (promotion.has_seen, promotion.begun_ms) = (true, now - 50_000);
        promotion.end_sweep(now);
        assert_eq!(promotion.again_in_ms(now), Some(450_000), "a sweep takes a tenth of the time");
        assert!(promotion.hear(now));
        assert_eq!(promotion.again_in_ms(now), Some(10));
        assert!(!promotion.hear(now + NEWS_MS - 1) && promotion.hear(now + NEWS_MS));
        promotion.end_sweep(now);
        assert_eq!(promotion.again_in_ms(now), None, "there is none on small pages");
        assert!(!promotion.hear(now + NEWS_MS));
        assert!(promotion.again_in_ms(now).is_some(), "news for later are not lost");
    }

    #[test]
    fn work_takes_a_hundredth_of_the_time_and_refusals_much_less() {
        let mut promotion = Promotion::new();
        let mut after = |outcome, micros, leisure| {
            promotion.under_way = Some(UnderWay { id: 0, next: 0, end: PAGES_PER_HUGE });
            promotion.settle(outcome, micros, 5, leisure);
            promotion.again_in_ms(5)
        };
        assert_eq!(after(vm::Whole::Done, 200, false), Some(19));
        assert_eq!(after(vm::Whole::Done, 2000, true), Some(18));
        assert_eq!(after(vm::Whole::Busy, 10, true), Some(1000));
        assert_eq!(after(vm::Whole::Busy, 10, true), Some(2000));
        assert!((0..20).all(|_| after(vm::Whole::Busy, 10, true).is_some()));
        assert_eq!(after(vm::Whole::Busy, 10, true), Some(64_000));
        after(vm::Whole::Done, 200, true);
        assert_eq!(after(vm::Whole::Busy, 10, true), Some(1000));
        assert_eq!(after(vm::Whole::Unsupported, 10, true), None);
    }
}
