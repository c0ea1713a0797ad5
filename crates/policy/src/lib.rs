//! The decision maker: which allocator serves which request.
//!
//! Invariants: pure. A decision depends on a [`Mode`], the set of allocators at
//! hand and the request, never on a clock, a lock or memory. Nothing here
//! allocates, so that the library can parse its own configuration before the
//! program's first `malloc`.
//!
//! A mode compiles to a [`Table`]: one byte per (operation, size class).
//!
//! This room must never know how an allocator is called.
#![no_std]
#![forbid(unsafe_code)]

mod available;
mod experiment;
mod limit;
mod mode;
pub mod profile;
mod rate;
mod table;
mod template;
pub mod tuner;
pub mod variables;

pub use available::Available;
pub use experiment::{Experiment, ExperimentError, Unit};
pub use limit::{Limit, LimitError};
pub use mode::{Mode, ModeError, ModeErrorKind, Switch, parse_mode};
pub use rate::{RateError, ReleaseRate};
pub use table::{Decision, MAPPED_FROM, Operation, SMALL_BYTES, Table, exact};
pub use template::{MAX_RANGES, Range, Template, TemplateError};
