//! Types of roots: functions of the program that name the pointers of an object, so that recovery need not look at every word.

use core::ffi::{c_int, c_uint};

use spandrel_pheap::{Error, PPtr, RootType, TraceFn, Tracer};

use crate::failure;
use crate::handle::{self, SpandrelHeap, Types};

/// Roots of a heap.
pub const ROOTS: usize = 512;

/// `struct spandrel_heap_root_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpandrelHeapRootType {
    index: c_uint,
    trace: Option<TraceFn>,
    bytes: usize,
}

/// Says of what type a root is.
///
/// # Safety
/// The function is one of such objects.
unsafe fn set(types: &mut Types, root: &SpandrelHeapRootType) -> Result<(), Error> {
    let index = root.index as usize;
    if index >= ROOTS {
        return Err(Error::RootIndex(index));
    }
    if root.bytes == 0 {
        return Err(Error::Size(0));
    }
    // SAFETY: promised by the caller.
    types.set(root.index as u16, unsafe { RootType::raw(index, root.trace, root.bytes) });
    Ok(())
}

/// Says the types of roots that somebody gives.
///
/// # Safety
/// So many are there, unless there are none, and the functions are those of such objects.
pub unsafe fn set_all(
    types: &mut Types,
    given: *const SpandrelHeapRootType,
    count: usize,
) -> Result<(), Error> {
    if given.is_null() || count == 0 {
        return Ok(());
    }
    // SAFETY: promised by the caller.
    let mut given = unsafe { core::slice::from_raw_parts(given, count) }.iter();
    // SAFETY: promised by the caller.
    given.try_for_each(|root| unsafe { set(types, root) })
}

/// Says of what type a root is from now on: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle that nobody else uses meanwhile; the function is one of such objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_trace(
    handle: *mut SpandrelHeap,
    index: c_uint,
    trace: Option<TraceFn>,
    bytes: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let types = unsafe { handle::alone(handle) }.map(|(_, _, types)| types);
    let root = SpandrelHeapRootType { index, trace, bytes };
    // SAFETY: passed on from the caller.
    failure::number(types.and_then(|types| unsafe { set(types, &root) }))
}

/// Tells of a pointer to `count` values of `bytes` bytes.
///
/// A word without the mark of a pointer may be an address in a fixed heap: it is looked at as one that nobody knows.
///
/// # Safety
/// `tracer` is what a function was called with, `slot` a word of the object, and `trace` a function of such values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_trace_array(
    tracer: *mut Tracer<'_>,
    slot: *const u64,
    trace: Option<TraceFn>,
    bytes: usize,
    count: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        let tracer = &mut *tracer;
        if PPtr::<u8>::from_raw(slot.read_volatile()).offset().is_some() {
            tracer.pointer(slot, trace, bytes, count);
        } else {
            tracer.words(core::slice::from_raw_parts(slot.cast(), size_of::<u64>()));
        }
    }
}

/// Tells of a pointer to one value.
///
/// # Safety
/// As for [`spandrel_heap_trace_array`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_trace_pointer(
    tracer: *mut Tracer<'_>,
    slot: *const u64,
    trace: Option<TraceFn>,
    bytes: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe { spandrel_heap_trace_array(tracer, slot, trace, bytes, 1) }
}

/// Tells of bytes that may hold pointers anywhere.
///
/// # Safety
/// `tracer` is what a function was called with, and so many bytes of the object lie there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_trace_words(
    tracer: *mut Tracer<'_>,
    at: *const u8,
    bytes: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe { (*tracer).words(core::slice::from_raw_parts(at, bytes)) }
}
