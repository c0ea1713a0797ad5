//! What every command says and writes with.
//!
//! Text is on standard output, unless a file of the command goes there (`--json -`); progress and messages are on
//! standard error. Tables and sentences fit the terminal, bars appear only where a line may be drawn anew.
//!
//! Invariants:
//!
//! * A signal ends the command after its descendants and its temporary files ([`shutdown`]). So each child is started
//!   and each temporary file is made through this room.
//! * A file that cannot be written is refused before any work is done ([`files`]).
//! * A command that fails says why in one message, and its exit code says what kind of failure it is ([`Failure`]).
//!
//! This room must never know what a command does: no allocator, no heap, no trace.

mod failure;
pub mod files;
pub mod plain;
pub mod progress;
pub mod say;
pub mod shutdown;
pub mod terminal;

pub use failure::Failure;
