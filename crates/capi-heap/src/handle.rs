//! `spandrel_heap`: an open heap, as C knows it.

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering::*};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_pheap::{Error, Heap, Media, Opened};

use crate::failure;
use crate::types::Types;

/// An open heap, what was found when it was opened, and the types of its roots. It lies on pages of its own, as this library has no
/// allocator; pages of the type table without a type are never touched.
pub struct SpandrelHeap {
    pub heap: Heap<Media>,
    pub opened: Opened,
    pub types: Types,
}

const HANDLE_BYTES: usize = size_of::<SpandrelHeap>().next_multiple_of(PAGE_BYTES);

/// Room for a heap that is about to be made or opened.
pub struct Place(NonNull<SpandrelHeap>);

impl Place {
    pub fn new() -> Result<Self, Error> {
        let at = vm::reserve(HANDLE_BYTES).ok_or(Error::NoMemory)?;
        let place = Self(at.cast());
        // SAFETY: just reserved.
        if unsafe { vm::open(at.as_ptr(), HANDLE_BYTES) } {
            Ok(place)
        } else {
            Err(Error::NoMemory)
        }
    }

    pub fn types(&mut self) -> &mut Types {
        // SAFETY: mapped, and zeroes are no types.
        unsafe { &mut (*self.0.as_ptr()).types }
    }

    /// Puts the heap there.
    pub fn fill(self, heap: Heap<Media>, opened: Opened) -> *mut SpandrelHeap {
        let at = self.0.as_ptr();
        core::mem::forget(self);
        // SAFETY: mapped for it.
        unsafe {
            (&raw mut (*at).heap).write(heap);
            (&raw mut (*at).opened).write(opened);
        }
        at
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: reserved for it, and there is no heap in it.
        unsafe { vm::release(self.0.as_ptr().cast(), HANDLE_BYTES) };
    }
}

/// The heap of programs with one heap only; see `makalu.h`.
static DEFAULT: AtomicPtr<SpandrelHeap> = AtomicPtr::new(ptr::null_mut());

/// Takes the heap out of its handle, and frees the handle.
///
/// # Safety
/// Null, or a handle that no thread uses any more.
pub unsafe fn take(handle: *mut SpandrelHeap) -> Result<Heap<Media>, Error> {
    let place = Place(NonNull::new(handle).ok_or(Error::System(libc::EINVAL))?);
    // A handle that is taken is no longer the default heap.
    let _ = DEFAULT.compare_exchange(handle, ptr::null_mut(), AcqRel, Relaxed);
    // SAFETY: put there, and read once.
    let heap = unsafe { (&raw const (*handle).heap).read() };
    drop(place);
    Ok(heap)
}

/// The heap of a handle.
///
/// # Safety
/// Null, or a handle.
#[inline]
pub unsafe fn heap<'a>(handle: *const SpandrelHeap) -> Result<&'a Heap<Media>, Error> {
    // SAFETY: promised by the caller.
    unsafe { Ok(&known(handle)?.heap) }
}

/// A handle.
///
/// # Safety
/// Null, or a handle.
#[inline]
pub unsafe fn known<'a>(handle: *const SpandrelHeap) -> Result<&'a SpandrelHeap, Error> {
    // SAFETY: promised by the caller.
    unsafe { handle.as_ref() }.ok_or(Error::System(libc::EINVAL))
}

/// All of a handle, mutable.
///
/// # Safety
/// Null, or a handle that no other thread uses meanwhile.
pub unsafe fn alone<'a>(
    handle: *mut SpandrelHeap,
) -> Result<(&'a mut Heap<Media>, &'a mut Opened, &'a mut Types), Error> {
    // SAFETY: promised by the caller.
    let SpandrelHeap { heap, opened, types } =
        unsafe { handle.as_mut() }.ok_or(Error::System(libc::EINVAL))?;
    Ok((heap, opened, types))
}

/// The default heap, or null.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_heap_default() -> *mut SpandrelHeap {
    DEFAULT.load(Acquire)
}

/// Makes a heap the default one; null: no heap is. 0, or -1 with EBUSY: there is one already.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_set_default(handle: *mut SpandrelHeap) -> c_int {
    if handle.is_null() {
        DEFAULT.store(handle, Release);
        return 0;
    }
    let made = DEFAULT.compare_exchange(ptr::null_mut(), handle, AcqRel, Relaxed);
    failure::number(made.map(drop).map_err(|_| Error::System(libc::EBUSY)))
}
