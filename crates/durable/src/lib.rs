//! Transparent durability after Mangosteen (ATC '24): a state in memory, at the speed of memory, whose changes survive failures.
//!
//! ```text
//!  front end   batch of commands -> what they stored -> one record of the ring, one wait -> the commands have returned
//!  replica     records of the ring -> the state's file -> sync -> the head of the ring
//!  recovery    the state's file + records behind it -> memory at the same addresses
//! ```
//!
//! Invariants:
//! - A command returns when the record of its batch is durable; so does a read that saw the batch.
//! - The ring has every record that the state's file may lack.
//! - A batch is in the state that recovery finds as a whole, or not at all.
//!
//! This room must never know what the state means, and starts no thread and no process: those live in the faces.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod control;
pub mod directory;
pub mod engine;
pub mod error;
pub mod front;
pub mod notes;
pub mod recovery;
pub mod replica;
pub mod ring_file;
pub mod runs;
pub mod store;

pub use error::Error;

#[cfg(test)]
mod crash;
