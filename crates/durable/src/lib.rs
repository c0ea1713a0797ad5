//! Durable programs: requests that change the state of a program run in batches, and requests that read it run beside each other.
//!
//! [`combine`] orders the requests of all threads: flat combining with writer preference.
//!
//! Invariants:
//! - Nothing here allocates or panics. The caller gives the storage.
//! - No request reads the state while a batch runs, and no two batches run at a time.
//! - Every published request is executed once, or its thread learns that the batch was abandoned.
//!
//! This room must never know what a request is, nor what a batch does to make its effects durable: both are the caller's.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p spandrel-durable --release --test loom` (part of `make unit`) tries every interleaving of the
//! tests in `tests/loom.rs`. `tests/model.rs` checks the protocol itself, with the store buffers of x86-64.
#![no_std]

pub mod combine;
