//! The only system calls of the volatile heap, and the plan of the address space.
//!
//! Invariants: nothing here allocates or panics. A call that is only an
//! optimisation never fails its caller: it returns `false`, and [`degrade`]
//! counts why. An address belongs to exactly one owner at any time; the owner
//! table changes only for address ranges that are reserved and not yet handed out.
//!
//! This room must never know what a policy is or which caller asks for memory.
#![no_std]

pub mod barrier;
pub mod budget;
pub mod byte_lock;
pub mod call;
pub mod clock;
pub mod cpath;
pub mod degrade;
pub mod descriptors;
pub mod directory;
pub mod draft;
pub mod env;
pub mod file;
mod file_lock;
pub mod filesystem;
pub mod holder;
pub mod image;
mod lines;
pub mod live;
pub mod locks;
pub mod message;
pub mod modules;
pub mod pagemap;
pub mod personality;
pub mod pressure;
pub mod processors;
pub mod rseq;
pub mod signals;
pub mod slices;
#[cfg(test)]
mod testing;
pub mod thread_group;
pub mod usage;
pub mod vm;
pub mod watchpoint;
pub mod written;
