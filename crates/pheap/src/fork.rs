//! Whether the process is the one that opened the heap. A child of a fork has the parent's mappings, locks as other threads held
//! them, and no thread that would release them: whatever changes the heap checks this first, before it takes a lock.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use spandrel_os::{env, vm};
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// The process that opened a heap.
pub struct Origin {
    /// 1 in that process. The kernel wipes the page in a child of a fork, so the check is one load and no system call.
    /// `None`: the kernel does not wipe pages (before Linux 4.14), and the check compares process numbers.
    word: Option<NonNull<AtomicU32>>,
    process: i32,
}

// SAFETY: the word is atomic, and its page is unmapped by the owner alone.
unsafe impl Send for Origin {}
// SAFETY: as above.
unsafe impl Sync for Origin {}

impl Origin {
    /// The calling process.
    pub fn new() -> Self {
        let word = vm::map_wiped_on_fork(PAGE_BYTES).map(NonNull::cast::<AtomicU32>);
        if let Some(word) = word {
            // SAFETY: just mapped.
            unsafe { word.as_ref() }.store(1, Relaxed);
        }
        Self { word, process: env::pid() }
    }

    /// Whether the calling process is a child of that one, by a fork.
    #[inline]
    pub fn is_forked(&self) -> bool {
        match self.word {
            // SAFETY: mapped as long as this lives.
            Some(word) => unsafe { word.as_ref() }.load(Relaxed) == 0,
            None => env::pid() != self.process,
        }
    }

    /// Refuses a child of a fork.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            // SAFETY: its own page.
            unsafe { vm::release(word.as_ptr().cast(), PAGE_BYTES) };
        }
    }
}
