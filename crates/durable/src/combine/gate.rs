//! The writer flag of the paper, as one word: which side the state belongs to, and how many readers sleep until it is theirs.
//!
//! | mode | readers | batches and exclusive sections | ends by |
//! |------|---------|--------------------------------|---------|
//! | free | enter | one takes the gate | a take |
//! | held | wait | the holder waits for readers inside, then runs | the holder's release, or its gift of the turn |
//! | turn | enter | wait | the last reader that was counted when it enters |
//!
//! Invariants:
//! - After its first value the word changes by read-modify-write operations only. So each value that a thread acquires
//!   synchronises with all earlier releases of the gate.
//! - A reader counts itself only while the gate is held, and until it has entered. So a turn ends, and a turn without readers
//!   does not begin.

use spandrel_sync::CachePadded;
use spandrel_sync::primitives::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    wait, wake_all,
};

const FREE: u32 = 0;
/// A batch or an exclusive section has the state, or waits for the readers inside to leave.
const HELD: u32 = 1;
/// The state is the readers' until those that are counted have entered.
const TURN: u32 = 2;
const MODE: u32 = 3;
/// Added for each reader that waits.
const READER: u32 = 4;

pub(super) struct Gate {
    word: CachePadded<AtomicU32>,
    /// Releases in a row that found readers waiting. Only the holder touches it.
    streak: CachePadded<AtomicU32>,
}

impl Gate {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            word: CachePadded::new(AtomicU32::new(FREE)),
            streak: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// The model's atomics are not constant.
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            word: CachePadded::new(AtomicU32::new(FREE)),
            streak: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Whether readers must wait. A reader that finds the gate not held sees what the holders before have written.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.word.load(Acquire) & MODE == HELD
    }

    /// Takes a free gate for a batch or an exclusive section.
    pub(super) fn try_hold(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & MODE == FREE {
            match self.word.compare_exchange(seen, seen | HELD, Acquire, Relaxed) {
                Ok(_) => return true,
                // Another thread has taken the gate, or a reader has left the count.
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Counts a reader that is going to sleep. False: the gate is not held any more.
    pub(super) fn count_in(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & MODE == HELD {
            match self.word.compare_exchange(seen, seen.wrapping_add(READER), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Sleeps while the gate is held. The calling reader is counted.
    pub(super) fn sleep(&self) {
        loop {
            let seen = self.word.load(Relaxed);
            if seen & MODE != HELD {
                return;
            }
            // Another reader's count changes the word too, which costs one more look. The holder that leaves finds this one
            // counted, and wakes it or leaves that to a later holder.
            wait(&self.word, seen);
        }
    }

    /// A counted reader has entered. True: it was the last of a turn, and the gate is free again.
    pub(super) fn count_out(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            let ends_turn = seen & MODE == TURN && seen < 2 * READER;
            let next = if ends_turn { FREE } else { seen.wrapping_sub(READER) };
            match self.word.compare_exchange(seen, next, AcqRel, Relaxed) {
                Ok(_) => return ends_turn,
                Err(now) => seen = now,
            }
        }
    }

    /// The holder gives the turn to the readers that wait, if they have waited for `batches` releases. True: the gate is not
    /// the caller's any more.
    pub(super) fn give_turn(&self, batches: u32) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            let streak =
                if seen < READER { 0 } else { self.streak.load(Relaxed).saturating_add(1) };
            if streak == 0 || streak < batches {
                self.streak.store(streak, Relaxed);
                return false;
            }
            self.streak.store(0, Relaxed);
            match self.word.compare_exchange(seen, seen ^ HELD ^ TURN, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => {
                    self.streak.store(streak.saturating_sub(1), Relaxed);
                    seen = now;
                }
            }
        }
        wake_all(&self.word);
        true
    }

    /// The holder leaves. True: readers wait, and [`Gate::wake_readers`] is due unless a writer is certain to come.
    pub(super) fn open(&self) -> bool {
        self.word.fetch_sub(HELD, Release) >= READER
    }

    pub(super) fn wake_readers(&self) {
        wake_all(&self.word);
    }
}

#[cfg(all(test, not(loom)))]
impl Gate {
    /// Readers that are counted.
    pub(super) fn waiting(&self) -> u32 {
        self.word.load(Relaxed) / READER
    }
}
