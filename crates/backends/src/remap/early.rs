//! A slot from the first byte for objects that will grow.
//!
//! A small object that grows is copied into a slot when it comes to two pages. A
//! thread that has done so a few times expects the same of its next object of a
//! page or more: that one gets the slot at hand at once, and nothing is copied.
//!
//! A thread has one such object at a time of which it is not known yet whether it
//! grows. If it is freed as it was, or others grow and it does not, the expectation
//! was wrong: it is given up, and comes back after twice as many copies as it took
//! before. Right ones make up for that slowly.
//!
//! Where all objects stay small none leaves a warm slot. So a growing object gets a fresh one when others have been
//! copied for as long as its page faults will take. If that one is never given back, copies have to take twice as long before the next.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use spandrel_os::barrier;
use spandrel_pages::{KIB, MIB};
use spandrel_slabs::density::Contents;
use spandrel_sync::{ThreadSlot, thread_slot};

use super::layout::{SlotId, class_for};
use super::lists::{Want, pages_of};
use super::slot::{LIVE, Slot};
use super::{REMAP, Remap};

/// Copies after which a thread expects the first time that its objects will grow.
const COPIES: u16 = 4;
/// Doublings of [`COPIES`] at most.
const MOST_MISSES: u8 = 12;
/// A slot is given if it has this many times the pages resident: as many as it would
/// have had for an object that grew twice...
const WORTH: usize = 4;
/// ... and at most this many, or a small object would keep much for nothing: 1 MiB for a page.
const MOST_WORTH: usize = 256;
/// One in this many right expectations makes up for a wrong one.
const RIGHT_PER_MISS: u32 = 64;

/// Bytes copied for want of a warm slot after which a growing object gets a fresh one: the copies take as long as the page faults of some
/// slots of 64 KiB.
const COPIED_WORTH: usize = 2 * MIB;
/// Doublings of [`COPIED_WORTH`] at most.
const MOST_KEPT: u32 = 12;
/// An object that grows is worth a fresh slot up to this size; larger ones are page-mapped anyway.
const FRESH_MOST: usize = 128 * KIB;

/// Growing objects that found no warm slot. Lost counts do not matter.
struct Unserved {
    /// Bytes copied since the last fresh slot.
    copied: AtomicUsize,
    /// The last fresh slot, plus one; 0: none.
    last: AtomicU32,
    /// Fresh slots in a row that were not given back.
    kept: AtomicU32,
}

static UNSERVED: Unserved =
    Unserved { copied: AtomicUsize::new(0), last: AtomicU32::new(0), kept: AtomicU32::new(0) };

/// Notes that an object of `bytes` was copied because it grew and no warm slot was at hand.
pub fn note_unserved(bytes: usize) {
    let copied = UNSERVED.copied.load(Relaxed).saturating_add(bytes);
    UNSERVED.copied.store(copied, Relaxed);
}

/// A fresh slot for an object that is growing to `size` bytes, if copies have taken long enough for that; else null.
pub fn alloc_fresh(size: usize) -> *mut u8 {
    let kept = UNSERVED.kept.load(Relaxed);
    if UNSERVED.copied.load(Relaxed) < COPIED_WORTH << kept || size > FRESH_MOST {
        return ptr::null_mut();
    }
    UNSERVED.copied.store(0, Relaxed);
    REMAP.allocate_fresh(size).unwrap_or(ptr::null_mut())
}

/// What became of the last object that was expected to grow.
enum Outcome {
    Right,
    Wrong,
    Open,
}

/// Copies that it takes after `misses` wrong expectations.
fn needed(misses: u8) -> u16 {
    COPIES << misses.min(MOST_MISSES)
}

/// Different marks, and one that stands for none.
pub const MARKS: usize = 32;

/// What marks the slots of this thread's expected objects: not zero, and another for
/// the thirty threads that came before and after.
fn mark(own: &ThreadSlot) -> u8 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if own.early_mark.get() == 0 {
        let before = NEXT.fetch_add(1, Relaxed);
        own.early_mark.set((before % (MARKS - 1)) as u8 + 1);
    }
    own.early_mark.get()
}

/// The last expectation was wrong.
fn miss(own: &ThreadSlot) {
    own.early_misses.set((own.early_misses.get() + 1).min(MOST_MISSES));
    own.early_wanted.set(0);
    own.early_slot.set(0);
}

/// Notes that an object of a page or more was copied to a slot because it grew.
/// Whether this thread expects that of its next one.
pub fn note_late() -> bool {
    let own = thread_slot();
    let wanted = own.early_wanted.get().saturating_add(1);
    let needed = needed(own.early_misses.get());
    own.early_wanted.set(wanted);
    if own.early_slot.get() != 0 && wanted >= 2 * needed {
        // As many have grown as made it be expected, and it has not.
        if matches!(REMAP.outcome(own), Outcome::Right) {
            own.early_slot.set(0);
        } else {
            miss(own);
            return false;
        }
    }
    wanted >= needed
}

/// The slot at hand for a new object of `size` bytes, a page at least, if this thread
/// expects it to grow; else null. The contents are arbitrary.
pub fn alloc_early(size: usize) -> *mut u8 {
    let own = thread_slot();
    let needed = needed(own.early_misses.get());
    if own.early_wanted.get() < needed || !REMAP.has_worthy(size) {
        return ptr::null_mut();
    }
    match REMAP.outcome(own) {
        Outcome::Right => {}
        Outcome::Open => return ptr::null_mut(),
        Outcome::Wrong => {
            miss(own);
            return ptr::null_mut();
        }
    }
    let want = Want::Warm(pages_of(size));
    let taken = class_for(size).and_then(|class| REMAP.unpark(class, size, 1, want));
    let Some((place, _)) = taken else { return ptr::null_mut() };
    place.slot.early.store(mark(own), Relaxed);
    own.early_slot.set(place.id.raw().wrapping_add(1));
    own.early_wanted.set(needed);
    place.object()
}

impl Remap {
    #[cold]
    fn allocate_fresh(&self, size: usize) -> Option<*mut u8> {
        if !self.is_ready() {
            return None;
        }
        let last = SlotId::from_raw(UNSERVED.last.load(Relaxed).wrapping_sub(1));
        let is_kept = last != SlotId::NONE && self.place(last).slot.state() == LIVE;
        let kept = UNSERVED.kept.load(Relaxed);
        UNSERVED.kept.store(if is_kept { (kept + 1).min(MOST_KEPT) } else { 0 }, Relaxed);
        let (at, _) = self.allocate(size, 1, Want::Near(pages_of(size)), Contents::Any)?;
        let place = self.find(at.as_ptr())?;
        UNSERVED.last.store(place.id.raw().wrapping_add(1), Relaxed);
        Some(at.as_ptr())
    }

    /// Notes that an object is freed which was expected to grow and has not.
    #[cold]
    pub(super) fn note_freed(&self, slot: &Slot) {
        let mark = slot.early.load(Relaxed);
        slot.early.store(0, Relaxed);
        self.freed_early[mark as usize % MARKS].store(1, Relaxed);
    }

    /// Whether the slot at hand is worth it for an object of `size` bytes. Another thread
    /// may take it before this one does.
    #[inline]
    fn has_worthy(&self, size: usize) -> bool {
        let seen = SlotId::from_raw(self.parked.load(Relaxed));
        if seen == SlotId::NONE {
            return false;
        }
        let resident = self.place(seen).slot.touched.load(Relaxed) as usize;
        let pages = pages_of(size);
        // What is spare behind an object can go back only where there are barriers.
        (WORTH * pages..=MOST_WORTH * pages).contains(&resident) && barrier::available()
    }

    /// What became of the last object that this thread expected to grow; right if there
    /// is none, or another thread has its slot.
    #[inline]
    fn outcome(&self, own: &ThreadSlot) -> Outcome {
        let id = SlotId::from_raw(own.early_slot.get().wrapping_sub(1));
        let mark = mark(own);
        let freed = &self.freed_early[mark as usize % MARKS];
        if freed.load(Relaxed) != 0 {
            freed.store(0, Relaxed);
            // Of a thread that had the same mark, if this one has had none.
            return if id == SlotId::NONE { Outcome::Right } else { Outcome::Wrong };
        }
        if id == SlotId::NONE {
            return Outcome::Right;
        }
        let slot = self.place(id).slot;
        if slot.early.load(Relaxed) == mark && slot.state() == LIVE {
            return Outcome::Open;
        }
        let misses = own.early_misses.get();
        if misses > 0 && self.parks.load(Relaxed).is_multiple_of(RIGHT_PER_MISS) {
            own.early_misses.set(misses - 1);
        }
        Outcome::Right
    }
}
