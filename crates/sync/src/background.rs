//! One thread for work beside the program, started when there is some.
//!
//! It is made from the slow way of an allocation, never from a free: the C
//! library frees memory while it holds locks that making a thread takes.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering::*};

use spandrel_os::degrade::{self, Optional};
use spandrel_os::env;

use crate::Wakeup;

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
    let refused = match create(STACK_BYTES) {
        // Thread-local storage is taken out of the stack, and may be large.
        libc::EINVAL => create(0),
        outcome => outcome,
    };
    env::set_errno(errno);
    if refused != 0 {
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
        unsafe { libc::pthread_join(THREAD.load(Acquire), ptr::null_mut()) };
        STATE.left();
    }
}

/// Makes the thread, with so much address space for its stack or, for 0, with what
/// the C library takes; an error number, or 0.
fn create(stack_bytes: usize) -> i32 {
    // SAFETY: the structures are initialised by the calls that take them first;
    // signals are the program's, and blocked only while the thread inherits that.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let refused = libc::pthread_attr_init(&mut attributes);
        if refused != 0 {
            return refused;
        }
        if stack_bytes > 0 {
            libc::pthread_attr_setstacksize(&mut attributes, stack_bytes);
        }
        // Whoever makes it may have a priority of its own.
        libc::pthread_attr_setinheritsched(&mut attributes, libc::PTHREAD_EXPLICIT_SCHED);
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut thread = core::mem::zeroed();
        let refused = libc::pthread_create(&mut thread, &attributes, run, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        refused
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
