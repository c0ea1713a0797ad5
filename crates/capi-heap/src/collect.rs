//! Collections, and what they have found.

use core::ffi::c_int;

use spandrel_pheap::{Collected, Error};

use crate::failure;
use crate::handle::{self, SpandrelHeap};

/// As in the header.
#[repr(C)]
pub struct SpandrelHeapCollected {
    struct_size: usize,
    live: u64,
    live_bytes: u64,
    freed_blocks: u64,
    freed: u64,
    cleared: u64,
}

/// Checks that the caller's structure has a size.
///
/// # Safety
/// Null, or a structure of as many bytes as its first word says.
unsafe fn check(out: *const SpandrelHeapCollected) -> Result<(), Error> {
    // SAFETY: promised by the caller.
    if !out.is_null() && unsafe { (*out).struct_size } < size_of::<usize>() {
        return Err(Error::System(libc::EINVAL));
    }
    Ok(())
}

/// Writes the fields that the caller's structure has; fields that this library does not know become zero.
///
/// # Safety
/// As for [`check`], which has found nothing.
unsafe fn answer(out: *mut SpandrelHeapCollected, found: &Collected) {
    if out.is_null() {
        return;
    }
    let Collected { live, live_bytes, freed_blocks, freed, cleared } = *found;
    // SAFETY: promised by the caller.
    let bytes = unsafe { (*out).struct_size };
    let known = SpandrelHeapCollected {
        struct_size: bytes,
        live,
        live_bytes,
        freed_blocks,
        freed,
        cleared,
    };
    let both = bytes.min(size_of::<SpandrelHeapCollected>());
    // SAFETY: promised by the caller; ours is as long as `both`.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const known).cast::<u8>(), out.cast(), both);
        core::ptr::write_bytes(out.cast::<u8>().add(both), 0, bytes - both);
    }
}

/// `MAK_collect`: frees what cannot be reached from the roots.
///
/// # Safety
/// `handle` is null or a handle that no other thread uses meanwhile, `out` null or as its first word says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_collect(
    handle: *mut SpandrelHeap,
    out: *mut SpandrelHeapCollected,
) -> c_int {
    let collect = || {
        // SAFETY: passed on from the caller.
        let (heap, opened, types) = unsafe {
            check(out)?;
            handle::alone(handle)?
        };
        let found = heap.collect(types.all())?;
        if !opened.was_clean && opened.collected.is_none() {
            opened.collected = Some(found);
        }
        // SAFETY: checked.
        unsafe { answer(out, &found) };
        Ok(())
    };
    failure::number(collect())
}

/// How a heap was opened: 0, it had been closed, or is new; 1, it was recovered, and `out` gets what that has found; -1 with EUCLEAN, it
/// has to be collected first.
///
/// # Safety
/// As for [`spandrel_heap_collect`], but other threads may use the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_recovered(
    handle: *const SpandrelHeap,
    out: *mut SpandrelHeapCollected,
) -> c_int {
    let recovered = || {
        // SAFETY: passed on from the caller.
        let opened = unsafe {
            check(out)?;
            handle::known(handle)?.opened
        };
        let found = match opened.collected {
            None if !opened.was_clean => return Err(Error::NeedsRecovery),
            found => found.unwrap_or_default(),
        };
        // SAFETY: checked.
        unsafe { answer(out, &found) };
        Ok(c_int::from(!opened.was_clean))
    };
    failure::count(recovered())
}
