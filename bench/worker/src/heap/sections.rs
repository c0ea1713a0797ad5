//! Stretches of a program in which what it stores becomes durable together, or nothing of it.

use super::Allocator;
use std::ptr::NonNull;

/// See the head of this file. Whatever is used between `begin` and `end` is the section's alone.
pub trait Section {
    fn begin(&mut self);

    /// An object, which is free again if the section does not end.
    fn alloc(&mut self, bytes: usize) -> NonNull<u8>;

    /// Frees an object, once the section has ended.
    ///
    /// # Safety
    /// It was allocated here, and nobody uses it.
    unsafe fn free(&mut self, object: NonNull<u8>);

    /// An object that nobody needs after a failure, outside of any section.
    fn scratch(&mut self, bytes: usize) -> NonNull<u8>;

    /// Frees one, outside of any section.
    ///
    /// # Safety
    /// As for [`Section::free`].
    unsafe fn free_scratch(&mut self, object: NonNull<u8>);

    /// An object of this section was filled.
    fn made(&mut self, object: NonNull<u8>, bytes: usize);

    /// Stores words in an object that was there before.
    ///
    /// # Safety
    /// There is room for so many, and nobody else uses them.
    unsafe fn store(&mut self, at: *mut u64, words: &[u64]);

    /// All of it is durable now.
    fn end(&mut self);
}

/// A section that only stores: failures are nobody's concern (the paper's Fig. 9).
pub struct Plain<'a, A>(pub &'a A);

impl<A: Allocator> Section for Plain<'_, A> {
    fn begin(&mut self) {}

    fn alloc(&mut self, bytes: usize) -> NonNull<u8> {
        self.0.alloc(bytes)
    }

    unsafe fn free(&mut self, object: NonNull<u8>) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.free(object) };
    }

    fn scratch(&mut self, bytes: usize) -> NonNull<u8> {
        self.0.alloc(bytes)
    }

    unsafe fn free_scratch(&mut self, object: NonNull<u8>) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.free(object) };
    }

    fn made(&mut self, _: NonNull<u8>, _: usize) {}

    unsafe fn store(&mut self, at: *mut u64, words: &[u64]) {
        // SAFETY: passed on from the caller.
        unsafe { at.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }

    fn end(&mut self) {}
}
