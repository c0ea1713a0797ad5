//! Transparent durability after Mangosteen (ATC '24): a state in memory, at the speed of memory, whose changes survive failures.
//!
//! ```text
//!  combine     commands of all threads -> one thread runs those that write as a batch; those that read run beside each other
//!  front end   what the batch has stored -> one record of the ring, one wait -> the commands have returned
//!  replica     records of the ring -> the state's file -> sync -> the head of the ring
//!  recovery    the state's file + records behind it -> memory at the same addresses
//! ```
//!
//! Invariants:
//! - No command reads the state while a batch runs, and no two batches run at a time.
//! - A command that writes returns when the record of its batch is durable. No reader sees a batch before that.
//! - The ring has every record that the state's file may lack.
//! - A batch is in the state that recovery finds as a whole, or not at all.
//!
//! This room must never know what the state means, and starts no thread and no process: those live in the faces.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p spandrel-durable --release --test loom` (part of `make unit`) tries every interleaving of the
//! tests in `tests/loom.rs`. `tests/model.rs` checks the protocol of [`combine`] itself, with the store buffers of x86-64.
#![no_std]

#[cfg(all(test, not(loom)))]
extern crate std;

pub mod combine;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
mod counts;
#[cfg(not(loom))]
pub mod differences;
#[cfg(not(loom))]
pub mod directory;
#[cfg(not(loom))]
pub mod engine;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
mod exact;
#[cfg(not(loom))]
pub mod exchange;
#[cfg(not(loom))]
pub mod front;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub mod live;
#[cfg(not(loom))]
pub mod log_file;
#[cfg(not(loom))]
pub mod notes;
#[cfg(not(loom))]
pub mod oracle;
#[cfg(not(loom))]
mod others;
#[cfg(not(loom))]
pub mod recovery;
#[cfg(not(loom))]
pub mod replica;
#[cfg(not(loom))]
pub mod requests;
#[cfg(not(loom))]
pub mod ring_file;
#[cfg(not(loom))]
mod ring_memory;
#[cfg(not(loom))]
pub mod runs;
#[cfg(not(loom))]
mod sealed;
#[cfg(not(loom))]
mod shadow;
#[cfg(not(loom))]
mod state_file;
#[cfg(not(loom))]
pub mod store;

#[cfg(not(loom))]
pub use error::Error;

#[cfg(all(test, not(loom)))]
mod crash;
#[cfg(not(loom))]
mod translated;
#[cfg(not(loom))]
pub mod verdicts;
#[cfg(not(loom))]
pub mod verify;
#[cfg(not(loom))]
mod write_buffer;
#[cfg(not(loom))]
mod zeroes;
