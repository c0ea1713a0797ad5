//! The record of one slot.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use super::layout::SlotId;

/// Never used, or empty and on its class's list of cold slots.
pub const COLD: u32 = 0;
/// Empty, with resident pages, on a list of warm slots.
pub const WARM: u32 = 1;
/// Holds an object.
pub const LIVE: u32 = 2;
/// Holds an object, and somebody is changing this record.
pub const BUSY: u32 = 3;

/// What is known of a slot: 64 bytes, zero at first.
///
/// While the slot holds an object the object's owner changes it, under
/// [`Slot::enter`]; otherwise the holder of the backend's lock does. The links
/// always belong to the holder of the backend's lock.
#[repr(C, align(64))]
pub struct Slot {
    state: AtomicU32,
    /// Bytes that the object asked for.
    pub used: AtomicUsize,
    /// Pages from the start that may be resident: all that was ever used since
    /// the slot was last emptied.
    pub touched: AtomicU32,
    /// Pages from the start that are accessible.
    pub opened: AtomicU32,
    /// Pages from the start that are advised to be huge.
    pub huge: AtomicU32,
    /// Pages from the start that came here by page tables: a mapping of their own.
    pub moved: AtomicU32,
    /// Growths and shrinks in place since the object came; told when it goes.
    pub in_place: AtomicU32,
    /// Pages that the object was given warm by growing; told when it goes.
    pub reused: AtomicU32,
    /// Coarse seconds/16 when the slot last entered the queue of warm memory.
    pub stamp: AtomicU32,
    /// Next and previous slot of the same list of empty slots.
    pub next: AtomicU32,
    /// See `next`.
    pub prev: AtomicU32,
    /// Neighbours in the queue of warm memory.
    pub younger: AtomicU32,
    /// See `younger`.
    pub older: AtomicU32,
    /// The paper's allocation counter: +1 per growth, -1 per shrink, not below 0.
    pub counter: AtomicU8,
    /// Consecutive growths by a small step.
    pub streak: AtomicU8,
    /// Whether the slot is in the queue of warm memory.
    pub queued: AtomicU8,
    /// The list of warm slots that the slot is on.
    pub bin: AtomicU8,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// The state.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state.load(Relaxed)
    }

    /// Changes the state of a slot that the caller alone knows.
    pub fn set_state(&self, state: u32) {
        self.state.store(state, Release);
    }

    /// Takes a live slot for changing its record. False: it holds no object.
    /// Waits while somebody else changes it (trimming: microseconds).
    #[inline]
    pub fn enter(&self) -> bool {
        loop {
            match self.state.compare_exchange_weak(LIVE, BUSY, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(LIVE | BUSY) => core::hint::spin_loop(),
                Err(_) => return false,
            }
        }
    }

    /// Takes a live slot if nobody else has it.
    pub fn try_enter(&self) -> bool {
        self.state.compare_exchange(LIVE, BUSY, Acquire, Relaxed).is_ok()
    }

    /// Ends what [`Slot::enter`] began.
    #[inline]
    pub fn leave(&self) {
        self.state.store(LIVE, Release);
    }

    /// Links to no slot.
    pub fn unlink(&self) {
        for link in [&self.next, &self.prev] {
            link.store(SlotId::NONE.raw(), Relaxed);
        }
    }
}
