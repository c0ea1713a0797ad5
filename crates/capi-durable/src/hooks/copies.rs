//! `memcpy` and its like, which a program calls for copies of structures too.
//!
//! They stand in front of the C library's, whose functions do the work. A program that was compiled with fortified functions
//! (`_FORTIFY_SOURCE`) calls those with a length of the destination.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::filled;

type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
type Set = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;

/// A function of the C library, which is looked for when it is first called.
pub struct Behind {
    at: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Behind {
    pub const fn new(name: &'static CStr) -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()), name }
    }

    /// Its address.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        let at = self.at.load(Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a string.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if at.is_null() {
            crate::failure::end("the C library has no memcpy, memmove, memset or strlen");
        }
        self.at.store(at, Relaxed);
        at
    }
}

static MEMCPY: Behind = Behind::new(c"memcpy");
static MEMMOVE: Behind = Behind::new(c"memmove");
static MEMSET: Behind = Behind::new(c"memset");

/// Copies, after the note.
///
/// # Safety
/// As for `memcpy`.
#[inline(always)]
unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    filled(to as usize, bytes);
    // SAFETY: the C library's own function, with the caller's promise.
    unsafe { core::mem::transmute::<*mut c_void, Copy>(MEMCPY.get())(to, from, bytes) }
}

/// Copies between ranges that may overlap, after the note.
///
/// # Safety
/// As for `memmove`.
#[inline(always)]
unsafe fn shift(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    filled(to as usize, bytes);
    // SAFETY: the C library's own function, with the caller's promise.
    unsafe { core::mem::transmute::<*mut c_void, Copy>(MEMMOVE.get())(to, from, bytes) }
}

/// Fills, after the note.
///
/// # Safety
/// As for `memset`.
#[inline(always)]
pub unsafe fn fill(to: *mut c_void, value: c_int, bytes: usize) -> *mut c_void {
    filled(to as usize, bytes);
    // SAFETY: the C library's own function, with the caller's promise.
    unsafe { core::mem::transmute::<*mut c_void, Set>(MEMSET.get())(to, value, bytes) }
}

/// Ends a process that fills more than there is, as the C library does.
#[inline(always)]
pub fn check(bytes: usize, room: usize) {
    if bytes > room {
        crate::failure::end("buffer overflow detected");
    }
}

macro_rules! copies {
    ($($name:ident $by:ident)*) => {$(
        /// See the C library.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            to: *mut c_void,
            from: *const c_void,
            bytes: usize,
        ) -> *mut c_void {
            // SAFETY: passed on from the caller.
            unsafe { $by(to, from, bytes) }
        }
    )*};
}

macro_rules! checked_copies {
    ($($name:ident $by:ident)*) => {$(
        /// See the C library.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            to: *mut c_void,
            from: *const c_void,
            bytes: usize,
            room: usize,
        ) -> *mut c_void {
            check(bytes, room);
            // SAFETY: passed on from the caller.
            unsafe { $by(to, from, bytes) }
        }
    )*};
}

copies! { memcpy copy memmove shift __tsan_memcpy copy __tsan_memmove shift mempcpy copy_on }
checked_copies! { __memcpy_chk copy __memmove_chk shift __mempcpy_chk copy_on }

/// Copies, and returns the end.
///
/// # Safety
/// As for `mempcpy`.
#[inline(always)]
unsafe fn copy_on(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { copy(to, from, bytes).byte_add(bytes) }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut c_void, value: c_int, bytes: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { fill(to, value, bytes) }
}

/// As `memset`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tsan_memset(to: *mut c_void, value: c_int, bytes: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { fill(to, value, bytes) }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __memset_chk(
    to: *mut c_void,
    value: c_int,
    bytes: usize,
    room: usize,
) -> *mut c_void {
    check(bytes, room);
    // SAFETY: passed on from the caller.
    unsafe { fill(to, value, bytes) }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bzero(to: *mut c_void, bytes: usize) {
    // SAFETY: passed on from the caller.
    unsafe { fill(to, 0, bytes) };
}
