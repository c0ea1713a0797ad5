//! From load until init: a new state has what the main thread allocates.

use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;

use spandrel::durable::{Opening, Options};

use super::VARIABLES;
use crate::current;
use crate::failure::Failure;
use crate::regions;

/// Where the state lies.
const DIRECTORY: &str = "SPANDREL_DURABLE_DIR";

/// What load has found, for init.
pub struct Early {
    pub directory: PathBuf,
    pub opening: Result<Opening, Failure>,
}

thread_local! {
    /// Of the thread that loads the program. Without a destructor: functions of `atexit` come after those of a thread's values, and may use the state.
    static EARLY: RefCell<Option<ManuallyDrop<Early>>> = const { RefCell::new(None) };
}

/// Recovers the state of the program, before `main`: always 0; init says why it has failed. A program that includes `mangosteen.h` has its loader call
/// this.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_load() -> c_int {
    // A program with the rights of another user takes no path from its caller.
    // SAFETY: reads the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return 0;
    }
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return 0 };
    if is_loaded() || current::check_outside().is_err() {
        return 0;
    }
    let opening = Opening::begin(&directory, Options::new()).map_err(Failure::from);
    if let Ok(opening) = &opening {
        // Other threads of the program may store to what this one allocates there, and that is not captured.
        regions::add(opening.arena());
    }
    // Not what is said of the files: a process that was killed before init has made them.
    let is_new = |opening: &Opening| matches!(opening.arena().find_root(VARIABLES), Ok(None));
    if let Ok(opening) = &opening
        && is_new(opening)
    {
        // SAFETY: `take` ends it before the arena goes.
        unsafe { current::begin_early(Arc::as_ptr(opening.arena())) };
    }
    EARLY.with(|place| *place.borrow_mut() = Some(ManuallyDrop::new(Early { directory, opening })));
    0
}

fn is_loaded() -> bool {
    EARLY.with(|place| place.borrow().is_some())
}

/// What load has found. The thread's allocations are no longer the state's, but that its first batch goes on.
///
/// # Errors
/// [`Failure::Wrong`].
pub fn take() -> Result<Early, Failure> {
    current::end_early();
    let early = EARLY.with(|place| place.borrow_mut().take()).map(ManuallyDrop::into_inner);
    early.ok_or(Failure::Wrong(
        "no state was loaded; set SPANDREL_DURABLE_DIR to its directory, include mangosteen.h in the program, and call init once, in the thread that runs main",
    ))
}
