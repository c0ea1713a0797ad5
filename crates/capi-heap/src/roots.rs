//! Roots, by number and by name.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{self, NonNull};

use spandrel_pheap::{Error, PPtr};

use crate::failure;
use crate::handle::{self, SpandrelHeap};
use crate::places::offset;
use crate::trace::root_name;

/// Roots that are set at once.
const MOST: usize = 63;

/// `struct spandrel_heap_root`.
#[repr(C)]
pub struct SpandrelHeapRoot {
    name: *const c_char,
    index: c_uint,
    object: *mut c_void,
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

/// `MAK_get_root`: null, if the root is not set.
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

/// Sets several roots, all or none of which are durable: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle; `roots` is null or `count` roots, whose names are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_roots(
    handle: *mut SpandrelHeap,
    roots: *const SpandrelHeapRoot,
    count: usize,
) -> c_int {
    let set = || {
        // SAFETY: passed on from the caller.
        let handle = unsafe { handle::known(handle)? };
        if roots.is_null() || count == 0 {
            return Ok(());
        }
        let mut all = [(0, PPtr::NULL); MOST];
        let places = all.get_mut(..count).ok_or(Error::RootIndex(count))?;
        // SAFETY: passed on from the caller.
        let roots = unsafe { core::slice::from_raw_parts(roots, count) };
        let heap = &handle.heap;
        for (place, root) in places.iter_mut().zip(roots) {
            if !root.object.is_null() {
                place.1 = PPtr::to(offset(heap, root.object, 0)?);
            }
        }
        for (place, root) in places.iter_mut().zip(roots) {
            place.0 = root.index as usize;
            heap.root_word(if root.name.is_null() { place.0 } else { 0 })?;
        }
        // Names last: they stay also if another root cannot be set.
        for (place, root) in places.iter_mut().zip(roots) {
            if !root.name.is_null() {
                // SAFETY: passed on from the caller.
                let name = unsafe { root_name(root.name)? };
                place.0 = heap.named_root_of(name, handle.types.layout(name))?;
            }
        }
        heap.set_roots(places)
    };
    failure::number(set())
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
    let index = unsafe { handle::known(handle) }.and_then(|handle| {
        // SAFETY: passed on from the caller.
        let name = unsafe { root_name(name)? };
        handle.heap.named_root_of(name, handle.types.layout(name))
    });
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
    failure::number(unsafe {
        handle::heap(handle).and_then(|heap| heap.remove_root(root_name(name)?))
    })
}

/// The length of a root's name, of which as much as there is room for is written, with a zero behind it; 0: it has none; -1.
///
/// # Safety
/// `handle` is null or a handle, `out` valid for writing as many bytes as there is room for.
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
