//! What a run on Spandrel said of itself: statistics read and added up, and one page that shows them.
//!
//! Invariants: a page needs nothing but itself (no script, no font, no other file) and can be read
//! in light, in dark and on paper; what was not measured is not shown as zero.
//!
//! This room must never start, watch or read a process: it is told.

mod charts;
pub mod numbers;
mod page;
mod run;
mod stats;

pub use page::page;
pub use run::{Layer, Run, Sample, Way};
pub use stats::{
    Caller, Degraded, LearntChange, LearntRow, Mmap, Realloc, Requests, Site, Stats, Tuner, Usage,
};
