//! The record of one slot.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use spandrel_os::budget::{self, Promise};
use spandrel_pages::{LINE_BYTES, PAGE_BYTES};
use spandrel_sync::Handshake;

use super::PAGES_PER_HUGE;
use super::layout::SlotId;

/// Never used, or empty and on its class's list of cold slots.
pub const COLD: u8 = 0;
/// Empty, with resident pages, on a list of warm slots.
pub const WARM: u8 = 1;
/// Empty, on no list: one thread is preparing or emptying it.
pub const HELD: u8 = 2;
/// Holds an object.
pub const LIVE: u8 = 3;
/// Its object is gone, which only `parked` knows.
pub const PARKED: u8 = 4;

/// What is known of a slot: 64 bytes, zero at first.
///
/// While the slot holds an object the object's owner changes it, between
/// [`Slot::enter`] and [`Slot::leave`]; otherwise the thread that took it from a
/// list does. State and links belong to the holder of the backend's lock.
#[repr(C, align(64))]
pub struct Slot {
    /// Bytes from the start of the first page to the end of what the object asked for.
    pub used: AtomicUsize,
    /// Pages from the start that may be resident: all that was ever used since
    /// the slot was last emptied.
    pub touched: AtomicU32,
    /// Pages from the start that are accessible.
    pub opened: AtomicU32,
    /// Pages from the start that are advised to be huge. The others are advised to be small.
    huge: AtomicU32,
    /// Pages from the start that came here by page tables: a mapping of their own.
    pub moved: AtomicU32,
    /// Changes of live and warm pages that the accounts have not been told yet:
    /// a growth within warm pages costs no locked instruction.
    pub live_delta: AtomicI32,
    /// See `live_delta`.
    pub warm_delta: AtomicI32,
    /// Pages that the object was given warm by growing; told with the deltas.
    pub reused: AtomicU32,
    /// Coarse time when the slot last entered the queue of warm memory.
    pub stamp: AtomicU32,
    /// Next and previous slot of the same list of empty slots.
    pub next: AtomicU32,
    /// See `next`.
    pub prev: AtomicU32,
    /// Neighbours in the queue of warm memory.
    pub younger: AtomicU32,
    /// See `younger`.
    pub older: AtomicU32,
    state: AtomicU8,
    /// Between the object's owner and a thread that trims behind it.
    handshake: Handshake,
    /// The list of warm slots that the slot is on, and [`QUEUED`]. Written under the backend's lock.
    place_in_lists: AtomicU8,
    /// Cache lines from the start of the slot's first page to its object.
    line: AtomicU8,
    /// The paper's allocation counter: +1 per growth, -1 per shrink, not below 0.
    pub counter: AtomicU8,
    /// Consecutive growths by a small step.
    pub streak: AtomicU8,
    /// Not zero: the object was given the slot because it is expected to grow, by a
    /// thread with this mark, and has not done so.
    pub early: AtomicU8,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The slot is in the queue of warm memory.
const QUEUED: u8 = 0x80;

impl Slot {
    /// Only `pages` pages from the start may be resident from now on. Returns how many were before.
    pub fn set_touched(&self, pages: usize) -> usize {
        self.touch(pages, Promise::default())
    }

    /// `pages` pages from the start may be resident from now on, of which some were promised.
    /// Returns how many were before.
    #[inline]
    pub fn touch(&self, pages: usize, promise: Promise) -> usize {
        let before = self.touched.load(Relaxed) as usize;
        self.touched.store(pages as u32, Relaxed);
        promise.keep(before * PAGE_BYTES, pages * PAGE_BYTES);
        before
    }

    /// The pages from the start that may be resident have moved to another slot, where `pages`
    /// are now, and `left` are left here.
    pub fn set_touched_with(&self, left: usize, other: &Self, pages: usize) {
        let touched = |slot: &Self| slot.touched.load(Relaxed) as usize;
        let before = touched(self) + touched(other);
        self.touched.store(left as u32, Relaxed);
        other.touched.store(pages as u32, Relaxed);
        if budget::counts() {
            // At once: no thread shall find them in both.
            budget::change(before * PAGE_BYTES, (left + pages) * PAGE_BYTES);
        }
    }

    /// Pages from the start that will be resident when `pages` are used.
    pub fn to_touch(&self, pages: usize) -> usize {
        let huge = self.huge();
        if pages <= huge { pages.next_multiple_of(PAGES_PER_HUGE).min(huge) } else { pages }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> u8 {
        self.state.load(Relaxed)
    }

    /// Changes the state of a slot that the caller alone knows.
    pub fn set_state(&self, state: u8) {
        self.state.store(state, Release);
    }

    /// Takes a live slot for changing its record. False: it holds no object.
    ///
    /// Only the object's owner calls this, and only trimming competes with it.
    #[inline]
    pub fn enter(&self) -> bool {
        if self.state.load(Relaxed) != LIVE {
            return false;
        }
        self.handshake.enter();
        true
    }

    /// As [`Slot::enter`]; false also while a thread is trimming.
    #[inline(always)]
    pub fn try_enter(&self) -> bool {
        self.state.load(Relaxed) == LIVE && self.handshake.try_enter()
    }

    /// Ends what [`Slot::enter`] began.
    #[inline]
    pub fn leave(&self) {
        self.handshake.leave();
    }

    /// Takes a live slot for trimming behind its object. False: the owner is
    /// changing it, or there is no barrier on this kernel.
    pub fn begin_trim(&self) -> bool {
        self.handshake.visit(|| self.state.load(Acquire) == LIVE)
    }

    /// Ends what [`Slot::begin_trim`] began.
    pub fn end_trim(&self) {
        self.handshake.depart();
    }

    /// Bytes from the start of the slot's first page to its object.
    #[inline(always)]
    pub fn offset(&self) -> usize {
        usize::from(self.line.load(Relaxed)) * LINE_BYTES
    }

    /// The object of a slot that the caller holds lies this number of bytes behind the start of its first page: of
    /// lines, less than a page.
    #[inline]
    pub fn set_offset(&self, bytes: usize) {
        self.line.store((bytes / LINE_BYTES) as u8, Relaxed);
    }

    /// Whether the slot is in the queue of warm memory.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.place_in_lists.load(Relaxed) & QUEUED != 0
    }

    /// The list of warm slots that the slot is on, if it is warm.
    pub fn bin(&self) -> usize {
        usize::from(self.place_in_lists.load(Relaxed) & !QUEUED)
    }

    /// Notes whether the slot is in the queue. By the holder of the backend's lock.
    pub fn set_queued(&self, is_queued: bool) {
        self.place_in_lists.store(self.bin() as u8 | if is_queued { QUEUED } else { 0 }, Relaxed);
    }

    /// Notes the list. By the holder of the backend's lock.
    pub fn set_bin(&self, bin: usize) {
        let queued = self.place_in_lists.load(Relaxed) & QUEUED;
        self.place_in_lists.store(queued | bin as u8, Relaxed);
    }

    /// Pages from the start that are advised to be huge.
    #[inline]
    pub fn huge(&self) -> usize {
        self.huge.load(Relaxed) as usize
    }

    /// `pages` pages from the start are advised to be huge from now on.
    pub fn set_huge(&self, pages: usize) {
        self.huge.store(pages as u32, Relaxed);
    }

    /// The slot is mapped as in the beginning.
    pub fn is_one_again(&self) {
        self.moved.store(0, Relaxed);
        self.huge.store(0, Relaxed);
    }

    /// Mappings beyond the class's one that the slot's flags stand for, at most.
    pub fn splits(&self) -> usize {
        let is_moved = self.moved.load(Relaxed) > 0;
        2 * usize::from(is_moved) + usize::from(self.huge() > 0)
    }

    /// Links to no slot.
    pub fn unlink(&self) {
        for link in [&self.next, &self.prev] {
            link.store(SlotId::NONE.raw(), Relaxed);
        }
    }
}
