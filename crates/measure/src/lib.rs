//! Programs on allocators, one beside another: the allocators under test, rounds of runs, and what a run takes.
//!
//! Invariants:
//!
//! * A program sees the allocator variables of its contender, never those of the user's shell
//!   ([`contender::Contender::prepare`]).
//! * Contenders take turns, so that a disturbance of the machine hits them alike ([`rounds`]). One that fails once is
//!   measured no more.
//! * Between two runs the memory that they use is held, so that each run finds the machine as the one before it
//!   ([`reserve`]).
//! * The executable of the process answers `--version` without any other effect: [`modes`] runs it once with the
//!   library, whose answer names the allocators in it.
//!
//! This room must never know which work is measured, nor how its figures are shown.

pub mod contender;
pub mod counters;
pub mod gather;
pub mod machine;
pub mod malloc_time;
pub mod modes;
pub mod peers;
pub mod places;
pub mod process;
pub mod reserve;
pub mod rounds;
pub mod smaps;
