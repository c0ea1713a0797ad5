//! How one thread rests until it is needed, is started when it is not there, leaves when there has been nothing to do for a time, and
//! is told to leave.
//!
//! One word says how it is with the thread. A thread with work for it changes the
//! word; a thread that looks for work and finds none lies down only if the word has
//! not changed since the look began. So no work is left lying, and while the thread
//! is awake telling it costs one look at the word. What there is to do must be put
//! and found under a lock, which orders it with the word.

use crate::platform::{AtomicU32, Ordering::*, relax, wait, wait_for, wake_one};

/// No thread.
const NONE: u32 = 0;
/// No thread, and there will be none.
const FORBIDDEN: u32 = 1;
/// It has not begun yet.
const STARTING: u32 = 2;
/// It looks for work, or rests for a time.
const AWAKE: u32 = 3;
/// The same, and work came since it began to look.
const WOKEN: u32 = 4;
/// Until another thread wakes it.
const ASLEEP: u32 = 5;
/// It is to leave.
const LEAVING: u32 = 6;

/// The state of a thread.
pub struct Wakeup(AtomicU32);

impl Default for Wakeup {
    fn default() -> Self {
        Self::new()
    }
}

impl Wakeup {
    /// No thread yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(NONE))
    }

    /// No thread yet. (The model's atomics are not constant.)
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(NONE))
    }

    /// Whether there is a thread, or will be in a moment.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.0.load(Relaxed) > FORBIDDEN
    }

    /// There shall be none, if there is none.
    pub fn forbid(&self) {
        let _ = self.0.compare_exchange(NONE, FORBIDDEN, AcqRel, Relaxed);
    }

    /// The child of a fork has no thread.
    pub fn forget(&self) {
        if self.is_there() {
            self.0.store(NONE, Relaxed);
        }
    }

    /// There is work, and there shall be a thread for it. True: the caller is to make the thread, which calls [`Self::started`] first of
    /// all, or to say [`Self::not_started`] or [`Self::start_later`].
    pub fn start(&self) -> bool {
        let mut seen = self.0.load(Relaxed);
        loop {
            let next = match seen {
                NONE => STARTING,
                AWAKE | ASLEEP => WOKEN,
                // There will be none, or it looks in a moment.
                _ => return false,
            };
            match self.0.compare_exchange(seen, next, AcqRel, Relaxed) {
                Ok(NONE) => return true,
                Ok(before) => {
                    if before == ASLEEP {
                        wake_one(&self.0);
                    }
                    return false;
                }
                // The thread may just have left.
                Err(now) => seen = now,
            }
        }
    }

    /// The thread could not be made just now.
    pub fn start_later(&self) {
        self.0.store(NONE, Release);
    }

    /// The thread is not to be had, now or later.
    pub fn not_started(&self) {
        self.0.store(FORBIDDEN, Release);
    }

    /// The thread is there. What it wrote before is seen by the thread that makes it leave.
    pub fn started(&self) {
        self.0.store(AWAKE, Release);
    }

    /// There is work. May be called wherever memory may be freed.
    #[inline]
    pub fn wake(&self) {
        if matches!(self.0.load(Relaxed), AWAKE | ASLEEP) {
            self.wake_now();
        }
    }

    #[cold]
    fn wake_now(&self) {
        let mut seen = self.0.load(Relaxed);
        while matches!(seen, AWAKE | ASLEEP) {
            match self.0.compare_exchange(seen, WOKEN, AcqRel, Relaxed) {
                Ok(ASLEEP) => return wake_one(&self.0),
                Ok(_) => return,
                // It may just have lain down.
                Err(now) => seen = now,
            }
        }
    }

    /// The thread begins to look for work. False: it is to leave.
    pub fn look(&self) -> bool {
        let _ = self.0.compare_exchange(WOKEN, AWAKE, AcqRel, Acquire);
        self.0.load(Acquire) != LEAVING
    }

    /// The thread has looked, and looks again after `pause_ms` milliseconds, or sooner.
    pub fn rest(&self, pause_ms: u32) {
        match self.0.load(Acquire) {
            LEAVING => {}
            seen => wait_for(&self.0, seen, pause_ms),
        }
    }

    /// The thread has found nothing, and looks again when there is work. What came
    /// up since it began to look waits for `pause_ms` milliseconds: a busy program has
    /// something all the time.
    pub fn sleep(&self, pause_ms: u32) {
        if self.0.compare_exchange(AWAKE, ASLEEP, AcqRel, Relaxed).is_err() {
            return self.rest(pause_ms);
        }
        while self.0.load(Acquire) == ASLEEP {
            wait(&self.0, ASLEEP);
        }
    }

    /// The thread has found nothing, and leaves if there is no work within `after_ms` milliseconds. True: it is to touch nothing that others
    /// use from now on, as there is no thread any more; another one may be started.
    pub fn retire(&self, after_ms: u32) -> bool {
        if self.0.compare_exchange(AWAKE, ASLEEP, AcqRel, Relaxed).is_err() {
            self.rest(after_ms);
            return false;
        }
        wait_for(&self.0, ASLEEP, after_ms);
        // Sooner without a reason, now and then.
        self.0.compare_exchange(ASLEEP, NONE, AcqRel, Relaxed).is_ok()
    }

    /// Makes the thread leave, and none come again. True: there is one, and it is to
    /// be joined; then [`Self::left`].
    pub fn leave(&self) -> bool {
        for turn in 0.. {
            let seen = self.0.load(Acquire);
            let next = match seen {
                NONE => FORBIDDEN,
                FORBIDDEN | LEAVING => return false,
                STARTING => {
                    relax(turn);
                    continue;
                }
                _ => LEAVING,
            };
            if self.0.compare_exchange(seen, next, AcqRel, Relaxed).is_ok() {
                wake_one(&self.0);
                return next == LEAVING;
            }
        }
        false
    }

    /// Makes the thread leave; a later one may be started. The leaving thread calls [`Self::gone`]. False: a thread is just being made, and has not begun within some
    /// milliseconds. The caller may be a signal handler that interrupts the making, so that a longer wait would never end.
    pub fn dismiss(&self) -> bool {
        const STARTS_IN: u32 = 200;
        for turn in 0..STARTS_IN {
            let seen = self.0.load(Acquire);
            match seen {
                NONE | FORBIDDEN | LEAVING => return true,
                STARTING => relax(turn),
                _ if self.0.compare_exchange(seen, LEAVING, AcqRel, Relaxed).is_ok() => {
                    wake_one(&self.0);
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Whether a thread is being made, and has not begun.
    pub fn is_starting(&self) -> bool {
        self.0.load(Acquire) == STARTING
    }

    /// Whether the thread is to leave.
    pub fn is_leaving(&self) -> bool {
        self.0.load(Acquire) == LEAVING
    }

    /// The thread that was dismissed touches nothing that others use from now on.
    pub fn gone(&self) {
        let _ = self.0.compare_exchange(LEAVING, NONE, AcqRel, Relaxed);
    }

    /// The thread has been joined.
    pub fn left(&self) {
        self.0.store(FORBIDDEN, Release);
    }
}
