//! Threads that are cancelled (`pthread_cancel`). One that ended in the midst of a command, or of a wait for one, would leave the state to no thread: cancellation waits until the function
//! returns.

use std::ffi::c_int;
use std::ptr;

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs what the calling thread is not to be cancelled in. The thread may end when it is over, and nothing else: this is the last thing that a function does.
pub fn held<R>(work: impl FnOnce() -> R) -> R {
    let mut before = 0;
    // SAFETY: the number is a local one.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = work();
    // SAFETY: the state that the thread had.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    result
}
