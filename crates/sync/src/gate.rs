//! A gate: any number of threads pass it at once; a thread that shuts it waits until all of them have left, or gives up and tries again.

use crate::padded::CachePadded;
use crate::platform::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    Waits, light_barrier, pause, wait, wait_for, wake_all,
};

const OPEN: u32 = 0;
const SHUT: u32 = 1;

/// The first try of [`Gate::shut_all`], in milliseconds.
const TRY_MS: u32 = 1;
/// So long the gates stay open between two tries, at most.
const PAUSE_MS: u32 = 100;

/// A lock of many readers and one writer, whose readers count themselves on one of `SHARDS` cache lines: entering and leaving
/// cost one locked instruction each, and threads of different shards share no line that changes.
///
/// Neither entering nor shutting is reentrant: the caller counts the depth.
pub struct Gate<const SHARDS: usize> {
    /// [`OPEN`] or [`SHUT`].
    state: CachePadded<AtomicU32>,
    /// Threads inside, by shard.
    inside: [CachePadded<AtomicU32>; SHARDS],
}

impl<const SHARDS: usize> Gate<SHARDS> {
    /// An open gate with no thread inside.
    pub fn new() -> Self {
        let zero = |_| CachePadded::new(AtomicU32::new(0));
        Self { state: CachePadded::new(AtomicU32::new(OPEN)), inside: core::array::from_fn(zero) }
    }

    /// The number of threads inside of a shard.
    #[inline]
    fn count(&self, shard: usize) -> &AtomicU32 {
        &self.inside[shard % SHARDS]
    }

    /// Passes the gate; waits while it is shut. The same thread leaves by the same shard.
    #[inline]
    pub fn enter(&self, shard: usize) {
        // On x86-64 a locked instruction is a full barrier: either this thread finds the gate shut, or the thread that shuts it
        // finds this one inside. The light barrier states that to the compiler, and to the model.
        self.count(shard).fetch_add(1, Acquire);
        light_barrier();
        if self.state.load(Acquire) != OPEN {
            self.enter_slowly(shard);
        }
    }

    /// Passes the gate if it is open.
    #[inline]
    pub fn try_enter(&self, shard: usize) -> bool {
        self.count(shard).fetch_add(1, Acquire);
        light_barrier();
        let is_open = self.state.load(Acquire) == OPEN;
        if !is_open {
            self.leave(shard);
        }
        is_open
    }

    #[cold]
    fn enter_slowly(&self, shard: usize) {
        loop {
            self.leave(shard);
            while self.state.load(Acquire) != OPEN {
                wait(&self.state, SHUT);
            }
            self.count(shard).fetch_add(1, Acquire);
            light_barrier();
            if self.state.load(Acquire) == OPEN {
                return;
            }
        }
    }

    /// Leaves the gate, by the shard of [`Gate::enter`].
    #[inline]
    pub fn leave(&self, shard: usize) {
        let is_last = self.count(shard).fetch_sub(1, Release) == 1;
        light_barrier();
        if is_last && self.state.load(Relaxed) != OPEN {
            wake_all(self.count(shard));
        }
    }

    /// Shuts the gate: keeps threads out, and waits until every thread has left. False: some have not left within about `ms`
    /// milliseconds, and the gate is open again. The calling thread is not inside. Waits also for another thread that has shut the gate.
    pub fn try_shut(&self, ms: u32) -> bool {
        while self.state.compare_exchange(OPEN, SHUT, Acquire, Relaxed).is_err() {
            wait(&self.state, SHUT);
        }
        light_barrier();
        let waits = Waits::begin();
        for count in &self.inside {
            loop {
                let found = count.load(Acquire);
                if found == 0 {
                    break;
                }
                if waits.are_over(ms) {
                    self.open();
                    return false;
                }
                wait_for(count, found, 1);
            }
        }
        true
    }

    /// Shuts several gates, one after the other.
    ///
    /// A thread inside may wait for a lock that a thread before the gate holds. Then nothing would move while the gate is shut. So the gates
    /// open again after a while, and each try is twice as long as the one before, without a limit: threads that stay long, and new ones that
    /// come without a pause, do not keep the gates open for good.
    pub fn shut_all(gates: &[&Self]) {
        let mut ms = TRY_MS;
        loop {
            let shut = gates.iter().take_while(|gate| gate.try_shut(ms)).count();
            if shut == gates.len() {
                return;
            }
            gates.iter().take(shut).rev().for_each(|gate| gate.open());
            // Those that waited pass.
            pause(ms.min(PAUSE_MS));
            ms = ms.saturating_mul(2);
        }
    }

    /// Opens the gate after [`Gate::try_shut`] or [`Gate::shut_all`]. The calling thread has shut it.
    pub fn open(&self) {
        self.state.store(OPEN, Release);
        wake_all(&self.state);
    }
}

impl<const SHARDS: usize> Default for Gate<SHARDS> {
    fn default() -> Self {
        Self::new()
    }
}
