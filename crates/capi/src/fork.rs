//! `__register_atfork`: what `pthread_atfork` calls in every module.
//!
//! Libraries that are initialised before this one may register prepare handlers
//! that allocate. Handlers run in reverse order of registration; so, whichever
//! library registers first, ours are put before its own. Not where the program has an allocator of its
//! own: that may be what registers handlers, in the middle of its start.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use spandrel_adaptive as adaptive;
use spandrel_backends::libc_function;

use crate::elsewhere::is_elsewhere;

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

static REGISTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

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
    match libc_function::<Register>(&REGISTER, c"__register_atfork") {
        // SAFETY: passed on from the caller.
        Some(register) => unsafe { register(prepare, parent, child, module) },
        None => libc::ENOMEM,
    }
}
