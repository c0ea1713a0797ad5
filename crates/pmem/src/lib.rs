//! Persistent memory: how bytes become durable, on what media, and what a power failure may leave of them.
//!
//! A structure that lies here stores through a [`Medium`] and says with [`Medium::write_back`], [`Medium::fence`] and
//! [`Medium::checkpoint`] in which order it becomes durable. So the [`simulator`] can take a medium's place, write down all
//! stores and show every image that a power failure may leave at any moment.
//!
//! Invariants: a medium's bytes stay where they are as long as it lives. Nothing is durable before a fence or
//! a checkpoint has said so, and everything may be: the processor writes lines back when it likes. What is stored as a word
//! ([`Medium::store_word`]) is durable as a whole or not at all; all else may be torn between any two of its words.
//!
//! This room must never know what lies on a medium.
#![no_std]

#[cfg(any(test, feature = "simulator"))]
#[macro_use]
extern crate std;

mod capture;
pub mod captured;
pub mod compare;
mod debug;
pub mod disk;
mod draft;
pub mod file;
mod files;
pub mod line;
pub mod loan;
pub mod mapped;
pub mod media;
pub mod medium;
mod named;
mod old_log;
pub mod one_file;
pub mod persist;
mod room;
mod runs;
#[cfg(any(test, feature = "simulator"))]
pub mod simulator;
pub mod snapshot;
pub mod sums;
pub mod sums_file;
#[cfg(test)]
mod testing;
pub mod tie;
mod unmap;
pub mod wal;

pub use captured::{Captured, Notes};
pub use compare::{Mismatch, Standing};
pub use draft::Draft;
pub use file::File;
pub use line::{LINE_BYTES, lines};
pub use mapped::{Kind, Mapped};
pub use media::{Choice, Guarantee, Media, Place, peek};
pub use medium::{Failed, Medium};
pub use room::Buffer;
pub use sums_file::Keep;
