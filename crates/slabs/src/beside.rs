//! Work beside the program: what the background thread does, or threads of the program now and then
//! where there is none.

use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};

use spandrel_os::{budget, live, pressure};
use spandrel_pages::{Figure, HEAP_PAGE_BYTES, HUGEPAGE_BYTES, KIB, Length, MIB};
use spandrel_sync::background::{self, At, Next};

use crate::refuse::clock;
use crate::{
    central, cpu_cache, figures, heap, kernel, peak, sparse, tables, thread_cache, transfer,
};

/// The thread looks again so soon while there is work.
const WORKING_MS: u32 = 10;
/// It looks after twice as long each time that there was nothing to do, up to this.
const IDLE_MS: u32 = 1000;
/// In a small program it looks this number of times at most, the last ones a second apart.
const LOOKS_MOST: u32 = 16;
/// What lies in a cache of a processor unused for so long goes on to the transfer
/// cache, and from there, after as long, back to its span.
const TEND_MS: u64 = 1000;
/// Without the thread, one in this many calls looks at the clock for that: the slow way of a small object
/// is one call, ...
pub const LOOK_EVERY: u32 = 256;
/// ... and something is done this often at most.
const STEP_MS: u64 = 100;
/// A program has the thread once its heap has grown by this number of huge pages: 64 MiB. A smaller one has it as long as it
/// keeps [`KEPT_LEAST`].
const THREAD_FROM: u32 = 32;
/// Pages that could go back and are not worth waking up for.
pub const LITTLE: Length = Length((8 * MIB / HEAP_PAGE_BYTES) as u32);
/// The same in a program that has the thread for no other reason.
const LITTLE_IN_SMALL: Length = Length((256 * KIB / HEAP_PAGE_BYTES) as u32);
/// Pages that are free and not given back, for which a thread is made: to give them back takes ten times as long as to make it.
pub const KEPT_LEAST: Length = Length((4 * MIB / HEAP_PAGE_BYTES) as u32);
/// Time between two looks whether other processes need memory; a look takes 0.1 ms.
const PRESSURE_MS: u64 = 1000;
/// Bytes that one pass releases where other processes need memory: between two passes other threads get the locks, ...
const PASS_BYTES: usize = 64 * MIB;
/// ... and bytes that one pass releases where there is no such thread: the program's own thread waits for it, some milliseconds.
const STEP_BYTES: usize = 16 * MIB;
/// Without the thread there is no look for what less could be given back to: to take it from the kernel
/// again takes as long as the look.
const WORTH_BYTES: usize = MIB;

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
/// When a thread last looked whether others need memory, in units of [`PRESSURE_MS`].
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// When there was a step without the thread last, in units of [`STEP_MS`].
static STEPPED: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Looks in a row that found nothing to do.
static LOOKS: AtomicU32 = AtomicU32::new(0);
static PAUSE_MS: AtomicU32 = AtomicU32::new(0);
/// Processor time that all of it has taken, in microseconds.
static TAKEN_US: AtomicU64 = AtomicU64::new(0);
/// The work of a thread is being counted.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// There is more to give back than [`KEPT_LEAST`], and the next free and the next allocation are to see to that.
static KEPT: AtomicU8 = AtomicU8::new(0);
const KEPT_AT_FREE: u8 = 1;
const KEPT_AT_ALLOCATION: u8 = 2;
/// When that was found last, in units of [`STEP_MS`].
static NOTED: AtomicU64 = AtomicU64::new(0);
/// Bytes that had better go back for others.
static BEYOND: AtomicUsize = AtomicUsize::new(0);
/// A function without arguments, or null.
static LOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// A [`Companion`].
static COMPANION: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// What another allocator of ours does beside the program: it gives back what is due and what others need, and promotes objects to huge pages.
pub type Companion = fn(Turn) -> Done;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Bytes to give back that are not due, because others need them.
    pub beyond: usize,
    /// Whether the program does nothing just now. `None`: this is a thread of the program, which does not wait for promotion.
    pub leisure: Option<bool>,
}

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub struct Done {
    /// Bytes given back of [`Turn::beyond`].
    pub given_back: usize,
    /// There will be more to give back.
    pub is_more: bool,
    /// When there is something to do again for large objects on small pages; `None`: not before there is another one.
    pub promotes_in_ms: Option<u32>,
}

/// Has the thread do another allocator's work too.
pub fn set_companion(companion: Companion) {
    COMPANION.store(companion as *mut (), Release);
}

/// Registers a function that is called now and then without a lock: by the thread, or where there is none by requests
/// on the slow way.
pub fn set_look(look: fn()) {
    LOOK.store(look as *mut (), Release);
}

fn look() {
    let look = LOOK.load(Acquire);
    if !look.is_null() {
        // SAFETY: only `set_look` writes there.
        unsafe { transmute::<*mut (), fn()>(look)() };
    }
}

/// Starts the thread if there is none. False: not in this process, which may be a child that shares
/// its parent's memory. To be called without a lock, where memory may be allocated.
#[cold]
pub fn want() -> bool {
    thread_cache::watch_main_thread();
    background::want(work, At::LargeAllocation)
}

/// Much is free and not given back, and there is no thread. May be called under a lock.
#[cold]
pub fn note_kept(now_ms: u64) {
    let turn = now_ms / STEP_MS;
    if NOTED.load(Relaxed) != turn {
        NOTED.store(turn, Relaxed);
        KEPT.store(KEPT_AT_FREE | KEPT_AT_ALLOCATION, Relaxed);
    }
}

#[inline]
fn see_to_kept_at(bit: u8, at: At) {
    if KEPT.load(Relaxed) & bit != 0 {
        // A lost note comes again.
        KEPT.fetch_and(!bit, Relaxed);
        background::want(work, at);
        if background::is_running() {
            KEPT.store(0, Relaxed);
        }
    }
}

/// Starts the thread, if it may be made where memory is freed, where there is none and much is kept. To be called without a lock.
#[inline]
pub fn see_to_kept() {
    see_to_kept_at(KEPT_AT_FREE, At::Free);
}

/// Starts or wakes the thread when the heap has grown by enough, and does now
/// and then what it would do. A large object is worth [`LOOK_EVERY`] of `calls`. To be called without a
/// lock, where memory may be allocated.
#[inline]
pub fn see_to_background(calls: u32) {
    let reached = kernel::reached();
    if reached.saturating_sub(WANTED_AT.load(Relaxed)) >= THREAD_FROM {
        // Not here: the parent, whose memory this is, shall ask again.
        if want() {
            WANTED_AT.store(reached, Relaxed);
        }
    }
    thread_cache::watch_main_thread();
    see_to_kept_at(KEPT_AT_ALLOCATION, At::Allocation);
    if peak::is_due() {
        counted(peak::note);
    }
    if background::is_running() {
        // What comes to the caches now may be forgotten there.
        background::wake();
    } else {
        step_now_and_then(calls);
    }
}

/// Where there is no thread: does now and then what it would do for the caches, and for others that need
/// memory. To be called without a lock.
#[inline]
pub fn step_now_and_then(calls: u32) {
    // Lost counts do not matter.
    let before = CALLS.load(Relaxed);
    let now = before.wrapping_add(calls);
    CALLS.store(now, Relaxed);
    if before / LOOK_EVERY != now / LOOK_EVERY {
        step();
    }
}

/// What is due of the work, where no thread does it: at most once in [`STEP_MS`].
#[cold]
#[inline(never)]
pub fn step() {
    let now = clock::coarse_ms();
    let last = STEPPED.swap(now / STEP_MS, Relaxed);
    if background::is_running() || last == now / STEP_MS {
        return;
    }
    look();
    if kernel::reached() >= THREAD_FROM || is_companion_large() {
        // It may have left when there was nothing to do. This may be a free.
        background::want(work, At::Free);
    }
    if last == 0 {
        // What has just begun has nothing to give back; many programs end before they have.
        TENDED.store(now / TEND_MS, Relaxed);
        LOOKED.store(now / PRESSURE_MS, Relaxed);
        return;
    }
    if is_due_to_tend() || BEYOND.load(Relaxed) > 0 {
        counted(|| {
            tend();
            peak::note_growth();
            relieve();
        });
    }
}

/// Gives back for others that need memory what a thread of the program has time for.
#[inline(never)]
fn relieve() {
    let mapped = live::get(Figure::MappedWarm) as usize;
    if heap::idle_at_once().saturating_add(mapped) < WORTH_BYTES {
        BEYOND.store(0, Relaxed);
        return;
    }
    let beyond = needed_by_others();
    let now = beyond.min(STEP_BYTES);
    if now == 0 {
        return;
    }
    let mapped = companion(Turn { beyond: now, leisure: None }).given_back;
    let heaps = heap::relieve(now.saturating_sub(mapped)).0 as usize * HEAP_PAGE_BYTES;
    // Else nothing more can go.
    let gone = mapped.saturating_add(heaps);
    BEYOND.store(if gone > 0 { beyond.saturating_sub(gone) } else { 0 }, Relaxed);
}

/// Bytes that had better go back for others, as it was found within the last second.
fn needed_by_others() -> usize {
    let turn = clock::coarse_ms() / PRESSURE_MS;
    if LOOKED.swap(turn, Relaxed) != turn {
        let beyond = if background::may_open_files() { pressure::beyond() } else { 0 };
        BEYOND.store(beyond, Relaxed);
    }
    BEYOND.load(Relaxed)
}

fn is_due_to_tend() -> bool {
    TENDED.load(Relaxed) != clock::coarse_ms() / TEND_MS
}

/// Once in a while: objects that no request took return to their spans. False:
/// none are left in between, as far as was looked.
#[cold]
#[inline(never)]
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

/// The thread's work, and when to call again.
fn work() -> Next {
    counted(look_after)
}

fn look_after() -> Next {
    look();
    let parked = tend();
    if LOOKED.load(Relaxed) != clock::coarse_ms() / PRESSURE_MS {
        peak::note_growth();
    }
    let beyond = needed_by_others();
    let now = beyond.min(PASS_BYTES);
    let leisure = has_leisure();
    let turn = Turn { beyond: now.max(budget::excess()), leisure: Some(leisure) };
    let Done { given_back, is_more: mut is_due, promotes_in_ms } = companion(turn);
    let promotes_in_ms = [promotes_in_ms, sparse::promote(leisure)].into_iter().flatten().min();
    let is_small = kernel::reached() < THREAD_FROM && !is_companion_large();
    let now = now.saturating_sub(given_back);
    let pass = heap::pass(now, leisure, is_small).unwrap_or_default();
    is_due |= pass.idle > if is_small { LITTLE_IN_SMALL } else { LITTLE };
    let is_working = given_back > 0 || pass.restored || pass.released > Length::ZERO;
    let restores_in_ms = pass.restores_in_ms;
    let tables_in_ms = if is_small { None } else { tables::tend(pass.released_ever) };
    let pressed = given_back.saturating_add(pass.pressed.0 as usize * HEAP_PAGE_BYTES);
    // Else nothing more can go.
    let left = if pressed > 0 { beyond.saturating_sub(pressed) } else { 0 };
    BEYOND.store(left, Relaxed);
    let pause = if is_working {
        LOOKS.store(0, Relaxed);
        WORKING_MS
    } else if (is_due || parked || restores_in_ms.is_some()) && !(is_small && has_looked_long()) {
        let pause = (PAUSE_MS.load(Relaxed) * 2).clamp(WORKING_MS, IDLE_MS);
        // When the next may be tried; if none was just now, whenever there may be another.
        let due = restores_in_ms.filter(|wait| *wait > 0).and_then(|wait| u32::try_from(wait).ok());
        [due, promotes_in_ms, tables_in_ms].into_iter().flatten().fold(pause, u32::min)
    } else {
        PAUSE_MS.store(0, Relaxed);
        LOOKS.store(0, Relaxed);
        let due = [promotes_in_ms.filter(|_| !is_small), tables_in_ms].into_iter().flatten().min();
        return due.map_or(Next::OnWake, Next::In);
    };
    PAUSE_MS.store(pause, Relaxed);
    Next::In(pause)
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

/// Whether one look after another has found nothing that could go back. (What a small program has free on the pages that it uses may have
/// never been used, or is too little to break a huge page for it.)
fn has_looked_long() -> bool {
    LOOKS.fetch_add(1, Relaxed) >= LOOKS_MOST
}

/// Whether the other allocator has enough for the thread to stay.
fn is_companion_large() -> bool {
    let bytes = live::get(Figure::MappedLive).saturating_add(live::get(Figure::MappedWarm));
    bytes >= u64::from(THREAD_FROM) * HUGEPAGE_BYTES as u64
}

fn companion(turn: Turn) -> Done {
    let companion = COMPANION.load(Acquire);
    if companion.is_null() {
        return Done::default();
    }
    // SAFETY: only `set_companion` writes there.
    let companion = unsafe { transmute::<*mut (), Companion>(companion) };
    companion(turn)
}

/// The child of a fork has the thread when it has grown itself.
pub fn fork_forget() {
    WANTED_AT.store(kernel::reached(), Relaxed);
    WALL_US.store(0, Relaxed);
    KEPT.store(0, Relaxed);
    NOTED.store(0, Relaxed);
    TAKEN_US.store(0, Relaxed);
    BEYOND.store(0, Relaxed);
    COUNTING.store(false, Relaxed);
    // What has just begun has nothing to give back; many children end before they have.
    let now = clock::coarse_ms();
    STEPPED.store(now / STEP_MS, Relaxed);
    TENDED.store(now / TEND_MS, Relaxed);
    LOOKED.store(now / PRESSURE_MS, Relaxed);
}
