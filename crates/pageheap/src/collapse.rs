//! Restoring broken huge pages that have filled again.
//!
//! The paper leaves this to the kernel, which is slow to do it; `MADV_COLLAPSE` does it on
//! request. The moment at which a huge page has filled again is the best: the faults that its
//! remaining pages would take cost as much as restoring it. What was not restored then, a sweep over
//! the records finds: nothing has to be kept in order for it, and a page that cannot be restored
//! does not stand in the way of others.

use spandrel_pages::{HugeLength, HugePageId};

use crate::bits::Bits;
use crate::bits::PAGES;
use crate::heap::PageHeap;
use crate::huge_filler;
use crate::huge_region::REGION;
use crate::memory::{Collapse, Memory};
use crate::tracker::{Link, State, Tracker, flag};

/// Records that one sweep looks at.
const SWEEP: u32 = 1024;
/// A page that could not be restored is left alone for so long.
const PAGE_DELAY_S: u64 = 60;
/// Delays after failures double this many times at most (google/tcmalloc: to 128 intervals).
const MOST_DOUBLINGS: u32 = 7;
/// An attempt is charged for no less: it takes a system call.
const LEAST_MICROS: u32 = 5;
/// What it spares for each page that was gone: two faults of 1.7 us on the machine that this was
/// measured on.
const SPARED_MICROS: u32 = 3;
/// One that took so long had to make room first (0.1 ms is usual): the next may as well, and waits
/// [`SLOW_PAUSE`] times as long. So it does after each that began small: what these take is not in the
/// budget, as the program would have waited for all of it at once, but a hundredth of the time at most.
const SLOW_MICROS: u32 = 2000;
const SLOW_PAUSE: u64 = 99;
/// While the program does nothing, this many times as much may be spent.
const LEISURE: u32 = 10;
/// ... but no longer.
const MOST_PAUSE_MS: u64 = 10_000;

/// Where the sweep is, and what it may spend.
#[derive(Debug)]
pub(crate) struct Repair {
    cursor: HugePageId,
    /// Thousandths of a microsecond that may be spent; negative is debt.
    purse: i64,
    filled_ms: Option<u64>,
    /// Failures in a row, and until when nothing is tried because of them.
    failures: u32,
    not_before_ms: u64,
    /// A huge page that has just filled again.
    fresh: Link,
    /// One that began small and is being made whole.
    under_way: Link,
    /// How many times the usual may be spent.
    haste: u32,
}

impl Repair {
    pub(crate) const fn new() -> Self {
        Self {
            cursor: HugePageId(0),
            purse: 0,
            filled_ms: None,
            failures: 0,
            not_before_ms: 0,
            fresh: Link::NONE,
            under_way: Link::NONE,
            haste: 1,
        }
    }

    /// Notes a huge page that has just filled again.
    pub(crate) fn note(&mut self, page: HugePageId) {
        self.fresh = Link::to(page);
    }

    /// Nothing is tried for so long, or until a pause ends that is longer.
    fn pause(&mut self, now_ms: u64, pause_ms: u64) {
        self.not_before_ms = self.not_before_ms.max(now_ms.saturating_add(pause_ms));
    }

    /// Is there something left to spend? What is not spent within a second is lost.
    fn can_pay(&mut self, now_ms: u64, micros_per_s: u32) -> bool {
        let micros_per_s = micros_per_s.saturating_mul(self.haste);
        let most = i64::from(micros_per_s) * 1000;
        let elapsed = self.filled_ms.map_or(1000, |last| now_ms.saturating_sub(last).min(1 << 20));
        self.filled_ms = Some(self.filled_ms.map_or(now_ms, |last| last.max(now_ms)));
        let income = i64::from(micros_per_s).saturating_mul(elapsed as i64);
        // A debt of leisure ends with it.
        self.purse = self.purse.max(-most).saturating_add(income).min(most);
        self.purse > 0
    }

    /// A debt is limited to what a second brings, so that it does not outlast its reason.
    fn pay(&mut self, micros: u32, micros_per_s: u32) {
        let micros_per_s = micros_per_s.saturating_mul(self.haste);
        let most = i64::from(micros_per_s) * 1000;
        self.purse =
            self.purse.saturating_sub(i64::from(micros.max(LEAST_MICROS)) * 1000).max(-most);
    }
}

impl PageHeap<'_> {
    /// A huge page that has filled again by the last [`Self::allocate`] or [`Self::try_grow`],
    /// if there is one: to be restored before it is touched, whatever the budget says. See
    /// [`Self::next_to_restore`] for the rest, and for what began small: that takes long.
    #[inline]
    pub fn just_refilled(&mut self, now_ms: u64) -> Option<HugePageId> {
        let page = core::mem::take(&mut self.repair.fresh).get()?;
        let may_try = !self.counters.collapse_unsupported && now_ms >= self.repair.not_before_ms;
        let tracker = &self.table[page];
        if !may_try || tracker.has(flag::SMALL) || !is_candidate(tracker, now_ms / 1000) {
            return None;
        }
        self.table[page].flags |= flag::RESTORING;
        Some(page)
    }

    /// Says whether the program does nothing just now: then ten times as much time may be spent
    /// on restoring.
    pub fn at_leisure(&mut self, leisure: bool) {
        self.repair.haste = if leisure { LEISURE } else { 1 };
    }

    /// Whether there are broken huge pages that have filled again.
    fn has_refilled(&self) -> bool {
        self.filler.counts.refilled > 0 && !self.counters.collapse_unsupported
    }

    /// Milliseconds until there may be a huge page to restore; none if there is none at all.
    pub fn restores_in_ms(&self, now_ms: u64) -> Option<u64> {
        self.has_refilled().then(|| self.repair.not_before_ms.saturating_sub(now_ms))
    }

    /// Forgets that huge pages are being restored: the restoring threads do not exist, as in the child
    /// of a fork. Walks all records up to the frontier.
    pub fn abandon_restoring(&mut self, memory: &mut impl Memory, now_ms: u64) {
        self.repair.under_way = Link::NONE;
        let mut page = HugePageId(0);
        while page < self.vacant.frontier {
            let tracker = &self.table[page];
            let next = following(page, tracker);
            if tracker.state == State::Filler && tracker.has(flag::RESTORING) {
                // The next restore of it has the kernel told otherwise first.
                self.table[page].flags &= !(flag::RESTORING | flag::TOLD);
                if self.table[page].used_pages == 0 {
                    // It was empty and could not leave.
                    self.dispose(memory, now_ms, page);
                } else if self.table[page].unbacked_pages > 0 {
                    self.keep_small(memory, page);
                }
            }
            page = next;
        }
    }

    /// A broken huge page that is worth restoring now, if any. It is kept from leaving until
    /// [`Self::restored`] tells what came of it, so that the attempt can be made without a lock;
    /// [`Self::step`] does both.
    pub fn next_to_restore(&mut self, now_ms: u64) -> Option<HugePageId> {
        if self.filler.counts.refilled == 0
            || self.counters.collapse_unsupported
            || now_ms < self.repair.not_before_ms
        {
            return None;
        }
        let can_pay = self.repair.can_pay(now_ms, self.settings.collapse_micros_per_s);
        let end = self.vacant.frontier;
        let now_s = now_ms / 1000;
        for _ in 0..SWEEP {
            if self.repair.cursor >= end {
                self.repair.cursor = HugePageId(0);
            }
            let page = self.repair.cursor;
            let tracker = &self.table[page];
            self.repair.cursor = following(page, tracker);
            let small = tracker.has(flag::SMALL);
            let may = if small { self.repair.under_way == Link::NONE } else { can_pay };
            if may && is_candidate(tracker, now_s) {
                if small {
                    self.repair.under_way = Link::to(page);
                }
                self.table[page].flags |= flag::RESTORING;
                return Some(page);
            }
        }
        None
    }

    /// What came of the attempt to restore this huge page. Without such an attempt under way
    /// nothing is done.
    pub fn restored(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        page: HugePageId,
        outcome: Collapse,
    ) {
        if self.repair.under_way == Link::to(page) {
            self.repair.under_way = Link::NONE;
        }
        let tracker = &self.table[page];
        if tracker.state != State::Filler || !tracker.has(flag::RESTORING) {
            return;
        }
        let unbacked = u32::from(tracker.unbacked_pages);
        let spared = unbacked * SPARED_MICROS;
        let began_small = tracker.has(flag::SMALL);
        // The kernel was told otherwise for the attempt.
        self.table[page].flags &= !(flag::RESTORING | flag::TOLD);
        if unbacked > 0 && matches!(outcome, Collapse::Busy { .. }) {
            self.keep_small(memory, page);
        }
        let counters = &mut self.counters;
        counters.collapse_attempts += 1;
        let (micros, charged) = match outcome {
            Collapse::Done { micros } => {
                counters.restored += 1;
                self.repair.failures = 0;
                if micros >= SLOW_MICROS || began_small {
                    let pause = (SLOW_PAUSE + 1) / u64::from(self.repair.haste) - 1;
                    let pause_ms = (u64::from(micros) * pause).div_ceil(1000);
                    self.repair.pause(now_ms, pause_ms.min(MOST_PAUSE_MS));
                }
                self.filler.edit(&mut self.table, page, |tracker| {
                    tracker.flags &= !(flag::BROKEN | flag::SMALL);
                    (tracker.unbacked, tracker.unbacked_pages) = (Bits::NONE, 0);
                    tracker.written = PAGES as u16;
                });
                (micros, if began_small { 0 } else { micros.saturating_sub(spared) })
            }
            Collapse::Busy { micros } => {
                counters.collapse_failures += 1;
                let delay_ms = u64::from(self.settings.collapse_delay_ms)
                    << self.repair.failures.min(MOST_DOUBLINGS);
                self.repair.failures = self.repair.failures.saturating_add(1);
                self.repair.pause(now_ms, delay_ms);
                let again_s = (now_ms / 1000).saturating_add(PAGE_DELAY_S);
                self.table[page].note = u32::try_from(again_s).unwrap_or(u32::MAX);
                (micros, micros)
            }
            Collapse::Unsupported => {
                counters.collapse_failures += 1;
                counters.collapse_unsupported = true;
                (0, 0)
            }
        };
        self.counters.collapse_micros += u64::from(micros);
        self.counters.collapse_max_micros = self.counters.collapse_max_micros.max(micros);
        self.repair.pay(charged, self.settings.collapse_micros_per_s);
        // It may have drained meanwhile.
        if self.table[page].used_pages == 0 {
            self.dispose(memory, now_ms, page);
        }
        self.stepped();
    }
}

fn is_candidate(tracker: &Tracker, now_s: u64) -> bool {
    tracker.state == State::Filler
        && huge_filler::is_refilled(tracker)
        && !tracker.has(flag::RESTORING)
        && u64::from(tracker.note) <= now_s
}

/// The next record worth a look: what a range, a region or a large span is made of is none.
fn following(page: HugePageId, tracker: &Tracker) -> HugePageId {
    let next = page.after(HugeLength(1));
    match tracker.state {
        State::Free | State::Cached | State::Gone => page.after(HugeLength(tracker.length.max(1))),
        State::Large => page.after(HugeLength((tracker.length / PAGES).max(1))),
        State::Region => HugePageId(tracker.note).after(REGION).max(next),
        _ => next,
    }
}
