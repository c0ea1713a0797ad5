//! Whether a heap may be changed: by the process that opened it, unless it was opened to be read only. A child of a fork has the parent's mappings, locks as other threads held
//! them, and no thread that would release them: whatever changes the heap checks this first, before it takes a lock.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use spandrel_os::{env, vm};
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// What the word says in the process that opened the heap; 0 in a child of it.
const WRITABLE: u32 = 1;
const READ_ONLY: u32 = 2;

/// The process that opened a heap, and whether it may change it.
pub struct Origin {
    /// The kernel wipes the page in a child of a fork, so the check is one load and no system call. `None`: the kernel does not wipe pages
    /// (before Linux 4.14), and the check compares process numbers.
    word: Option<NonNull<AtomicU32>>,
    process: i32,
    /// The same for a kernel that does not wipe pages.
    is_read_only: AtomicBool,
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
            unsafe { word.as_ref() }.store(WRITABLE, Relaxed);
        }
        Self { word, process: env::pid(), is_read_only: AtomicBool::new(false) }
    }

    /// Refuses changes from now on.
    pub fn make_read_only(&self) {
        self.is_read_only.store(true, Relaxed);
        if let Some(word) = self.word {
            // SAFETY: mapped as long as this lives.
            unsafe { word.as_ref() }.store(READ_ONLY, Relaxed);
        }
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Relaxed)
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

    /// Refuses a child of a fork, and changes of a heap that was opened to be read only.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        // SAFETY: mapped as long as this lives.
        let is_writable = self.word.map(|word| unsafe { word.as_ref() }.load(Relaxed) == WRITABLE);
        if is_writable == Some(true) { Ok(()) } else { self.refusal() }
    }

    #[cold]
    fn refusal(&self) -> Result<(), Error> {
        match (self.is_forked(), self.is_read_only()) {
            (true, _) => Err(Error::Forked),
            (_, true) => Err(Error::ReadOnly),
            _ => Ok(()),
        }
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
