//! Threads of our own, which are none of the program's: its signals are not for them, nor is the priority of their makers.

use core::ffi::c_void;

/// What a thread runs.
pub type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Makes a thread, with so much address space for its stack, beside what thread-local storage takes of it, or for 0 with what the C
/// library gives. It is to be joined or detached.
///
/// To be called where memory may be allocated and no lock is held.
///
/// # Errors
/// The error's number: `EAGAIN` at a limit, `EINVAL` if the stack is too small for thread-local storage.
///
/// # Safety
/// The body can do with the argument what it does, on another thread, as long as that runs.
pub unsafe fn start(
    body: Body,
    argument: *mut c_void,
    stack_bytes: usize,
) -> Result<libc::pthread_t, i32> {
    // SAFETY: the structures are initialised by the calls that take them first; signals are the program's, and blocked only while the
    // thread inherits that.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let refused = libc::pthread_attr_init(&mut attributes);
        if refused != 0 {
            return Err(refused);
        }
        if stack_bytes > 0 {
            libc::pthread_attr_setstacksize(&mut attributes, stack_bytes);
        }
        libc::pthread_attr_setinheritsched(&mut attributes, libc::PTHREAD_EXPLICIT_SCHED);
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut thread = core::mem::zeroed();
        let refused = libc::pthread_create(&mut thread, &attributes, body, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        if refused == 0 { Ok(thread) } else { Err(refused) }
    }
}

/// Waits for the end of a thread.
///
/// # Safety
/// It was made by [`start`], and is neither joined nor detached.
pub unsafe fn join(thread: libc::pthread_t) {
    // SAFETY: promised by the caller.
    unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
}

/// No thread waits for the end of this one.
///
/// # Safety
/// As for [`join`].
pub unsafe fn detach(thread: libc::pthread_t) {
    // SAFETY: promised by the caller.
    unsafe { libc::pthread_detach(thread) };
}
