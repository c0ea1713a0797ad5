//! The program has reached the point: it has made all that it makes at its start, and has served nothing. The state is opened, and the program goes on with it.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use capi_durable::failure::Failure;
use capi_durable::handle;
use capi_durable::translated::{self, More};
use spandrel::durable::{Opening, Options};
use spandrel_durable::directory::Paths;
use spandrel_durable::inspect::identify;
use spandrel_durable::notes::How;

use crate::hooks::{self, Hook, Rule};
use crate::load::{Loaded, program};
use crate::roots::Roots;
use crate::values::Arguments;
use crate::{batch, memory, refuse};

/// A number that depends on another one in no way that can be seen (splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Writes bytes that are the state's own, and look drawn at random, over those that the program has drawn.
///
/// # Safety
/// As many bytes lie there, and may be written to.
#[cold]
#[inline(never)]
pub unsafe fn give_input(at: usize, bytes: usize) {
    let Some(program) = program() else { return };
    let identity = Paths::new(program.directory.as_os_str().as_bytes())
        .and_then(|paths| Ok(identify(&paths)?.identity));
    let mut number = match identity {
        Ok(identity) => identity,
        Err(why) => refuse(format_args!("{}: {why}", program.directory.display())),
    };
    for place in 0..bytes {
        if place % 8 == 0 {
            number = mixed(number);
        }
        // SAFETY: promised by the caller.
        unsafe {
            (at as *mut u8)
                .add(place)
                .write(number.to_le_bytes().get(place % 8).copied().unwrap_or(0))
        };
    }
}

/// The program has called the function of the point.
static IS_REACHED: AtomicBool = AtomicBool::new(false);

/// Whether the function of the point runs, as the first command of a new state.
static IS_BEING_PASSED: AtomicBool = AtomicBool::new(false);

/// See [`refuse_data`].
pub fn is_being_passed() -> bool {
    IS_BEING_PASSED.load(Relaxed)
}

/// Ends a program whose own files have what is not durable: it would be there until the next start. The state has nothing of them.
pub fn refuse_data(why: &str) -> ! {
    let directory = program().map(|program| program.directory.display());
    refuse(format_args!(
        "{}: the program's own files cannot be taken in: {why}",
        directory.map_or_else(String::new, |directory| directory.to_string())
    ))
}

/// Ends a program that waits for requests before the point: it would go on without its state.
pub fn await_requests() {
    if !IS_REACHED.load(Relaxed)
        && let Some(program) = program()
    {
        let point = program.hooks.iter().find(|hook| matches!(hook.rule, Rule::Point));
        refuse(format_args!(
            "{}: the program waits for requests, and has not called {}: it has been started in a way that the adapter is not for",
            program.directory.display(),
            point.map_or("the function of the point", |hook| hook.name.as_str())
        ));
    }
}

/// What the program is to have, and has not.
fn missing(program: &Loaded) -> Option<&str> {
    let none = [0; spandrel_adapter::ARGUMENTS];
    let is_wrong = |(test, not, _): &&(_, bool, String)| {
        // SAFETY: the adapter is right about the program.
        let holds = unsafe { crate::values::Test::holds(test, &none) };
        holds == *not
    };
    program.require.iter().find(is_wrong).map(|(_, _, why)| why.as_str())
}

/// Opens the state. In a new one the function of the point runs as a command; else it does not run. What it returns.
///
/// # Safety
/// The program has called the function with these arguments.
#[cold]
#[inline(never)]
pub unsafe fn reached(hook: &Hook, arguments: &Arguments) -> usize {
    let Some(program) = program() else { return 0 };
    IS_REACHED.store(true, Relaxed);
    let directory = program.directory.display();
    if batch::is_open() {
        crate::end(format_args!("{}: the program has reached it twice", hook.name));
    }
    if let Some(why) = missing(program) {
        refuse(format_args!("{directory}: {why}"));
    }
    let options = Options::new().commands(How::Translated).clients(8);
    let opened = Opening::begin(&program.directory, options);
    let opening = opened.unwrap_or_else(|why| refuse(why));
    let is_counted = program.hooks.iter().any(|hook| matches!(hook.rule, Rule::Counts));
    let mut result = 0;
    let finished = handle::finish(opening, |handle, arena| {
        let more = More {
            native: hooks::native().to_vec(),
            code: program.process_code.clone(),
            added: program.code.clone(),
            leads_to_program: true,
            is_never_undone: true,
        };
        // SAFETY: this thread runs the first batch of the state, and the arena lies behind an `Arc`; the program has reached the point.
        unsafe {
            let is_new = Roots::is_empty(arena)?;
            if !is_new && !Roots::are_there(arena, &program.roots)? {
                refuse(format_args!(
                    "{directory}: the state was made by another program, or with another adapter; name another directory for this one"
                ));
            }
            translated::begin_with(arena, more)?;
            let roots = match is_new {
                true => Roots::move_in(arena, &program.roots)?,
                false => Roots::lead_back(arena, &program.roots)?,
            };
            let roots = roots.unwrap_or_else(|why| refuse(format_args!("{directory}: {why}")));
            if let Some(allocator) = &program.allocator {
                let object = batch::run(handle, arena, allocator.allocate, &[64, 0, 0, 0, 0, 0]);
                if !memory::is_of_state(object) {
                    refuse(format_args!("{directory}: {}", allocator.why));
                }
                batch::run(handle, arena, allocator.free, &[object, 0, 0, 0, 0, 0]);
            }
            if is_new {
                IS_BEING_PASSED.store(true, Relaxed);
                result = batch::run(handle, arena, hook.original, arguments);
                IS_BEING_PASSED.store(false, Relaxed);
            } else if is_counted {
                batch::set_counted(arena.allocated_bytes()?);
            }
            roots.keep(arena);
            Ok(roots)
        }
    });
    let (handle, roots) =
        finished.unwrap_or_else(|why: Failure| refuse(format_args!("{directory}: {why}")));
    // SAFETY: just opened, and never closed.
    let known = unsafe { &*handle };
    let open = known.open().unwrap_or_else(|why| refuse(format_args!("{directory}: {why}")));
    open.db.expect_stores_between();
    batch::begin(handle, open.db.client(), roots);
    result
}
