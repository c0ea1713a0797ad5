//! What the program cannot go on with, and why: the place, the reason and the way out, for the author of a program in C or in Rust.

use core::ffi::{CStr, c_char};
use core::fmt;

use spandrel_os::message::say;

use super::decode::{LONGEST, Unknown};
use super::rewrite::Refusal;
use super::{caller, peek};

/// Where code lies: the module's file and the offset in it, and the function.
struct Code(u64);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: all zero is a record of nothing, which the call fills in.
        let info = unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            libc::dladdr(self.0 as *const _, &raw mut info);
            info
        };
        let text = |text: *const c_char| {
            // SAFETY: null, or a text of the loader's.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?"))
        };
        write!(f, "{:#x}", self.0)?;
        if let Some(file) = text(info.dli_fname) {
            write!(f, " ({file}+{:#x}", self.0.wrapping_sub(info.dli_fbase as u64))?;
            text(info.dli_sname).map_or(Ok(()), |name| write!(f, ", {name}"))?;
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// The bytes of the instruction at an address, as many as can be read.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; LONGEST];
        let len = peek(self.0, &mut bytes);
        bytes.iter().take(len).try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

/// The way out of most refusals.
const ELSEWHERE: &str = "run that outside of commands, or have the stores of the state found in another way (Stores::Pages in Rust, SPANDREL_DURABLE_STORES_PAGES in C)";

/// Ends each line.
const END: &str = "the process ends here, and the state is as the last batch has left it";

/// What is refused, and the way out. Both are parts of a sentence.
pub const fn reason_of(why: Refusal) -> (&'static str, &'static str) {
    match why {
        Refusal::Unknown(why) => unknown(why),
        Refusal::Far => (
            "is code whose data lie further than 2 GiB from any free memory for its translation",
            ELSEWHERE,
        ),
        Refusal::Full => (
            "is code for whose translation there is no memory",
            "allow executable mappings of memfd files, and more memory",
        ),
        Refusal::Changes => (
            "is code that lies in no file of the program, or where it may be written to: it was made at run time, and may change",
            "switch off what makes code (a JIT compiler), or run that outside of commands",
        ),
        Refusal::Left => (
            "is where the command was left otherwise than by its return: by longjmp, by pthread_exit, or by a handler of a signal that goes on elsewhere",
            "have the command return",
        ),
        Refusal::Sequence => (
            "begins a restartable sequence (rseq), which cannot begin anew where it is translated",
            "run that outside of commands, or switch it off (GLIBC_TUNABLES=glibc.pthread.rseq=0)",
        ),
        Refusal::Stack => (
            "is where a command is called, or goes on, with a stack that lies in memory of the state",
            "allocate stacks (of coroutines, of makecontext) outside of commands",
        ),
    }
}

const fn unknown(why: Unknown) -> (&'static str, &'static str) {
    match why {
        Unknown::Instruction => (
            "is an instruction that is not known",
            "compile that code for fewer extensions of the processor, or run it outside of commands",
        ),
        Unknown::Scatter => {
            ("is a scatter whose addresses are those of the thread's segment", ELSEWHERE)
        }
        Unknown::Segment => ("uses the segment gs, which translated code has", ELSEWHERE),
        Unknown::Size => {
            ("is an instruction of which it is not known where it writes, or how much", ELSEWHERE)
        }
        Unknown::Gate => (
            "enters the kernel otherwise than by the instruction syscall, or leaves the code of 64 bits",
            ELSEWHERE,
        ),
        Unknown::Transaction => (
            "begins a transaction of the processor",
            "switch lock elision off (GLIBC_TUNABLES=glibc.elision.enable=0), or compile without transactions",
        ),
        Unknown::Truncation => (
            "is a branch with the prefix of operands of 16 bits, which processors do not agree on",
            "have the assembler make it without the prefix",
        ),
    }
}

/// The program cannot go on: what it would do next, at an address, cannot be captured.
pub fn refuse(at: u64, why: Refusal) -> ! {
    let (reason, way) = reason_of(why);
    say(format_args!(
        "a command of a durable state does what cannot be captured: at {} {reason}; {way}; {END}; the code there:{}",
        Code(at),
        Bytes(at)
    ));
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// As above, for a system call of that number that returns to `at`.
pub fn refuse_call(at: u64, number: u64, why: Calls) -> ! {
    let (reason, way) = match why {
        Calls::Unknown => ("of which it is not known what it writes", ELSEWHERE),
        Calls::Window => (
            "which would change the mappings of the state's own memory",
            "leave the state's memory to the state",
        ),
        Calls::Waits => (
            "which waits for a signal, and signals wait until the batch has ended",
            "wait for signals outside of commands, or by sigwait",
        ),
    };
    say(format_args!(
        "a command of a durable state does what cannot be captured: it makes the system call {number}, {reason}, for {}; {way}; {END}",
        Code(at)
    ));
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// Why a system call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// It is not known what it writes.
    Unknown,
    /// It would take the durable memory away.
    Window,
    /// It waits for a signal.
    Waits,
}

/// In the place of `pthread_exit`: the thread would end in the midst of its batch.
///
/// # Safety
/// Translated code calls this native function.
pub unsafe extern "C" fn left() {
    // SAFETY: promised by the caller.
    refuse(unsafe { caller() } as u64, Refusal::Left);
}
