//! New objects, and objects given back.

use spandrel_backends::{Backend, Remap, Sys};
use spandrel_os::slices;
use spandrel_pages::{AllocatorId, MIN_ALIGN};
use spandrel_policy::{Decision, Operation};

use crate::backend::with_backend;
use crate::modes::table;
use crate::start;
use crate::stats::{self, Event};

const SYS: u8 = AllocatorId::Sys as u8;
#[cfg(feature = "jemalloc")]
const JEMALLOC: u8 = AllocatorId::Jemalloc as u8;
#[cfg(feature = "mimalloc")]
const MIMALLOC: u8 = AllocatorId::Mimalloc as u8;
const MMAP: u8 = AllocatorId::Mmap as u8;

/// `size` bytes aligned to 16, by the allocator that the policy names for the
/// size; null when no allocator has memory.
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    let object = match table().decide(Operation::Allocate, size).0 {
        #[cfg(feature = "mimalloc")]
        MIMALLOC => spandrel_backends::Mimalloc::alloc(size),
        #[cfg(feature = "jemalloc")]
        JEMALLOC => spandrel_backends::Jemalloc::alloc(size),
        SYS => return Sys::alloc(size),
        MMAP => Remap::alloc(size),
        _ => return alloc_slow(size, MIN_ALIGN, false),
    };
    if object.is_null() {
        last_resort(size, MIN_ALIGN, false)
    } else {
        object
    }
}

/// As [`alloc`], zeroed.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    let object = match table().decide(Operation::Allocate, size).0 {
        #[cfg(feature = "mimalloc")]
        MIMALLOC => spandrel_backends::Mimalloc::alloc_zeroed(size),
        #[cfg(feature = "jemalloc")]
        JEMALLOC => spandrel_backends::Jemalloc::alloc_zeroed(size),
        SYS => return Sys::alloc_zeroed(size),
        MMAP => Remap::alloc_zeroed(size),
        _ => return alloc_slow(size, MIN_ALIGN, true),
    };
    if object.is_null() {
        last_resort(size, MIN_ALIGN, true)
    } else {
        object
    }
}

/// `size` bytes aligned to `align`, a power of two.
#[inline]
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    if align <= MIN_ALIGN {
        alloc(size)
    } else {
        alloc_slow(size, align, false)
    }
}

/// `size` zero bytes aligned to `align`, a power of two.
#[inline]
pub fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
    if align <= MIN_ALIGN {
        alloc_zeroed(size)
    } else {
        alloc_slow(size, align, true)
    }
}

/// Aligned requests, and requests whose decision carries a flag.
#[cold]
#[inline(never)]
fn alloc_slow(size: usize, align: usize, zeroed: bool) -> *mut u8 {
    // Alignment beyond the size costs as much as a larger object.
    let decision = decide(Operation::Allocate, size.max(align));
    let id = decision.allocator();
    let object = alloc_in(id, align, size, zeroed);
    let object = if object.is_null() {
        last_resort(size, align, zeroed)
    } else {
        object
    };
    if decision.has(Decision::COUNTED) && !object.is_null() {
        stats::record(slices::owner(object as usize), Event::Allocation, size);
    }
    object
}

/// A decision without the flags that this room resolves: `UNSET` by starting,
/// `EXACT` by looking at the mode.
pub(crate) fn decide(operation: Operation, size: usize) -> Decision {
    let mut decision = table().decide(operation, size);
    if decision.has(Decision::UNSET) {
        if !start::start_from_environment() {
            return Decision(SYS);
        }
        decision = table().decide(operation, size);
    }
    if decision.has(Decision::EXACT) {
        let counted = decision.0 & Decision::COUNTED;
        decision = Decision(crate::modes::decide_exactly(operation, size).0 | counted);
    }
    decision
}

/// `size` bytes aligned to `align` from allocator `id`; null if it has none.
pub fn alloc_in(id: AllocatorId, align: usize, size: usize, zeroed: bool) -> *mut u8 {
    with_backend!(id, B => {
        B::start();
        match (align <= MIN_ALIGN, zeroed) {
            (true, false) => B::alloc(size),
            (true, true) => B::alloc_zeroed(size),
            (false, false) => B::alloc_aligned(align, size),
            (false, true) => B::alloc_zeroed_aligned(align, size),
        }
    })
}

/// `size` zero bytes aligned to `align` from allocator `id`; null if it has none.
pub fn alloc_zeroed_in(id: AllocatorId, align: usize, size: usize) -> *mut u8 {
    alloc_in(id, align, size, true)
}

/// The chosen allocator has no memory (its slice is full, or could not be
/// reserved): glibc may have.
#[cold]
#[inline(never)]
fn last_resort(size: usize, align: usize, zeroed: bool) -> *mut u8 {
    alloc_in(AllocatorId::Sys, align, size, zeroed)
}

/// Gives an object back; null is nothing.
///
/// # Safety
/// `object` is null or a live object of any allocator behind this room, or of
/// glibc, and not used any more.
#[inline(always)]
pub unsafe fn free(object: *mut u8) {
    // SAFETY: passed on from the caller; the owner byte names the allocator.
    unsafe {
        match slices::owner_byte(object as usize) {
            #[cfg(feature = "mimalloc")]
            MIMALLOC => spandrel_backends::Mimalloc::free(object),
            #[cfg(feature = "jemalloc")]
            JEMALLOC => spandrel_backends::Jemalloc::free(object),
            SYS => Sys::free(object),
            MMAP => Remap::free(object),
            _ => free_slow(object),
        }
    }
}

/// As [`free`], for an object whose size and alignment are known.
///
/// # Safety
/// As for [`free`]; the object was last sized `size` and asked for with `align`.
#[inline(always)]
pub unsafe fn free_sized(object: *mut u8, size: usize, align: usize) {
    // SAFETY: passed on from the caller; the owner byte names the allocator.
    unsafe {
        match slices::owner_byte(object as usize) {
            #[cfg(feature = "mimalloc")]
            MIMALLOC => spandrel_backends::Mimalloc::free_sized(object, size, align),
            #[cfg(feature = "jemalloc")]
            JEMALLOC => spandrel_backends::Jemalloc::free_sized(object, size, align),
            SYS => Sys::free_sized(object, size, align),
            MMAP => Remap::free_sized(object, size, align),
            _ => free_slow(object),
        }
    }
}

/// Frees while requests are counted.
#[cold]
#[inline(never)]
unsafe fn free_slow(object: *mut u8) {
    if object.is_null() {
        return;
    }
    let id = slices::owner(object as usize);
    stats::record(id, Event::Free, 0);
    // SAFETY: passed on from the caller.
    with_backend!(id, B => unsafe { B::free(object) })
}

/// Bytes that the object may use; 0 for null.
///
/// # Safety
/// `object` is null or a live object, as for [`free`].
#[inline]
pub unsafe fn usable_size(object: *mut u8) -> usize {
    if object.is_null() {
        return 0;
    }
    let id = slices::owner(object as usize);
    // SAFETY: passed on from the caller.
    with_backend!(id, B => unsafe { B::usable_size(object) })
}

/// Gives unused memory of all allocators back to the kernel; true if there was any.
pub fn trim() -> bool {
    // Each is asked, whatever the others say.
    AllocatorId::ALL.into_iter().fold(false, |any, id| {
        let trimmed = available_now(id) && with_backend!(id, B => B::trim());
        any | trimmed
    })
}

fn available_now(id: AllocatorId) -> bool {
    crate::available().has(id)
}
