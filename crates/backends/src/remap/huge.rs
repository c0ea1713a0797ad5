//! Fresh pages of a slot: huge, in batches, or one by one as they are used.

use core::sync::atomic::Ordering::*;

use spandrel_os::budget::Promise;
use spandrel_os::vm;
use spandrel_pages::{KIB, MIB, PAGE_BYTES};
use spandrel_slabs::density::Contents;
use spandrel_slabs::fresh;

use super::grow::SPLIT_BUDGET;
use super::layout::has_huge;
use super::{PAGES_PER_HUGE, Place, Remap};

/// Of a huge page that an object only begins this part of the object may be left over.
const LEFT_OVER_PART: usize = 8;
/// As [`LEFT_OVER_PART`], where the kernel has huge pages wherever one fits, as other allocators' objects have them there: the first touch of
/// small pages takes seven times as long.
const LEFT_OVER_UNASKED: usize = 2;
/// Where at least this number of a huge page's small pages are missing, one fault that brings the huge page is quicker than a
/// fault for each: a huge page takes 0.1 ms, a page 1.7 us.
const WORTH_ANEW_PAGES: usize = 64;
/// Populated ahead of an appended object: 1/16 of its size within these bounds,
/// so that residency exceeds use by at most a sixteenth and a little.
const BATCH_PART: usize = 16;
const BATCH_LEAST_PAGES: usize = 64 * KIB / PAGE_BYTES;
const BATCH_MOST_PAGES: usize = MIB / PAGE_BYTES;
/// The part of the fresh huge pages that are touched to learn how long they take, ...
const TOUCHED_PART: usize = 8;
/// ... and their largest number.
const TOUCHED_MOST: usize = 16;

/// Why fresh pages are about to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// The object is new.
    New(Contents),
    /// It grew by a large step.
    Grown,
    /// It is being appended to.
    Appended,
}

impl Remap {
    /// Of an object this part may be left over in the last of its huge pages.
    fn left_over_part(&self) -> usize {
        if self.densities.is_unasked() { LEFT_OVER_UNASKED } else { LEFT_OVER_PART }
    }

    /// The pages from `from` up to `to` of a slot are about to be used for the
    /// first time: makes them huge or brings them in batches where that pays.
    pub(super) fn extend(
        &self,
        place: Place,
        from: usize,
        to: usize,
        pattern: Pattern,
        promise: Promise,
    ) {
        let slot = place.slot;
        let capacity = slot.opened.load(Relaxed) as usize;
        let mut touched = slot.to_touch(to);
        let (mut whole, mut batched) = (None, None);
        let huge = slot.huge();
        let part = self.left_over_part();
        let is_large = to >= PAGES_PER_HUGE * part / (part + 1) && has_huge(place.id);
        if is_large && to > huge && self.is_worth_huge(place, from, to, pattern) {
            let up = to.next_multiple_of(PAGES_PER_HUGE).min(capacity);
            // A last huge page that is only begun costs memory: allowed where what is left over
            // of it is small beside the object, or about to be filled.
            let worth = up - to <= to / part || pattern == Pattern::Appended;
            whole = if worth { Promise::of((up - to) * PAGE_BYTES) } else { None };
            let ahead = whole.is_some();
            let end = if ahead { up } else { to - to % PAGES_PER_HUGE };
            if end > huge {
                touched = touched.max(self.begin_huge(place, from, end));
            }
        }
        if matches!(pattern, Pattern::New(_)) && !self.lists_strict() {
            begin_anew(place, from, to, part);
        }
        let batch = (to / BATCH_PART).clamp(BATCH_LEAST_PAGES, BATCH_MOST_PAGES);
        let end = (to + batch).min(capacity);
        let pays = pattern == Pattern::Appended && to > slot.huge();
        if pays {
            batched = Promise::of((end - to) * PAGE_BYTES);
        }
        if batched.is_some() {
            // SAFETY: the range is open and lies in a slot held by the caller.
            if unsafe { vm::populate(place.at.add(from * PAGE_BYTES), (end - from) * PAGE_BYTES) } {
                touched = touched.max(end);
            }
        }
        slot.touch(touched, promise.and(whole).and(batched));
        spandrel_slabs::note_elsewhere((touched - from) * PAGE_BYTES);
        if touched > to {
            self.note(place, 0, (touched - to) as i32);
        }
    }

    /// Whether the program is expected to use most of the pages from `from` up to `to`.
    fn is_worth_huge(&self, place: Place, from: usize, to: usize, pattern: Pattern) -> bool {
        match pattern {
            Pattern::New(contents) => self.begins_huge(place, to, contents),
            Pattern::Grown | Pattern::Appended => self.is_dense(place, from),
        }
    }

    /// Has the fresh pages from `from` up to `end` come in huge pages, unless these take long now. Returns up to where they may be resident
    /// that are huge; 0: none is.
    fn begin_huge(&self, place: Place, from: usize, end: usize) -> usize {
        let huge = place.slot.huge();
        let first = from.max(huge).next_multiple_of(PAGES_PER_HUGE);
        let fresh_pages = end.saturating_sub(first) / PAGES_PER_HUGE;
        if fresh_pages > 0 && fresh::begin_small(fresh_pages) {
            return 0;
        }
        // The first few tell. If they are slow, the rest stay small, and the advice ends with them.
        let probes = fresh_pages.div_ceil(TOUCHED_PART).min(TOUCHED_MOST);
        for number in 0..probes {
            let at = first + number * PAGES_PER_HUGE;
            if !self.advise_pages_huge(place, place.slot.huge(), at + PAGES_PER_HUGE) {
                return place.slot.huge();
            }
            // SAFETY: the page is open and zero, as nothing was stored behind `from`, and lies in a slot held by the caller.
            if unsafe { fresh::touch(place.at.add(at * PAGE_BYTES)) } == fresh::Speed::Slow {
                return place.slot.huge();
            }
        }
        self.advise_pages_huge(place, place.slot.huge(), end);
        place.slot.huge()
    }

    /// Advises huge pages from page `from` up to `to`, if a mapping is to spare.
    pub(super) fn advise_pages_huge(&self, place: Place, from: usize, to: usize) -> bool {
        if from >= to {
            return true;
        }
        if from == 0 && self.splits.load(Relaxed) >= SPLIT_BUDGET {
            return false;
        }
        let (at, len) = (from * PAGE_BYTES, (to - from) * PAGE_BYTES);
        // SAFETY: the range is open and lies in a slot held by the caller.
        if !unsafe { vm::advise_huge(place.at.add(at), len) } {
            return false;
        }
        if from == 0 {
            self.splits.fetch_add(1, Relaxed);
        }
        place.slot.set_huge(to);
        true
    }
}

/// Maps a huge page anew of which a former object left small pages, the first `from` of the slot being
/// resident, if a new one of `to` pages has the rest of it or most of that. The kernel brings no huge
/// page where there is a table of small ones, and such a table goes with its mapping only.
fn begin_anew(place: Place, from: usize, to: usize, part: usize) {
    let left = from % PAGES_PER_HUGE;
    let (begun, end) = (from - left, from - left + PAGES_PER_HUGE);
    let is_advised = end <= place.slot.huge();
    // A part of what was moved here would be a mapping of its own, and not counted.
    let is_moved = begun < place.slot.moved.load(Relaxed) as usize;
    let missing = to.min(end) - from;
    let left_over = end.saturating_sub(to);
    if left != 0 && is_advised && !is_moved && missing >= WORTH_ANEW_PAGES && left_over <= to / part
    {
        let len = PAGES_PER_HUGE * PAGE_BYTES;
        // SAFETY: open, in a slot held by the caller, and without contents that are in use.
        // If it fails, for want of mappings, they stay as they are.
        unsafe {
            let at = place.at.add(begun * PAGE_BYTES);
            let _ = vm::open_fresh(at, len) && vm::advise_huge(at, len);
        }
    }
}
