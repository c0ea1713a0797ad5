//! What is known of an open state.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use spandrel_pmem::Medium as _;

use crate::failure;
use crate::handle::{SpandrelDurable, known};
use crate::options::answer;
use crate::{cancellation, current};

/// `struct spandrel_durable_report`.
#[repr(C)]
pub struct SpandrelDurableReport {
    struct_size: usize,
    created: c_int,
    was_closed: c_int,
    replayed: u64,
}

/// `struct spandrel_durable_figures`.
#[repr(C)]
pub struct SpandrelDurableFigures {
    struct_size: usize,
    batches: u64,
    runs: u64,
    bytes: u64,
    changed: u64,
    missed: u64,
}

/// What opening has found: 0, or -1.
///
/// # Safety
/// `handle` is null or a handle, `out` null or as its first word says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_get_report(
    handle: *const SpandrelDurable,
    out: *mut SpandrelDurableReport,
) -> c_int {
    let report = || {
        // SAFETY: promised by the caller.
        let found = unsafe { known(handle)? }.open()?.db.report();
        let mut report = SpandrelDurableReport {
            struct_size: 0,
            created: found.created.into(),
            was_closed: found.was_closed.into(),
            replayed: found.replayed,
        };
        // SAFETY: promised by the caller.
        unsafe { answer(out, &mut report) }
    };
    failure::number(report())
}

/// What was made durable since the state was opened: 0, or -1.
///
/// # Safety
/// As for [`spandrel_durable_get_report`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_get_figures(
    handle: *const SpandrelDurable,
    out: *mut SpandrelDurableFigures,
) -> c_int {
    let figures = || {
        current::check_outside()?;
        // SAFETY: promised by the caller.
        let known = unsafe { known(handle)? };
        known.check_process()?;
        let db = &known.open()?.db;
        let (done, verdict) = (db.figures(), db.verdict().unwrap_or_default());
        let mut figures = SpandrelDurableFigures {
            struct_size: 0,
            batches: done.batches,
            runs: done.runs,
            bytes: done.bytes,
            changed: verdict.changed,
            missed: verdict.missed,
        };
        // SAFETY: promised by the caller.
        unsafe { answer(out, &mut figures) }
    };
    cancellation::held(|| failure::number(figures()))
}

/// How a batch becomes durable, in words; null, with `errno`.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_medium(handle: *const SpandrelDurable) -> *const c_char {
    // SAFETY: promised by the caller.
    let medium = unsafe { known(handle) }.and_then(SpandrelDurable::open);
    failure::address(medium.map(|open| open.medium.as_ptr().cast_mut().cast())).cast_const().cast()
}

/// Where the state lies: in every process at this address.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_base(handle: *const SpandrelDurable) -> *mut c_void {
    // SAFETY: promised by the caller; the state owns the arena.
    let base = unsafe { known(handle).map(|known| (*known.arena()).base()) };
    base.map_or_else(
        |why| {
            failure::number(Err(why));
            ptr::null_mut()
        },
        |base| base.as_ptr().cast(),
    )
}

/// Bytes that the state has: those behind [`spandrel_durable_base`] that can be used. 0, with `errno`.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_bytes(handle: *const SpandrelDurable) -> usize {
    // SAFETY: promised by the caller; the state owns the arena.
    let bytes = unsafe { known(handle).map(|known| (*known.arena()).medium().bytes()) };
    failure::word(bytes)
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
