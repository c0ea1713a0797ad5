//! Clients: the program's functions for requests (Mangosteen, Listing 1), and the one state that they run on.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel::durable::{Durable, Opening};

use crate::cancellation;
use crate::current;
use crate::failure::{self, Failure};
use crate::handle::{SpandrelDurable, State};
use crate::options;

use super::allocations::Frees;
use super::early::{self, Early};
use super::server::SpandrelDurableResponse;
use super::variables::Variables;

type Params = *mut c_void;

/// The functions that are needed, and the others.
struct Given {
    is_read_only: unsafe extern "C-unwind" fn(*mut c_void) -> bool,
    process: unsafe extern "C-unwind" fn(*mut c_void),
    others: Functions,
}

/// `struct spandrel_durable_callbacks`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpandrelDurableCallbacks {
    struct_size: usize,
    is_read_only: Option<unsafe extern "C-unwind" fn(*mut c_void) -> bool>,
    process: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    others: Functions,
}

/// The functions that only a server needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Functions {
    pub init_client: Option<unsafe extern "C-unwind" fn(Params) -> *mut c_void>,
    pub destroy_client: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    pub deserialize: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void)>,
    pub response: Option<unsafe extern "C-unwind" fn(*mut c_void) -> *mut SpandrelDurableResponse>,
    /// The length of the first request of some bytes; 0: it has not come whole.
    pub frame: Option<unsafe extern "C-unwind" fn(*const c_void, usize) -> usize>,
}

/// The program's, for a server.
///
/// # Errors
/// [`Failure::Wrong`], [`Failure::Null`]: a server needs functions for clients and for the lengths of requests.
pub fn functions() -> Result<&'static Functions, Failure> {
    let functions = &PROGRAM.get().ok_or(NOT_STARTED)?.functions;
    let is_whole = functions.init_client.is_some() && functions.frame.is_some();
    if is_whole { Ok(functions) } else { Err(Failure::Null) }
}

const NOT_STARTED: Failure =
    Failure::Wrong("the program's state is not open; call spandrel_durable_start first");

/// The program's state, once init has returned.
struct Program {
    handle: *mut SpandrelDurable,
    variables: Variables,
    /// Commands that had been undone when the variables last were those of the state: see `Durable::undone`.
    undone: AtomicU64,
    is_read_only: unsafe extern "C-unwind" fn(*mut c_void) -> bool,
    process: unsafe extern "C-unwind" fn(*mut c_void),
    functions: Functions,
}

// SAFETY: the handle is used as `spandrel_durable.h` has it, by any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Begins commands on the program's state: 0, or -1. See the header.
///
/// # Safety
/// `given` is null or as its first word says; its functions may be called by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_start(given: *const SpandrelDurableCallbacks) -> c_int {
    let start = || {
        if given.is_null() {
            return Err((Failure::Null, PathBuf::new()));
        }
        // SAFETY: promised by the caller.
        let given = unsafe { read(given) }.map_err(|why| (why, PathBuf::new()))?;
        let Early { directory, opening } = early::take().map_err(|why| (why, PathBuf::new()))?;
        begin(given, opening).map_err(|why| (why, directory))
    };
    cancellation::held(|| match start() {
        Ok(()) => 0,
        Err((why, directory)) if directory.as_os_str().is_empty() => failure::number(Err(why)),
        Err((why, directory)) => {
            failure::opened::<c_void>(Err(why), &directory);
            -1
        }
    })
}

/// The functions of a caller.
///
/// # Safety
/// The structure is as its first word says.
unsafe fn read(given: *const SpandrelDurableCallbacks) -> Result<Given, Failure> {
    // SAFETY: promised by the caller.
    let known = unsafe { options::known_of(given) }?;
    let SpandrelDurableCallbacks { is_read_only, process, others, .. } = known;
    let is_read_only = is_read_only.ok_or(Failure::Null)?;
    Ok(Given { is_read_only, process: process.ok_or(Failure::Null)?, others })
}

/// Ends the first batch.
fn begin(given: Given, opening: Result<Opening, Failure>) -> Result<(), Failure> {
    let variables = |_, arena: &_| Ok(Variables::open(arena)?);
    let (handle, variables) = crate::handle::finish(opening?, variables)?;
    let Given { is_read_only, process, others: functions } = given;
    let undone = AtomicU64::new(0);
    let program = Program { handle, variables, undone, is_read_only, process, functions };
    PROGRAM.set(program).map_err(|_| Failure::Nested)?;
    crate::handle::keep(handle);
    Ok(())
}

/// The program's state; null before init.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_default() -> *mut SpandrelDurable {
    PROGRAM.get().map_or(std::ptr::null_mut(), |program| program.handle)
}

/// Runs a request of a client to its end: 0, or -1. See the header.
///
/// # Safety
/// The functions of init may be called with the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_command_of(client: *mut c_void) -> c_int {
    let command = || {
        current::check_outside()?;
        let program = PROGRAM.get().ok_or(NOT_STARTED)?;
        // SAFETY: promised by the caller.
        if unsafe { (program.is_read_only)(client) } {
            program.read(client)
        } else {
            program.write(client)
        }
    };
    cancellation::held(|| failure::number(command()))
}

/// A client, for any thread.
struct Client(*mut c_void);

// SAFETY: the header says that any thread may call the function, while the thread that has handed it over waits.
unsafe impl Sync for Client {}

impl Client {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

impl Program {
    fn handle(&self) -> *mut SpandrelDurable {
        self.handle
    }

    fn read(&self, client: *mut c_void) -> Result<(), Failure> {
        // SAFETY: the handle is never closed.
        let known = unsafe { &*self.handle };
        known.check_process()?;
        let db = &known.open()?.db;
        let read = || {
            if self.undone.load(Relaxed) != db.undone() {
                return false;
            }
            // SAFETY: the thread is inside as a reader, and runs no other command.
            unsafe {
                let _running = current::begin(self.handle, known.arena(), current::Kind::Read);
                (self.process)(client);
            }
            true
        };
        while !db.read(|_| read()) {
            self.restore(db);
        }
        Ok(())
    }

    /// Has the variables be those of the state: a command that was undone may have changed them.
    fn restore(&self, db: &Durable<State>) {
        db.alone(|| {
            // SAFETY: no command runs.
            unsafe { self.variables.take_in() };
            self.undone.store(db.undone(), Relaxed);
        });
    }

    fn write(&self, client: *mut c_void) -> Result<(), Failure> {
        // SAFETY: the handle is never closed.
        let known = unsafe { &*self.handle };
        known.check_process()?;
        let (client, frees) = (Client(client), Frees::default());
        let db = &known.open()?.db;
        let written = db.write(|_| {
            // SAFETY: the thread runs the batch, and no other command meanwhile; the state owns the arena.
            unsafe {
                let arena = &*known.arena();
                self.variables.take_in();
                self.undone.store(db.undone(), Relaxed);
                {
                    let _running = current::begin(self.handle(), arena, current::Kind::Write);
                    frees.free(arena);
                    (self.process)(client.get());
                }
                self.variables.put_out(arena);
            }
        });
        written.map_err(|why| {
            frees.give_back();
            // The program may look at its variables before the next command. Not in a child that the command itself has made.
            if known.check_process().is_ok() {
                self.restore(db);
            }
            why.into()
        })
    }
}
