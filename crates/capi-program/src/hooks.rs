//! Functions of the program whose entries lead here.

use std::cell::UnsafeCell;
use std::ffi::CString;

use capi_durable::current;
use spandrel_os::message::say;

use crate::batch;
use crate::load::hook;
use crate::memory::is_of_state;
use crate::values::{Arguments, Test};
use crate::{end, point};

/// What becomes of a call.
pub enum Rule {
    /// The state is opened.
    Point,
    /// The bytes that an argument leads to are made the state's own.
    Input { argument: usize, bytes: usize },
    /// It is a command, if one of these holds, or there is none. `is_apart`: it begins a batch.
    Command { tests: Vec<Test>, is_apart: bool },
    /// An object that is linked into the state is copied there first.
    Adopt { argument: usize, copy: usize, release: usize },
    /// It does nothing outside of commands, if the argument lies in the state.
    Skip { argument: usize, value: usize },
    /// It does nothing.
    Returns(usize),
    /// Another function is called, with the first argument and a text.
    Instead { call: usize, text: CString },
    /// It does nothing, and the reason is said.
    Refuse { value: usize, why: String },
    /// It sends what a client is to have: nothing where a command serves others in its middle, and the client is to have something of the batch.
    Held(usize),
    /// It adds to what a client is to have; what it allocates within commands is the process's.
    Queues,
    /// A client begins with it.
    Begins,
    /// The batch is committed first.
    Commit,
    /// It serves clients, also within a command.
    Serves,
    /// Its first argument is called at once, with the address of an array that begins with this argument.
    AtOnce(usize),
    /// It counts the program's bytes.
    Counts,
    /// What it allocates is the process's.
    Process,
}

/// A function of the program.
pub struct Hook {
    pub name: String,
    pub rule: Rule,
    /// Where the program calls it.
    pub entry: usize,
    /// Where it can be called as it was.
    pub original: usize,
}

/// A call of a function, as the way in has left it on the stack.
#[repr(C)]
pub struct Call {
    pub arguments: Arguments,
    number: usize,
    result: usize,
    /// The frame pointer and the return address of the caller.
    _frame: [usize; 2],
    /// More arguments, as far as the function has some: the caller's stack.
    stack: [usize; STACK],
}

/// Words of the stack that are passed on.
const STACK: usize = 8;

// The way in: `r11` has the number. Registers that a caller does not keep are the function's arguments, and are there again where it goes on; those of vectors are not, so that a function
// with arguments of floating point cannot be named. Of what it returns `rax` is passed on.
core::arch::global_asm!(
    ".pushsection .text.spandrel_program_enter, \"ax\", @progbits",
    ".hidden spandrel_program_enter",
    ".globl spandrel_program_enter",
    ".type spandrel_program_enter, @function",
    "spandrel_program_enter:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 64",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov [rsp + 48], r11",
    "mov rdi, rsp",
    "call {decide}",
    "cmp rax, {within}",
    "jne 1f",
    "mov rdi, rsp",
    "call {part}",
    "1:",
    "test rax, rax",
    "jz 2f",
    "mov r11, rax",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov rcx, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "leave",
    "jmp r11",
    "2:",
    "mov rax, [rsp + 56]",
    "leave",
    "ret",
    ".size spandrel_program_enter, . - spandrel_program_enter",
    ".popsection",
    decide = sym decide,
    part = sym part,
    within = const WITHIN,
);

/// The address that entries lead to.
pub fn enter() -> usize {
    unsafe extern "C" {
        fn spandrel_program_enter();
    }
    spandrel_program_enter as *const () as usize
}

/// Functions of this file that translated code does not run itself.
pub fn native() -> [usize; 3] {
    [decide as *const () as usize, owe as *const () as usize, take_owed as *const () as usize]
}

/// In the place of an address: [`part`] follows.
const WITHIN: usize = 1;
/// The function has been run, or is not to be.
const DONE: usize = 0;

/// What follows: an address to go on at, or one of the numbers above. Native, also where a command calls the function.
///
/// # Safety
/// The call is one of a hooked function, by the way in.
unsafe extern "C" fn decide(call: *mut Call) -> usize {
    // SAFETY: promised by the caller.
    let call = unsafe { &mut *call };
    let Some(hook) = hook(call.number) else { end("a function of the program leads nowhere") };
    let is_inside = current::is_inside();
    match &hook.rule {
        Rule::Returns(value) => {
            call.result = *value;
            DONE
        }
        Rule::Counts => {
            // SAFETY: the function as it was, called with its own arguments.
            call.result = unsafe { run(hook.original, &call.arguments) };
            call.result = call.result.wrapping_add(batch::counted_before());
            DONE
        }
        Rule::Queues => {
            batch::note_client(call.arguments[0]);
            if is_inside { WITHIN } else { hook.original }
        }
        Rule::Commit => {
            batch::commit();
            hook.original
        }
        Rule::Begins => {
            batch::forget_client(call.arguments[0]);
            hook.original
        }
        Rule::Adopt { .. } | Rule::AtOnce(_) | Rule::Process | Rule::Serves if is_inside => WITHIN,
        Rule::Refuse { why, .. } if point::is_being_passed() => point::refuse_data(why),
        Rule::Instead { text, .. } if point::is_being_passed() => {
            point::refuse_data(&text.to_string_lossy())
        }
        // In the middle of a command, which the program would leave half done.
        Rule::Refuse { why, .. } if is_inside => end(why),
        Rule::Refuse { value, why } => {
            say(format_args!("{why}"));
            call.result = *value;
            DONE
        }
        Rule::Held(value) if is_inside && batch::holds(call.arguments[0]) => {
            call.result = *value;
            DONE
        }
        Rule::Instead { call: other, text } => {
            if let Some(place) = call.arguments.get_mut(1) {
                *place = text.as_ptr() as usize;
            }
            *other
        }
        Rule::Skip { argument, value } if !is_inside => {
            let at = call.arguments.get(*argument).copied().unwrap_or(0);
            if is_of_state(at) {
                call.result = *value;
                DONE
            } else {
                hook.original
            }
        }
        Rule::Input { argument, bytes } => {
            let at = call.arguments.get(*argument).copied().unwrap_or(0);
            // SAFETY: the adapter says that the argument leads to as many bytes.
            unsafe { point::give_input(at, *bytes) };
            hook.original
        }
        Rule::Command { tests, is_apart } if !is_inside => {
            // SAFETY: the adapter is right about the program.
            if !unsafe { is_command(tests, &call.arguments) } {
                return hook.original;
            }
            if *is_apart {
                batch::commit();
            }
            // SAFETY: as above.
            unsafe { command(hook, hook.original, call) }
        }
        // What links an object into the state changes it, by whichever way the program has come there. By its entry: what lies outside is copied then.
        // SAFETY: the adapter is right about the program.
        Rule::Adopt { .. } => unsafe { command(hook, hook.entry, call) },
        Rule::Point if !is_inside => {
            // SAFETY: as above; the program has reached the point.
            call.result = unsafe { point::reached(hook, &call.arguments) };
            DONE
        }
        _ => hook.original,
    }
}

/// Runs a function as a command, if it is one here.
///
/// # Safety
/// As for [`decide`].
unsafe fn command(hook: &Hook, function: usize, call: &mut Call) -> usize {
    // SAFETY: promised by the caller.
    match unsafe { batch::command(hook, function, &call.arguments) } {
        Some(result) => {
            call.result = result;
            DONE
        }
        None => hook.original,
    }
}

/// # Safety
/// As for [`Test::holds`].
unsafe fn is_command(tests: &[Test], arguments: &Arguments) -> bool {
    // SAFETY: promised by the caller.
    tests.is_empty() || tests.iter().any(|test| unsafe { test.holds(arguments) })
}

/// Runs a function as it was.
///
/// # Safety
/// It may be called with these arguments.
pub unsafe fn run(original: usize, arguments: &Arguments) -> usize {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: promised by the caller. More arguments than a function has are in registers that it does not read.
    unsafe { std::mem::transmute::<usize, Function>(original)(a, b, c, d, e, f) }
}

/// The same, with what lies on the stack.
///
/// # Safety
/// As for [`run`].
#[rustfmt::skip]
unsafe fn run_all(original: usize, call: &Call) -> usize {
    type Word = usize;
    type Function = unsafe extern "C" fn(
        Word, Word, Word, Word, Word, Word,
        Word, Word, Word, Word, Word, Word, Word, Word,
    ) -> usize;
    let ([a, b, c, d, e, f], [g, h, i, j, k, l, m, n]) = (call.arguments, call.stack);
    // SAFETY: promised by the caller. More words than a function has are words that it does not read.
    unsafe { std::mem::transmute::<usize, Function>(original)(a, b, c, d, e, f, g, h, i, j, k, l, m, n) }
}

/// What a command does at a function that it calls. Translated with it. The address to go on at, or [`DONE`].
///
/// # Safety
/// As for [`decide`].
unsafe extern "C" fn part(call: *mut Call) -> usize {
    // SAFETY: promised by the caller.
    let call = unsafe { &mut *call };
    let Some(hook) = hook(call.number) else { return DONE };
    match &hook.rule {
        Rule::Adopt { argument, copy, release } => {
            // The object that is about to be linked into the state lies outside: its copy is linked.
            if let Some(place) = call.arguments.get_mut(*argument)
                && !is_of_state(*place)
            {
                let object = *place;
                // SAFETY: the adapter says that the function takes such an object.
                *place = unsafe { run(*copy, &[object, 0, 0, 0, 0, 0]) };
                owe(object, *release);
            }
            hook.original
        }
        Rule::AtOnce(first) => {
            let array = call.arguments.get(*first..).unwrap_or(&[]).as_ptr() as usize;
            // SAFETY: the adapter says that the first argument is such a function.
            call.result = unsafe { run(call.arguments[0], &[array, 0, 0, 0, 0, 0]) };
            DONE
        }
        Rule::Process | Rule::Queues | Rule::Serves => {
            let _serving = matches!(hook.rule, Rule::Serves).then(batch::Serving::begin);
            let _outside = current::Outside::enter();
            // SAFETY: the function as it was, with its own arguments.
            call.result = unsafe { run_all(hook.original, call) };
            DONE
        }
        _ => hook.original,
    }
}

/// Owners that objects of the process have too many of, as the state's copies have them. Of the thread of commands.
struct Owed(UnsafeCell<Vec<(usize, usize)>>);

// SAFETY: only the thread that runs a command uses it, and one does.
unsafe impl Sync for Owed {}

static OWED: Owed = Owed(UnsafeCell::new(Vec::new()));

/// Native, and so not a part of another function: what it allocates is the process's.
#[inline(never)]
extern "C" fn owe(object: usize, release: usize) {
    // SAFETY: this thread runs the command.
    unsafe { (*OWED.0.get()).push((object, release)) };
}

/// Native, as [`owe`]. False: nothing is owed.
///
/// # Safety
/// The place may be written to.
#[inline(never)]
unsafe extern "C" fn take_owed(into: *mut (usize, usize)) -> bool {
    // SAFETY: this thread runs the command; promised by the caller.
    unsafe {
        let owed = (*OWED.0.get()).pop();
        owed.iter().for_each(|owed| into.write(*owed));
        owed.is_some()
    }
}

/// A command: the function, and what it owes then. Translated as a whole.
///
/// # Safety
/// As for [`run`].
pub unsafe fn body(original: usize, arguments: &Arguments) -> usize {
    // SAFETY: promised by the caller. An object that is owed has one owner more than the program knows.
    unsafe {
        let result = run(original, arguments);
        let mut owed = (0, 0);
        while take_owed(&mut owed) {
            run(owed.1, &[owed.0, 0, 0, 0, 0, 0]);
        }
        result
    }
}
