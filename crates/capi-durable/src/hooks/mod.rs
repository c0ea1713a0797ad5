//! What a program calls that was compiled with `-fsanitize=thread` and is linked with this library instead of the sanitizer's.
//!
//! Each store of the program notes itself if the thread runs a command that writes, and lies in the command's state. A store to a state outside of such
//! a command is found as well: the state accepts nothing more.
//!
//! - [`accesses`]: loads and stores.
//! - [`atomics`]: atomic operations, which the hook executes in the place of the program.
//! - [`copies`], [`strings`]: functions of the C library that fill memory. They stand in front of the C library's own for all of the process.
//!
//! A handler of a signal must not store to a state.

mod accesses;
mod atomics;
mod copies;
mod strings;

use crate::{current, regions};

/// The calling thread is about to store `bytes` bytes there.
#[inline(always)]
fn wrote(at: usize, bytes: usize) {
    if !current::note(at, bytes) && regions::may_hold(at) {
        regions::strayed(at);
    }
}

/// The same in a function of the C library, which this library calls as well: a store outside of a command is not looked at.
#[inline(always)]
pub fn filled(at: usize, bytes: usize) {
    current::note(at, bytes);
}

/// Before any code of the program runs.
extern "C" fn load() {
    // The atomic operations are those of the capture's room, which tell of their stores.
    spandrel_capture::hooks::listen(wrote);
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;
