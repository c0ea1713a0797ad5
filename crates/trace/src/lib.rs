//! Recordings read: checked, in order, as objects and spans instead of addresses.
//!
//! Invariants: whatever the bytes are, reading them ends in events or in an error that says where;
//! nothing is believed that a checksum does not cover. What is read of a recording that is still
//! being made, or whose program was killed, is what was whole by then.
//!
//! This room must never know a terminal or a flag. It is a tool: the standard library is at home
//! here. The format is the recorder's.

mod content;
mod error;
mod events;
mod objects;
mod spans;
mod summary;
mod table;

pub use content::{Header, Trace};
pub use error::Error;
pub use events::{Events, Happened};
pub use objects::{Objects, Request, Step, Unmatched};
pub use spans::Spans;
pub use summary::{Cdf, RequestSummary, SpanClass, SpanSummary, requests, spans};
pub use table::{TableError, requests_to_parquet, spans_to_parquet};
