//! Work that finds more work: a worker with too much leaves some of it, a worker with none takes it, and all have ended
//! when no worker has any.

use crate::Lock;
use crate::platform::{AtomicUsize, Ordering::*, linger};

/// Where workers leave pieces of work for each other, up to `N` at once.
pub struct Pool<T, const N: usize> {
    workers: AtomicUsize,
    /// Workers that have nothing.
    idle: AtomicUsize,
    left: Lock<Option<[Option<T>; N]>>,
}

impl<T, const N: usize> Pool<T, N> {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Self {
        let (workers, idle) = (AtomicUsize::new(workers), AtomicUsize::new(0));
        Self { workers, idle, left: Lock::new(None) }
    }

    /// One of the workers does not come.
    pub fn is_missing(&self) {
        self.workers.fetch_sub(1, AcqRel);
    }

    /// Whether a worker has nothing.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.idle.load(Relaxed) > 0
    }

    /// Leaves pieces for others.
    ///
    /// # Errors
    /// What was left before is still there: they are given back.
    pub fn leave(&self, pieces: [Option<T>; N]) -> Result<(), [Option<T>; N]> {
        let mut left = self.left.lock();
        if left.is_some() {
            return Err(pieces);
        }
        *left = Some(pieces);
        Ok(())
    }

    /// Takes what others have left, and waits for it as long as another works. `None`: there is nothing, and all wait.
    pub fn take(&self) -> Option<[Option<T>; N]> {
        self.idle.fetch_add(1, AcqRel);
        for looks in 0.. {
            let mut left = self.left.lock();
            if let Some(pieces) = left.take() {
                // Under the lock: a worker that finds nothing left finds that another works.
                self.idle.fetch_sub(1, AcqRel);
                return Some(pieces);
            }
            drop(left);
            if self.idle.load(Acquire) >= self.workers.load(Acquire) {
                break;
            }
            linger(looks);
        }
        None
    }
}
