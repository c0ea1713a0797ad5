//! Programs that know of one state only, and whose own memory is that state (Mangosteen, Listing 1).
//!
//! ```text
//!  load       the state of SPANDREL_DURABLE_DIR is recovered. New: what the main thread allocates from now on lies in it
//!  init       variables that are durable are copied into the state, or out of a recovered one; callbacks are known
//!  command    variables <- state; the program's function; variables -> state
//! ```
//!
//! Invariants:
//! - Between commands the durable variables have the values that the state has.
//! - The main thread's first batch lasts from load until init. No other command runs meanwhile.

pub mod allocations;
pub mod clients;
pub mod early;
mod layout;
mod listening;
pub mod server;
pub mod variables;

/// The root of the variables.
const VARIABLES: &str = "spandrel: variables of the program";
/// The root of an object with the [`layout::Layout`] of each.
const LAYOUTS: &str = "spandrel: layout of variables";
