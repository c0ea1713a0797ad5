//! The recoverable heap: `malloc` whose objects outlive the process, after Makalu (OOPSLA '16).
//!
//! Objects are allocated and freed as in any heap. After a failure the objects that are reachable from the roots are there again. So neither an
//! allocation nor a free makes anything durable, with one exception: a block of 64 KiB gets a header. `docs/recoverable-heap.md` has the format
//! byte by byte, and the failures that each medium survives.
//!
//! Invariants:
//! - A header is durable before an object of its block is handed out.
//! - The header of a free block says durably that the block is free before the block is used again.
//! - The record says durably that the heap is open before anything changes. It says that the heap is closed after all else is durable.
//! - Mark bits are right while the heap is open, and after it was closed.
//!
//! This room must never know the kind of the medium.
#![no_std]
#![warn(missing_debug_implementations)]

#[cfg(test)]
#[macro_use]
extern crate std;
// What the derived code calls this crate, here as elsewhere.
extern crate self as spandrel_pheap;

mod allocate;
mod backup;
mod blocks;
mod cache;
mod check;
mod checked;
mod class;
mod collect;
pub mod collections;
mod error;
mod exact;
mod face;
mod fork;
mod gate;
mod header;
mod heap;
mod identify;
mod lasting;
mod layout;
mod lazy;
mod limits;
mod longer;
mod mark;
mod memory;
mod objects;
mod open;
mod open_error;
mod pages;
mod partial;
mod pointer;
mod progress;
mod registry;
mod repair;
pub mod replicated;
mod restore;
mod roots;
mod second_names;
mod shared;
mod shrink;
mod stack;
mod sums;
mod superblock;
mod system;
pub mod trace;
mod transaction;
mod transaction_log;
mod transaction_readers;
mod transaction_recovery;
mod undo;
mod upgrade;
mod walk;
mod window;
mod workers;

pub use check::{ClassUse, Finding, Kind, Survey, check, check_watched};
pub use checked::{Checked, Enumeration};
pub use collect::Collected;
pub use error::{Error, Reason};
pub use face::Counts;
pub use heap::{FreeCallback, Heap, Opened};
pub use layout::{BLOCK_BYTES, LEAST_BYTES};
pub use open::{LIMIT, Options, SIZE, WAIT, copy, with_fixed};
pub use open_error::OpenError;
pub use pages::{PageObjects, Verified};
pub use pointer::PPtr;
pub use progress::Watcher;
pub use repair::{Repaired, repair, repair_watched};
pub use restore::Restoring;
pub use roots::{RootName, RootType};
pub use shrink::Shrunk;
#[cfg(any(test, feature = "simulator"))]
pub use spandrel_pmem::simulator;
pub use spandrel_pmem::{Choice, Guarantee, Media, Medium, Standing};
pub use superblock::{Identity, ROOT_COUNT, Record, State, VERSION};
pub use trace::{Trace, TraceFn, Tracer};
pub use walk::Object;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod every_bit;
#[cfg(test)]
mod long_objects;
#[cfg(test)]
mod old_version;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transaction_tests;
