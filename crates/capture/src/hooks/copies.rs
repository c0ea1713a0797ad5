//! What stands in front of the C library's functions that fill memory.
//!
//! The caller has the address of the function behind each. Rust's own copies would call the symbol that the interposer may have replaced.

use core::ffi::{c_int, c_void};

use super::wrote;

/// `memcpy` or `memmove`.
pub type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
/// `memset`.
pub type Set = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;

/// Notes the write of a copy, and copies.
///
/// # Safety
/// As for `memcpy`, which `real` is.
#[inline]
pub unsafe fn memcpy(
    real: Copy,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> *mut c_void {
    wrote(to as usize, bytes);
    // SAFETY: passed on from the caller.
    unsafe { real(to, from, bytes) }
}

/// Notes the write of a copy between ranges that may overlap, and copies.
///
/// # Safety
/// As for `memmove`, which `real` is.
#[inline]
pub unsafe fn memmove(
    real: Copy,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> *mut c_void {
    wrote(to as usize, bytes);
    // SAFETY: passed on from the caller.
    unsafe { real(to, from, bytes) }
}

/// Notes a fill, and fills.
///
/// # Safety
/// As for `memset`, which `real` is.
#[inline]
pub unsafe fn memset(real: Set, to: *mut c_void, value: c_int, bytes: usize) -> *mut c_void {
    wrote(to as usize, bytes);
    // SAFETY: passed on from the caller.
    unsafe { real(to, value, bytes) }
}
