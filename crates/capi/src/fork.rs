//! `__register_atfork`: what `pthread_atfork` calls in every module.
//!
//! Libraries that are initialised before this one may register prepare handlers
//! that allocate. Handlers run in reverse order of registration; so, whichever
//! library registers first, ours are put before its own. Not where the program has an allocator of its
//! own: that may be what registers handlers, in the middle of its start.

use core::ffi::{c_int, c_void};

use spandrel_adaptive as adaptive;
use spandrel_backends::{Sys, register_atfork};

use crate::elsewhere::is_elsewhere;

type Handler = Option<unsafe extern "C" fn()>;

/// Registers fork handlers with libc, after our own.
///
/// # Safety
/// As for `pthread_atfork`; `module` is the caller's `__dso_handle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    module: *mut c_void,
) -> c_int {
    if !is_elsewhere() {
        adaptive::register_fork_order();
    }
    if !Sys::is_there() {
        // libc is linked into the program, without `fork`: else its own function would be here.
        return 0;
    }
    match register_atfork() {
        // SAFETY: passed on from the caller.
        Some(register) => unsafe { register(prepare, parent, child, module) },
        None => libc::ENOMEM,
    }
}
