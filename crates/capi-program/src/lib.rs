//! libspandrel_program: loaded into an unmodified program by `spandrel durable run`, it has the program's state survive crashes.
//!
//! An adapter (`spandrel_adapter`) says which functions of the program change the state. Their entries lead here ([`hooks`]), and they run as commands of a durable state: their code is
//! translated, what they allocate lies in the state. All else of the program is native.
//!
//! ```text
//! load:   adapter -> entries of functions
//! point:  the state is opened; variables of the program lead into it
//! then:   function that changes the state -> batch (begins, or goes on) -> the function, translated
//!         function of the C library that sends or waits -> the batch is committed -> the function
//! ```
//!
//! Invariants:
//! - While its batch is not durable the thread of commands calls no function of the C library that sends, sleeps or forks ([`outputs`]); within a command that serves others the adapter's
//!   rules hold back what is sent.
//! - Where a batch cannot be made durable the process ends: nothing of it was acknowledged.
//! - An object of the state is freed within a batch only. What native code frees waits for one ([`memory`]).
//! - One thread runs commands: that which has reached the point.
//! - A child of a fork changes nothing of the state.
//!
//! This room must never know how a state is laid out, nor how it becomes durable.

mod batch;
mod escapes;
mod hooks;
mod load;
mod memory;
mod outputs;
mod point;
mod references;
mod roots;
mod values;

use std::fmt;

use spandrel_os::message::say;

/// Ends the process: the program would go on with what is not durable.
fn end(why: impl fmt::Display) -> ! {
    say(format_args!("{why}"));
    // Nothing of the program's own runs any more: its handlers and its files' buffers may be of a state that is not durable.
    // SAFETY: no preconditions.
    unsafe { libc::_exit(1) }
}

/// Ends the process before it has begun: what was asked for cannot be.
fn refuse(why: impl fmt::Display) -> ! {
    say(format_args!("{why}"));
    // SAFETY: as above.
    unsafe { libc::_exit(2) }
}
