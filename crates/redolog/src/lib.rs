//! Redo records: bytes of an image that become durable as a whole, one record behind the other. Every log of the workspace is made of them.
//!
//! A [`Log`] is a chain of records on a [`Storage`]; a [`Ring`] is one whose beginning is used again. A record names the epoch of its log (a salt), its sequence, the image, and the state that it
//! continues; an XXH64 sum covers all of it. So a record proves itself: recovery needs no index of the log's end, and one wait makes a record
//! durable.
//!
//! Invariants:
//! - Recovery takes records from the beginning, as far as each is whole and follows the one before: the rest is a torn tail.
//! - A record is written when the one before it is durable. So a whole record of the same epoch behind a torn one is damage, not a tail.
//!
//! This room must never know what the image holds, nor what the storage is.
#![no_std]

#[cfg(any(test, feature = "memory"))]
extern crate std;

use core::hash::Hasher;

use twox_hash::XxHash64;

mod fault;
mod log;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
pub mod record;
mod replay;
pub mod ring;
mod storage;

pub use fault::Fault;
pub use log::{FIRST, Fit, HEAD_BYTES, Log, head, parse_head};
pub use record::{
    ALIGN_BYTES, BUFFER_BYTES, HEADER_BYTES, Header, Point, RUN_BYTES, Record, Written, word,
};
pub use ring::{Reader, Ring, Shape};
pub use storage::Storage;

/// XXH64, with which everything here proves itself.
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(seed);
    hasher.write(bytes);
    hasher.finish()
}
