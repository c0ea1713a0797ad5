//! A medium that writes down what is done to it.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::prelude::v1::*;
use std::sync::{Mutex, PoisonError};

use super::journal::{Journal, Unit};
use crate::medium::{Failed, Medium};

/// A page: what media begin at a multiple of.
const PAGE_BYTES: usize = 4096;

/// Memory whose every store through [`Medium`] is written down.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    journal: Mutex<Journal>,
}

// SAFETY: the memory is its own, and threads that store to it store to disjoint bytes (`Medium::store`); the journal is locked.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory, all of it durable.
    pub fn new(bytes: usize) -> Self {
        Self::from_image(&vec![0; bytes])
    }

    /// Memory as a power failure has left it.
    pub fn from_image(image: &[u8]) -> Self {
        let layout = Layout::from_size_align(image.len().max(1), PAGE_BYTES);
        let layout = layout.unwrap_or_else(|_| Layout::new::<[u8; PAGE_BYTES]>());
        // SAFETY: its size is not zero.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the allocation has at least `image.len()` bytes, and is new: they do not overlap.
        unsafe { base.as_ptr().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        Self { base, layout, journal: Mutex::new(Journal::new(Unit::Line, image.to_vec())) }
    }

    /// All that was done so far.
    pub fn journal(&self) -> Journal {
        self.with(|journal| journal.clone())
    }

    /// Notes how far the workload is; see [`Journal::note`].
    pub fn note(&self, number: u64) {
        self.with(|journal| journal.note(number));
    }

    fn with<R>(&self, work: impl FnOnce(&mut Journal) -> R) -> R {
        work(&mut self.journal.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated so.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: the memory is allocated as long as this lives.
unsafe impl Medium for Memory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.with(|journal| journal.beginning.len())
    }

    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        self.with(|journal| journal.store(at, bytes));
        // SAFETY: promised by the caller; the journal has checked that the range lies within the memory.
        unsafe {
            self.base.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    unsafe fn store_word(&self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8), "a word that is not aligned may be torn");
        // SAFETY: promised by the caller.
        unsafe { self.store(at, &word.to_le_bytes()) };
    }

    fn write_back(&self, at: usize, len: usize) {
        self.with(|journal| journal.write_back(at, len));
    }

    fn fence(&self) {
        self.with(Journal::fence);
    }

    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        still(&mut || self.fence());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::{Bounds, Outcome};

    #[test]
    fn what_is_stored_is_there_and_in_the_journal() {
        let memory = Memory::new(8192);
        // SAFETY: the test owns the memory.
        unsafe {
            memory.store(100, b"hello");
            memory.store_word(8, 5);
            assert_eq!(memory.base().as_ptr().add(100).read(), b'h');
        }
        memory.write_back(100, 5);
        memory.checkpoint().unwrap();
        let journal = memory.journal();
        assert_eq!(journal.costs(), (1, 1));
        let again = Memory::from_image(&journal.last());
        assert_eq!(again.journal().last(), journal.last());
        let outcome = journal.images(&Bounds::default(), |_, _| Ok(())).unwrap();
        assert!(matches!(outcome, Outcome { points: 2, exhaustive: 2, .. }), "{outcome:?}");
    }
}
