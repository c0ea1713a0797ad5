//! The page heap on paper: a workload is generated, and what a policy makes of it is counted. No
//! byte of the memory that is simulated is ever touched, so a terabyte takes seconds.
//!
//! Invariants: what happens depends on the arguments and the seed alone; every policy is given the
//! same operations; simulated time never goes backwards; the page heap that runs here is the one
//! that the allocator runs.
//!
//! This room must never know a terminal, a file's name or a flag: text comes in, numbers and
//! pictures go out. It is a tool: the standard library is at home here.

mod ahead;
mod driver;
mod error;
pub mod figures;
mod hugepages;
mod kernel;
mod operation;
mod plot;
mod policy;
mod prefetch;
mod records;
mod release;
mod run;
mod sizes;
mod summary;
mod table;
mod target;
mod weights;

pub use driver::Driver;
pub use error::Error;
pub use kernel::{Calls, Kernel};
pub use operation::{Event, Operation, Operations};
pub use plot::{Axis, Chart, Course, DotPanel, DotRow, Dots, Line, Marks, Panel, timeline};
pub use policy::Policy;
pub use release::Release;
pub use run::{Config, HEAP_MAX, Outcome, bytes_needed, run};
pub use sizes::{Class, Sizes};
pub use summary::{Bookkeeping, Sample, Summary};
pub use target::{Shape, Target};
