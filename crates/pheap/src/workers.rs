//! Several threads mark: what one has too much of, others take.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_sync::{Lock, linger, thread};

use crate::mark::Item;

/// Items that are handed over at once.
pub const SHARED: usize = 64;

/// What waits for whoever has nothing.
pub struct Pool {
    workers: AtomicUsize,
    idle: AtomicUsize,
    items: Lock<([Option<Item>; SHARED], usize)>,
}

// SAFETY: items are offsets and functions.
unsafe impl Send for Pool {}

impl Pool {
    pub fn new(workers: usize) -> Self {
        Self {
            workers: AtomicUsize::new(workers),
            idle: AtomicUsize::new(0),
            items: Lock::new(([const { None }; SHARED], 0)),
        }
    }

    /// One of the workers does not come.
    pub fn is_missing(&self) {
        self.workers.fetch_sub(1, AcqRel);
    }

    /// Whether somebody has nothing.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.idle.load(Relaxed) > 0
    }

    /// Leaves items for others. False: what was left before is still there.
    pub fn leave(&self, items: &[Option<Item>; SHARED]) -> bool {
        let mut left = self.items.lock();
        if left.1 > 0 {
            return false;
        }
        (left.0, left.1) = (*items, SHARED);
        true
    }

    /// Takes what others have left, and waits for it as long as anybody works. False: there is nothing, and nobody works.
    pub fn take(&self, into: &mut [Option<Item>; SHARED]) -> bool {
        self.idle.fetch_add(1, AcqRel);
        for looks in 0.. {
            let mut left = self.items.lock();
            if left.1 > 0 {
                (*into, left.1) = (left.0, 0);
                // Under the lock, so that nobody finds all idle and nothing left.
                self.idle.fetch_sub(1, AcqRel);
                return true;
            }
            drop(left);
            if self.idle.load(Acquire) >= self.workers.load(Acquire) {
                return false;
            }
            linger(looks);
        }
        false
    }
}

/// Threads that mark at most.
pub const MOST: usize = 16;

/// Runs a piece of work on so many threads, at most [`MOST`], this one among them. For each that the kernel refuses `is_missing` is called.
pub fn run(threads: usize, work: &(dyn Fn() + Sync), is_missing: impl Fn()) {
    struct Start<'a>(&'a (dyn Fn() + Sync));
    extern "C" fn begin(start: *mut c_void) -> *mut c_void {
        // SAFETY: it lives until the thread has been joined.
        let Start(work) = unsafe { &*start.cast::<Start<'_>>() };
        work();
        core::ptr::null_mut()
    }
    let start = Start(work);
    let mut handles = [const { None }; MOST];
    for handle in handles.iter_mut().take(threads.min(MOST) - 1) {
        // SAFETY: what it is given lives until it is joined below.
        match unsafe { thread::start(begin, core::ptr::from_ref(&start).cast_mut().cast(), 0) } {
            Ok(thread) => *handle = Some(thread),
            Err(_) => is_missing(),
        }
    }
    work();
    for thread in handles.into_iter().flatten() {
        // SAFETY: made above, and not joined yet.
        unsafe { thread::join(thread) };
    }
}

/// How many threads are worth it: one for each processor that the process may use.
pub fn processors() -> usize {
    // SAFETY: it tells a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}
