//! The global allocator.

use core::alloc::{GlobalAlloc, Layout};

use spandrel_adaptive as adaptive;

/// The global allocator: put it behind `#[global_allocator]`.
///
/// It reads `SPANDREL_MODE`, `SPANDREL_PROFILE` and `SPANDREL_VERBOSE` at the
/// first allocation. A value of no size; all copies are the same allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spandrel;

impl Spandrel {
    /// The allocator.
    pub const fn new() -> Self {
        Spandrel
    }
}

// SAFETY: `alloc` and its like return null or a block of the layout's size and
// alignment that no other caller has, from whichever allocator; the owner of a
// block is found by its address alone. None of them unwinds.
unsafe impl GlobalAlloc for Spandrel {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        adaptive::alloc_aligned(layout.align(), layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        adaptive::alloc_zeroed_aligned(layout.align(), layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { adaptive::free_sized(object, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { adaptive::realloc_aligned(object, layout.size(), layout.align(), size) }
    }
}
