//! The page heap: TEMERAIRE's (OSDI '21), with repair. Page numbers go in and out; no byte of the
//! memory that they stand for is ever touched here.
//!
//! Invariants: a huge page is in one state at a time, and its [`Tracker`] says which; everything
//! that is counted can be counted again over the trackers ([`PageHeap::check`]); nothing here
//! allocates, nothing is `unsafe`, no number that a caller gives makes it panic.
//!
//! This room must never know an address, a system call or a clock: memory is a [`Memory`], time
//! is an argument. Nor may it know what lies in a span. Locking is the caller's.
#![no_std]
#![forbid(unsafe_code)]

mod bits;
mod check;
mod collapse;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod components;
mod demand;
mod flow;
mod grow;
mod heap;
mod huge_allocator;
mod huge_cache;
mod huge_filler;
mod huge_region;
mod lists;
mod memory;
mod order;
mod patience;
mod ranges;
mod release;
mod request;
mod stats;
mod step;
mod tracker;
mod tree;
mod unbacked;

pub use check::Fault;
pub use heap::PageHeap;
pub use memory::{Collapse, Memory, Paper};
pub use order::Order;
pub use release::Urgency;
pub use request::{Request, Settings, Span};
pub use stats::{Counters, Released, Stats};
pub use step::Work;
pub use tracker::Tracker;
