//! Learning while the program runs which allocator serves it best: the windows in which requests are
//! timed, and what `policy`'s tuner makes of them.
//!
//! Now and then, in mode `auto`, all requests of the process go the way on which requests are looked at,
//! for a millisecond. Each is timed there; some may go to another allocator than usual. The first request
//! after the millisecond ends it, and the tuner says what follows. Outside of windows nothing of this is on
//! the way of a request; windows are opened beside requests that the caches have no object for, so that a
//! program that makes none is never looked at.
//!
//! Nothing waits here: a thread that does not get a lock leaves the rest to the next.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use spandrel_backends::Backend;
use spandrel_os::{budget, clock, slices, usage};
use spandrel_pages::{AllocatorId, PAGE_BYTES};
use spandrel_policy::tuner::{
    ARMS, Choice, KINDS, Kind, NO_TALLIES, ROWS, Subject, Tallies, Tally, Tuner, Window, row_of,
    sizes_of,
};
use spandrel_policy::{Available, Decision, Mode, Operation, Table};
use spandrel_sync::{Lock, LockGuard, thread_slot};

use crate::backend::with_backend;
use crate::{available, modes, observed, youth};

/// How long requests are timed at a time.
const WINDOW_NS: u64 = 1_000_000;
/// One in this many requests that go the slow way looks at the clock.
const LOOK_EVERY: u8 = 64;
/// Allocators that are not in use take some mebibytes when they begin: they are tried in processes
/// that have had so much resident.
const LARGE_BYTES: u64 = 64 << 20;
/// No look before the process has taken so much processor time: to learn takes longer than what ends sooner.
const FIRST_LOOK_US: u64 = 300_000;
/// Where no window may be opened just now, one may be so much later.
const LATER_MS: u64 = 1000;
/// What takes longer than this was interrupted, or waited for something that is no allocator's.
const LONGEST_NS: u64 = 1 << 20;
const OPERATIONS: usize = 2;
/// No choice.
const USUAL: u8 = u8::MAX;

/// What windows have seen of one kind, row and allocator.
struct Cell {
    count: AtomicU32,
    nanos: AtomicU64,
    squares: AtomicU64,
}

struct State {
    tuner: Tuner,
    has_begun: bool,
    /// What was learnt elsewhere.
    prior: Option<Mode>,
    /// It may begin allocators that are not in use.
    is_large: bool,
    tallies: Tallies,
    /// The process's processor time and page faults at the end of the last window, and when this one began.
    since_us: u64,
    since_faults: u64,
    busy_us: u64,
}

static CELLS: [[[Cell; ARMS]; ROWS]; KINDS] = [const {
    [const {
        [const {
            Cell { count: AtomicU32::new(0), nanos: AtomicU64::new(0), squares: AtomicU64::new(0) }
        }; ARMS]
    }; ROWS]
}; KINDS];
static STATE: Lock<State> = Lock::new(State {
    tuner: Tuner::blank(),
    has_begun: false,
    prior: None,
    is_large: false,
    tallies: NO_TALLIES,
    since_us: 0,
    since_faults: 0,
    busy_us: 0,
});
/// When the open window ends; 0: there is none.
static OPEN_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
/// When the next one may be opened.
static NEXT_MS: AtomicU64 = AtomicU64::new(0);
/// What the open window explores: operation, row, allocator in a byte each; `u32::MAX`: nothing.
static EXPLORED: AtomicU32 = AtomicU32::new(u32::MAX);
/// Rows that are another's than usual.
static CHOICES: [[AtomicU8; ROWS]; OPERATIONS] =
    [const { [const { AtomicU8::new(USUAL) }; ROWS] }; OPERATIONS];
static ALLOWED: AtomicBool = AtomicBool::new(false);
static RESTLESS: AtomicBool = AtomicBool::new(false);
/// What reading the clock takes, which is in all that is measured.
static CLOCK_NS: AtomicU64 = AtomicU64::new(0);

/// From now on the process learns.
pub(crate) fn allow() {
    ALLOWED.store(true, Relaxed);
}

/// Windows follow each other, and what they explore and what is chosen follows no reason: for tests, which
/// so have every allocator's objects in the hands of every other.
pub(crate) fn be_restless() {
    RESTLESS.store(true, Relaxed);
    allow();
}

/// The process begins with what was learnt elsewhere. To be called before the process enters its mode.
pub(crate) fn begin_with(prior: &Mode) {
    let mut state = STATE.lock();
    state.prior = Some(*prior);
    begin_anew(&mut state);
}

/// Begins anew, from what was learnt elsewhere if there is that.
fn begin_anew(state: &mut State) {
    let State { tuner, prior, is_large, .. } = state;
    tuner.begin(candidates(prior.as_ref(), *is_large), prior.as_ref());
    for operation in [Operation::Allocate, Operation::Grow] {
        for row in 0..ROWS {
            let subject = Subject { operation, row };
            choose(tuner, Choice { subject, arm: tuner.chosen(subject) });
        }
    }
}

/// A row is an allocator's from the next table on. To its usual one it goes with all that the mode says of it.
fn choose(tuner: &Tuner, Choice { subject, arm }: Choice) {
    let byte = if arm == tuner.usual(subject) { USUAL } else { arm as u8 };
    CHOICES[subject.operation as usize][subject.row].store(byte, Relaxed);
}

/// Whether requests are being timed.
#[inline]
pub(crate) fn is_open() -> bool {
    OPEN_UNTIL_NS.load(Relaxed) != 0
}

/// For every request that the caches have no object for: now and then a window is opened. To be called
/// where memory may be allocated, and without a lock.
#[inline]
pub(crate) fn tick() {
    let own = thread_slot();
    let count = own.slow_requests.get().wrapping_add(1);
    own.slow_requests.set(count);
    if count.is_multiple_of(LOOK_EVERY) {
        look();
    }
}

#[cold]
#[inline(never)]
fn look() {
    if youth::is_now() {
        return;
    }
    spandrel_backends::heed_limit_now_and_then();
    if !ALLOWED.load(Relaxed) {
        return;
    }
    let now = clock::coarse_ms();
    if now < NEXT_MS.load(Relaxed) || is_open() {
        return;
    }
    if let Some(mut state) = STATE.try_lock() {
        NEXT_MS.store(now + LATER_MS, Relaxed);
        open(&mut state);
    }
}

/// Opens a window, if one may be opened now.
fn open(state: &mut State) {
    let used = usage::of_process();
    let is_restless = RESTLESS.load(Relaxed);
    if used.cpu_us < FIRST_LOOK_US && !is_restless {
        return;
    }
    let is_large = used.peak_bytes >= LARGE_BYTES || is_restless;
    if !state.has_begun || is_large && !state.is_large {
        (state.has_begun, state.is_large) = (true, is_large);
        begin_anew(state);
        (state.since_us, state.since_faults) = (used.cpu_us, used.faults);
        measure_clock();
    }
    let explored = if is_restless { any_choice() } else { state.tuner.exploring() };
    let explored = explored.filter(|choice| {
        let can_be_had = with_backend!(choice.arm, B => B::start());
        if !can_be_had {
            state.tuner.forget(choice.arm);
        }
        can_be_had
    });
    if !modes::look_at_all() {
        return;
    }
    let code = explored.map_or(u32::MAX, |choice| {
        let Choice { subject: Subject { operation, row }, arm } = choice;
        (operation as u32) << 16 | (row as u32) << 8 | arm as u32
    });
    EXPLORED.store(code, Relaxed);
    if !observed::is_on() {
        slices::look_at_frees(true);
    }
    state.busy_us = clock::process_micros();
    OPEN_UNTIL_NS.store(clock::nanos() + WINDOW_NS, Relaxed);
}

/// The allocators that may be tried: in small processes only those that are in use, what was learnt elsewhere
/// having begun the ones that it names.
fn candidates(prior: Option<&Mode>, is_large: bool) -> Available {
    // What others serve is not counted against a limit.
    if budget::hard().is_some() || budget::soft().is_some() {
        return Available::BASE.without(AllocatorId::Sys);
    }
    let is_named =
        |arm: &AllocatorId| prior.is_some_and(|prior| prior.has(*arm)) && available().has(*arm);
    let others = if is_large { available() } else { Available::BASE };
    AllocatorId::ALL.into_iter().filter(is_named).fold(others, |all, arm| {
        if with_backend!(arm, B => B::start()) { all.with(arm) } else { all.without(arm) }
    })
}

/// A choice that was drawn.
fn any_choice() -> Option<Choice> {
    // SplitMix64: the steps of a sequence, well mixed.
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let mut drawn = STEPS.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    drawn = (drawn ^ drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    drawn = (drawn ^ drawn >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut draw = |of: u64| {
        let number = drawn % of;
        drawn /= of;
        number as usize
    };
    let operation = if draw(2) == 0 { Operation::Allocate } else { Operation::Grow };
    // From 16 B to a mebibyte.
    let row = 4 + draw(17);
    let arm = *AllocatorId::ALL.get(draw(ARMS as u64))?;
    let may = candidates(None, true).has(arm) && (arm != AllocatorId::Mmap || row >= 12);
    may.then_some(Choice { subject: Subject { operation, row }, arm })
}

/// Notes what it takes to look at the clock.
fn measure_clock() {
    let look = |_| {
        let before = clock::nanos();
        clock::nanos().saturating_sub(before)
    };
    CLOCK_NS.store((0..16).map(look).min().unwrap_or(0), Relaxed);
}

/// Ends a window whose time is over; of the threads that come to do it, one does.
#[cold]
#[inline(never)]
fn close() {
    let Some(mut state) = STATE.try_lock() else { return };
    if !is_open() || !modes::publish_choices() {
        return;
    }
    OPEN_UNTIL_NS.store(0, Relaxed);
    EXPLORED.store(u32::MAX, Relaxed);
    if !observed::is_on() {
        slices::look_at_frees(false);
    }
    learn(&mut state);
}

/// Hands what the window has seen to the tuner.
fn learn(state: &mut State) {
    let used = usage::of_process();
    let cells = CELLS.iter().flatten().flatten();
    for (tally, cell) in state.tallies.iter_mut().flatten().flatten().zip(cells) {
        *tally = Tally {
            count: cell.count.swap(0, Relaxed),
            nanos: cell.nanos.swap(0, Relaxed),
            squares: cell.squares.swap(0, Relaxed),
        };
    }
    let resident = if state.tuner.wants_resident() { usage::resident_bytes() } else { 0 };
    let next = state.tuner.learn(&Window {
        busy_ns: clock::process_micros().saturating_sub(state.busy_us) * 1000,
        since_ns: used.cpu_us.saturating_sub(state.since_us) * 1000,
        faults: used.faults.saturating_sub(state.since_faults),
        fault_ns: usage::fault_nanos(),
        resident_pages: (resident / PAGE_BYTES) as u64,
        tallies: &state.tallies,
    });
    (state.since_us, state.since_faults) = (used.cpu_us, used.faults);
    let is_restless = RESTLESS.load(Relaxed);
    let pause_ms = if is_restless { 1 } else { next.pause_ms };
    NEXT_MS.store(clock::coarse_ms() + u64::from(pause_ms), Relaxed);
    let change = if is_restless { any_choice() } else { next.change };
    let change = change.filter(|choice| with_backend!(choice.arm, B => B::start()));
    if let Some(change) = change {
        state.tuner.note_resident((usage::resident_bytes() / PAGE_BYTES) as u64);
        choose(&state.tuner, change);
        // Else with the next window.
        modes::publish_choices();
    }
}

/// Puts what was chosen into the process's table, which has the mode's own decisions.
pub(crate) fn set_rows(table: &Table) {
    let chosen = |operation: Operation, row: usize| {
        let byte = CHOICES[operation as usize][row].load(Relaxed);
        (byte != USUAL).then_some(Decision(byte))
    };
    for row in 0..ROWS {
        let made = chosen(Operation::Allocate, row);
        if let Some(made) = made {
            table.set_row(Operation::Allocate, row, made);
        }
        // The owner of an object grows it, too, as long as its size stays in the row: or it would be copied to
        // the usual one at once. What is mapped by pages goes there: it grows without a copy.
        let usual = table.decide(Operation::Grow, sizes_of(row).0).allocator();
        let follows =
            made.filter(|_| usual != AllocatorId::Mmap && table.is_plain(Operation::Grow, row));
        if let Some(grown) = chosen(Operation::Grow, row).or(follows) {
            table.set_row(Operation::Grow, row, grown);
        }
    }
}

/// When a request began, if it is to be timed.
#[inline]
pub(crate) fn begin(decision: Decision) -> Option<u64> {
    (decision.has(Decision::COUNTED) && is_open()).then(clock::nanos)
}

/// The decision for a request in a window: the usual one, or what is explored.
pub(crate) fn steer(operation: Operation, size: usize, decision: Decision) -> Decision {
    let code = EXPLORED.load(Relaxed);
    if code >> 8 != (operation as u32) << 8 | row_of(size) as u32 {
        return decision;
    }
    Decision(code as u8 | decision.0 & Decision::COUNTED)
}

/// Notes what a request took that began at some time. The size is that which was asked for, of what is
/// freed that which the allocator made of it; the two may lie on either side of a power of two.
pub(crate) fn note(kind: Kind, size: usize, arm: AllocatorId, began_ns: u64) {
    let now = clock::nanos();
    let nanos = now.saturating_sub(began_ns + CLOCK_NS.load(Relaxed)).min(LONGEST_NS);
    let cell = &CELLS[kind as usize][row_of(size)][arm.named() as usize % ARMS];
    cell.count.fetch_add(1, Relaxed);
    cell.nanos.fetch_add(nanos, Relaxed);
    cell.squares.fetch_add(nanos * nanos, Relaxed);
    let until = OPEN_UNTIL_NS.load(Relaxed);
    if until != 0 && now >= until {
        close();
    }
}

/// Frees an object in a window.
///
/// # Safety
/// As for [`crate::free`]; the object is that allocator's.
pub(crate) unsafe fn free(object: *mut u8, owner: AllocatorId) {
    // SAFETY: passed on from the caller.
    let size = with_backend!(owner, B => unsafe { B::usable_size(object) });
    let began = clock::nanos();
    // SAFETY: as above.
    with_backend!(owner, B => unsafe { B::free(object) });
    note(Kind::Freed, size, owner, began);
}

/// Keeps windows from being opened or closed while the guard lives.
pub(crate) fn hold() -> LockGuard<'static, impl Sized> {
    STATE.lock()
}

/// What has been learnt so far.
pub(crate) fn with_learnt<R>(tell: impl FnOnce(&Tuner) -> R) -> R {
    tell(&STATE.lock().tuner)
}

/// Takes the lock before a `fork`.
pub(crate) fn fork_prepare() {
    STATE.acquire();
}

/// Gives the lock back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub(crate) unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe { STATE.release() }
}

/// In the child of a fork: what the kernel has counted for the process begins anew. What was learnt stays.
pub(crate) fn forget_usage() {
    if let Some(mut state) = STATE.try_lock() {
        (state.since_us, state.since_faults, state.busy_us) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the mode, with what was chosen.
    fn table() -> Table {
        let table = Table::blank();
        table.compile(&Mode::Auto, Available::BASE, false);
        set_rows(&table);
        table
    }

    #[test]
    fn a_row_that_goes_back_is_as_it_was_and_growing_objects_follow_new_ones() {
        static TUNER: Lock<Tuner> = Lock::new(Tuner::blank());
        let mut tuner = TUNER.lock();
        tuner.begin(Available::BASE, None);
        let choose_for = |row, arm| {
            let subject = Subject { operation: Operation::Allocate, row };
            choose(&tuner, Choice { subject, arm });
        };
        let decided = |operation, size| table().decide(operation, size);
        let before = [64, 4096, 8192].map(|size| decided(Operation::Allocate, size));
        assert!(before[1].is_plainly_if_warm());
        for row in [6, 12, 13] {
            choose_for(row, AllocatorId::Sys);
        }
        for size in [64, 112, 4096, 8192] {
            assert_eq!(decided(Operation::Allocate, size).allocator(), AllocatorId::Sys);
        }
        assert_eq!(decided(Operation::Grow, 64).allocator(), AllocatorId::Sys);
        assert_eq!(decided(Operation::Grow, 200).allocator(), AllocatorId::Native);
        let warm = decided(Operation::Grow, 8192);
        assert!(warm.is_plainly_if_warm() && warm.allocator() == AllocatorId::Native);
        choose_for(17, AllocatorId::Sys);
        assert_eq!(decided(Operation::Allocate, 200_000).allocator(), AllocatorId::Sys);
        assert_eq!(decided(Operation::Grow, 200_000).allocator(), AllocatorId::Mmap);
        for row in [6, 12, 13] {
            choose_for(row, AllocatorId::Native);
        }
        choose_for(17, AllocatorId::Mmap);
        assert_eq!([64, 4096, 8192].map(|size| decided(Operation::Allocate, size)), before);
        assert_eq!(decided(Operation::Grow, 64).allocator(), AllocatorId::Native);
    }
}
