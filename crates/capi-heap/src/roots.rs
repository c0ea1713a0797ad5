//! Roots, by number and by name.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{self, NonNull};

use spandrel_pheap::trace::{Trace, Tracer, hash};
use spandrel_pheap::{Error, Heap, Media};

use crate::failure;
use crate::handle::{self, SpandrelHeap};

/// What a named root of a C program leads to: an object of which every word is looked at. No root type names it, so that
/// recovery never asks it for pointers.
struct Untyped;

// SAFETY: it has no bytes; the object is looked at word by word.
unsafe impl Trace for Untyped {
    const LAYOUT: u64 = hash("C", 0);
    fn trace(&self, _: &mut Tracer<'_>) {}
}

/// `MAK_set_root`: 0, or -1.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_root(
    handle: *mut SpandrelHeap,
    index: c_uint,
    object: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    let object = NonNull::new(object.cast());
    failure::number(heap.and_then(|heap| heap.set_root(index as usize, object)))
}

/// `MAK_get_root`: null, if nobody has set it.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_get_root(
    handle: *const SpandrelHeap,
    index: c_uint,
) -> *mut c_void {
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    let object = failure::word(heap.and_then(|heap| heap.get_root(index as usize)));
    object.map_or(ptr::null_mut(), |object| object.as_ptr().cast())
}

/// Has something done with a heap and a name.
///
/// # Safety
/// `handle` is null or a handle, `name` null or a string.
unsafe fn named<T>(
    handle: *const SpandrelHeap,
    name: *const c_char,
    work: impl FnOnce(&Heap<Media>, &str) -> Result<T, Error>,
) -> Result<T, Error> {
    // SAFETY: promised by the caller.
    let heap = unsafe { handle::heap(handle) }?;
    if name.is_null() {
        return Err(Error::RootName);
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Error::RootName)?;
    work(heap, name)
}

/// The number of the root of that name, which gets one if there is none: 0 to 511, or -1.
///
/// # Safety
/// `handle` is null or a handle, `name` null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_named_root(
    handle: *mut SpandrelHeap,
    name: *const c_char,
) -> c_int {
    // SAFETY: passed on from the caller.
    let index = unsafe { named(handle, name, |heap, name| heap.named_root::<Untyped>(name)) };
    failure::count(index.map(|index| index as c_int))
}

/// Takes the root of a name away, and the name: 0, or -1.
///
/// # Safety
/// As for [`spandrel_heap_named_root`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_remove_root(
    handle: *mut SpandrelHeap,
    name: *const c_char,
) -> c_int {
    // SAFETY: passed on from the caller.
    failure::number(unsafe { named(handle, name, |heap, name| heap.remove_root(name)) })
}

/// The length of a root's name, of which as much as there is room for is written, with a zero behind it; 0: it has none; -1.
///
/// # Safety
/// `handle` is null or a handle, `out` valid for writing so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_root_name(
    handle: *const SpandrelHeap,
    index: c_uint,
    out: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    let name = heap.and_then(|heap| {
        heap.root_word(index as usize)?;
        let name = heap.root_name(index as usize);
        let text = name.as_ref().map_or("", |name| name.text());
        if size > 0 && !out.is_null() {
            let len = text.len().min(size - 1);
            // SAFETY: promised by the caller.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), len);
                out.add(len).write(0);
            }
        }
        Ok(text.len() as c_int)
    });
    failure::count(name)
}
