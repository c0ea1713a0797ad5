//! Allocators for single data structures, through `allocator-api2`.
//!
//! `Vec::new_in(spandrel::Mmap)`, `hashbrown` maps and other containers that
//! take an `Allocator` place their memory by the handle, whatever the mode is.
//! `grow` does not copy where the allocator need not, and `grow_zeroed` does not
//! clear what is zero already.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};
use spandrel_adaptive::{self as adaptive, direct};
use spandrel_pages::AllocatorId;

fn block(object: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let object = NonNull::new(object).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(object, layout.size()))
}

fn dangling(layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    block(ptr::without_provenance_mut(layout.align()), layout)
}

macro_rules! handle {
    ($(#[$attribute:meta])* $name:ident => $choice:expr) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name;

        // SAFETY: blocks are as large and aligned as their layout, stay valid
        // until they are deallocated, and belong to the process, not to the
        // handle: every copy of every handle can free them. On failure a block
        // is as it was.
        unsafe impl Allocator for $name {
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                allocate($choice, layout, false)
            }

            fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                allocate($choice, layout, true)
            }

            unsafe fn deallocate(&self, object: NonNull<u8>, layout: Layout) {
                // SAFETY: passed on from the caller.
                unsafe { deallocate(object, layout) }
            }

            unsafe fn grow(
                &self,
                object: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: passed on from the caller.
                unsafe { resize($choice, object, old, new, false) }
            }

            unsafe fn grow_zeroed(
                &self,
                object: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: passed on from the caller.
                unsafe { resize($choice, object, old, new, true) }
            }

            unsafe fn shrink(
                &self,
                object: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, AllocError> {
                // SAFETY: passed on from the caller.
                unsafe { resize($choice, object, old, new, false) }
            }
        }
    };
}

handle! {
    /// By the current mode: for containers that need an `Allocator` value.
    Auto => None
}

handle! {
    /// glibc.
    Sys => Some(AllocatorId::Sys)
}

#[cfg(feature = "jemalloc")]
handle! {
    /// jemalloc, hosted in its own slice.
    Jemalloc => Some(AllocatorId::Jemalloc)
}

#[cfg(feature = "mimalloc")]
handle! {
    /// mimalloc, hosted in its own slice.
    Mimalloc => Some(AllocatorId::Mimalloc)
}

#[cfg(feature = "tcmalloc")]
handle! {
    /// google/tcmalloc, hosted in its own slices.
    Tcmalloc => Some(AllocatorId::Tcmalloc)
}

handle! {
    /// Our own general-purpose allocator.
    Native => Some(AllocatorId::Native)
}

handle! {
    /// Page-mapped, with room to grow: for large buffers that are appended to.
    /// Each block takes at least a page of 4 KiB.
    Mmap => Some(AllocatorId::Mmap)
}

fn allocate(
    choice: Option<AllocatorId>,
    layout: Layout,
    zeroed: bool,
) -> Result<NonNull<[u8]>, AllocError> {
    if layout.size() == 0 {
        return dangling(layout);
    }
    let (align, size) = (layout.align(), layout.size());
    let object = match (choice, zeroed) {
        (None, false) => adaptive::alloc_aligned(align, size),
        (None, true) => adaptive::alloc_zeroed_aligned(align, size),
        (Some(id), zeroed) => direct::alloc_in(id, align, size, zeroed),
    };
    block(object, layout)
}

/// # Safety
/// As for `Allocator::deallocate`.
unsafe fn deallocate(object: NonNull<u8>, layout: Layout) {
    if layout.size() > 0 {
        // SAFETY: passed on from the caller.
        unsafe { adaptive::free_sized(object.as_ptr(), layout.size(), layout.align()) }
    }
}

/// # Safety
/// As for `Allocator::grow` and `Allocator::shrink`.
unsafe fn resize(
    choice: Option<AllocatorId>,
    object: NonNull<u8>,
    old: Layout,
    new: Layout,
    zeroed: bool,
) -> Result<NonNull<[u8]>, AllocError> {
    if old.size() == 0 {
        return allocate(choice, new, zeroed);
    }
    if new.size() == 0 {
        // SAFETY: passed on from the caller.
        unsafe { deallocate(object, old) };
        return dangling(new);
    }
    if new.align() > old.align() && object.as_ptr() as usize & (new.align() - 1) != 0 {
        let moved = allocate(choice, new, zeroed)?;
        // SAFETY: two live blocks, each of at least that many bytes.
        unsafe {
            let bytes = old.size().min(new.size());
            ptr::copy_nonoverlapping(object.as_ptr(), moved.as_ptr().cast(), bytes);
            deallocate(object, old);
        }
        return Ok(moved);
    }
    let (from, align) = (object.as_ptr(), new.align());
    // SAFETY: passed on from the caller.
    let moved = unsafe {
        match (choice, zeroed) {
            (None, false) => adaptive::realloc_aligned(from, old.size(), align, new.size()),
            (None, true) => adaptive::realloc_zeroed(from, old.size(), align, new.size()),
            (Some(id), false) => direct::realloc_in(id, from, old.size(), align, new.size()),
            (Some(id), true) => direct::realloc_zeroed_in(id, from, old.size(), align, new.size()),
        }
    };
    block(moved, new)
}
