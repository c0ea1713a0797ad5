//! A lock that may be found held by the very thread that wants it, interrupted by a signal handler,
//! or by one that a fork left behind: it knows its holder, and can be forced open.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use spandrel_sync::linger;

const NOBODY: u32 = 0;

/// A value that one thread at a time may change. Threads have numbers, from 1.
pub struct Flag<T> {
    holder: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: `try_with` hands out one reference at a time.
unsafe impl<T: Send> Sync for Flag<T> {}

impl<T> Flag<T> {
    pub const fn new(value: T) -> Self {
        Self { holder: AtomicU32::new(NOBODY), value: UnsafeCell::new(value) }
    }

    /// Calls `change` unless a thread holds the value.
    pub fn try_with<R>(&self, thread: u32, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.holder.compare_exchange(NOBODY, thread, Acquire, Relaxed).is_err() {
            return None;
        }
        // SAFETY: the holder is alone until it gives the value up.
        let result = change(unsafe { &mut *self.value.get() });
        self.holder.store(NOBODY, Release);
        Some(result)
    }

    /// Calls `change` when no thread holds the value; `None`: the thread itself does.
    pub fn with<R>(&self, thread: u32, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut looks = 0;
        loop {
            match self.holder.load(Relaxed) {
                NOBODY
                    if self
                        .holder
                        .compare_exchange_weak(NOBODY, thread, Acquire, Relaxed)
                        .is_ok() =>
                {
                    break;
                }
                holder if holder == thread => return None,
                _ => linger(looks),
            }
            looks = u32::saturating_add(looks, 1);
        }
        // SAFETY: as in `try_with`.
        let result = change(unsafe { &mut *self.value.get() });
        self.holder.store(NOBODY, Release);
        Some(result)
    }

    /// Leaves the value as it is to the next thread, whichever thread holds it.
    ///
    /// # Safety
    /// As for [`Flag::reset`], and no thread was changing the value.
    pub unsafe fn overrule(&self) {
        self.holder.store(NOBODY, Release);
    }

    /// Puts another value there, whichever thread holds it.
    ///
    /// # Safety
    /// No other thread that could hold it exists in this process, and the caller does not.
    pub unsafe fn reset(&self, value: T) -> T {
        // SAFETY: passed on from the caller.
        let old = unsafe { core::ptr::replace(self.value.get(), value) };
        self.holder.store(NOBODY, Release);
        old
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn who_holds_it_is_not_kept_waiting_for_itself() {
        let flag = Flag::new(1);
        let inner = flag.with(7, |value| {
            *value += 1;
            flag.with(7, |_| ()).is_none() && flag.try_with(8, |_| ()).is_none()
        });
        assert_eq!(inner, Some(true));
        assert_eq!(flag.try_with(8, |value| *value), Some(2));
    }

    #[test]
    fn one_thread_at_a_time_changes_it() {
        static FLAG: Flag<u64> = Flag::new(0);
        std::thread::scope(|scope| {
            for thread in 1..5 {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        FLAG.with(thread, |value| {
                            let before = *value;
                            std::hint::black_box(&value);
                            *value = before + 1;
                        });
                    }
                });
            }
        });
        assert_eq!(FLAG.with(9, |value| *value), Some(40_000));
    }

    #[test]
    fn a_holder_that_is_gone_is_overruled() {
        let flag = Flag::new(1);
        flag.with(7, |_| {
            // SAFETY: as if in another process, where this holder is not.
            assert_eq!(unsafe { flag.reset(5) }, 1);
            assert_eq!(flag.try_with(8, |value| *value), Some(5));
        });
    }
}
