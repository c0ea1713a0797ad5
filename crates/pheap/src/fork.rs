//! The process that opened a heap, which alone may change it.
//!
//! A child of a fork has the parent's mappings, and its locks as other threads held them, but no thread that would release them. So each
//! operation that changes the heap calls [`Origin::check`] before it takes a lock. Heaps that were opened to be read only are refused by
//! the same load.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use spandrel_os::{env, vm};
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// The word in the process that opened the heap: changes are allowed. The word is 0 in a child.
const WRITABLE: u32 = 1;
/// The same for a heap that was opened to be read only.
const READ_ONLY: u32 = 2;

/// See the head of this file.
pub struct Origin {
    /// The kernel wipes the page in a child of a fork, so the check is one load and no system call. `None`: there is no memory, or the
    /// kernel is older than Linux 4.14 and wipes no pages; the check compares process numbers.
    word: Option<NonNull<AtomicU32>>,
    process: i32,
    /// Whether [`READ_ONLY`] was stored, also without the word and in a child.
    is_read_only: AtomicBool,
}

// SAFETY: the word is atomic, and only the drop of this value unmaps its page.
unsafe impl Send for Origin {}
// SAFETY: as above.
unsafe impl Sync for Origin {}

impl Origin {
    /// The calling process, which may change the heap.
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

    /// Whether the calling process is a child of the one that opened the heap, by a fork.
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
            // SAFETY: the page was mapped by `new`, and no reference to it outlives this value.
            unsafe { vm::release(word.as_ptr().cast(), PAGE_BYTES) };
        }
    }
}
