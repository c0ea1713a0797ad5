//! `struct spandrel_durable_options`.

use std::ffi::c_int;

use spandrel::durable::Options;
use spandrel_durable::notes::How;

use crate::failure::Failure;

/// As in the header. 0 selects the default.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SpandrelDurableOptions {
    struct_size: usize,
    limit: usize,
    log_size: u64,
    layout: u64,
    block_size: usize,
    clients: usize,
    stores: c_int,
}

const TOO_SHORT: Failure =
    Failure::Wrong("struct_size of a structure is not set; set it to sizeof the structure");
const TOO_LONG: Failure = Failure::Wrong(
    "struct_size of a structure is larger than any structure; set it to sizeof the structure",
);
/// Each structure has its length.
const LEAST_BYTES: usize = size_of::<usize>();
/// No structure of any version is longer.
const MOST_BYTES: usize = 4096;
const UNKNOWN: Failure = Failure::Wrong(
    "a field of a structure is set that this version of the library does not have; use the library of the header",
);

const NO_WAY: Failure = Failure::Wrong(
    "stores is none of SPANDREL_DURABLE_STORES_NAMED, _TRANSLATED, _VERIFIED and _PAGES; set it to one of them",
);

const NO_BLOCK: Failure = Failure::Wrong(
    "block_size is none of 16, 32, 64 and 128; set it to one of them, or to 0 for the default",
);
const MOST_CLIENTS: usize = 1024;
const MANY_CLIENTS: Failure =
    Failure::Wrong("clients is more than 1024; set it to as many or fewer: other threads wait");

/// The length that a structure says it has.
///
/// # Errors
/// [`Failure::Wrong`].
///
/// # Safety
/// A structure whose first word is its length. It need not be aligned.
pub unsafe fn length_of<T>(structure: *const T) -> Result<usize, Failure> {
    // SAFETY: promised by the caller.
    match unsafe { structure.cast::<usize>().read_unaligned() } {
        ..LEAST_BYTES => Err(TOO_SHORT),
        bytes if bytes > MOST_BYTES => Err(TOO_LONG),
        bytes => Ok(bytes),
    }
}

/// What this library knows of a structure of a caller, which may have been compiled with an older header or a newer one: missing fields are zero, and fields that this
/// library does not know must be.
///
/// # Errors
/// [`Failure::Wrong`].
///
/// # Safety
/// A structure of as many bytes as its first word says. All zeroes, and what a caller may put into it, are values of the type.
pub unsafe fn known_of<T: Copy>(given: *const T) -> Result<T, Failure> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { length_of(given)? };
    // SAFETY: promised by the caller.
    let given = unsafe { core::slice::from_raw_parts(given.cast::<u8>(), bytes) };
    let both = bytes.min(size_of::<T>());
    if given.iter().skip(both).any(|byte| *byte != 0) {
        return Err(UNKNOWN);
    }
    let mut known = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `both` bytes of each; the value is one of the type, as the caller promises.
    unsafe {
        core::ptr::copy_nonoverlapping(given.as_ptr(), known.as_mut_ptr().cast::<u8>(), both);
        Ok(known.assume_init())
    }
}

/// The options of a caller, which may have been compiled with an older header or a newer one: fields that this library does not know must
/// be zero.
///
/// # Safety
/// Null, or a structure of as many bytes as its first word says.
pub unsafe fn read(given: *const SpandrelDurableOptions) -> Result<Options, Failure> {
    let known = match given.is_null() {
        true => SpandrelDurableOptions::default(),
        // SAFETY: promised by the caller.
        false => unsafe { known_of(given)? },
    };
    let mut options = Options::new().layout(known.layout);
    if known.limit != 0 {
        options = options.limit(known.limit);
    }
    if known.log_size != 0 {
        options = options.log_size(known.log_size);
    }
    if ![0, 16, 32, 64, 128].contains(&known.block_size) {
        return Err(NO_BLOCK);
    }
    if known.clients > MOST_CLIENTS {
        return Err(MANY_CLIENTS);
    }
    if known.block_size != 0 {
        options = options.block_size(known.block_size);
    }
    if known.clients != 0 {
        options = options.clients(known.clients);
    }
    match known.stores {
        0 => Ok(options),
        1 => Ok(options.commands(How::Translated)),
        2 => Ok(options.commands(How::Verified)),
        3 => Ok(options.commands(How::DirtyPages)),
        _ => Err(NO_WAY),
    }
}

/// Writes what is known to a structure of the caller, as far as it has room; fields that this library does not know become zero.
///
/// # Errors
/// [`Failure::Null`], [`Failure::Wrong`].
///
/// # Safety
/// `out` is null or a structure whose first word is its length in bytes, as is `T`'s.
pub unsafe fn answer<T>(out: *mut T, known: &mut T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::Null);
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { length_of(out)? };
    let both = bytes.min(size_of::<T>());
    // The structure may be in the state, and the function that answers is not translated.
    crate::current::note_native(out as usize, bytes);
    // SAFETY: promised by the caller; `known` has `both` bytes.
    unsafe {
        let from = (&raw mut *known).cast::<u8>();
        from.cast::<usize>().write(bytes);
        core::ptr::copy_nonoverlapping(from, out.cast::<u8>(), both);
        core::ptr::write_bytes(out.cast::<u8>().add(both), 0, bytes - both);
    }
    Ok(())
}
