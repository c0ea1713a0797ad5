//! Promotion: a live object on small pages that has filled them gets huge pages.
//!
//! What an object begins with is a guess ([`super::density`]). A table of zeros begins with small pages; if the program then fills it, each access to
//! it misses more translations than it has to. So the background thread sweeps over the large objects that have small pages:
//!
//! * an object of which 12 of 16 spots are resident has huge pages as a whole from now on;
//! * an object whose first huge pages are filled, and the rest not yet, has them for four times as many, as it is being filled in order;
//! * what is resident of it is made whole, one huge page in a pass, where at least three quarters are there.
//!
//! This takes a hundredth of a processor; a tenth while the program does nothing. The first sweep comes 10 ms after a new large object; one that
//! finds nothing doubles the time to the next, up to a minute.
//!
//! The thread visits a slot as trimming does, so that its object is neither freed nor resized meanwhile.

use core::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_os::{clock, vm};
use spandrel_pages::{HUGEPAGE_BYTES, PAGE_BYTES};
use spandrel_slabs::fresh;
use spandrel_sync::background;

use super::density::is_filled;
use super::layout::{CLASSES, SlotId, has_huge};
use super::lists::pages_of;
use super::slot::LIVE;
use super::{PAGES_PER_HUGE, Place, Remap};

/// Slots whose records one pass reads, ...
const READ_MOST: u32 = 1024;
/// ... and objects whose pages it looks at: 0.1 ms.
const LOOKED_AT_MOST: u32 = 8;
/// Huge pages of an object that one pass counts: 5 us each.
const COUNTED_MOST: usize = 32;
/// A huge page is made whole from this number of resident pages on.
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
/// From one sweep to the next where no large object is on small pages.
const SWEEP_IDLE_MS: u64 = 1000;
/// New objects shorten the time to the next sweep once in this time.
const NEWS_MS: u64 = 1000;
/// After a refusal nothing is tried for this time, doubled for each one in a row ...
const REFUSED_MS: u64 = 1000;
/// ... up to this number of times.
const MOST_DOUBLINGS: u32 = 6;

/// How promotion stands. Accessed by the thread that holds [`Remap::trimming`].
pub struct Promotion {
    cursor: SlotId,
    /// What this sweep has met: large objects on small pages, and some that were filled.
    has_seen: bool,
    has_found: bool,
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
}

/// Pages of a slot that are being made whole.
#[derive(Clone, Copy)]
struct UnderWay {
    id: SlotId,
    next: usize,
    end: usize,
}

const FIRST: SlotId = SlotId::new(0, 0);

impl Promotion {
    /// Nothing was looked at.
    pub const NEW: Self = Promotion {
        cursor: FIRST,
        has_seen: false,
        has_found: false,
        sweep_ms: SWEEP_LEAST_MS,
        sweep_at_ms: 0,
        heard_ms: 0,
        is_idle: true,
        under_way: None,
        work_at_ms: 0,
        refusals: 0,
    };

    /// A sweep has ended.
    fn end_sweep(&mut self, now_ms: u64) {
        let in_vain = self.has_seen && !self.has_found;
        self.sweep_ms =
            if in_vain { (self.sweep_ms * 2).min(SWEEP_MOST_MS) } else { SWEEP_LEAST_MS };
        self.is_idle = !self.has_seen;
        (self.cursor, self.has_seen, self.has_found) = (FIRST, false, false);
        self.sweep_at_ms = now_ms + if self.is_idle { SWEEP_IDLE_MS } else { self.sweep_ms };
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

/// Whether a large object was given small pages that the thread has not heard of.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// A large object was given small pages.
pub fn tell() {
    if !IS_NEW.load(Relaxed) {
        IS_NEW.store(true, Relaxed);
        if background::is_running() {
            background::wake();
        }
    }
}

impl Remap {
    /// One pass. `leisure`: the program does nothing just now. Returns when there is something to do again; `None`: not before there is another
    /// large object on small pages.
    pub(super) fn promote(&self, leisure: bool) -> Option<u32> {
        // Where open memory is charged or locked, advice splits what is opened slot by slot.
        if self.lists_strict() || !vm::can_collapse() {
            return None;
        }
        let Some(_trimming) = self.trimming.try_lock() else { return Some(GO_ON_MS) };
        let mut promotion = self.promotion.lock();
        let now = clock::coarse_ms();
        if IS_NEW.load(Relaxed) && promotion.hear(now) {
            IS_NEW.store(false, Relaxed);
        }
        if now >= promotion.sweep_at_ms {
            self.sweep(&mut promotion, now);
        }
        if now >= promotion.work_at_ms {
            self.make_next_whole(&mut promotion, now, leisure);
        }
        promotion.again_in_ms(now)
    }

    /// Looks for objects that have filled their small pages.
    fn sweep(&self, promotion: &mut Promotion, now_ms: u64) {
        let frontiers = self.lists.lock().frontiers();
        let (mut read, mut looked_at) = (0, 0);
        let mut id = promotion.cursor;
        while id.class() < CLASSES {
            if !has_huge(id) || id.index() >= frontiers[id.class()] {
                id = SlotId::new(id.class() + 1, 0);
                continue;
            }
            if read >= READ_MOST || looked_at >= LOOKED_AT_MOST {
                promotion.cursor = id;
                promotion.is_idle = false;
                promotion.sweep_at_ms = now_ms + u64::from(GO_ON_MS);
                return;
            }
            let place = self.place(id);
            id = SlotId::new(id.class(), id.index() + 1);
            read += 1;
            let Some((from, to)) = small_pages(place) else { continue };
            promotion.has_seen = true;
            let under_way = promotion.under_way.filter(|under_way| under_way.id == place.id);
            if promotion.under_way.is_some() && under_way.is_none() {
                // Its turn comes.
                continue;
            }
            looked_at += 1;
            let worth = Worth::of(place, from, to);
            let end = worth.and_then(|worth| self.advise_worthy(place, worth));
            if let Some(end) = end {
                promotion.has_found = true;
                let next = under_way.map_or(from, |under_way| under_way.next);
                promotion.under_way = Some(UnderWay { id: place.id, next, end });
            }
        }
        promotion.end_sweep(now_ms);
    }

    /// Has the small pages of a live object come huge from now on, up to where that is worth it. Returns the end of those that do; `None`: the object is
    /// gone or in use, or the kernel refuses.
    fn advise_worthy(&self, place: Place, worth: Worth) -> Option<usize> {
        if vm::huge_pages() == vm::HugePages::Never || !place.slot.begin_trim() {
            return None;
        }
        let before = place.slot.huge();
        if small_pages(place).is_some_and(|(_, to)| worth.end <= to) {
            let end = self.advise_first(place, worth);
            self.advise_huge(place, place.slot.huge(), end);
        }
        let after = place.slot.huge();
        place.slot.end_trim();
        (after > before).then_some(after)
    }

    /// Where pages are not used yet that are worth huge pages, finds out on the first one how long these take. Returns up to where they had better be huge.
    fn advise_first(&self, place: Place, worth: Worth) -> usize {
        // The object is being filled in the one before.
        let first = worth.filled + PAGES_PER_HUGE;
        let behind = first + PAGES_PER_HUGE;
        if behind > worth.end {
            return worth.end;
        }
        if fresh::begin_small((worth.end - worth.filled) / PAGES_PER_HUGE) {
            return worth.filled;
        }
        if !self.advise_huge(place, place.slot.huge(), behind) {
            return worth.filled;
        }
        // SAFETY: open pages of a live object, which is neither freed nor resized before the visit ends.
        match unsafe { fresh::populate(place.at.add(first * PAGE_BYTES)) } {
            fresh::Speed::Quick => worth.end,
            fresh::Speed::Slow => behind,
        }
    }

    /// Makes the next huge page whole of those that are under way.
    fn make_next_whole(&self, promotion: &mut Promotion, now_ms: u64, leisure: bool) {
        let Some(UnderWay { id, next, end }) = promotion.under_way else { return };
        let place = self.place(id);
        let last = end.min(next + COUNTED_MOST * PAGES_PER_HUGE);
        let mut rest = (next..last).step_by(PAGES_PER_HUGE);
        let at = |page: usize| place.at.wrapping_add(page * PAGE_BYTES);
        let is_filled =
            |page: &usize| vm::resident_pages(at(*page), PAGES_PER_HUGE) >= FILLED_PAGES;
        let Some(page) = rest.find(is_filled) else {
            promotion.under_way = (last < end).then_some(UnderWay { id, next: last, end });
            return;
        };
        let behind = page + PAGES_PER_HUGE;
        match self.make_whole(place, at(page), behind) {
            Some((outcome, micros)) => {
                promotion.under_way = (behind < end).then_some(UnderWay { id, next: behind, end });
                promotion.settle(outcome, micros, now_ms, leisure);
            }
            // Its owner is at it.
            None if place.slot.state() == LIVE && pages(place) >= behind => {
                promotion.under_way = Some(UnderWay { id, next: page, end });
            }
            None => promotion.under_way = None,
        }
    }

    /// Makes a huge page of a live object whole, and how long that took; `None`: the object is gone or in use.
    fn make_whole(&self, place: Place, at: *mut u8, end: usize) -> Option<(vm::Whole, u64)> {
        fresh::fetch();
        if !place.slot.begin_trim() {
            return None;
        }
        let is_there = pages(place) >= end && place.slot.huge() >= end;
        let start = clock::micros();
        // SAFETY: open pages of a live object, which is neither freed nor resized before the visit ends.
        let outcome = is_there.then(|| unsafe { vm::collapse(at, HUGEPAGE_BYTES) });
        place.slot.end_trim();
        outcome.map(|outcome| (outcome, clock::micros() - start))
    }
}

fn pages(place: Place) -> usize {
    pages_of(place.slot.used.load(Relaxed))
}

/// Whole huge pages of a live object that are advised to be small: the first page, and the one behind the last.
fn small_pages(place: Place) -> Option<(usize, usize)> {
    if place.slot.state() != LIVE {
        return None;
    }
    let (from, to) = (place.slot.huge(), pages(place));
    let to = to - to % PAGES_PER_HUGE;
    (to > from).then_some((from, to))
}

/// Small pages that are worth huge pages.
#[derive(Clone, Copy)]
struct Worth {
    /// Up to here they are filled.
    filled: usize,
    end: usize,
}

impl Worth {
    /// Those of a live object among its pages from `from` up to `to`.
    fn of(place: Place, from: usize, to: usize) -> Option<Self> {
        if is_filled(place, from, to) {
            return Some(Self { filled: to, end: to });
        }
        let whole = |page: usize| {
            let at = place.at.wrapping_add(page * PAGE_BYTES);
            vm::resident_pages(at, PAGES_PER_HUGE) == PAGES_PER_HUGE
        };
        let pages = (from..to).step_by(PAGES_PER_HUGE).take(COUNTED_MOST);
        let filled = pages.take_while(|page| whole(*page)).count() * PAGES_PER_HUGE;
        let end = (from + AHEAD_PARTS * filled).min(to);
        (filled > 0).then_some(Self { filled: from + filled, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_in_vain_become_rare_until_there_is_something_new() {
        let mut promotion = Promotion::NEW;
        let mut now = 1000;
        let waits = [(); 15].map(|()| {
            promotion.has_seen = true;
            promotion.end_sweep(now);
            let wait = promotion.again_in_ms(now).unwrap_or(0);
            now += u64::from(wait);
            wait
        });
        assert_eq!(waits[..4], [20, 40, 80, 160]);
        assert_eq!(waits[11..], [40_960, 60_000, 60_000, 60_000]);
        promotion.has_seen = true;
        promotion.end_sweep(now);
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
        let mut promotion = Promotion::NEW;
        let mut after = |outcome, micros, leisure| {
            promotion.under_way = Some(UnderWay { id: FIRST, next: 0, end: PAGES_PER_HUGE });
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
