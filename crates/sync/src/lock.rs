//! A futex lock of four bytes and a start-once cell.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::platform::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    SPINS, is_single_threaded, spin_loop, thread_id, wait, wake_all, wake_one,
};

#[cfg(not(any(loom, shuttle)))]
use crate::turns::{enter, leave};

/// The models have threads of their own.
#[cfg(any(loom, shuttle))]
fn enter() {}
#[cfg(any(loom, shuttle))]
fn leave() {}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep.
const CONTENDED: u32 = 2;

/// A mutual-exclusion lock around a value.
///
/// While the process has one thread, taking it and giving it back are plain
/// stores of the same values: a locked instruction waits for the stores before
/// it, which after a `memset` costs more than the locked section.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one reference at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: sending the lock sends the value.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// A free lock.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        self.acquire();
        LockGuard { lock: self }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        enter();
        let taken = self.try_acquire();
        if !taken {
            leave();
        }
        taken.then(|| LockGuard { lock: self })
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        if is_single_threaded() {
            let is_free = self.state.load(Acquire) == FREE;
            if is_free {
                self.state.store(HELD, Relaxed);
            }
            return is_free;
        }
        self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Takes the lock without a guard: for the time of a `fork`.
    #[inline]
    pub fn acquire(&self) {
        enter();
        if !self.try_acquire() {
            self.acquire_slow();
        }
    }

    #[cold]
    fn acquire_slow(&self) {
        for _ in 0..SPINS {
            if self.state.load(Relaxed) == FREE
                && self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
            {
                return;
            }
            spin_loop();
        }
        while self.state.swap(CONTENDED, Acquire) != FREE {
            wait(&self.state, CONTENDED);
        }
    }

    /// The value of a lock taken with [`Lock::acquire`].
    ///
    /// # Safety
    /// The calling thread holds the lock without a guard, as long as the reference is used.
    #[inline]
    pub unsafe fn held(&self) -> &T {
        // SAFETY: promised by the caller.
        unsafe { &*self.value.get() }
    }

    /// Gives back a lock taken with [`Lock::acquire`].
    ///
    /// # Safety
    /// The calling thread holds the lock without a guard, or is the child's
    /// only thread after a `fork` by such a thread.
    #[inline]
    pub unsafe fn release(&self) {
        if is_single_threaded() && self.state.load(Relaxed) == HELD {
            self.state.store(FREE, Release);
        } else if self.state.swap(FREE, Release) == CONTENDED {
            wake_one(&self.state);
        }
        leave();
    }
}

/// The value of a held lock; gives the lock back when dropped.
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while the lock is held by it.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard held the lock.
        unsafe { self.lock.release() }
    }
}

/// A start-once cell: the first caller runs, others wait, and a nested call by
/// the runner itself is told so instead of waiting for itself.
#[repr(C)]
pub struct Once {
    // In this order: with the thread's number in its upper half, the word looks like an address of a durable state to what looks for these.
    runner: AtomicU32,
    state: AtomicU32,
}

const NEW: u32 = 0;
const RUNNING: u32 = 1;
const AWAITED: u32 = 2;
const DONE: u32 = 3;

impl Once {
    /// A cell whose start has not been run.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Once { state: AtomicU32::new(NEW), runner: AtomicU32::new(0) }
    }

    /// A cell whose start has not been run.
    #[cfg(loom)]
    pub fn new() -> Self {
        Once { state: AtomicU32::new(NEW), runner: AtomicU32::new(0) }
    }

    /// Whether the start has been completed.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        self.state.load(Acquire) == DONE
    }

    /// Whether the calling thread is inside the start right now.
    pub fn runs_here(&self) -> bool {
        matches!(self.state.load(Acquire), RUNNING | AWAITED)
            && self.runner.load(Relaxed) == thread_id()
    }

    /// Runs `start` if no thread has, waits for a thread that does. False only when the
    /// calling thread is itself inside `start`.
    #[inline]
    pub fn run(&self, start: impl FnOnce()) -> bool {
        self.is_done() || self.run_slow(start)
    }

    #[cold]
    fn run_slow(&self, start: impl FnOnce()) -> bool {
        let me = thread_id();
        match self.state.compare_exchange(NEW, RUNNING, Acquire, Acquire) {
            Ok(_) => {
                self.runner.store(me, Relaxed);
                start();
                if self.state.swap(DONE, Release) == AWAITED {
                    wake_all(&self.state);
                }
                true
            }
            Err(DONE) => true,
            Err(_) if self.runner.load(Relaxed) == me => false,
            Err(_) => {
                while self.state.load(Acquire) != DONE {
                    let _ = self.state.compare_exchange(RUNNING, AWAITED, Relaxed, Relaxed);
                    wait(&self.state, AWAITED);
                }
                true
            }
        }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    #[test]
    fn increments_under_the_lock_are_never_lost() {
        let lock = Arc::new(Lock::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || (0..50_000).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*lock.lock(), 200_000);
    }

    #[test]
    fn a_held_lock_is_not_taken_twice() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn once_runs_once_and_a_nested_start_is_told() {
        static ONCE: Once = Once::new();
        let mut runs = 0;
        assert!(ONCE.run(|| {
            runs += 1;
            assert!(!ONCE.run(|| unreachable!("the start is already running")));
        }));
        assert!(ONCE.run(|| unreachable!("the start has run")));
        assert_eq!(runs, 1);
        assert!(ONCE.is_done());
    }

    #[test]
    fn waiters_see_what_the_start_wrote() {
        let once = Arc::new(Once::new());
        let value = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (once, value) = (once.clone(), value.clone());
                std::thread::spawn(move || {
                    once.run(|| {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        value.store(7, Relaxed);
                    });
                    assert_eq!(value.load(Relaxed), 7);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
