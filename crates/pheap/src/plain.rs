//! Memory as a medium, and nothing written down: for tests that open many heaps.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::prelude::v1::*;
use std::ptr::NonNull;

use spandrel_pmem::{Failed, Medium};

/// Memory that holds an image.
pub struct Plain {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: bytes of this process; the heap orders its stores.
unsafe impl Sync for Plain {}
// SAFETY: its own.
unsafe impl Send for Plain {}

impl Plain {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 1 << 16).unwrap()
    }

    /// Memory with the bytes of an image.
    pub fn new(image: &[u8]) -> Self {
        // SAFETY: no image is empty.
        let at = NonNull::new(unsafe { alloc_zeroed(Self::layout(image.len())) }).unwrap();
        let mut plain = Self { at, bytes: image.len() };
        plain.all_mut().copy_from_slice(image);
        plain
    }

    /// What it holds. No heap lies there.
    pub fn all(&self) -> &[u8] {
        // SAFETY: as many as were allocated, and no heap stores to them.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// The same, to be changed.
    pub fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as many as were allocated, and no heap has them.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: allocated so.
        unsafe { dealloc(self.at.as_ptr(), Self::layout(self.bytes)) };
    }
}

// SAFETY: the memory is there as long as this lives.
unsafe impl Medium for Plain {
    fn base(&self) -> NonNull<u8> {
        self.at
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write_back(&self, at: usize, len: usize) {
        assert!(at + len <= self.bytes);
    }

    fn fence(&self) {}

    fn checkpoint_still(&self, _: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        Ok(())
    }
}
