//! The object monitor of `spandrel.h`.

use core::ffi::{c_int, c_void};

use spandrel_adaptive::{self as adaptive, ObjectRecord};

/// `struct spandrel_object`.
#[repr(C)]
pub struct SpandrelObject {
    address: *const c_void,
    size: u64,
    reallocations: u64,
    moves: u64,
    migrations: u64,
    requested_bytes: u64,
    nanoseconds: u64,
    allocator: i32,
    live: i32,
}

impl From<&ObjectRecord> for SpandrelObject {
    fn from(record: &ObjectRecord) -> Self {
        Self {
            address: record.address as *const c_void,
            size: record.size as u64,
            reallocations: record.reallocations,
            moves: record.moves,
            migrations: record.migrations,
            requested_bytes: record.requested_bytes,
            nanoseconds: record.nanos,
            allocator: record.allocator as i32,
            live: record.live.into(),
        }
    }
}

/// Watches objects that are resized.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_monitor_start() {
    adaptive::monitor_begin();
}

/// Ends one [`spandrel_monitor_start`].
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_monitor_stop() {
    adaptive::monitor_end();
}

/// What is known of a live object: 0, EINVAL for a null place, or ENOENT.
///
/// # Safety
/// `out` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_monitor_object(
    object: *const c_void,
    out: *mut SpandrelObject,
) -> c_int {
    if out.is_null() {
        return libc::EINVAL;
    }
    let Some(record) = adaptive::monitored(object as usize) else { return libc::ENOENT };
    // SAFETY: passed on from the caller.
    unsafe { out.write((&record).into()) };
    0
}

/// Objects that are asked for at a time.
const BATCH: usize = 64;

/// Fills `out` with up to `count` objects (no more than 64), those with most reallocations first; how many
/// there are.
///
/// # Safety
/// `out` is valid for writing `count` objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_monitor_objects(out: *mut SpandrelObject, count: usize) -> usize {
    if out.is_null() {
        return 0;
    }
    let mut records = [ObjectRecord::EMPTY; BATCH];
    let wanted = records.get_mut(..count.min(BATCH)).unwrap_or_default();
    let found = adaptive::most_resized(wanted);
    for (at, record) in wanted.iter().take(found).enumerate() {
        // SAFETY: passed on from the caller; `at` is less than `count`.
        unsafe { out.add(at).write(record.into()) };
    }
    found
}
