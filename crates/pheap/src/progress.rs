//! The progress of work that takes long on a large heap: a watcher is called with it now and then.

use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_sync::Lock;

/// A function that is called with the number of steps that are done, and that of all steps. Any of the threads that work calls it, one at
/// a time. It must not use the heap. A step is a look at a block.
pub type Watcher<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// The watcher of work that runs.
struct Watched(*const (dyn Fn(u64, u64) + Sync));

// SAFETY: it may be called by any thread.
unsafe impl Send for Watched {}

/// See the head of this file. Without a watcher it is one load.
pub struct Progress {
    watcher: Lock<Option<Watched>>,
    done: AtomicU64,
    /// 0: there is no watcher.
    all: AtomicU64,
}

/// Forgets the watcher, whatever became of the work.
struct Forget<'a>(&'a Progress);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.all.store(0, Relaxed);
        *self.0.watcher.lock() = None;
    }
}

impl Progress {
    /// Without a watcher.
    pub const fn new() -> Self {
        Self { watcher: Lock::new(None), done: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    /// Runs `work` of `all` steps, and calls the watcher with its progress; at the end all steps are done.
    pub fn watch<R>(&self, watcher: Option<Watcher<'_>>, all: u64, work: impl FnOnce() -> R) -> R {
        let Some(watcher) = watcher else { return work() };
        let watcher = core::ptr::from_ref(watcher);
        // SAFETY: only its lifetime is another: it is forgotten before this returns.
        let watcher = unsafe {
            core::mem::transmute::<
                *const (dyn Fn(u64, u64) + Sync + '_),
                *const (dyn Fn(u64, u64) + Sync + 'static),
            >(watcher)
        };
        *self.watcher.lock() = Some(Watched(watcher));
        self.done.store(0, Relaxed);
        self.all.store(all, Relaxed);
        let _forget = Forget(self);
        let outcome = work();
        self.reach(all);
        outcome
    }

    /// Adds `steps` to the steps that are done.
    pub fn add(&self, steps: u64) {
        if self.all.load(Relaxed) != 0 {
            self.done.fetch_add(steps, Relaxed);
            self.tell();
        }
    }

    /// At least `steps` steps are done.
    pub fn reach(&self, steps: u64) {
        if self.all.load(Relaxed) != 0 {
            self.done.fetch_max(steps, Relaxed);
            self.tell();
        }
    }

    fn tell(&self) {
        let watcher = self.watcher.lock();
        let (done, all) = (self.done.load(Relaxed), self.all.load(Relaxed));
        if let Some(Watched(watcher)) = &*watcher {
            // SAFETY: it lives until it is forgotten, under this lock.
            unsafe { (**watcher)(done.min(all), all) };
        }
    }
}
