//! A handshake between the owner of a record and a rare visitor.

use crate::platform::{
    AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
    heavy_barrier, light_barrier, relax,
};

/// Keeps an owner, which changes a record often, and visitors, which do rarely, out
/// of each other's way. The owner pays two plain stores; a visitor pays a barrier
/// on all processors, after which either has seen the other's mark.
///
/// There is one owner at a time, and visitors take turns by other means. All
/// zero at first.
pub struct Handshake {
    entered: AtomicU8,
    visited: AtomicU8,
}

impl Handshake {
    /// With no thread inside.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Handshake { entered: AtomicU8::new(0), visited: AtomicU8::new(0) }
    }

    /// With no thread inside.
    #[cfg(loom)]
    pub fn new() -> Self {
        Handshake { entered: AtomicU8::new(0), visited: AtomicU8::new(0) }
    }

    /// The owner comes in, after a visitor has gone.
    #[inline]
    pub fn enter(&self) {
        let mut turn = 0;
        while !self.try_enter() {
            relax(turn);
            turn += 1;
        }
    }

    /// The owner comes in, unless there is a visitor.
    #[inline(always)]
    pub fn try_enter(&self) -> bool {
        self.entered.store(1, Relaxed);
        light_barrier();
        if self.visited.load(Acquire) == 0 {
            return true;
        }
        self.entered.store(0, Release);
        false
    }

    /// The owner goes.
    #[inline]
    pub fn leave(&self) {
        self.entered.store(0, Release);
    }

    /// A visitor comes in. False: the owner is inside, the record is not
    /// `visitable`, or the kernel has no such barrier.
    pub fn visit(&self, visitable: impl FnOnce() -> bool) -> bool {
        self.visited.store(1, Relaxed);
        // The order matters: only an owner that is known to have gone has left
        // behind what is to be looked at.
        let alone = heavy_barrier() && self.entered.load(Acquire) == 0 && visitable();
        if !alone {
            self.depart();
        }
        alone
    }

    /// The visitor goes.
    pub fn depart(&self) {
        self.visited.store(0, Release);
    }
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}
