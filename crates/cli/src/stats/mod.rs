//! The statistics that the library writes when a process ends: gathered and shown.

mod gather;
pub mod native;
mod table;

pub use gather::Gathering;
pub use spandrel_report::{Requests, Stats};
