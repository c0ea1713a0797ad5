//! The process that opened a heap, which alone may change it.
//!
//! A child of a fork has the parent's mappings, and its locks as other threads held them, but no thread that would release them. So each
//! operation that changes the heap calls [`Origin::check`] before it takes a lock. Heaps that were opened to be read only are refused by
//! the same load.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// The word in the process that opened the heap: changes are allowed. The word is 0 in a child.
const WRITABLE: u32 = 1;
/// The same for a heap that was opened to be read only.
const READ_ONLY: u32 = 2;

/// See the head of this file.
pub struct Origin {
    /// On a page that the kernel wipes in a child of a fork: the check is one load and no system call.
    word: NonNull<AtomicU32>,
    /// Whether [`READ_ONLY`] was stored, also in a child.
    is_read_only: AtomicBool,
}

// SAFETY: the word is atomic, and only the drop of this value unmaps its page.
unsafe impl Send for Origin {}
// SAFETY: as above.
unsafe impl Sync for Origin {}

impl Origin {
    /// The calling process, which may change the heap.
    ///
    /// # Errors
    /// [`Error::NoMemory`], also on kernels that wipe no pages (before Linux 4.14).
    pub fn new() -> Result<Self, Error> {
        let word = vm::map_wiped_on_fork(PAGE_BYTES).ok_or(Error::NoMemory)?.cast();
        let origin = Self { word, is_read_only: AtomicBool::new(false) };
        origin.word().store(WRITABLE, Relaxed);
        Ok(origin)
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped as long as this value lives.
        unsafe { self.word.as_ref() }
    }

    /// Refuses changes from now on.
    pub fn make_read_only(&self) {
        self.is_read_only.store(true, Relaxed);
        self.word().store(READ_ONLY, Relaxed);
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Relaxed)
    }

    /// Whether the calling process is a child of the one that opened the heap, by a fork.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.word().load(Relaxed) == 0
    }

    /// Refuses a child of a fork, and changes of a heap that was opened to be read only.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        match self.word().load(Relaxed) {
            WRITABLE => Ok(()),
            READ_ONLY => Err(Error::ReadOnly),
            _ => Err(Error::Forked),
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, and no reference to it outlives this value.
        unsafe { vm::release(self.word.as_ptr().cast(), PAGE_BYTES) };
    }
}
