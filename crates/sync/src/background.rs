//! One thread for work beside the program, started when there is some.
//!
//! It is made from the slow way of an allocation, never from a free: the C
//! library frees memory while it holds locks that making a thread takes.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering::*};

use spandrel_os::degrade::{self, Optional};
use spandrel_os::env;

use crate::{Wakeup, thread};

/// Does some of the work. Returns the milliseconds after which to be called
/// again; `None`: nothing is left until [`wake`] is called.
pub type Work = fn() -> Option<u32>;

static STATE: Wakeup = Wakeup::new();
/// The work, a [`Work`]; written before the thread is made.
static WORK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The process that it may be made in: not a child that shares its memory.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The thread, once it has begun.
static THREAD: AtomicU64 = AtomicU64::new(0);

/// Address space for the thread's stack, beside what thread-local storage takes.
const STACK_BYTES: usize = 256 * 1024;
/// What comes up while there is nothing else to do waits for so long at most.
const BUSY_MS: u32 = 1000;

/// No thread from now on; one that runs goes on.
pub fn forbid() {
    STATE.forbid();
}

/// Whether the thread runs, so that nobody else need do its work.
#[inline]
pub fn is_running() -> bool {
    STATE.is_there()
}

/// There is work: the thread looks at it within a second, if there is a thread. May be
/// called wherever memory may be freed.
#[inline]
pub fn wake() {
    STATE.wake();
}

/// As [`wake`]; starts the thread for this work if there is none yet. False: not
/// here, in a child that shares its parent's memory.
/// To be called where memory may be allocated and no lock is held.
#[cold]
pub fn want(work: Work) -> bool {
    if PROCESS.load(Relaxed) != env::pid() {
        return false;
    }
    if !STATE.start() {
        wake();
        return true;
    }
    WORK.store(work as *mut (), Release);
    let errno = env::errno();
    // SAFETY: the body does nothing with its argument.
    let start = |stack_bytes| unsafe { thread::start(run, ptr::null_mut(), stack_bytes) };
    let made = match start(STACK_BYTES) {
        // Thread-local storage is taken out of the stack, and may be large.
        Err(libc::EINVAL) => start(0),
        made => made,
    };
    env::set_errno(errno);
    if let Err(refused) = made {
        STATE.not_started();
        degrade::refused(Optional::Thread, refused);
    }
    true
}

/// This process may have the thread, and has none: when the library starts, and
/// in the child of a fork.
pub fn begin() {
    PROCESS.store(env::pid(), Relaxed);
    STATE.forget();
}

/// Ends the thread for good, and waits for that: the main thread ends while the
/// process goes on, which would then never end.
pub fn end() {
    if STATE.leave() {
        // SAFETY: the thread has begun, is joinable, and is joined here alone.
        unsafe { thread::join(THREAD.load(Acquire)) };
        STATE.left();
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: asks for the calling thread, and names it.
    unsafe {
        THREAD.store(libc::pthread_self(), Relaxed);
        libc::prctl(libc::PR_SET_NAME, c"spandrel".as_ptr());
    }
    STATE.started();
    // SAFETY: written by `want` before it made this thread.
    let work = unsafe { core::mem::transmute::<*mut (), Work>(WORK.load(Acquire)) };
    while STATE.look() {
        match work() {
            Some(after) => STATE.rest(after),
            None => STATE.sleep(BUSY_MS),
        }
    }
    ptr::null_mut()
}
