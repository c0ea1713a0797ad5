//! A lock that may be found held by the very thread that wants it, interrupted by a signal handler,
//! or by one that a fork left behind: it can be tried, and forced open.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// A value that one thread at a time may change.
pub struct Flag<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `try_with` hands out one reference at a time.
unsafe impl<T: Send> Sync for Flag<T> {}

impl<T> Flag<T> {
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Calls `change` unless somebody holds the value.
    pub fn try_with<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.held.load(Relaxed) || self.held.swap(true, Acquire) {
            return None;
        }
        // SAFETY: whoever set the flag is alone until it clears it.
        let result = change(unsafe { &mut *self.value.get() });
        self.held.store(false, Release);
        Some(result)
    }

    /// Puts another value there, whoever holds it.
    ///
    /// # Safety
    /// No other thread that could hold it exists in this process, and the caller does not.
    pub unsafe fn reset(&self, value: T) -> T {
        // SAFETY: passed on from the caller.
        let old = unsafe { core::ptr::replace(self.value.get(), value) };
        self.held.store(false, Release);
        old
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn who_holds_it_finds_it_held() {
        let flag = Flag::new(1);
        let inner = flag.try_with(|value| {
            *value += 1;
            flag.try_with(|_| ()).is_none()
        });
        assert_eq!(inner, Some(true));
        assert_eq!(flag.try_with(|value| *value), Some(2));
    }

    #[test]
    fn one_thread_at_a_time_changes_it() {
        static FLAG: Flag<u64> = Flag::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        while FLAG.try_with(|value| *value += 1).is_none() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(FLAG.try_with(|value| *value), Some(40_000));
    }
}
