//! The writer flag of the paper, as one word: which side the state belongs to, and how many readers sleep until it is theirs.
//!
//! | mode | readers | batches and exclusive sections | ends by |
//! |------|---------|--------------------------------|---------|
//! | free | enter | one takes the gate | a take |
//! | held | wait | the holder waits for readers inside, then runs | the holder's release, or its gift of the turn |
//! | turn | enter | wait | the last reader that was counted when it enters |
//!
//! Beside the mode, a batch that has left the gate may be in its second half ([`WRITING`]): readers wait, and the next batch takes the gate, unless a reader is
//! counted. If that half fails ([`FAILED`]) the gate is only given to the thread that it failed in.
//!
//! Invariants:
//! - After its first value the word changes by read-modify-write operations only. So each value that a thread acquires
//!   synchronises with all earlier releases of the gate.
//! - A reader counts itself only while it must wait, and until it has entered. So a turn ends, and a turn without readers
//!   does not begin.
//! - One batch at a time is in its second half: the next one begins that half when the one before has ended it.

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
/// A batch that has left the gate is in its second half.
const WRITING: u32 = 4;
/// That half has failed.
const FAILED: u32 = 8;
/// Added for each reader that waits.
const READER: u32 = 16;

/// Whether readers must wait.
const fn keeps_out(word: u32) -> bool {
    word & MODE == HELD || word & WRITING != 0
}

/// Whether a thread may take the gate.
const fn can_hold(word: u32) -> bool {
    word & (MODE | FAILED) == FREE && (word & WRITING == 0 || word < READER)
}

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

    /// Whether readers must wait. A reader that need not sees what the holders before have written.
    #[inline]
    pub(super) fn keeps_out(&self) -> bool {
        keeps_out(self.word.load(Acquire))
    }

    /// Takes a gate that no thread holds, for a batch or an exclusive section.
    pub(super) fn try_hold(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while can_hold(seen) {
            match self.word.compare_exchange(seen, seen | HELD, Acquire, Relaxed) {
                Ok(_) => return true,
                // Another thread has taken the gate, or a reader has left the count.
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Counts a reader that is going to sleep. False: it need not.
    pub(super) fn count_in(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while keeps_out(seen) {
            match self.word.compare_exchange(seen, seen.wrapping_add(READER), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Sleeps while readers must wait. The calling reader is counted.
    pub(super) fn sleep(&self) {
        loop {
            let seen = self.word.load(Relaxed);
            if !keeps_out(seen) {
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
            let next = seen.wrapping_sub(READER) & if ends_turn { !MODE } else { u32::MAX };
            match self.word.compare_exchange(seen, next, AcqRel, Relaxed) {
                Ok(_) => return ends_turn,
                Err(now) => seen = now,
            }
        }
    }

    /// The holder gives the turn to the readers that wait, if they have waited for `batches` releases. True: the gate is not
    /// the caller's any more. Not while a batch is in its second half, whose end is the next release.
    pub(super) fn give_turn(&self, batches: u32) -> bool {
        let mut seen = self.word.load(Acquire);
        loop {
            if seen & WRITING != 0 {
                return false;
            }
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
        let before = self.word.fetch_sub(HELD, Release);
        if before & FAILED != 0 {
            // The thread of the second half sleeps on the word as well.
            wake_all(&self.word);
        }
        before >= READER && before & WRITING == 0
    }

    /// The holder's batch begins its second half. No other is in its own.
    pub(super) fn begin_writing(&self) {
        self.word.fetch_or(WRITING, Relaxed);
    }

    /// Ends the second half of the caller's batch. True: no thread held the gate, and the caller does now.
    pub(super) fn end_writing(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            let takes = seen & MODE == FREE;
            let next = seen & !(WRITING | FAILED) | if takes { HELD } else { 0 };
            match self.word.compare_exchange(seen, next, AcqRel, Relaxed) {
                Ok(_) => return takes,
                Err(now) => seen = now,
            }
        }
    }

    /// The second half of the caller's batch has failed: [`Gate::take_back`] follows.
    pub(super) fn fail(&self) {
        self.word.fetch_or(FAILED, Relaxed);
    }

    /// Whether the gate is only given to the thread whose batch has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.word.load(Relaxed) & FAILED != 0
    }

    /// The caller, whose batch has failed, takes the gate from the thread that holds it, when that leaves.
    pub(super) fn take_back(&self) {
        let mut seen = self.word.load(Relaxed);
        loop {
            if seen & MODE != FREE {
                wait(&self.word, seen);
                seen = self.word.load(Relaxed);
                continue;
            }
            match self.word.compare_exchange(seen, seen | HELD, Acquire, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The thread that has taken the gate back has mended what failed.
    pub(super) fn mend(&self) {
        self.word.fetch_and(!(WRITING | FAILED), Release);
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
