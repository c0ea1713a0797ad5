//! Copies of heaps as files.

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::time::Duration;

use spandrel_pheap::{Error, Options};

use crate::failure;

/// Writes a copy of a heap to a new file: 0, or -1. See the header.
///
/// # Safety
/// Each path is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_copy(
    path: *const c_char,
    to: *const c_char,
    wait_ms: c_uint,
) -> c_int {
    let copy = || {
        if path.is_null() || to.is_null() {
            return Err(Error::System(libc::EINVAL).into());
        }
        // SAFETY: promised by the caller.
        let (path, to) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(to)) };
        let mut options = Options::new();
        if wait_ms != 0 {
            options = options.wait(Duration::from_millis(wait_ms.into()));
        }
        options.copy_to(path.to_bytes(), to.to_bytes()).map(drop)
    };
    failure::done(copy())
}
