//! Commands: functions of the program that read or change the state.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use crate::cancellation;
use crate::current::{self, Kind, Outside};
use crate::failure::{self, Failure};
use crate::handle::{SpandrelDurable, known};
use crate::translated::{self, Kept};

/// A function of the program. A command that unwinds ends the process: see the crate's head.
pub type Command = unsafe extern "C-unwind" fn(*mut SpandrelDurable, *mut c_void) -> c_int;

/// A function with its arguments, for any thread.
pub struct Call {
    handle: *const SpandrelDurable,
    command: Command,
    argument: *mut c_void,
    /// What libraries keep of it, if it is undone.
    kept: Mutex<Vec<Kept>>,
}

// SAFETY: the header says that any thread may call the function, while the thread that has handed it over waits.
unsafe impl Sync for Call {}

impl Call {
    pub fn new(handle: *const SpandrelDurable, command: Command, argument: *mut c_void) -> Self {
        Self { handle, command, argument, kept: Mutex::default() }
    }

    #[cold]
    fn keep(&self, kept: Vec<Kept>) {
        if let Ok(mut place) = self.kept.lock() {
            *place = kept;
        }
    }

    /// Calls the function.
    ///
    /// # Safety
    /// The calling thread runs no command, and has the right to what `kind` says.
    pub unsafe fn run(&self, kind: Kind) -> c_int {
        // SAFETY: promised by the caller; a handle outlives its commands, and the state owns the arena.
        unsafe {
            let arena = (*self.handle).arena();
            let _running = current::begin(self.handle, arena, kind);
            let command = || (self.command)(self.handle.cast_mut(), self.argument);
            let notes = (*arena).medium().notes();
            match kind {
                // What unwinds out of it ends the process.
                Kind::Write if notes.how().is_translated() => {
                    let result = notes.run(command);
                    let kept = translated::after(&*arena, result < 0);
                    if !kept.is_empty() {
                        self.keep(kept);
                    }
                    result
                }
                _ => command(),
            }
        }
    }
}

/// Runs a command that reads: what it returns, or -1. See the header.
///
/// # Safety
/// `handle` is null or a handle; `command` may be called with it and `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_read(
    handle: *mut SpandrelDurable,
    command: Option<Command>,
    argument: *mut c_void,
) -> c_int {
    let read = || {
        current::check_outside()?;
        // SAFETY: promised by the caller.
        let known = unsafe { known(handle)? };
        let call = Call::new(known, command.ok_or(Failure::Null)?, argument);
        known.check_process()?;
        // SAFETY: the thread is inside as a reader.
        let result = known.open()?.db.read(|_| unsafe { call.run(Kind::Read) });
        if result < 0 { Err(Failure::Refused(result)) } else { Ok(result) }
    };
    cancellation::held(|| failure::count(read()))
}

/// Runs a command that writes, and returns when its effects are durable: what the command returned, or -1. See the header.
///
/// # Safety
/// As for [`spandrel_durable_read`]; any thread may call the command meanwhile, once or more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_write(
    handle: *mut SpandrelDurable,
    command: Option<Command>,
    argument: *mut c_void,
) -> c_int {
    let write = || {
        current::check_outside()?;
        // SAFETY: promised by the caller.
        let known = unsafe { known(handle)? };
        let call = Call::new(known, command.ok_or(Failure::Null)?, argument);
        let outcome = known.open()?.db.try_write(|_| {
            // SAFETY: the thread runs the batch of the command, and no other command meanwhile.
            let result = unsafe { call.run(Kind::Write) };
            if result < 0 { Err(Failure::Refused(result)) } else { Ok(result) }
        });
        let kept = call.kept.into_inner().unwrap_or_default();
        if !kept.is_empty() {
            // SAFETY: a handle outlives its commands, and the state owns the arena.
            let look = || unsafe { translated::undone(&*known.arena(), &kept) };
            known.open()?.db.alone(look);
        }
        outcome?
    };
    cancellation::held(|| failure::count(write()))
}

/// Calls a function, whose allocations are the process's also within a command: what the function returned. See the header.
///
/// # Safety
/// The function may be called with the argument.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn spandrel_durable_outside(
    function: Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>,
    argument: *mut c_void,
) -> c_int {
    let Some(function) = function else { return failure::number(Err(Failure::Null)) };
    let _outside = Outside::enter();
    // SAFETY: promised by the caller.
    unsafe { function(argument) }
}
