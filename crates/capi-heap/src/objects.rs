//! Objects: allocated, resized, freed.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use spandrel_pheap::{Error, FreeCallback};

use crate::failure;
use crate::handle::{self, SpandrelHeap};

/// `MAK_malloc`.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_malloc(
    handle: *mut SpandrelHeap,
    size: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    failure::object(unsafe { handle::heap(handle) }.and_then(|heap| heap.alloc(size)))
}

/// `MAK_calloc`.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_calloc(
    handle: *mut SpandrelHeap,
    count: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    let bytes = count.checked_mul(size).ok_or(Error::Size(usize::MAX));
    failure::object(heap.and_then(|heap| heap.alloc_zeroed(bytes?)))
}

/// As `aligned_alloc`.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_aligned_alloc(
    handle: *mut SpandrelHeap,
    align: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    failure::object(
        unsafe { handle::heap(handle) }.and_then(|heap| heap.alloc_aligned(size, align)),
    )
}

/// `MAK_realloc`.
///
/// # Safety
/// `handle` is null or a handle; no other thread uses the object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_realloc(
    handle: *mut SpandrelHeap,
    object: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe {
        let Some(object) = NonNull::new(object.cast::<u8>()) else {
            return spandrel_heap_malloc(handle, size);
        };
        if size == 0 {
            // The result is null in either case; `errno` says whether the object was wrong.
            spandrel_heap_free(handle, object.as_ptr().cast());
            return core::ptr::null_mut();
        }
        failure::object(handle::heap(handle).and_then(|heap| heap.realloc(object, size)))
    }
}

/// `MAK_free`: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle; no thread uses the object any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_free(
    handle: *mut SpandrelHeap,
    object: *mut c_void,
) -> c_int {
    let Some(object) = NonNull::new(object.cast()) else { return 0 };
    // SAFETY: passed on from the caller.
    failure::number(unsafe { handle::heap(handle).and_then(|heap| heap.free(object)) })
}

/// `MAK_safe_free`: 0, or -1.
///
/// # Safety
/// As for [`spandrel_heap_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_safe_free(
    handle: *mut SpandrelHeap,
    object: *mut c_void,
) -> c_int {
    let Some(object) = NonNull::new(object.cast()) else { return 0 };
    // SAFETY: passed on from the caller.
    failure::number(unsafe { handle::heap(handle).and_then(|heap| heap.safe_free(object)) })
}

/// `MAK_set_free_cb`: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle; the function may be called with any object and `argument`, by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_free_cb(
    handle: *mut SpandrelHeap,
    callback: Option<FreeCallback>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    failure::number(unsafe {
        handle::heap(handle).map(|heap| heap.set_free_callback(callback, argument.cast()))
    })
}

/// Bytes that an object has room for; 0 for null, and for what is no object.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_usable_size(
    handle: *mut SpandrelHeap,
    object: *const c_void,
) -> usize {
    let Some(object) = NonNull::new(object.cast_mut().cast()) else { return 0 };
    // SAFETY: passed on from the caller.
    failure::word(unsafe { handle::heap(handle) }.and_then(|heap| heap.usable_bytes(object)))
}
