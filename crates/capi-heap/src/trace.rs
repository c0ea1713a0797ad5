//! Types of roots: functions of the program that name the pointers of an object. Without one, recovery looks at every word.

use core::ffi::{CStr, c_char, c_int, c_uint};

use spandrel_pheap::{Error, Heap, Media, PPtr, TraceFn, Tracer};

use crate::failure;
use crate::handle::{self, SpandrelHeap};
use crate::types::{NAME_BYTES, Root, Types, declared};

/// Roots of a heap.
pub const ROOTS: usize = 512;

/// `struct spandrel_heap_root_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpandrelHeapRootType {
    index: c_uint,
    trace: Option<TraceFn>,
    bytes: usize,
    name: *const c_char,
    layout: u64,
}

impl SpandrelHeapRootType {
    /// The root that the type is of.
    ///
    /// # Safety
    /// The name is null or a string.
    unsafe fn root(&self) -> Result<Root<'_>, Error> {
        if self.bytes == 0 {
            return Err(Error::Size(0));
        }
        if self.name.is_null() {
            let index = self.index as usize;
            return if index < ROOTS {
                Ok(Root::Numbered(index))
            } else {
                Err(Error::RootIndex(index))
            };
        }
        // SAFETY: promised by the caller.
        Ok(Root::Named(unsafe { root_name(self.name)? }))
    }
}

/// The name of a root.
///
/// # Safety
/// Null or a string.
pub unsafe fn root_name<'a>(name: *const c_char) -> Result<&'a str, Error> {
    if name.is_null() {
        return Err(Error::RootName);
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Error::RootName)?;
    if (1..=NAME_BYTES).contains(&name.len()) { Ok(name) } else { Err(Error::RootName) }
}

/// Refuses a type of a named root that the heap has with another layout: once it was declared, each collection would fail.
fn check_layout(heap: &Heap<Media>, name: &str, layout: u64) -> Result<(), Error> {
    let given = declared(layout);
    let mut found = (0..ROOTS).filter_map(|index| heap.root_name(index));
    match found.find(|found| found.text() == name) {
        Some(found) if found.layout != given => Err(Error::RootType { heap: found.layout, given }),
        _ => Ok(()),
    }
}

/// Declares the types of roots: all of them, or none if one of them is wrong, or another one than the heap has.
///
/// # Safety
/// `given` is null or `count` types; names are null or strings, and each function may be called for any object of its type's size.
pub unsafe fn set_all(
    types: &mut Types,
    heap: Option<&Heap<Media>>,
    given: *const SpandrelHeapRootType,
    count: usize,
) -> Result<(), Error> {
    if given.is_null() || count == 0 {
        return Ok(());
    }
    // SAFETY: promised by the caller.
    let given = unsafe { core::slice::from_raw_parts(given, count) };
    let mut new = 0;
    for root in given {
        // SAFETY: promised by the caller.
        new += usize::from(!types.has(&unsafe { root.root()? }));
    }
    for given in given {
        // SAFETY: promised by the caller.
        if let (Some(heap), Root::Named(name)) = (heap, unsafe { given.root()? }) {
            check_layout(heap, name, given.layout)?;
        }
    }
    // A new root that is given twice counts twice: the check may refuse a full table too early, and never too late.
    if !types.has_room(new) {
        return Err(Error::RootsFull);
    }
    for given in given {
        // SAFETY: promised by the caller.
        unsafe { types.set(&given.root()?, given.layout, given.trace, given.bytes) };
    }
    Ok(())
}

/// Declares the types of roots, all of them or none: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle that no other thread uses meanwhile; the rest is as for [`set_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_types(
    handle: *mut SpandrelHeap,
    given: *const SpandrelHeapRootType,
    count: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    failure::number(unsafe {
        handle::alone(handle).and_then(|(heap, _, types)| set_all(types, Some(heap), given, count))
    })
}

/// Declares the type of a root: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle that no other thread uses meanwhile; the function may be called for any object of that size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_trace(
    handle: *mut SpandrelHeap,
    index: c_uint,
    trace: Option<TraceFn>,
    bytes: usize,
) -> c_int {
    let root = SpandrelHeapRootType { index, trace, bytes, name: core::ptr::null(), layout: 0 };
    // SAFETY: passed on from the caller.
    unsafe { spandrel_heap_set_types(handle, &raw const root, 1) }
}

/// Names a pointer to `count` values of `bytes` bytes.
///
/// A word without a pointer's tag may be an address in a fixed heap: it is looked at as a word of unknown type.
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

/// Names a pointer to one value.
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

/// Names bytes that may hold pointers anywhere.
///
/// # Safety
/// `tracer` is what a function was called with, and `bytes` bytes of the object lie at `at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_trace_words(
    tracer: *mut Tracer<'_>,
    at: *const u8,
    bytes: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe { (*tracer).words(core::slice::from_raw_parts(at, bytes)) }
}
