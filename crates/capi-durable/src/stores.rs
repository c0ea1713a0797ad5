//! Stores that a command names itself.

use std::ffi::{c_int, c_void};

use spandrel_pmem::{Medium as _, Notes as _};

use crate::current::{self, Kind};
use crate::failure::{self, Failure};
use crate::handle::SpandrelDurable;

/// Notes that a range changes, which lies in the state that the thread's command may change.
fn note(handle: *mut SpandrelDurable, at: *const c_void, bytes: usize) -> Result<(), Failure> {
    let memory = current::arena(handle, Kind::Write)?.medium();
    let from = (at as usize).wrapping_sub(memory.base().as_ptr() as usize);
    let is_inside = from.checked_add(bytes).is_some_and(|end| end <= memory.bytes());
    if !is_inside {
        return Err(Failure::Elsewhere);
    }
    memory.notes().note(at.cast(), bytes);
    Ok(())
}

/// Notes a range that the command has stored to, or is about to: 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_wrote(
    handle: *mut SpandrelDurable,
    at: *const c_void,
    bytes: usize,
) -> c_int {
    failure::number(note(handle, at, bytes))
}

/// Notes a range, and copies `bytes` bytes there, which may overlap: 0, or -1.
///
/// # Safety
/// `from` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_store(
    handle: *mut SpandrelDurable,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    let store = || {
        if from.is_null() && bytes > 0 {
            return Err(Failure::Null);
        }
        note(handle, to, bytes)?;
        // SAFETY: the range lies in the state, which the thread's command has to itself; the other one is the caller's.
        unsafe { core::ptr::copy(from.cast::<u8>(), to.cast(), bytes) };
        Ok(())
    };
    failure::number(store())
}

/// Notes a range, and fills it: 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_memset(
    handle: *mut SpandrelDurable,
    to: *mut c_void,
    value: c_int,
    bytes: usize,
) -> c_int {
    let fill = || {
        note(handle, to, bytes)?;
        // SAFETY: the range lies in the state, which the thread's command has to itself. The value is a byte, as for `memset`.
        unsafe { core::ptr::write_bytes(to.cast::<u8>(), value as u8, bytes) };
        Ok(())
    };
    failure::number(fill())
}
