//! Rollbacks and the reads of other threads: neither runs while the other does.
//!
//! A thread that reads a collection has borrowed its handle, so that no thread changes the collection by an operation meanwhile. A rollback
//! borrows nothing: it restores what the transaction's thread has changed before it passed the handle on. So a thread that reads what a
//! running transaction of another thread has changed keeps rollbacks out for the time of one read.
//!
//! A read within a read (by a key's own comparison) must not wait for a rollback that waits: the lock lets readers in first. Neither side
//! waits for anything else while it keeps the other one out.

use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_sync::{ReadersFirst, Reading};

/// The rollbacks of a heap.
pub struct Rollbacks {
    /// Readers are threads that read a collection, the writer is a rollback.
    lock: ReadersFirst,
    /// The number of rollbacks that have ended.
    count: AtomicU64,
}

impl Rollbacks {
    pub const fn new() -> Self {
        Self { lock: ReadersFirst::new(), count: AtomicU64::new(0) }
    }

    /// The number of rollbacks that have ended. Within [`Rollbacks::keep_out`] it stays.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Keeps rollbacks out until the guard is dropped.
    pub fn keep_out(&self) -> Reading<'_> {
        self.lock.read()
    }

    /// Runs `work`, a rollback, while no thread reads.
    pub fn run(&self, work: impl FnOnce()) {
        self.lock.write(|| {
            work();
            self.count.fetch_add(1, Release);
        });
    }
}
