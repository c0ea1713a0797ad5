//! Growing and shrinking: in place, by page tables, by copying.

use core::ptr;
use core::sync::atomic::Ordering::*;

use spandrel_os::budget::Promise;
use spandrel_os::vm;
use spandrel_pages::{KIB, PAGE_BYTES};
use spandrel_slabs::density::Contents;

use super::huge::Pattern;
use super::layout::{ROOM, class_for};
use super::lists::{Want, pages_of};
use super::slot::{HELD, LIVE};
use super::{PAGES_PER_HUGE, Place, Remap, fatal};

/// Mappings that the backend may add to the process by moving pages and by
/// advice on parts of slots. The kernel's default limit is 65,530 for the whole
/// process; when the budget is used up objects are copied and stay on base pages.
pub const SPLIT_BUDGET: usize = 8192;
/// Slots that may be open at a time where each is opened by itself, which makes
/// two mappings of it. The same limit; beyond it requests go elsewhere.
pub const APART_BUDGET: usize = 16384;
/// Objects below this are copied when they outgrow their slot: 64 KiB cost 6 us
/// to copy, and a move costs a system call and two mappings.
const MOVE_FROM: usize = 64 * KIB;
/// A shrinking object that leaves this much has its spare pages weighed at once.
const SHED_PAGES: usize = 64 * KIB / PAGE_BYTES;
/// Growth steps below this part of the size count as appending.
const APPEND_PART: usize = 8;
/// Consecutive appends after which an object is taken for one that goes on.
const APPEND_STREAK: u8 = 3;

impl Remap {
    /// Gives an entered slot's object the new size, and leaves it. Returns
    /// where the object is now (null: unchanged, for want of room or memory) and
    /// how many bytes from its start may not be zero.
    pub(super) fn resize(&self, place: Place, size: usize) -> (*mut u8, usize) {
        let offset = place.slot.offset();
        // What is too large for any slot is too large for a slot's pages.
        let end = size.saturating_add(offset);
        let Some(promise) = self.admit(place.slot, pages_of(end)) else {
            place.slot.leave();
            return (ptr::null_mut(), 0);
        };
        if end > ROOM[place.id.class()] || !self.ensure_open(place, pages_of(end)) {
            return self.outgrow(place, size, promise);
        }
        let dirty = place.slot.touched.load(Relaxed) as usize * PAGE_BYTES;
        self.note_resize(place, end, promise);
        place.slot.leave();
        (place.object(), dirty - offset)
    }

    /// Grows a slot's object within pages that are resident, as one that doubles in a
    /// warm slot does. False: it is no live object, there are too few, or a thread
    /// is trimming them; nothing has changed.
    #[inline(always)]
    pub(super) fn grow_warm(&self, place: Place, size: usize) -> bool {
        let slot = place.slot;
        if !slot.try_enter() {
            return false;
        }
        let size = size.saturating_add(slot.offset());
        let (old, pages) = (slot.used.load(Relaxed), pages_of(size));
        let suits = size > old && pages <= slot.touched.load(Relaxed) as usize;
        if suits {
            note_pattern(place, old, size);
            slot.used.store(size, Relaxed);
            let more = pages - pages_of(old);
            self.note_growth(place, more, more);
        }
        slot.leave();
        suits
    }

    /// Notes that an object has `more` pages, of which `warm` were resident.
    #[inline(always)]
    fn note_growth(&self, place: Place, more: usize, warm: usize) {
        let reused = &place.slot.reused;
        reused.store(reused.load(Relaxed).saturating_add(warm as u32), Relaxed);
        self.note(place, more as i32, -(warm as i32));
    }

    /// Changes the size, offset included, in a slot that has room for it.
    fn note_resize(&self, place: Place, size: usize, promise: Promise) {
        let slot = place.slot;
        let old = slot.used.load(Relaxed);
        let (old_pages, pages) = (pages_of(old), pages_of(size));
        let touched = slot.touched.load(Relaxed) as usize;
        let pattern = note_pattern(place, old, size);
        slot.used.store(size, Relaxed);
        if pages == old_pages {
            return;
        }
        if pages > old_pages {
            self.note_growth(
                place,
                pages - old_pages,
                pages.min(touched).saturating_sub(old_pages),
            );
            if pages > touched {
                self.extend(place, touched, pages, pattern, promise);
                self.queue_spare(place, pages);
            }
        } else {
            let fewer = (old_pages - pages) as i32;
            self.note(place, -fewer, fewer);
            self.queue_spare(place, pages);
            if old_pages - pages >= SHED_PAGES {
                self.shed(place, pages);
            }
            self.tick();
        }
    }

    /// Puts a slot with resident pages behind its object into the queue of warm
    /// memory: what is counted as warm must be found when memory is released.
    pub(super) fn queue_spare(&self, place: Place, pages: usize) {
        let slot = place.slot;
        if slot.touched.load(Relaxed) as usize > pages && !slot.is_queued() {
            self.lists.lock().enqueue(place.id, self.stamp());
        }
    }

    /// The object needs more room than its slot has.
    #[cold]
    fn outgrow(&self, from: Place, size: usize, mut promise: Promise) -> (*mut u8, usize) {
        let used = from.slot.used.load(Relaxed);
        let counter = from.slot.counter.load(Relaxed).saturating_add(1);
        from.slot.early.store(0, Relaxed);
        let streak = from.slot.streak.load(Relaxed);
        let movable = used >= MOVE_FROM && self.splits.load(Relaxed) < SPLIT_BUDGET;
        let moved =
            if movable { self.outgrow_by_pages(from, used, size, &mut promise) } else { None };
        // A copy needs more than that, and asks anew.
        drop(promise);
        let (to, dirty) = match moved.or_else(|| self.outgrow_by_copy(from, used, size)) {
            Some(outgrown) => outgrown,
            None => {
                from.slot.leave();
                return (ptr::null_mut(), 0);
            }
        };
        to.slot.counter.store(counter, Relaxed);
        to.slot.streak.store(streak, Relaxed);
        to.slot.early.store(0, Relaxed);
        (to.object(), dirty)
    }

    /// Moves the object's page-table entries to a larger slot. `None`: nothing
    /// has changed.
    fn outgrow_by_pages(
        &self,
        from: Place,
        used: usize,
        size: usize,
        promise: &mut Promise,
    ) -> Option<(Place, usize)> {
        let offset = from.slot.offset();
        let end = size.saturating_add(offset);
        let class = class_for(end)?;
        let mut lists = self.lists.lock();
        let to = self.take(&mut lists, class, Want::Cold, 1)?;
        lists.dequeue(to.id);
        drop(lists);
        let moved = self.ensure_open(to, pages_of(end)).then(|| self.move_object(from, to, used));
        match moved {
            Some(vm::Move::Done) => {}
            // Not mapped any more: it stays on no list.
            Some(vm::Move::TargetLost) => return None,
            _ => {
                self.put_empty(to);
                return None;
            }
        }
        let dirty = to.slot.touched.load(Relaxed) as usize * PAGE_BYTES - offset;
        self.moved.fetch_add(1, Relaxed);
        self.note_resize(to, end, core::mem::take(promise));
        to.slot.set_state(LIVE);
        Some((to, dirty))
    }

    /// Copies the object to a larger slot. `None`: nothing has changed.
    fn outgrow_by_copy(&self, from: Place, used: usize, size: usize) -> Option<(Place, usize)> {
        // All that `usable_size` names may have been written to.
        let bytes = (pages_of(used) * PAGE_BYTES - from.slot.offset()).min(size);
        let want = Want::Near(pages_of(size));
        let (to, promise) = self.take_new(class_for(size)?, size, want, PAGE_BYTES)?;
        let dirty = self.settle_new(to, size, Contents::Any, promise).max(bytes);
        // SAFETY: both objects are held by this call and do not overlap.
        unsafe { ptr::copy_nonoverlapping(from.object(), to.object(), bytes) };
        self.copied.fetch_add(1, Relaxed);
        self.copied_bytes.fetch_add(bytes as u64, Relaxed);
        self.release(from);
        Some((to, dirty))
    }

    /// Moves the pages of an entered slot's object to a held slot. When done the
    /// old slot is empty and on its list, and the new one holds the object with
    /// its old size; else the object is as it was.
    fn move_object(&self, from: Place, to: Place, used: usize) -> vm::Move {
        let (source, target) = (from.slot, to.slot);
        let used_pages = pages_of(used);
        let touched = (source.touched.load(Relaxed) as usize).max(used_pages);
        if touched > target.opened.load(Relaxed) as usize {
            return vm::Move::Refused;
        }
        // A move is of one mapping at a time: the slot consists of a moved part,
        // an advised part and the rest, and each of these of one or more mappings.
        let mut cuts = [
            (source.moved.load(Relaxed) as usize).min(touched),
            source.huge().min(touched),
            touched,
        ];
        cuts.sort_unstable();
        let (mut done, mut outcome) = (0, vm::Move::Done);
        for end in cuts {
            while done < end && outcome == vm::Move::Done {
                (done, outcome) = move_some(from, to, done, end);
            }
        }
        match outcome {
            vm::Move::TargetLost if done == 0 => {
                self.tell(to, 0, -(target.set_touched(0) as isize));
                return outcome;
            }
            vm::Move::TargetLost => fatal("no memory for mappings in the middle of a move"),
            _ if done == 0 => return outcome,
            _ => {}
        }
        if done < used_pages {
            let (at, len) = (done * PAGE_BYTES, (used_pages - done) * PAGE_BYTES);
            // SAFETY: as above; the object ends with its last page.
            unsafe { ptr::copy_nonoverlapping(from.at.add(at), to.at.add(at), len) };
            self.copied_bytes.fetch_add(len as u64, Relaxed);
        }
        let mut behind = false;
        if done < touched {
            // What stays behind must not be found in a slot that counts as empty.
            let (at, len) = (done * PAGE_BYTES, (touched - done) * PAGE_BYTES);
            // SAFETY: the object has left these pages of an entered slot.
            behind = !unsafe { vm::discard(from.at.add(at), len) };
        }
        // Whatever the target had resident was replaced, up to `touched`.
        let left = target.touched.load(Relaxed) as usize;
        self.tell(to, 0, -(left as isize));
        let mut resident = touched;
        if left > touched {
            let (at, len) = (touched * PAGE_BYTES, (left - touched) * PAGE_BYTES);
            // SAFETY: the target's pages beyond the object belong to no object.
            if !unsafe { vm::discard(to.at.add(at), len) } {
                self.tell(to, 0, (left - touched) as isize);
                resident = left;
            }
        }
        source.set_touched_with(if behind { touched } else { 0 }, target, resident);
        let splits = target.splits();
        target.moved.store(done as u32, Relaxed);
        if source.huge() > target.huge() {
            target.set_huge(source.huge().min(touched));
        }
        target.used.store(used, Relaxed);
        target.set_offset(source.offset());
        // An earlier object may have left the target's mapping cut already.
        self.splits.fetch_add(target.splits().wrapping_sub(splits), Relaxed);
        // What the accounts know of the source they now know of the target.
        let left = if behind { touched } else { 0 };
        self.tell(from, 0, left as isize);
        source.used.store(0, Relaxed);
        let mut lists = self.lists.lock();
        lists.dequeue(from.id);
        drop(lists);
        source.set_state(HELD);
        source.leave();
        self.heal(from);
        self.put_empty(from);
        vm::Move::Done
    }
}

/// Moves the pages from `done` up to `end`, or as many of them as lie in one
/// mapping; where it got, and how it ended. An object that was moved more than
/// once consists of more mappings than its record tells.
fn move_some(from: Place, to: Place, done: usize, end: usize) -> (usize, vm::Move) {
    let mut end = end;
    while end > done {
        let (at, len) = (done * PAGE_BYTES, (end - done) * PAGE_BYTES);
        // SAFETY: both slots are held by the caller; the target is empty.
        match unsafe { vm::move_pages(from.at.add(at), to.at.add(at), len) } {
            vm::Move::Done => return (end, vm::Move::Done),
            vm::Move::SeveralMappings => {}
            refused => return (done, refused),
        }
        // Halve, and leave huge pages whole: the border lies in none of them.
        let middle = done + (end - done) / 2;
        let huge = middle - middle % PAGES_PER_HUGE;
        end = if huge > done { huge } else { middle };
    }
    (done, vm::Move::Refused)
}

/// Keeps the allocation counter, the streak of appends, and what is expected.
#[inline]
fn note_pattern(place: Place, old: usize, size: usize) -> Pattern {
    let slot = place.slot;
    let counter = slot.counter.load(Relaxed);
    if size <= old {
        if size < old {
            slot.counter.store(counter.saturating_sub(1), Relaxed);
            slot.streak.store(0, Relaxed);
        }
        return Pattern::Grown;
    }
    slot.counter.store(counter.saturating_add(1), Relaxed);
    if size - old > old / APPEND_PART {
        slot.streak.store(0, Relaxed);
        slot.early.store(0, Relaxed);
        return Pattern::Grown;
    }
    let streak = slot.streak.load(Relaxed).saturating_add(1);
    slot.streak.store(streak, Relaxed);
    if streak < APPEND_STREAK {
        return Pattern::Grown;
    }
    slot.early.store(0, Relaxed);
    Pattern::Appended
}
