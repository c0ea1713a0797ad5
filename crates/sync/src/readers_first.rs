//! A lock of many readers and one writer, in which a reader never waits for a writer that waits.

use crate::platform::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    wait, wake_all,
};

/// A thread sleeps, or is about to. The state without this bit is the number of readers inside, or [`WRITER`].
const WAITS: u32 = 1 << 31;
/// The writer is inside.
const WRITER: u32 = 1 << 30;

/// A lock of many readers and one writer. A reader waits only for a writer inside, so that a thread may read within a read. A writer waits
/// for all readers; readers that come and go without a pause keep it waiting.
pub struct ReadersFirst {
    state: AtomicU32,
}

impl ReadersFirst {
    /// A lock that no thread holds.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(0) }
    }

    /// A lock that no thread holds.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { state: AtomicU32::new(0) }
    }

    /// Keeps writers out until the guard is dropped. Other readers may be inside, the calling thread among them.
    pub fn read(&self) -> Reading<'_> {
        self.change(|state| (state & WRITER == 0).then(|| state + 1));
        Reading(self)
    }

    /// Runs `work` alone. The calling thread is not inside.
    pub fn write<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Leaves also when the work panics.
        struct Leave<'l>(&'l ReadersFirst);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if self.0.state.swap(0, Release) & WAITS != 0 {
                    wake_all(&self.0.state);
                }
            }
        }
        self.change(|state| (state & !WAITS == 0).then_some(state | WRITER));
        let _leave = Leave(self);
        work()
    }

    /// Changes the state, and waits until it can be changed.
    fn change(&self, to: impl Fn(u32) -> Option<u32>) {
        let mut found = self.state.load(Relaxed);
        loop {
            let next = to(found);
            if next.is_none() && found & WAITS != 0 {
                wait(&self.state, found);
                found = self.state.load(Relaxed);
                continue;
            }
            match self.state.compare_exchange(
                found,
                next.unwrap_or(found | WAITS),
                Acquire,
                Relaxed,
            ) {
                Ok(_) if next.is_some() => return,
                Ok(_) => found |= WAITS,
                Err(now) => found = now,
            }
        }
    }
}

impl Default for ReadersFirst {
    fn default() -> Self {
        Self::new()
    }
}

/// A reader inside.
pub struct Reading<'l>(&'l ReadersFirst);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let state = &self.0.state;
        // If another reader comes in before the bit is cleared, that one wakes the sleepers when it leaves.
        if state.fetch_sub(1, Release) == WAITS | 1
            && state.compare_exchange(WAITS, 0, Release, Relaxed).is_ok()
        {
            wake_all(state);
        }
    }
}
