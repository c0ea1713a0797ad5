//! Requests to one allocator by name, whatever the mode: for data structures
//! that know best. Such objects may be freed and reallocated by any function
//! of this room.

use core::ptr;

use spandrel_backends::{Backend, remap};
use spandrel_os::slices;
use spandrel_pages::{AllocatorId, MIN_ALIGN};

use crate::backend::with_backend;
use crate::observed;
use crate::realloc::migrate;
use crate::request;
use crate::start::start_from_environment;
use crate::stats::{self, Event, Path};

/// `size` bytes aligned to `align`, a power of two, from allocator `id`, zeroed
/// if asked for; null if it has none.
pub fn alloc_in(id: AllocatorId, align: usize, size: usize, zeroed: bool) -> *mut u8 {
    // The environment may set limits, or want it recorded.
    start_from_environment();
    let object = request::alloc_in(id, align, size, zeroed);
    if observed::is_on() {
        observed::allocated(object, size, align, zeroed);
    }
    object
}

/// Counts a reallocation that succeeded.
fn resized(object: *mut u8, path: Path, old_size: usize, size: usize) -> *mut u8 {
    if !object.is_null() {
        stats::record(slices::owner(object as usize), Event::Reallocation, size);
        stats::record_path(path, old_size.min(size), size);
    }
    object
}

/// Whether the object is `id`'s already, and `id` keeps its alignment when it resizes it.
fn stays_in(id: AllocatorId, object: *mut u8, align: usize) -> bool {
    let kept = if id == AllocatorId::Mmap { remap::ALIGN_KEPT_BYTES } else { MIN_ALIGN };
    slices::owner(object as usize) == id && align <= kept
}

/// The object, owned by any allocator, with a new size in allocator `id`.
///
/// # Safety
/// As for [`realloc_aligned`].
pub unsafe fn realloc_in(
    id: AllocatorId,
    object: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    // SAFETY: passed on from the caller.
    observed::resizing(object, size, || unsafe { resize_in(id, object, old_size, align, size) })
}

unsafe fn resize_in(
    id: AllocatorId,
    object: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    if stays_in(id, object, align) {
        // SAFETY: passed on from the caller.
        let moved = with_backend!(id, B => unsafe { B::realloc(object, size) });
        if !moved.is_null() {
            let path = if moved == object { Path::InPlace } else { Path::ByOwner(id) };
            return resized(moved, path, old_size, size);
        }
    }
    // SAFETY: passed on from the caller.
    resized(unsafe { migrate(object, id, align, old_size, size) }, Path::Migrated, old_size, size)
}

/// As [`realloc_in`]; bytes beyond `old_size` are zero.
///
/// # Safety
/// As for [`realloc_in`].
pub unsafe fn realloc_zeroed_in(
    id: AllocatorId,
    object: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    let grows = size > old_size;
    if grows && id == AllocatorId::Mmap && stays_in(id, object, align) {
        // SAFETY: passed on from the caller.
        let grow = || unsafe { remap::realloc_zeroed(object, old_size, size) };
        let moved = observed::resizing(object, size, grow);
        return resized(moved, Path::ByOwner(id), old_size, size);
    }
    // SAFETY: passed on from the caller.
    let moved = unsafe { realloc_in(id, object, old_size, align, size) };
    if grows && !moved.is_null() {
        // SAFETY: the object has `size` bytes now.
        unsafe { ptr::write_bytes(moved.add(old_size), 0, size - old_size) };
    }
    moved
}
