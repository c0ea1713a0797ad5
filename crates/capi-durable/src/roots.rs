//! Roots: names under which the next process finds objects.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use spandrel::durable::Arena;

use crate::cancellation;
use crate::current::{self, Kind};
use crate::failure::{self, Failure};
use crate::handle::{SpandrelDurable, known};

/// The name of a root.
///
/// # Safety
/// Null, or a string.
unsafe fn name<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    if name.is_null() {
        return Err(Failure::Null);
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str();
    name.map_err(|_| spandrel_pheap::Error::RootName.into())
}

/// What a root leads to; null: there is no such root, or it leads to nothing.
fn find(arena: &Arena, name: &str) -> Result<*mut c_void, Failure> {
    if name.is_empty() {
        return Err(spandrel_pheap::Error::RootName.into());
    }
    let Some(index) = arena.find_root(name)? else { return Ok(ptr::null_mut()) };
    let object = arena.get_root(index)?;
    Ok(object.map_or(ptr::null_mut(), |object| object.as_ptr().cast()))
}

/// What a root leads to, or null. Outside of a command the function is a command of its own, which reads.
///
/// # Safety
/// `handle` is null or a handle, `of` null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_root(
    handle: *mut SpandrelDurable,
    of: *const c_char,
) -> *mut c_void {
    let root = || {
        // SAFETY: promised by the caller.
        let name = unsafe { name(of)? };
        if current::is_of(handle) {
            return find(current::arena(handle, Kind::Read)?, name);
        }
        current::check_outside()?;
        // SAFETY: promised by the caller.
        let known = unsafe { known(handle)? };
        known.check_process()?;
        // SAFETY: the state owns the arena.
        known.open()?.db.read(|_| find(unsafe { &*known.arena() }, name))
    };
    cancellation::held(|| failure::address(root()))
}

/// Has a root lead to an object, or to nothing: 0, or -1.
///
/// # Safety
/// As for [`spandrel_durable_root`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_set_root(
    handle: *mut SpandrelDurable,
    of: *const c_char,
    object: *mut c_void,
) -> c_int {
    let set = || {
        // SAFETY: promised by the caller.
        let name = unsafe { name(of)? };
        let arena = current::arena(handle, Kind::Write)?;
        let index = arena.named_root_of(name, 0)?;
        Ok(arena.set_root(index, NonNull::new(object.cast()))?)
    };
    failure::number(set())
}

/// Takes a root away, and its name: 0, or -1.
///
/// # Safety
/// As for [`spandrel_durable_root`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_remove_root(
    handle: *mut SpandrelDurable,
    of: *const c_char,
) -> c_int {
    let remove = || {
        // SAFETY: promised by the caller.
        let name = unsafe { name(of)? };
        Ok(current::arena(handle, Kind::Write)?.remove_root(name)?)
    };
    failure::number(remove())
}
