//! Heaps made, opened, closed.

use core::ffi::{CStr, c_char, c_int};

use spandrel_pheap::{Error, Heap, Media, OpenError, Opened, Options};

use crate::failure;
use crate::handle::{self, Place, SpandrelHeap};
use crate::options::{self, SpandrelHeapOptions};
use crate::trace;

/// Makes or opens a heap by `open`, and returns its handle.
///
/// # Safety
/// `path` is null or a string, `given` null or the options.
unsafe fn with(
    path: *const c_char,
    given: *const SpandrelHeapOptions,
    open: impl FnOnce(&[u8], Options<'_>) -> Result<(Heap<Media>, Opened), Error>,
) -> *mut SpandrelHeap {
    if path.is_null() {
        return failure::opened(Err(Error::System(libc::EINVAL).into()));
    }
    // SAFETY: promised by the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let made = || {
        // SAFETY: promised by the caller.
        let given = unsafe { options::read(given)? };
        let options = given.options()?;
        let mut place = Place::new()?;
        // SAFETY: promised by the caller.
        unsafe { trace::set_all(place.types(), None, given.types, given.type_count)? };
        let (heap, opened) = open(path, options.roots(place.types().all()))?;
        Ok(place.fill(heap, opened))
    };
    failure::opened(made().map_err(|why| OpenError::new(path, why)))
}

/// `MAK_start`: a heap in a new file.
///
/// # Safety
/// `path` is null or a string, `given` null or the options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_start(
    path: *const c_char,
    given: *const SpandrelHeapOptions,
) -> *mut SpandrelHeap {
    let new = Opened { created: true, was_clean: true, ..Opened::default() };
    // SAFETY: passed on from the caller.
    unsafe { with(path, given, |path, options| Ok((options.create(path)?, new))) }
}

/// `MAK_restart`: a heap that was closed.
///
/// # Safety
/// As for [`spandrel_heap_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_restart(
    path: *const c_char,
    given: *const SpandrelHeapOptions,
) -> *mut SpandrelHeap {
    let open = |path: &[u8], options: Options<'_>| {
        let (heap, opened) = options.offline().open(path)?;
        // A heap that was not closed stays so when it is dropped here.
        if opened.was_clean { Ok((heap, opened)) } else { Err(Error::NeedsRecovery) }
    };
    // SAFETY: passed on from the caller.
    unsafe { with(path, given, open) }
}

/// `MAK_start_off`: a heap, closed or not, which is not recovered yet.
///
/// # Safety
/// As for [`spandrel_heap_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_start_off(
    path: *const c_char,
    given: *const SpandrelHeapOptions,
) -> *mut SpandrelHeap {
    let open = |path: &[u8], options: Options<'_>| options.offline().open(path);
    // SAFETY: passed on from the caller.
    unsafe { with(path, given, open) }
}

/// A heap, which is recovered if it was not closed.
///
/// # Safety
/// As for [`spandrel_heap_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_open(
    path: *const c_char,
    given: *const SpandrelHeapOptions,
) -> *mut SpandrelHeap {
    let open = |path: &[u8], options: Options<'_>| options.open(path);
    // SAFETY: passed on from the caller.
    unsafe { with(path, given, open) }
}

/// A heap, which is made if there is none, and recovered if it was not closed.
///
/// # Safety
/// As for [`spandrel_heap_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_open_or_create(
    path: *const c_char,
    given: *const SpandrelHeapOptions,
) -> *mut SpandrelHeap {
    let open = |path: &[u8], options: Options<'_>| options.open_or_create(path);
    // SAFETY: passed on from the caller.
    unsafe { with(path, given, open) }
}

/// Whether the call that returned the heap has made it: 1, or 0; -1: the handle is null.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_is_new(heap: *const SpandrelHeap) -> c_int {
    // SAFETY: passed on from the caller.
    failure::count(unsafe { handle::known(heap) }.map(|known| known.opened.created.into()))
}

/// `MAK_close`: 0, or -1: the next opening recovers the heap. The handle is freed in either case.
///
/// # Safety
/// Null, or a handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_close(heap: *mut SpandrelHeap) -> c_int {
    // SAFETY: passed on from the caller.
    failure::number(unsafe { handle::take(heap) }.and_then(|heap| heap.close()))
}
