//! Rollbacks and the reads of other threads: neither runs while the other does.
//!
//! A thread that reads a collection has borrowed its handle, so that no thread changes the collection by an operation meanwhile. A rollback
//! borrows nothing: it restores what the transaction's thread has changed before it passed the handle on. So a thread that reads what a
//! running transaction of another thread has changed passes a gate, for the time of one read, and a rollback shuts that gate.
//!
//! A read within a read (by a key's own comparison) waits at a gate that waits for the outer read: the gate opens again after a millisecond,
//! and the rollback tries anew.

use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_sync::Gate;

/// Readers are counted on one cache line: few threads read what a transaction of another thread has changed.
const SHARDS: usize = 1;

/// The rollbacks of a heap.
pub struct Rollbacks {
    readers: Gate<SHARDS>,
    /// The number of rollbacks that have ended.
    count: AtomicU64,
}

impl Rollbacks {
    pub fn new() -> Self {
        Self { readers: Gate::new(), count: AtomicU64::new(0) }
    }

    /// The number of rollbacks that have ended. Within [`Rollbacks::keep_out`] it stays.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Keeps rollbacks out until the guard is dropped. Waits for one that runs, and for one that waits, but for no longer than it takes the
    /// other readers to end.
    pub fn keep_out(&self) -> Reading<'_> {
        self.readers.enter(0);
        Reading(self)
    }

    /// Runs `work`, a rollback, while no thread reads.
    pub fn run(&self, work: impl FnOnce()) {
        Gate::shut_all(&[&self.readers]);
        work();
        self.count.fetch_add(1, Release);
        self.readers.open();
    }
}

/// A read that keeps rollbacks out.
pub struct Reading<'r>(&'r Rollbacks);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.readers.leave(0);
    }
}
