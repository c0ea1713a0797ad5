//! Giving memory back: what is warm for too long, or too much.

use core::sync::atomic::Ordering::*;

use spandrel_os::budget::{self, Promise};
use spandrel_os::{barrier, clock, live, vm};
use spandrel_pages::{Figure, MIB, PAGE_BYTES};
use spandrel_slabs::{Done, Turn};
use spandrel_sync::background;

use super::lists::{Lists, pages_of};
use super::parked::NO_SLOT;
use super::reserve;
use super::slot::{HELD, Slot, WARM};
use super::{PAGES_PER_HUGE, Place, Remap};

/// From this number of live and warm pages on there is a thread that looks after them, as for the native
/// heap: 64 MiB.
const THREAD_FROM_PAGES: usize = 64 * MIB / PAGE_BYTES;
/// With this number of warm pages there is a thread as long as they stay, as for the native heap: 4 MiB.
const KEPT_LEAST: usize = 4 * MIB / PAGE_BYTES;
/// Warm memory that no request took in this time is given back.
const WARM_MS: u64 = 1000;
/// The queue is looked at this often, by threads that allocate or free.
const TICK_MS: u64 = 100;
/// Slots that are closed in one pass at most: a millisecond.
const CLOSED_SLOTS: usize = 256;
/// Slots that stay open for the next objects.
const OPEN_SLOTS: usize = 32;
/// Slots trimmed per tick at most: bounds what one call may pay.
const TICK_SLOTS: usize = 64;
/// Slots that may be passed over because their owners are resizing them.
const SKIPPED_SLOTS: usize = 8;
/// A slot tells the accounts when it has noted this many pages (1 MiB).
const NOTED_PAGES: i32 = (MIB / PAGE_BYTES) as i32;
/// Resolution of stamps: the queue's clock counts these.
const STAMP_MS: u64 = 16;

impl Remap {
    /// Notes that a held or entered slot has more live and warm pages. The
    /// accounts learn it now and then.
    #[inline(always)]
    pub(super) fn note(&self, place: Place, live: i32, warm: i32) {
        let slot = place.slot;
        // No slot has 2^26 pages.
        let live = slot.live_delta.load(Relaxed).wrapping_add(live);
        let warm = slot.warm_delta.load(Relaxed).wrapping_add(warm);
        slot.live_delta.store(live, Relaxed);
        slot.warm_delta.store(warm, Relaxed);
        let few = 1 - NOTED_PAGES..NOTED_PAGES;
        if !few.contains(&live) || !few.contains(&warm) {
            self.tell_noted(place);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_noted(&self, place: Place) {
        self.tell(place, 0, 0);
    }

    /// Tells the accounts what a slot has noted, and these changes.
    pub(super) fn tell(&self, place: Place, live: isize, warm: isize) {
        let mut lists = self.lists.lock();
        tell(&mut lists, place, live, warm);
        self.see(&lists);
    }

    /// Shows what there is to threads that look without the lock.
    pub(super) fn see(&self, lists: &Lists) {
        let (live_pages, warm) = (lists.accounts.live, lists.accounts.warm);
        self.warm_seen.store(warm, Relaxed);
        live::set(Figure::MappedLive, (live_pages * PAGE_BYTES) as u64);
        live::set(Figure::MappedWarm, (warm * PAGE_BYTES) as u64);
        if budget::counts() {
            live::set(Figure::Held, budget::held() as u64);
        }
        let is_large = live_pages + warm >= THREAD_FROM_PAGES;
        if is_large != self.is_large.load(Relaxed) {
            self.is_large.store(is_large, Relaxed);
        }
    }

    /// Now, as the queue counts time.
    pub(super) fn stamp(&self) -> u32 {
        (clock::coarse_ms() / STAMP_MS) as u32
    }

    /// Empties an entered slot: its object is gone.
    pub(super) fn release(&self, place: Place) {
        let slot = place.slot;
        let pages = pages_of(slot.used.load(Relaxed));
        let was_sparse = self.was_sparse(place, pages);
        slot.used.store(0, Relaxed);
        slot.set_state(HELD);
        slot.leave();
        let now = self.stamp();
        let mut lists = self.lists.lock();
        tell(&mut lists, place, 0, 0);
        lists.accounts.pass(now);
        lists.accounts.close(pages);
        if was_sparse {
            self.see(&lists);
            drop(lists);
            return self.forget(place);
        }
        // One slot keeps no more than all slots together may.
        let limit = lists.accounts.warm_limit();
        let touched = slot.touched.load(Relaxed) as usize;
        if touched > limit {
            lists.accounts.regret.gave_back(touched, touched - limit);
            drop(lists);
            self.drop_pages(place, limit);
            lists = self.lists.lock();
        }
        // Where most of it was left over from before it is as old as that.
        let is_old = slot.is_queued() && touched > 2 * pages;
        let stamp = if is_old { slot.stamp.load(Relaxed) } else { now };
        lists.put_warm(place.id, stamp);
        self.see(&lists);
        let over = lists.accounts.warm > limit;
        drop(lists);
        if over {
            self.give_back_excess();
        }
        // What is warm now may be forgotten.
        if background::is_running() {
            background::wake();
        } else if self.warm_seen.load(Relaxed) >= KEPT_LEAST {
            spandrel_slabs::note_kept(clock::coarse_ms());
            spandrel_slabs::see_to_kept();
        }
        self.tick();
    }

    /// Empties a held slot whose object has left few pages.
    #[cold]
    fn forget(&self, place: Place) {
        self.empty(place);
        let mut lists = self.lists.lock();
        lists.dequeue(place.id);
        if place.slot.touched.load(Relaxed) == 0 {
            lists.put_cold(place.id);
        } else {
            // The kernel did not take its pages.
            lists.put_warm(place.id, self.stamp());
        }
        let many_open = lists.open_apart() > OPEN_SLOTS;
        drop(lists);
        if many_open && background::is_running() {
            background::wake();
        }
    }

    /// An entered slot's object shrank to `pages`: what it leaves is warm memory
    /// like any other, within the same limit.
    pub(super) fn shed(&self, place: Place, pages: usize) {
        let mut lists = self.lists.lock();
        tell(&mut lists, place, 0, 0);
        lists.accounts.pass(self.stamp());
        let limit = lists.accounts.warm_limit();
        self.see(&lists);
        let over = lists.accounts.warm > limit;
        drop(lists);
        if !over {
            return;
        }
        let spare = (place.slot.touched.load(Relaxed) as usize).saturating_sub(pages);
        // Without barriers only the owner, the calling thread, can give spare pages back.
        let keep = if barrier::available() { limit } else { 0 };
        if spare > keep {
            self.drop_pages(place, pages + keep);
        }
        self.give_back_excess();
    }

    fn give_back_excess(&self) {
        self.give_back(|lists, _| lists.accounts.warm > lists.accounts.warm_limit(), TICK_SLOTS);
    }

    /// Gives back what has been warm for long, now and then.
    #[inline]
    pub(super) fn tick(&self) {
        if self.warm_seen.load(Relaxed) == 0 && self.parked.load(Relaxed) == NO_SLOT {
            return;
        }
        let now = clock::coarse_ms();
        let due = self.next_decay_ms.load(Relaxed);
        if now < due
            || self.next_decay_ms.compare_exchange(due, now + TICK_MS, Relaxed, Relaxed).is_err()
        {
            return;
        }
        self.unpark_to_lists();
        let limit = (now.saturating_sub(WARM_MS) / STAMP_MS) as u32;
        let too_much = budget::counts() && budget::excess() > 0;
        self.give_back(|_, stamp| too_much || is_before(stamp, limit), TICK_SLOTS);
        // Where there is no thread, and perhaps no request comes to the native heap.
        spandrel_slabs::step_beside();
    }

    /// A promise of what a slot will hold when this number of its pages is used, if need be after
    /// giving back what is warm; `None`: the hard limit forbids it.
    #[inline]
    pub(super) fn admit(&self, slot: &Slot, pages: usize) -> Option<Promise> {
        let more = slot.to_touch(pages).saturating_sub(slot.touched.load(Relaxed) as usize);
        let bytes = more * PAGE_BYTES;
        Promise::of(bytes).or_else(|| self.admit_after_trimming(bytes))
    }

    #[cold]
    fn admit_after_trimming(&self, bytes: usize) -> Option<Promise> {
        if !budget::can_never_be(bytes) {
            self.trim_all();
        }
        let promise = Promise::of(bytes);
        if promise.is_none() {
            budget::refuse();
        }
        promise
    }

    /// Gives all warm memory back; true if there was any. Waits for a thread that is at it.
    pub(super) fn trim_all(&self) -> bool {
        self.unpark_to_lists();
        let before = self.warm_seen.load(Relaxed);
        let _trimming = self.trimming.lock();
        self.empty_oldest(|_, _| true, usize::MAX);
        self.warm_seen.load(Relaxed) < before
    }

    /// Closes slots that hold nothing and are mappings apart, as long as there are many: a process has 65,530 mappings unless the administrator says otherwise.
    /// While the program is busy none is closed: the next object would open it again. Returns whether there will be more to close.
    fn close_some(&self, leisure: bool) -> bool {
        let mut lists = self.lists.lock();
        // Where open memory is charged they are closed already; once the reservation has been given back none could be opened again.
        if self.lists_strict() || reserve::has_ended() {
            return false;
        }
        let more = lists.open_apart().saturating_sub(OPEN_SLOTS);
        if more == 0 || !leisure {
            return more > 0;
        }
        lists.close_apart(more.min(CLOSED_SLOTS)) > 0 && more > CLOSED_SLOTS
    }

    /// As [`Remap::close_some`], as many as there are.
    pub(super) fn close_all(&self) {
        while self.close_some(true) {}
    }

    /// Work beside the program: releases memory that has been warm for long, and `turn.beyond` bytes of other warm memory,
    /// if there are; in the background thread, promotes an object.
    pub(super) fn step(&self, turn: Turn) -> Done {
        self.tick();
        let mut given_back = 0;
        if turn.beyond > 0 {
            self.unpark_to_lists();
            let before = self.warm_seen.load(Relaxed);
            let keep = before.saturating_sub(turn.beyond.div_ceil(PAGE_BYTES));
            self.give_back(|lists, _| lists.accounts.warm > keep, usize::MAX);
            given_back = before.saturating_sub(self.warm_seen.load(Relaxed)) * PAGE_BYTES;
        }
        let closes = turn.leisure.is_some_and(|leisure| self.close_some(leisure));
        let is_warm = self.warm_seen.load(Relaxed) > 0 || self.parked.load(Relaxed) != NO_SLOT;
        let is_more = is_warm || closes;
        // Whole ones may hold more.
        let may_promote = turn.beyond == 0;
        let leisure = turn.leisure.filter(|_| may_promote);
        let promotes_in_ms = leisure.and_then(|leisure| self.promote(leisure));
        Done { given_back, is_more, promotes_in_ms }
    }

    /// Has the background thread started once there is enough to look after. Not to be called where
    /// memory is freed.
    #[inline]
    pub(super) fn see_to_background(&self) {
        if self.is_large.load(Relaxed) && !self.wanted.load(Relaxed) {
            self.want_background();
        }
    }

    #[cold]
    fn want_background(&self) {
        if !self.wanted.swap(true, Relaxed) && !spandrel_slabs::want_background() {
            // Not here: the parent, whose memory this is, shall ask again.
            self.wanted.store(false, Relaxed);
        }
    }

    /// As [`Remap::empty_oldest`], unless another thread is at it.
    fn give_back(&self, more: impl Fn(&Lists, u32) -> bool, bound: usize) {
        if let Some(_trimming) = self.trimming.try_lock() {
            self.empty_oldest(more, bound);
        }
    }

    /// Empties slots from the old end of the queue while `more` says so, at most `bound` of them.
    /// The caller holds `trimming`.
    fn empty_oldest(&self, more: impl Fn(&Lists, u32) -> bool, bound: usize) {
        let mut skipped = 0;
        for _ in 0..bound {
            let mut lists = self.lists.lock();
            let Some((id, stamp)) = lists.oldest() else { return };
            if !more(&lists, stamp) {
                return;
            }
            lists.dequeue(id);
            let place = self.place(id);
            let is_warm = place.slot.state() == WARM;
            if is_warm || place.slot.begin_trim() {
                let keep = if is_warm { 0 } else { pages_of(place.slot.used.load(Relaxed)) };
                let touched = place.slot.touched.load(Relaxed) as usize;
                if lists.accounts.warm > lists.accounts.warm_limit() {
                    lists.accounts.regret.gave_back(touched, touched.saturating_sub(keep));
                }
                if is_warm {
                    lists.remove_warm(id);
                    // On no list: this thread's alone until it is cold.
                    drop(lists);
                    self.empty(place);
                    self.lists.lock().put_cold(id);
                } else {
                    // The spare pages behind a live object.
                    drop(lists);
                    self.drop_pages(place, keep);
                    place.slot.end_trim();
                }
            } else {
                // Its owner is at it: later, if there is a way at all.
                if barrier::available() {
                    lists.enqueue(id, self.stamp());
                    skipped += 1;
                }
                if skipped > SKIPPED_SLOTS {
                    return;
                }
            }
        }
    }

    /// Drops the pages of a held or trimmed slot from page `keep` on.
    fn drop_pages(&self, place: Place, keep: usize) {
        let slot = place.slot;
        let touched = slot.touched.load(Relaxed) as usize;
        if touched <= keep {
            return;
        }
        // SAFETY: the pages lie in a slot held by the caller, behind its object.
        let dropped =
            unsafe { vm::discard(place.at.add(keep * PAGE_BYTES), (touched - keep) * PAGE_BYTES) };
        if dropped {
            self.stay_small(place, keep);
            slot.set_touched(keep);
            self.tell(place, 0, keep as isize - touched as isize);
            if keep > 0 && self.lists_strict() {
                self.close_behind(place, keep);
            }
        }
    }

    /// Closes what is open of a held or trimmed slot from page `keep` on: it is charged for as long as it is open.
    pub(super) fn close_behind(&self, place: Place, keep: usize) {
        let opened = place.slot.opened.load(Relaxed) as usize;
        // SAFETY: the pages lie in a slot held by the caller, behind its object.
        let closed = opened > keep
            && unsafe { vm::close(place.at.add(keep * PAGE_BYTES), (opened - keep) * PAGE_BYTES) };
        if closed {
            place.slot.opened.store(keep as u32, Relaxed);
        }
    }

    /// Has the huge page that ends with dropped pages, the first `keep` of the slot being left,
    /// mapped by small pages from now on: the kernel would make it whole again some day.
    fn stay_small(&self, place: Place, keep: usize) {
        let (slot, huge) = (place.slot, place.slot.huge());
        let left = keep % PAGES_PER_HUGE;
        if left == 0 || keep >= huge {
            return;
        }
        let whole = keep - left;
        // SAFETY: as above; contents stay.
        let told = unsafe {
            vm::advise_small(place.at.add(whole * PAGE_BYTES), (huge - whole) * PAGE_BYTES)
        };
        if told {
            let before = slot.splits();
            slot.set_huge(whole);
            // As many, or one fewer.
            self.splits.fetch_add(slot.splits().wrapping_sub(before), Relaxed);
        }
    }

    /// Empties a slot that is on no list.
    fn empty(&self, place: Place) {
        self.drop_pages(place, 0);
        self.heal(place);
    }

    /// Undoes what split the mapping of an empty slot, or what is charged for it.
    pub(super) fn heal(&self, place: Place) {
        let slot = place.slot;
        let splits = slot.splits();
        let len = slot.opened.load(Relaxed) as usize * PAGE_BYTES;
        let strict = self.lists_strict();
        if len == 0 || !(strict || splits > 0) {
            return;
        }
        // SAFETY: an empty slot held by the caller.
        let healed = unsafe {
            if strict { vm::close(place.at, len) } else { vm::open_fresh(place.at, len) }
        };
        if healed {
            // As its neighbours are, so that it is one mapping with them.
            // SAFETY: as above.
            let _ = unsafe { vm::advise_small(place.at, len) };
            if strict {
                slot.opened.store(0, Relaxed);
                // Not counted: slots that were opened before memory was locked.
                let fewer = |apart: usize| Some(apart.saturating_sub(1));
                let _ = self.apart.fetch_update(Relaxed, Relaxed, fewer);
            }
            let left = slot.set_touched(0);
            if left > 0 {
                // Locked pages, which do not go back alone.
                self.tell(place, 0, -(left as isize));
            }
            self.splits.fetch_sub(splits, Relaxed);
            slot.is_one_again();
        }
    }
}

/// Whether one stamp is before another. Stamps wrap after two years.
fn is_before(stamp: u32, other: u32) -> bool {
    (other.wrapping_sub(stamp) as i32) > 0
}

/// Tells the accounts what a slot has noted, and these changes.
fn tell(lists: &mut Lists, place: Place, live: isize, warm: isize) {
    let slot = place.slot;
    let live = live + slot.live_delta.load(Relaxed) as isize;
    let warm = warm + slot.warm_delta.load(Relaxed) as isize;
    slot.live_delta.store(0, Relaxed);
    slot.warm_delta.store(0, Relaxed);
    lists.accounts.change(live, warm);
    lists.accounts.reused += u64::from(slot.reused.load(Relaxed));
    slot.reused.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_in_order_also_where_they_wrap() {
        assert!(is_before(3, 4) && !is_before(4, 4) && !is_before(5, 4));
        assert!(is_before(u32::MAX - 1, 2) && !is_before(2, u32::MAX - 1));
    }
}
