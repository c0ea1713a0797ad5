//! A copy of a state that is open.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cancellation;
use crate::current;
use crate::failure::{self, Failure};
use crate::handle::{SpandrelDurable, known};

/// Copies a state to a directory: 0, or -1. See the header.
///
/// # Safety
/// `handle` is null or a handle, `directory` null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_copy(
    handle: *mut SpandrelDurable,
    directory: *const c_char,
) -> c_int {
    let given = (!directory.is_null()).then_some(directory);
    // SAFETY: promised by the caller.
    let bytes = given.map_or(&b""[..], |path| unsafe { CStr::from_ptr(path) }.to_bytes());
    let path = Path::new(OsStr::from_bytes(bytes));
    let copy = || {
        current::check_outside()?;
        if directory.is_null() {
            return Err(Failure::Null);
        }
        // SAFETY: promised by the caller.
        let known = unsafe { known(handle)? };
        known.check_process()?;
        known.open()?.db.copy(path).map_err(Failure::from)
    };
    cancellation::held(|| failure::number_in(copy(), path))
}
