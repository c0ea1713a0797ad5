//! Objects of the state: allocated, resized, freed.
//!
//! The arena knows no types: an object stays until it is freed, whether or not anything leads to it.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use spandrel::durable::Arena;

use crate::current::{self, Kind};
use crate::failure::{self, Failure};
use crate::handle::SpandrelDurable;

type Made = Result<NonNull<u8>, spandrel_pheap::Error>;

/// Allocates in the state that the thread's command may change.
fn made(handle: *mut SpandrelDurable, make: impl FnOnce(&Arena) -> Made) -> *mut c_void {
    let made = current::arena(handle, Kind::Write).and_then(|arena| Ok(make(arena)?));
    failure::address(made.map(|object| object.as_ptr().cast()))
}

/// As `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_malloc(
    handle: *mut SpandrelDurable,
    size: usize,
) -> *mut c_void {
    made(handle, |arena| arena.alloc(size))
}

/// As `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_calloc(
    handle: *mut SpandrelDurable,
    count: usize,
    size: usize,
) -> *mut c_void {
    made(handle, |arena| {
        let bytes = count.checked_mul(size).ok_or(spandrel_pheap::Error::Size(usize::MAX))?;
        arena.alloc_zeroed(bytes)
    })
}

/// As `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_aligned_alloc(
    handle: *mut SpandrelDurable,
    align: usize,
    size: usize,
) -> *mut c_void {
    made(handle, |arena| arena.alloc_aligned(size, align))
}

/// As `realloc`.
///
/// # Safety
/// After success the old address is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_realloc(
    handle: *mut SpandrelDurable,
    object: *mut c_void,
    size: usize,
) -> *mut c_void {
    let Some(old) = NonNull::new(object.cast::<u8>()) else {
        return spandrel_durable_malloc(handle, size);
    };
    if size == 0 {
        // The result is null in either case; `errno` says whether the object was wrong.
        // SAFETY: promised by the caller.
        unsafe { spandrel_durable_free(handle, object) };
        return ptr::null_mut();
    }
    // SAFETY: the thread's command has the state to itself; the rest is the caller's.
    made(handle, |arena| unsafe { arena.realloc(old, size) })
}

/// As `free`: 0, or -1.
///
/// # Safety
/// The object is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_free(
    handle: *mut SpandrelDurable,
    object: *mut c_void,
) -> c_int {
    let Some(object) = NonNull::new(object.cast()) else { return 0 };
    // SAFETY: promised by the caller.
    let free = |arena: &Arena| Ok(unsafe { arena.free(object) }?);
    failure::number(current::arena(handle, Kind::Write).and_then(free))
}

/// Bytes that an object has room for; 0 for null, and for what is no object.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_usable_size(
    handle: *mut SpandrelDurable,
    object: *const c_void,
) -> usize {
    let Some(object) = NonNull::new(object.cast_mut().cast()) else { return 0 };
    let usable = current::arena(handle, Kind::Read);
    failure::word(usable.and_then(|arena| Ok::<_, Failure>(arena.usable_bytes(object)?)))
}
