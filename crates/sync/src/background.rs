//! One thread for work beside the program, started when there is some.
//!
//! In most processes it is one that the C library does not know ([`RawThread`]): to the C library, and so to the program, a program
//! of one thread stays one, and the thread may be made where memory is freed. It leaves when there is nothing to do. It has no open files
//! of the program's, takes [turns](crate::turns) with a program of one thread, [withdraws](withdraw) before such a program becomes what only a process of one thread can become, and
//! does not keep a process alive whose own threads have all ended.
//!
//! A process may take another identity (`setuid`), which the C library gives to the threads that it knows. Where this code sees that
//! ([`without`]), a program of one thread has such a thread nevertheless, which ends before. Otherwise the thread is one of the C library. That one is
//! made from the slow way of an allocation, never from a free: the C
//! library frees memory while it holds locks that making a thread takes. It stays.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};

use spandrel_os::call::call;
use spandrel_os::degrade::{self, Optional};
use spandrel_os::{clock, env, thread_group};

use crate::platform::{libc_is_single_threaded, linger};
use crate::raw_thread::{NotMade, RawThread};
use crate::{NO_CACHE, Wakeup, thread, thread_slot, turns};

/// What the thread does after it has done some of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes on after this number of milliseconds.
    In(u32),
    /// Nothing is left until [`wake`] is called, or until [`want`] makes another thread.
    OnWake,
}

/// Does some of the work.
pub type Work = fn() -> Next;

/// What a thread that wants the work done is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// An allocation, without a lock.
    Allocation,
    /// The same, and the work is worth a second thread in a program of one.
    LargeAllocation,
    /// A free, without a lock of this code's, and perhaps with one of the C library's.
    Free,
}

static STATE: Wakeup = Wakeup::new();
/// The work, a [`Work`]; written before the thread is made.
static WORK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The process that it may be made in: not a child that shares its memory.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The thread of the C library, once it has begun.
static THREAD: AtomicU64 = AtomicU64::new(0);
static RAW: RawThread = RawThread::new();
/// The program has set a filter of system calls.
static NEVER_AGAIN: AtomicBool = AtomicBool::new(false);
/// It has a table of open files of its own.
static HAS_OWN_FILES: AtomicBool = AtomicBool::new(false);
/// The thread is [`RAW`].
static IS_RAW: AtomicBool = AtomicBool::new(false);
/// Changes of identity that are under way, and when the last one began in coarse milliseconds.
static CHANGES: AtomicU32 = AtomicU32::new(0);
static CHANGED_MS: AtomicU64 = AtomicU64::new(0);
/// A change that takes longer than this was left by a jump.
const CHANGE_MS: u64 = 10_000;
/// The slot of the thread that makes one.
static MAKER: AtomicUsize = AtomicUsize::new(0);
/// The thread was dismissed, and had work.
static IS_DISMISSED: AtomicBool = AtomicBool::new(false);
/// Threads that may be made at once in the place of dismissed ones, and when the last was: one takes a tenth of a millisecond to make and to
/// dismiss, and a program may change its identity for each of its requests.
static RESUMES: AtomicU32 = AtomicU32::new(RESUMES_MOST);
static RESUMED_MS: AtomicU64 = AtomicU64::new(0);
const RESUMES_MOST: u32 = 16;
const RESUME_MS: u64 = 100;
/// Asks whether all of them are seen; null: none is.
static IS_WATCHED: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The answer.
static WATCHED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Address space for the thread's stack, beside what thread-local storage takes.
const STACK_BYTES: usize = 256 * 1024;
/// What comes up while there is nothing else to do waits for so long at most.
const BUSY_MS: u32 = 1000;
/// A raw thread without work stays for this time, as making a thread takes 30 us.
const LINGER_MS: u32 = 2000;
/// Looks after a raw thread that leaves, before another one is made.
const MOST_LOOKS: u32 = 200;

/// No thread from now on; one that runs goes on.
pub fn forbid() {
    STATE.forbid();
}

/// Whether the thread runs, so that no other thread need do its work.
#[inline(always)]
pub fn is_running() -> bool {
    STATE.is_there()
}

/// There is work: the thread looks at it within a second, if there is a thread. May be
/// called wherever memory may be freed.
#[inline]
pub fn wake() {
    STATE.wake();
}

/// As [`wake`]; starts the thread for this work if there is none yet. False: not now, or not here.
#[cold]
pub fn want(work: Work, at: At) -> bool {
    degrade::say_late();
    // Not in a child that shares its parent's memory.
    if PROCESS.load(Relaxed) != env::pid() {
        return false;
    }
    if NEVER_AGAIN.load(Relaxed) {
        return true;
    }
    if thread_slot().is_translated.get() {
        return false;
    }
    let raw = if is_running() { IS_RAW.load(Relaxed) } else { may_be_raw() };
    let worth = match at {
        At::Allocation => raw || !libc_is_single_threaded(),
        At::LargeAllocation => true,
        At::Free => raw,
    };
    if !worth && !is_running() {
        return false;
    }
    MAKER.store(own_slot(), Relaxed);
    let is_made = !STATE.start() || make(work, raw);
    MAKER.store(0, Relaxed);
    is_made
}

fn own_slot() -> usize {
    ptr::from_ref(thread_slot()).addr()
}

fn make(work: Work, raw: bool) -> bool {
    // A change of identity counts itself before it looks for a thread.
    if raw && is_changing() {
        STATE.start_later();
        return true;
    }
    WORK.store(work as *mut (), Release);
    IS_RAW.store(raw, Relaxed);
    if raw { start_raw() } else { start_known() }
}

fn is_changing() -> bool {
    let since = || clock::coarse_ms().saturating_sub(CHANGED_MS.load(Relaxed));
    CHANGES.load(SeqCst) != 0 && since() < CHANGE_MS
}

/// Whether the program cannot take an identity that a thread would not take which the C library does not know, or this code sees it do so.
fn may_be_raw() -> bool {
    !env::may_change_identity() || libc_is_single_threaded() && is_watched()
}

fn is_watched() -> bool {
    let known = WATCHED.load(Relaxed);
    if known != UNKNOWN {
        return known == YES;
    }
    let ask = IS_WATCHED.load(Acquire);
    if ask.is_null() {
        return false;
    }
    // SAFETY: written by `watched_by`.
    let is_it = unsafe { core::mem::transmute::<*mut (), fn() -> bool>(ask)() };
    WATCHED.store(if is_it { YES } else { NO }, Relaxed);
    is_it
}

/// The program's changes of identity go through [`without`] if `is_it` says so. It is asked once, where memory is freed.
pub fn watched_by(is_it: fn() -> bool) {
    IS_WATCHED.store(is_it as *mut (), Release);
}

/// Calls while there is no thread that the C library does not know.
pub fn without<T>(call: impl FnOnce() -> T) -> T {
    // The child of a vfork runs in its parent's memory.
    if PROCESS.load(Relaxed) != env::pid() {
        return call();
    }
    CHANGED_MS.store(clock::coarse_ms(), Relaxed);
    CHANGES.fetch_add(1, SeqCst);
    dismiss();
    let result = call();
    // The child of a fork in the middle of another thread's call begins with none.
    let _ = CHANGES.fetch_update(SeqCst, SeqCst, |changes| changes.checked_sub(1));
    // One that was made meanwhile, as the call took long.
    dismiss();
    resume();
    result
}

/// Makes the thread again after [`withdraw`], if it had work.
pub fn resume() {
    // Nothing is asked of the system where the thread never comes again: a filter of system calls may end the process for the number of the process, or for the time.
    if NEVER_AGAIN.load(Relaxed) {
        return;
    }
    // What a signal handler interrupts may hold a lock.
    if !IS_DISMISSED.load(Relaxed) || turns::is_programs() || is_changing() {
        return;
    }
    let now = clock::coarse_ms();
    let more = now.saturating_sub(RESUMED_MS.load(Relaxed)) / RESUME_MS;
    let left = RESUMES.load(Relaxed).saturating_add(more as u32).min(RESUMES_MOST);
    let Some(left) = left.checked_sub(1) else { return };
    RESUMES.store(left, Relaxed);
    RESUMED_MS.store(now, Relaxed);
    IS_DISMISSED.store(false, Relaxed);
    let work = WORK.load(Acquire);
    if work.is_null() {
        return;
    }
    // SAFETY: written by `make`.
    let work = unsafe { core::mem::transmute::<*mut (), Work>(work) };
    let before = env::errno();
    want(work, At::Free);
    env::set_errno(before);
}

fn start_raw() -> bool {
    for look in 0..MOST_LOOKS {
        match RAW.start(run_raw) {
            Ok(()) => return true,
            // It is on its way to the kernel.
            Err(NotMade::StillThere) => linger(look),
            Err(NotMade::Refused(why @ (libc::EAGAIN | libc::ENOMEM))) => {
                STATE.start_later();
                degrade::refused(Optional::Thread, why);
                return true;
            }
            Err(NotMade::Refused(why)) => {
                STATE.not_started();
                degrade::refused(Optional::Thread, why);
                return true;
            }
        }
    }
    STATE.start_later();
    false
}

fn start_known() -> bool {
    let errno = env::errno();
    // SAFETY: the body does nothing with its argument.
    let start = |stack_bytes| unsafe { thread::start(run_known, ptr::null_mut(), stack_bytes) };
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
    CHANGES.store(0, Relaxed);
    MAKER.store(0, Relaxed);
    IS_DISMISSED.store(false, Relaxed);
    RAW.forget();
    STATE.forget();
}

/// Ends a thread of the C library for good, and waits for that: the main thread ends while the
/// process goes on, which would then never end.
pub fn end() {
    if !IS_RAW.load(Relaxed) && STATE.leave() {
        // SAFETY: the thread has begun, is joinable, and is joined here alone.
        unsafe { thread::join(THREAD.load(Acquire)) };
        STATE.left();
    }
}

/// Ends a thread that the C library does not know, and waits for that: a program of one thread is about to ask the kernel for what only a process of one
/// thread gets, or to restrict itself by a filter, which would not apply to the thread. Another one may be made later, unless that is
/// for good. Whether there has been one at some time: the kernel may just be taking it out of the process.
pub fn withdraw(for_good: bool) -> bool {
    // A filter of a program with threads of its own is that thread's alone.
    let is_own = PROCESS.load(Relaxed) == env::pid() && (!for_good || libc_is_single_threaded());
    if !is_own {
        return false;
    }
    if for_good {
        NEVER_AGAIN.store(true, Relaxed);
    }
    dismiss();
    RAW.has_been()
}

/// Whether the kernel has taken the last thread that [`withdraw`] ended out of the process.
pub fn is_out() -> bool {
    RAW.is_out()
}

fn dismiss() {
    if !IS_RAW.load(Relaxed) {
        return;
    }
    // A signal handler interrupts the making: the thread begins later, and as the calling one is then.
    if STATE.is_starting() && MAKER.load(Relaxed) == own_slot() {
        return;
    }
    let before = env::errno();
    if is_running() {
        IS_DISMISSED.store(true, Relaxed);
    }
    // What a signal handler interrupts may be what the thread waits for. It leaves when it gets on.
    if STATE.dismiss() && !turns::is_programs() {
        // It may have left of itself just now.
        RAW.wait();
    }
    env::set_errno(before);
}

/// Finds out whether the program's changes of identity are seen, before a fork of a program with threads.
pub fn prepare_fork() {
    is_watched();
}

/// Whether the calling thread may open files for a moment. The thread that the C library does not know would take
/// descriptors that the program expects to get, where it has no table of its own.
pub fn may_open_files() -> bool {
    !thread_slot().is_beside.get() || HAS_OWN_FILES.load(Relaxed)
}

extern "C" fn run_raw() {
    // It frees nothing for a program, and the C library never tells of its end.
    thread_slot().cache.set(ptr::without_provenance_mut(NO_CACHE));
    thread_slot().is_beside.set(true);
    HAS_OWN_FILES.store(thread_group::take_own_files(), Relaxed);
    // SAFETY: gives the calling thread the usual priority, whatever the thread has that made it.
    unsafe {
        let usual = libc::sched_param { sched_priority: 0 };
        let policy = libc::SCHED_OTHER as usize;
        let _ =
            call(libc::SYS_sched_setscheduler, [0, policy, (&raw const usual).expose_provenance()]);
    }
    run(true, || STATE.retire(LINGER_MS));
}

extern "C" fn run_known(_: *mut c_void) -> *mut c_void {
    // SAFETY: asks for the calling thread.
    THREAD.store(unsafe { libc::pthread_self() }, Relaxed);
    run(false, || {
        STATE.sleep(BUSY_MS);
        false
    });
    ptr::null_mut()
}

/// Works until the thread is to leave, or `leaves` when all is done.
fn run(is_raw: bool, leaves: impl Fn() -> bool) {
    // SAFETY: names the calling thread.
    let _ = unsafe {
        call(
            libc::SYS_prctl,
            [libc::PR_SET_NAME as usize, c"spandrel".as_ptr().expose_provenance()],
        )
    };
    STATE.started();
    // SAFETY: written by `want` before it made this thread.
    let work = unsafe { core::mem::transmute::<*mut (), Work>(WORK.load(Acquire)) };
    while STATE.look() {
        // It may have been dismissed while it waited for its turn.
        let in_turn = || if STATE.is_leaving() { Next::In(0) } else { work() };
        let next = if is_raw { turns::beside(in_turn) } else { work() };
        if is_raw && HAS_OWN_FILES.load(Relaxed) {
            thread_group::end_if_last();
        }
        match next {
            Next::In(after) => STATE.rest(after),
            Next::OnWake if leaves() => break,
            Next::OnWake => {}
        }
    }
    if is_raw && HAS_OWN_FILES.load(Relaxed) {
        thread_group::end_if_last();
    }
    if is_raw {
        STATE.gone();
    }
}
