//! Work beside the program: what the background thread does, or threads of the program now and then
//! where there is none.

use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use spandrel_os::{budget, pressure};
use spandrel_pages::{HEAP_PAGE_BYTES, Length, MIB};
use spandrel_sync::background;

use crate::refuse::clock;
use crate::{central, cpu_cache, figures, heap, kernel, thread_cache, transfer};

/// The thread looks again so soon while there is work.
const WORKING_MS: u32 = 10;
/// It looks after twice as long each time that there was nothing to do, up to this.
const IDLE_MS: u32 = 1000;
/// What lies in a cache of a processor unused for so long goes on to the transfer
/// cache, and from there, after as long, back to its span.
const TEND_MS: u64 = 1000;
/// Without the thread, one in so many calls looks at the clock for that.
const LOOK_EVERY: u32 = 256;
/// A program has the thread once its heap has grown by so many huge pages: 64 MiB.
/// Smaller ones stay as they are, also in the eyes of system calls that refuse
/// programs of several threads.
const THREAD_FROM: u32 = 32;
/// Pages that could go back and are not worth waking up for.
pub const LITTLE: Length = Length((8 * MIB / HEAP_PAGE_BYTES) as u32);
/// The thread looks so often whether others need the memory.
const PRESSURE_MS: u64 = 1000;
/// Where others need memory, so much goes back at once: between two passes others get the locks.
const PASS_BYTES: usize = 64 * MIB;

/// A program that takes less than this part of a processor has nothing to do.
const LEISURE_PART: u64 = 10;

/// The clock and what the program had worked, this thread aside, when that was looked at last.
static WALL_US: AtomicU64 = AtomicU64::new(0);
static BUSY_US: AtomicU64 = AtomicU64::new(0);
static PREEMPTED: AtomicU64 = AtomicU64::new(0);
/// What the heap had reached over when the thread was wanted last.
static WANTED_AT: AtomicU32 = AtomicU32::new(0);
/// When the caches were looked after last, in units of [`TEND_MS`].
static TENDED: AtomicU64 = AtomicU64::new(0);
/// When the thread last looked whether others need memory, in units of [`PRESSURE_MS`].
static LOOKED: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);
static PAUSE_MS: AtomicU32 = AtomicU32::new(0);
/// Processor time that all of it has taken, in microseconds.
static TAKEN_US: AtomicU64 = AtomicU64::new(0);
/// Somebody's work is being counted.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// Bytes that had better go back for others.
static BEYOND: AtomicUsize = AtomicUsize::new(0);
/// A [`Companion`].
static COMPANION: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// What another allocator of ours does beside the program: it gives back what is due, and, because
/// others need it, so many bytes more. How many of these, and whether there will be more to do.
pub type Companion = fn(usize) -> (usize, bool);

/// Has the thread do another allocator's work too.
pub fn set_companion(companion: Companion) {
    COMPANION.store(companion as *mut (), Release);
}

/// Starts the thread if there is none. False: not in this process, which may be a child that shares
/// its parent's memory. To be called without a lock, where memory may be allocated.
#[cold]
pub fn want() -> bool {
    thread_cache::watch_main_thread();
    background::want(work)
}

/// Starts or wakes the thread when the heap has grown by enough, and does now
/// and then what it would do for the caches. To be called without a
/// lock, where memory may be allocated.
#[inline]
pub fn see_to_background() {
    let reached = kernel::reached();
    if reached.saturating_sub(WANTED_AT.load(Relaxed)) >= THREAD_FROM {
        // Not here: the parent, whose memory this is, shall ask again.
        if want() {
            WANTED_AT.store(reached, Relaxed);
        }
    }
    thread_cache::watch_main_thread();
    if background::is_running() {
        // What comes to the caches now may be forgotten there.
        background::wake();
    } else {
        // Lost counts do not matter.
        let calls = CALLS.load(Relaxed).wrapping_add(1);
        CALLS.store(calls, Relaxed);
        if calls.is_multiple_of(LOOK_EVERY) {
            counted(tend);
        }
    }
}

/// Once in a while: objects that nobody took go back to their spans. False:
/// none are left in between, as far as was looked.
#[cold]
pub fn tend() -> bool {
    let turn = clock::coarse_ms() / TEND_MS;
    if TENDED.swap(turn, Relaxed) == turn {
        return true;
    }
    let left = cpu_cache::tend() | transfer::tend() | central::tend();
    figures::publish_caches();
    left
}

/// Does some of the work beside the program; the processor time that it takes is counted, once where
/// such work leads to more.
pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    if COUNTING.swap(true, Relaxed) {
        return work();
    }
    let before = clock::thread_micros();
    let result = work();
    TAKEN_US.fetch_add(clock::thread_micros().saturating_sub(before), Relaxed);
    COUNTING.store(false, Relaxed);
    result
}

/// Microseconds of processor time that work beside the program has taken.
pub fn taken_micros() -> u64 {
    TAKEN_US.load(Relaxed)
}

/// The thread's work; when to call again.
fn work() -> Option<u32> {
    counted(look_after)
}

fn look_after() -> Option<u32> {
    let parked = tend();
    let turn = clock::coarse_ms() / PRESSURE_MS;
    if LOOKED.swap(turn, Relaxed) != turn {
        BEYOND.store(pressure::beyond(), Relaxed);
    }
    let beyond = BEYOND.load(Relaxed);
    let now = beyond.min(PASS_BYTES);
    let (given_back, mut is_due) = companion(now.max(budget::excess()));
    let pass = heap::pass(now.saturating_sub(given_back), has_leisure()).unwrap_or_default();
    is_due |= pass.idle > LITTLE;
    let is_working = given_back > 0 || pass.restored || pass.released > Length::ZERO;
    let restores_in_ms = pass.restores_in_ms;
    let pressed = given_back.saturating_add(pass.pressed.0 as usize * HEAP_PAGE_BYTES);
    // Else nothing more can go.
    let left = if pressed > 0 { beyond.saturating_sub(pressed) } else { 0 };
    BEYOND.store(left, Relaxed);
    let pause = if is_working {
        WORKING_MS
    } else if is_due || parked || restores_in_ms.is_some() {
        let pause = (PAUSE_MS.load(Relaxed) * 2).clamp(WORKING_MS, IDLE_MS);
        // When the next may be tried; if none was just now, whenever there may be another.
        let due = restores_in_ms.filter(|wait| *wait > 0).and_then(|wait| u32::try_from(wait).ok());
        due.map_or(pause, |due| pause.min(due))
    } else {
        PAUSE_MS.store(0, Relaxed);
        return None;
    };
    PAUSE_MS.store(pause, Relaxed);
    Some(pause)
}

/// Whether the program has taken less than a tenth of a processor since the last call, this thread
/// aside, and not for want of one: what may run a tenth of the time only is always busy.
fn has_leisure() -> bool {
    let (wall, all) = (clock::micros(), clock::process_micros());
    let busy = all.saturating_sub(clock::thread_micros());
    let before = WALL_US.swap(wall, Relaxed);
    let worked = busy.saturating_sub(BUSY_US.swap(busy, Relaxed));
    let preempted = clock::others_preempted();
    let had_to_wait = PREEMPTED.swap(preempted, Relaxed) != preempted;
    // Not before there is something to compare with.
    before > 0 && all > 0 && !had_to_wait && worked < wall.saturating_sub(before) / LEISURE_PART
}

fn companion(beyond: usize) -> (usize, bool) {
    let companion = COMPANION.load(Acquire);
    if companion.is_null() {
        return (0, false);
    }
    // SAFETY: only `set_companion` writes there.
    let companion = unsafe { transmute::<*mut (), Companion>(companion) };
    companion(beyond)
}

/// The child of a fork has the thread when it has grown itself.
pub fn fork_forget() {
    WANTED_AT.store(kernel::reached(), Relaxed);
    WALL_US.store(0, Relaxed);
    TAKEN_US.store(0, Relaxed);
    COUNTING.store(false, Relaxed);
}
