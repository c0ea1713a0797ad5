//! `setrlimit` and `prlimit`: a limit of the address space counts what is reserved, and one of the data segment what is open. When one comes, reservations are
//! released, or what is not used is closed. `mlockall`: what is open would be resident.
//!
//! What another process sets is found out later, by a look now and then.

use core::ffi::c_int;

use spandrel_adaptive as adaptive;
use spandrel_os::env;

type Resource = libc::__rlimit_resource_t;

/// POSIX `setrlimit`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: Resource, limit: *const libc::rlimit) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { prlimit(0, resource, limit, core::ptr::null_mut()) }
}

/// The same with 64-bit numbers, which all are here.
///
/// # Safety
/// As for [`setrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: Resource, limit: *const libc::rlimit) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { prlimit(0, resource, limit, core::ptr::null_mut()) }
}

/// Linux's `prlimit`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: libc::pid_t,
    resource: Resource,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: passed on from the caller; where it may not be read or written the call says so.
    let failed = unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) } != 0;
    if failed {
        return -1;
    }
    if matches!(resource, libc::RLIMIT_AS | libc::RLIMIT_DATA)
        && !new.is_null()
        && (process == 0 || process == env::pid())
    {
        adaptive::heed_limit();
    }
    0
}

/// The same with 64-bit numbers, which all are here.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    process: libc::pid_t,
    resource: Resource,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { prlimit(process, resource, new, old) }
}

/// POSIX `mlockall`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    before_locking(flags);
    // SAFETY: passed on from the caller.
    (unsafe { libc::syscall(libc::SYS_mlockall, flags) }) as c_int
}

/// What is to be done before all memory is locked.
pub fn before_locking(flags: c_int) {
    if flags & libc::MCL_CURRENT != 0 && flags & libc::MCL_ONFAULT == 0 {
        adaptive::open_sparingly();
    }
}
