//! Recordings of what a program asks for: their format, and the recorder inside the program.
//!
//! Events go to lanes, of which a thread takes one that is free; a lane writes to a block of the
//! file that is mapped into memory. So a program that is killed leaves all that it did, and one
//! that forks or executes another leaves files of both.
//!
//! Invariants: nothing here allocates or panics, and `errno` stays as it is. An event never
//! waits for long: not for a lane that a signal handler's own thread holds. A recorder that cannot
//! go on says so once, and the program goes on without it. Times within a lane never go back.
//!
//! This room must never know why something was asked for, nor which allocator served it.
#![no_std]

mod event;
mod file;
mod flag;
mod lane;
pub mod layout;
mod limit;

pub use event::{Before, EVENT_BYTES_MAX, Event, Fault};
pub use file::{Recording, finish, start};
pub use layout::{End, Kinds};
pub use limit::LimitError;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What is being recorded, as [`Kinds::bits`].
static ON: AtomicU32 = AtomicU32::new(0);

/// Whether requests are being recorded.
#[inline]
pub fn records_requests() -> bool {
    ON.load(Relaxed) & 1 != 0
}

/// Whether spans are being recorded.
#[inline]
pub fn records_spans() -> bool {
    ON.load(Relaxed) & 2 != 0
}

/// Records what the calling thread asked for, if requests are recorded.
///
/// An object's beginning is to be recorded when it is had, its end before it is given back, so that
/// an address is never two objects' at once.
#[cold]
pub fn request(event: &Event) {
    if records_requests() {
        lane::request(event);
    }
}

/// Records what was asked of the page heap, if spans are recorded. To be called under its lock.
#[cold]
pub fn span(event: &Event) {
    if records_spans() {
        lane::span(event);
    }
}
