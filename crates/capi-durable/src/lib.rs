//! libspandrel_durable: durable states for C and C++, `spandrel_durable.h`, and the functions that a compiler calls before each store.
//!
//! A library of its own: a program that has a durable state need not load another malloc with it.
//!
//! Invariants:
//! - The library exports what the header declares, the hooks, and the functions of the C library that stand in front of theirs ([`hooks`]).
//! - No function unwinds, and nothing unwinds through one: an exception that leaves a command ends the process, and the next one finds the state of
//!   the last batch.
//! - What fails says why, in `errno` and as text.
//! - [`current`] names the command that the calling thread runs, from before its function is called until after it has returned.
//!
//! This room must never know how a state is laid out, nor how it becomes durable.

mod cancellation;
mod commands;
mod copy;
#[doc(hidden)]
pub mod current;
#[doc(hidden)]
pub mod failure;
mod figures;
#[doc(hidden)]
pub mod handle;
#[cfg(feature = "programs")]
mod hooks;
mod objects;
mod options;
#[doc(hidden)]
pub mod regions;
mod roots;
mod stores;
#[doc(hidden)]
pub mod translated;
#[cfg(feature = "programs")]
mod transparent;
