//! Rollbacks and the reads of other threads: neither runs while the other does.
//!
//! A thread that reads a collection has borrowed its handle, so that no thread changes the collection by an operation meanwhile. A rollback
//! borrows nothing: it restores what the transaction's thread has changed before it passed the handle on. So a thread that reads what a
//! running transaction of another thread has changed keeps rollbacks out for the time of one read.
//!
//! Readers do not wait for a rollback that waits: a read within a read (by a key's own comparison) never waits for itself. Neither side
//! waits for anything else while it keeps the other one out.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use spandrel_sync::linger;

/// No thread reads: a rollback restores words.
const RESTORES: u32 = u32::MAX;

/// The rollbacks of a heap.
pub struct Rollbacks {
    /// The number of threads that read, or [`RESTORES`].
    state: AtomicU32,
    /// The number of rollbacks that have ended.
    count: AtomicU64,
}

impl Rollbacks {
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(0), count: AtomicU64::new(0) }
    }

    /// The number of rollbacks that have ended.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Keeps rollbacks out until the guard is dropped.
    pub fn keep_out(&self) -> KeptOut<'_> {
        self.change(|state| (state != RESTORES).then(|| state + 1));
        KeptOut(self)
    }

    /// Runs `work`, a rollback, while no thread reads.
    pub fn run(&self, work: impl FnOnce()) {
        self.change(|state| (state == 0).then_some(RESTORES));
        work();
        self.count.fetch_add(1, Release);
        self.state.store(0, Release);
    }

    /// Changes the state, and waits until it can be changed.
    fn change(&self, to: impl Fn(u32) -> Option<u32>) {
        let mut tries = 0;
        while self.state.fetch_update(Acquire, Relaxed, &to).is_err() {
            linger(tries);
            tries += 1;
        }
    }
}

/// A read that keeps rollbacks out.
pub struct KeptOut<'r>(&'r Rollbacks);

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_read_finds_two_words_that_rollbacks_change_equal() {
        let (rollbacks, words) = (Rollbacks::new(), [AtomicU64::new(0), AtomicU64::new(0)]);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while words[0].load(Relaxed) < 2000 {
                        let _read = rollbacks.keep_out();
                        let _within = rollbacks.keep_out();
                        assert_eq!(words[0].load(Relaxed), words[1].load(Relaxed));
                    }
                });
            }
            for _ in 0..2000 {
                rollbacks.run(|| {
                    for word in &words {
                        word.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(rollbacks.count(), 2000);
    }
}
