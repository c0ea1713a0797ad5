//! The tables in force: the process's, and those of scopes.
//!
//! A mode is compiled once and kept for good in a bounded pool, so that a
//! scope's table never dangles. The process's decisions are copied to a table
//! at a fixed address, which the hot path reads without following a pointer.
//! Once a thread has entered a scope that table sends every request the slow
//! way, which looks at the thread's slot: programs without scopes never pay.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

use spandrel_os::live;
use spandrel_os::message::Line;
use spandrel_pages::live::Stage;
use spandrel_policy::{
    Available, Decision, Mode, ModeError, Operation, Switch, Table, exact, parse_mode,
};
use spandrel_sync::{Lock, ThreadSlot, thread_slot};

use crate::available;
use crate::backend::start_named_by;
use crate::{observed, tuner};

/// Most different modes that a process may use in its life.
const POOL: usize = 32;

#[repr(C)]
struct Compiled {
    /// First, so that a pointer to it is one to the table.
    table: Table,
    /// The mode, and which of its allocators can be had; written once, before
    /// the entry is published.
    mode: UnsafeCell<MaybeUninit<(Mode, Available)>>,
    /// The mode's name, ended by a zero byte; written with it.
    name: UnsafeCell<Line>,
}

// SAFETY: `mode` and `name` are written under the pool's lock before `FILLED` covers the
// entry, and only read after that; the table consists of atomics.
unsafe impl Sync for Compiled {}

impl Compiled {
    /// An entry that is not in use yet, in untouched memory.
    const fn blank() -> Self {
        Compiled {
            table: Table::blank(),
            mode: UnsafeCell::new(MaybeUninit::uninit()),
            name: UnsafeCell::new(Line::new()),
        }
    }
}

static POOL_ENTRIES: [Compiled; POOL] = [const { Compiled::blank() }; POOL];
static FILLED: AtomicUsize = AtomicUsize::new(0);
static ADDING: Lock<()> = Lock::new(());
/// What the hot path reads.
static ACTIVE: Table = Table::elsewhere();
static SCOPES_USED: AtomicBool = AtomicBool::new(false);
/// In force before the start: every decision goes the slow way.
static UNSET: Compiled = Compiled {
    table: Table::elsewhere(),
    mode: UnsafeCell::new(MaybeUninit::new((Mode::Auto, Available::BASE))),
    name: UnsafeCell::new(Line::new()),
};
static CURRENT: AtomicPtr<Compiled> = AtomicPtr::new((&raw const UNSET).cast_mut());

/// Why a mode could not be entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeChange<'a> {
    /// The text is no mode, or needs an allocator that is not built in.
    Refused(ModeError<'a>),
    /// The process has used 32 different modes already.
    TooMany,
}

impl core::fmt::Display for ModeChange<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::TooMany => write!(f, "a process can use at most {POOL} different modes"),
        }
    }
}

impl core::error::Error for ModeChange<'_> {}

/// The table of the whole process.
#[inline(always)]
pub(crate) fn table() -> &'static Table {
    &ACTIVE
}

/// Has requests of the process looked at for [`crate::early`], or not. Does nothing while
/// another thread changes the mode: the next call does it.
pub(crate) fn look_early(look: bool) {
    if !look {
        ACTIVE.look_early(false);
    } else if let Some(_adding) = ADDING.try_lock() {
        ACTIVE.look_early(true);
    }
}

/// The table of the current scope, or the process's.
pub(crate) fn table_of_thread() -> &'static Table {
    &compiled().table
}

fn compiled() -> &'static Compiled {
    let scope = ThreadSlot::current_scope().cast::<Compiled>();
    let chosen = if scope.is_null() { CURRENT.load(Relaxed).cast_const() } else { scope };
    // SAFETY: both point to `UNSET` or into the pool, which live forever.
    unsafe { &*chosen }
}

/// Makes the hot path see the process's mode. The caller holds `ADDING`.
fn publish() {
    if SCOPES_USED.load(Relaxed) {
        ACTIVE.send_elsewhere();
    } else {
        // SAFETY: as in `compiled`.
        let current = unsafe { &*CURRENT.load(Acquire) };
        ACTIVE.copy_from(&current.table);
        if mode_of(current) == Mode::Auto {
            tuner::set_rows(&ACTIVE);
        }
    }
}

/// What the tuner has changed comes into force. False: not now, another thread changes the mode.
pub(crate) fn publish_choices() -> bool {
    let adding = ADDING.try_lock();
    if adding.is_some() {
        publish();
    }
    adding.is_some()
}

/// Sends the requests of the process the way on which they are looked at, for a short time: until
/// [`publish_choices`]. False: not now, or the process is not in `auto`, or has scopes.
pub(crate) fn look_at_all() -> bool {
    let Some(_adding) = ADDING.try_lock() else { return false };
    // SAFETY: as in `compiled`.
    let is_auto = mode_of(unsafe { &*CURRENT.load(Acquire) }) == Mode::Auto;
    if !is_auto || SCOPES_USED.load(Relaxed) {
        return false;
    }
    ACTIVE.look_at_all();
    true
}

fn parts_of(compiled: &Compiled) -> (Mode, Available) {
    // SAFETY: see `unsafe impl Sync`; a caller that knows of an entry knows it from `FILLED`, from
    // `CURRENT` or from a scope, and each of them only names what was written.
    unsafe { (*compiled.mode.get()).assume_init() }
}

fn mode_of(compiled: &Compiled) -> Mode {
    parts_of(compiled).0
}

/// The decision of the mode itself, for classes that a boundary cuts.
pub(crate) fn decide_exactly(operation: Operation, size: usize) -> Decision {
    let (mode, usable) = parts_of(compiled());
    exact(&mode, usable, operation, size)
}

/// Value of the allocation counter at which an object moves to pages.
pub(crate) fn switch_threshold() -> u8 {
    match mode_of(compiled()) {
        Mode::Switch(switch) => switch.threshold,
        _ => Switch::DEFAULT.threshold,
    }
}

fn intern(mode: &Mode) -> Option<&'static Compiled> {
    let filled = |n: usize| POOL_ENTRIES.iter().take(n);
    let known = |n: usize| filled(n).find(|entry| mode_of(entry) == *mode);
    if let Some(entry) = known(FILLED.load(Acquire)) {
        return Some(entry);
    }
    let _adding = ADDING.lock();
    let count = FILLED.load(Acquire);
    if let Some(entry) = known(count) {
        return Some(entry);
    }
    let entry = POOL_ENTRIES.get(count)?;
    let usable = start_named_by(mode);
    // SAFETY: the entry is beyond `FILLED`: no thread reads it, and the lock makes
    // this thread the only one to write.
    unsafe {
        (*entry.mode.get()).write((*mode, usable));
        // A line never fails; it cuts.
        let _ = write!(*entry.name.get(), "{mode}");
    }
    entry.table.compile(mode, usable, observed::is_on());
    FILLED.store(count + 1, Release);
    Some(entry)
}

/// Recompiles every table so that requests are looked at, or not.
pub(crate) fn recompile(counted: bool) {
    let _adding = ADDING.lock();
    for entry in POOL_ENTRIES.iter().take(FILLED.load(Acquire)) {
        let (mode, usable) = parts_of(entry);
        entry.table.compile(&mode, usable, counted);
    }
    publish();
}

/// Puts the whole process into a mode. Requests in flight end in the old one.
///
/// # Errors
/// The pool of modes is full.
pub(crate) fn set_parsed(mode: &Mode) -> Result<(), ModeChange<'static>> {
    let entry = intern(mode).ok_or(ModeChange::TooMany)?;
    let _adding = ADDING.lock();
    CURRENT.store((&raw const *entry).cast_mut(), Release);
    live::set_mode(mode);
    live::set_stage(Stage::Serving);
    publish();
    Ok(())
}

fn parse(text: &str) -> Result<Mode, ModeChange<'_>> {
    let mode = parse_mode(text).map_err(ModeChange::Refused)?;
    mode.check(text, available()).map_err(ModeChange::Refused)?;
    Ok(mode)
}

/// Puts the whole process into the mode of that name (see the manual for the
/// names). Objects stay where they are.
///
/// # Errors
/// The text is refused, or too many different modes were used.
pub fn set_mode(text: &str) -> Result<(), ModeChange<'_>> {
    crate::start::start_in_full();
    set_parsed(&parse(text)?)
}

/// The process's mode.
pub fn current_mode() -> Mode {
    crate::start::start_from_environment();
    // SAFETY: as in `compiled`.
    mode_of(unsafe { &*CURRENT.load(Acquire) })
}

/// The name of the process's mode, as [`set_mode`] reads it. It stays valid: a
/// mode that was once used is kept.
pub fn mode_name() -> &'static CStr {
    crate::start::start_from_environment();
    // SAFETY: as in `compiled`; the name was written before the entry was published.
    let name = unsafe { &*(*CURRENT.load(Acquire)).name.get() };
    match name.as_c_str() {
        Some(name) if !name.is_empty() => name,
        _ => c"auto",
    }
}

/// Enters a mode on this thread until [`leave_scope`]; nestable.
///
/// Returns what `leave_scope` needs.
///
/// # Errors
/// As for [`set_mode`].
pub fn enter_scope(text: &str) -> Result<*const c_void, ModeChange<'_>> {
    crate::start::start_in_full();
    let entry = intern(&parse(text)?).ok_or(ModeChange::TooMany)?;
    if !SCOPES_USED.load(Acquire) {
        let _adding = ADDING.lock();
        ACTIVE.send_elsewhere();
        // Only now: a thread that sees it relies on every request looking at its scope.
        SCOPES_USED.store(true, Release);
    }
    let slot = thread_slot();
    Ok(slot.scope.replace((&raw const *entry).cast()))
}

/// Leaves the innermost scope of this thread.
///
/// # Safety
/// `previous` came from the matching [`enter_scope`] on this thread.
pub unsafe fn leave_scope(previous: *const c_void) {
    thread_slot().scope.set(previous);
}

/// No scope, as an index.
const NO_SCOPE: u8 = u8::MAX;

/// A scope, as [`enter_scope`] returns it, in one byte.
pub fn scope_index(scope: *const c_void) -> u8 {
    POOL_ENTRIES
        .iter()
        .position(|entry| core::ptr::eq((&raw const *entry).cast(), scope))
        .map_or(NO_SCOPE, |index| index as u8)
}

/// The scope of an index from [`scope_index`].
pub fn scope_at(index: u8) -> *const c_void {
    POOL_ENTRIES.get(index as usize).map_or(core::ptr::null(), |entry| (&raw const *entry).cast())
}

/// Runs `body` in a mode on this thread; the previous mode is back afterwards,
/// also when `body` unwinds.
///
/// # Errors
/// As for [`set_mode`]; `body` is not run then.
pub fn with_mode<'a, T>(text: &'a str, body: impl FnOnce() -> T) -> Result<T, ModeChange<'a>> {
    struct Restore(*const c_void);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: created by the matching `enter_scope` below.
            unsafe { leave_scope(self.0) }
        }
    }
    let _restore = Restore(enter_scope(text)?);
    Ok(body())
}

/// The lock that a fork must hold.
pub(crate) fn fork_lock() -> &'static Lock<()> {
    &ADDING
}
