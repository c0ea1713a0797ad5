//! One thread for work beside the program, started when there is some.
//!
//! It is made from the slow way of an allocation, never from a free: the C
//! library frees memory while it holds locks that making a thread takes.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use spandrel_os::degrade::{self, Optional};
use spandrel_os::env;

/// Does some of the work. Returns the milliseconds after which to be called
/// again; `None`: nothing is left until [`wake`] is called.
pub type Work = fn() -> Option<u32>;

/// Rooms that may have work.
const WORKERS: usize = 4;
static WORKS: [AtomicPtr<()>; WORKERS] = [const { AtomicPtr::new(ptr::null_mut()) }; WORKERS];

/// No thread.
const NONE: u32 = 0;
const AWAKE: u32 = 1;
/// Until somebody wakes it.
const ASLEEP: u32 = 2;
/// It is to end.
const LEAVING: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(NONE);
static FORBIDDEN: AtomicBool = AtomicBool::new(false);
/// The process that it may be made in: not a child that shares its memory.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static THREAD: AtomicU64 = AtomicU64::new(0);

/// Address space for the thread's stack, beside what thread-local storage takes.
const STACK_BYTES: usize = 256 * 1024;

/// No thread from now on; one that runs goes on.
pub fn forbid() {
    FORBIDDEN.store(true, Relaxed);
}

/// Whether the thread runs, so that nobody else need do its work.
#[inline]
pub fn is_running() -> bool {
    STATE.load(Relaxed) != NONE
}

/// There is work: the thread looks at it soon, if there is a thread. May be
/// called wherever memory may be freed.
#[inline]
pub fn wake() {
    if STATE.load(Relaxed) == ASLEEP {
        wake_now();
    }
}

#[cold]
fn wake_now() {
    if STATE.compare_exchange(ASLEEP, AWAKE, AcqRel, Relaxed).is_ok() {
        futex(libc::FUTEX_WAKE, 1, None);
    }
}

/// As [`wake`], for `work` among others; starts the thread if there is none yet.
/// To be called where memory may be allocated and no lock is held.
#[cold]
pub fn want(work: Work) {
    let address = work as *mut ();
    let free = WORKS.iter().find(|place| {
        let seen = place.compare_exchange(ptr::null_mut(), address, AcqRel, Acquire);
        seen.is_ok() || seen == Err(address)
    });
    let here = PROCESS.load(Relaxed) == env::pid();
    if free.is_none() || !here || FORBIDDEN.load(Relaxed) {
        return;
    }
    if STATE.compare_exchange(NONE, AWAKE, AcqRel, Relaxed).is_err() {
        return wake();
    }
    let errno = env::errno();
    let refused = match start(STACK_BYTES) {
        // Thread-local storage is taken out of the stack, and may be large.
        libc::EINVAL => start(0),
        outcome => outcome,
    };
    env::set_errno(errno);
    if refused != 0 {
        forbid();
        STATE.store(NONE, Release);
        degrade::refused(Optional::Thread, refused);
    }
}

/// This process may have the thread, and has none: when the library starts, and
/// in the child of a fork.
pub fn begin() {
    PROCESS.store(env::pid(), Relaxed);
    STATE.store(NONE, Relaxed);
}

/// Ends the thread for good, and waits for that: the main thread ends while the
/// process goes on, which would then never end.
pub fn end() {
    forbid();
    let state = STATE.swap(LEAVING, AcqRel);
    if state == AWAKE || state == ASLEEP {
        futex(libc::FUTEX_WAKE, 1, None);
        // SAFETY: the thread was made, is joinable, and is joined here alone.
        unsafe { libc::pthread_join(THREAD.load(Acquire), ptr::null_mut()) };
    }
    STATE.store(NONE, Release);
}

/// Makes the thread, with so much address space for its stack or, for 0, with what
/// the C library takes; an error number, or 0.
fn start(stack_bytes: usize) -> i32 {
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
        THREAD.store(thread, Release);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        refused
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: names the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"spandrel".as_ptr()) };
    while STATE.load(Acquire) != LEAVING {
        if let Some(after) = work() {
            futex(libc::FUTEX_WAIT, AWAKE, Some(after));
            continue;
        }
        if STATE.compare_exchange(AWAKE, ASLEEP, SeqCst, Relaxed).is_err() {
            continue;
        }
        // What came up just before that woke nobody.
        if work().is_none() {
            futex(libc::FUTEX_WAIT, ASLEEP, None);
        }
        let _ = STATE.compare_exchange(ASLEEP, AWAKE, AcqRel, Relaxed);
    }
    ptr::null_mut()
}

/// All the work that there is; when to look again.
fn work() -> Option<u32> {
    let all = WORKS.iter().map(|place| place.load(Acquire)).filter(|work| !work.is_null());
    all.filter_map(|work| {
        // SAFETY: only `want` writes these places, with functions of this type.
        let work = unsafe { core::mem::transmute::<*mut (), Work>(work) };
        work()
    })
    .min()
}

fn futex(operation: libc::c_int, value: u32, after_ms: Option<u32>) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let errno = env::errno();
    let time = after_ms.map(|ms| libc::timespec {
        tv_sec: libc::time_t::from(ms / 1000),
        tv_nsec: libc::c_long::from(ms % 1000 * 1_000_000),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word is static and only read; a spurious return is a look more.
    unsafe { libc::syscall(libc::SYS_futex, STATE.as_ptr(), operation, value, time) };
    env::set_errno(errno);
}
