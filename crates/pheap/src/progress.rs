//! How far something is that takes long on a large heap: told to whoever waits for it, now and then.

use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_sync::Lock;

/// What is told how far something is: steps that are done, and how many there are. It is called by any of the threads that work, by one at a time,
/// and must not use the heap. Steps are blocks, as often as each is looked at.
pub type Watcher<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A watcher, as long as somebody watches.
struct Watched(*const (dyn Fn(u64, u64) + Sync));

// SAFETY: it may be called by any thread.
unsafe impl Send for Watched {}

/// See the head of this file. Without a watcher it is one load.
pub struct Progress {
    watcher: Lock<Option<Watched>>,
    done: AtomicU64,
    /// 0: nobody watches.
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
    /// Nobody watches.
    pub const fn new() -> Self {
        Self { watcher: Lock::new(None), done: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    /// Has the watcher told of work of so many steps; in the end all of them are done.
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

    /// So many steps more are done.
    pub fn add(&self, steps: u64) {
        if self.all.load(Relaxed) != 0 {
            self.done.fetch_add(steps, Relaxed);
            self.tell();
        }
    }

    /// So many steps are done at least.
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
