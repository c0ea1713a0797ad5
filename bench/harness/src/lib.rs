//! The benchmarks: what is measured, on which allocators, and the report.
//!
//! A suite is a folder and a line of [`SUITES`]. It runs programs once per allocator and round, mostly the worker
//! (`bench/worker`), and returns a section of the report: tables, figures, a picture, verdicts on targets.
//!
//! Invariants:
//!
//! * Only ratios of medians are compared, between allocators that took turns in the same run.
//! * What cannot be measured is refused before the first measurement ([`Suite::prepare`]), not after an hour.
//! * An option without effect on a suite is refused ([`Options`]).
//! * The exit code says whether programs worked on Spandrel, not how fast they were.
//!
//! This room must never know how options are spelled on a command line; each names itself in messages only. It links
//! no allocator: those are found and preloaded ([`spandrel_measure::peers`]).

mod apps;
mod asked;
mod brug;
mod makalu;
mod mangosteen;
mod micro;
mod options;
mod programs;
mod redis;
mod registry;
mod report;
mod run;
mod suite;
mod temeraire;
mod world;

pub use asked::Asked;
pub use micro::replay;
pub use options::{Allocators, Drawn, Options};
pub use registry::{ALL, SUITES, named};
pub use report::Section;
pub use run::run;
pub use suite::{Bench, Prepared, Suite};
