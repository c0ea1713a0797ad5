//! Single operations of an allocator, made by the worker: growing, pairs, starts, the owner of a pointer; and requests
//! of a recording.

pub mod cases;
mod copies;
mod dispatch;
mod fig2;
pub mod replay;
mod startup;

pub use copies::Copies;
pub use dispatch::Dispatch;
pub use fig2::Fig2;
pub use startup::Startup;
