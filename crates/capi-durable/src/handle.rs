//! `spandrel_durable`: an open state, as C knows it.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use std::sync::{Arc, OnceLock};

use spandrel::durable::{Arena, Durable, Error, Opening};

use crate::commands::{Call, Command};
use crate::current::{self, Kind};
use crate::failure::{self, Failure};
use crate::options::{self, SpandrelDurableOptions};
use crate::{cancellation, regions, translated};

/// An open state. Its address is what C has.
pub struct SpandrelDurable {
    /// Not set while `init` runs.
    db: OnceLock<Open>,
    /// The arena, which the state owns as well. Null before `init` runs.
    arena: Cell<*const Arena>,
}

// SAFETY: the pointer to the arena is written before any other thread has the handle.
unsafe impl Sync for SpandrelDurable {}

/// What there is when `init` has returned.
pub struct Open {
    pub db: Durable<State>,
    /// How a batch becomes durable, for C.
    pub medium: CString,
}

/// The state itself: all of it lies in the arena, for which this is a place.
pub struct State(
    #[allow(dead_code, reason = "keeps the arena, whose address the handle has")] Arc<Arena>,
);

impl SpandrelDurable {
    /// What is open.
    ///
    /// # Errors
    /// [`Failure::Nested`]: `init` runs.
    pub fn open(&self) -> Result<&Open, Failure> {
        self.db.get().ok_or(Failure::Nested)
    }

    /// The arena, which lives as long as the state is open.
    pub fn arena(&self) -> *const Arena {
        self.arena.get()
    }

    /// Refuses a child of the process that has opened the state.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn check_process(&self) -> Result<(), Failure> {
        // SAFETY: a handle that C has is past the beginning of `init`, and the state owns the arena.
        if unsafe { (*self.arena.get()).is_forked() } { Err(Error::Forked.into()) } else { Ok(()) }
    }
}

/// A handle.
///
/// # Errors
/// [`Failure::Null`].
///
/// # Safety
/// Null, or a handle.
pub unsafe fn known<'a>(handle: *const SpandrelDurable) -> Result<&'a SpandrelDurable, Failure> {
    // SAFETY: promised by the caller.
    unsafe { handle.as_ref() }.ok_or(Failure::Null)
}

/// Opens a state: a handle, or null. See the header.
///
/// # Safety
/// `directory` is null or a string, `given` null or the options; `init` may be called with the handle and `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_open(
    directory: *const c_char,
    given: *const SpandrelDurableOptions,
    init: Option<Command>,
    context: *mut c_void,
) -> *mut SpandrelDurable {
    let given_path = (!directory.is_null()).then_some(directory);
    // SAFETY: promised by the caller.
    let bytes = given_path.map_or(&b""[..], |path| unsafe { CStr::from_ptr(path) }.to_bytes());
    let path = Path::new(OsStr::from_bytes(bytes));
    let open = || {
        current::check_outside()?;
        if directory.is_null() {
            return Err(Failure::Null);
        }
        // SAFETY: promised by the caller.
        let options = unsafe { options::read(given)? };
        let opening = Opening::begin(path, options)?;
        let opened = finish(opening, |handle, arena| {
            // SAFETY: the thread has begun the first batch; the arena lies behind an `Arc`.
            unsafe { translated::begin(arena)? };
            let Some(init) = init else { return Ok(()) };
            let call = Call::new(handle, init, context);
            // SAFETY: promised by the caller; the thread runs no command, and has begun the first batch.
            let result = unsafe { call.run(Kind::Write) };
            if result < 0 { Err(Failure::Refused(result)) } else { Ok(()) }
        });
        opened.map(|(handle, ())| handle)
    };
    cancellation::held(|| failure::opened(open(), path))
}

/// Opens a state that was recovered, in a new handle. `init` ends the first batch, and gives what the caller is to have.
///
/// # Errors
/// Those of `init`, and of the state.
pub fn finish<T>(
    opening: Opening,
    init: impl FnOnce(*mut SpandrelDurable, &Arena) -> Result<T, Failure>,
) -> Result<(*mut SpandrelDurable, T), Failure> {
    if opening.arena().is_forked() {
        return Err(spandrel::durable::Error::Forked.into());
    }
    let (db, arena) = (OnceLock::new(), Cell::new(ptr::null()));
    let handle = Box::into_raw(Box::new(SpandrelDurable { db, arena }));
    // SAFETY: just made.
    let known = unsafe { &*handle };
    let mut found = None;
    // What another thread stores to it meanwhile is not captured either.
    let arena = Arc::clone(opening.arena());
    regions::add(&arena);
    let db = opening.finish(|arena| {
        known.arena.set(Arc::as_ptr(arena));
        let outcome = init(handle, arena);
        let is_well = outcome.is_ok();
        found = Some(outcome);
        let state = State(Arc::clone(arena));
        if is_well { Ok(state) } else { Err(spandrel_pheap::Error::System(libc::ECANCELED)) }
    });
    let why = match (db, found) {
        (Ok(db), Some(Ok(found))) => {
            let medium = CString::new(db.medium()).unwrap_or_default();
            // It is empty until now.
            let _ = known.db.set(Open { db, medium });
            return Ok((handle, found));
        }
        (_, Some(Err(why))) => why,
        (Err(why), _) => why.into(),
        (Ok(_), None) => Failure::Null,
    };
    regions::remove(Arc::as_ptr(&arena));
    // SAFETY: nothing has it.
    drop(unsafe { Box::from_raw(handle) });
    Err(why)
}

/// The state of a program whose own memory it is; null: there is none.
static OF_PROGRAM: AtomicPtr<SpandrelDurable> = AtomicPtr::new(ptr::null_mut());

/// The state is never closed.
#[cfg(feature = "programs")]
pub fn keep(handle: *mut SpandrelDurable) {
    OF_PROGRAM.store(handle, Release);
}

const STAYS_OPEN: Failure = Failure::Wrong(
    "the program's own state stays open until the process ends; close states of spandrel_durable_open only",
);

/// Closes a state: 0, or -1. The handle is freed in either case, but for EDEADLK, EPERM and EINVAL.
///
/// # Safety
/// Null, or a handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_close(handle: *mut SpandrelDurable) -> c_int {
    let close = || {
        current::check_outside()?;
        // SAFETY: promised by the caller.
        let known = unsafe { known(handle)? };
        known.check_process()?;
        // Another thread's `init` has the handle.
        known.open()?;
        if ptr::eq(handle, OF_PROGRAM.load(Acquire)) {
            return Err(STAYS_OPEN);
        }
        regions::remove(known.arena());
        // SAFETY: made by `spandrel_durable_open` of a box, and used no more.
        let mut handle = unsafe { Box::from_raw(handle) };
        let open = handle.db.take().ok_or(Failure::Nested)?;
        open.db.close().map_err(Failure::from)
    };
    cancellation::held(|| failure::number(close()))
}
