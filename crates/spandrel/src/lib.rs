//! Spandrel for Rust programs: many allocators, chosen per size, per scope and
//! per data structure, and reallocation that does not copy.
//!
//! ```
//! #[global_allocator]
//! static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();
//!
//! let mut log = Vec::new();
//! for i in 0..1_000_000u64 {
//!     log.push(i); // from 128 KiB on, growing moves no byte
//! }
//! assert_eq!(log.len(), 1_000_000);
//! ```
//!
//! # Modes
//! `auto` (the default), one allocator for all (`native`, `sys`, `jemalloc`,
//! `mimalloc`, `tcmalloc`, `mmap`), by size (`template`, `template=brug`,
//! `template=0-4KiB:jemalloc,4KiB-:mmap`), or `switch` with a base allocator, a
//! switch point and a threshold. [`set_mode`] changes the process, [`scope()`] a
//! stretch of a thread, a handle ([`Sys`], [`Mmap`], …) one data structure.
//! The environment variable `SPANDREL_MODE` sets the mode to start in.
//!
//! # A heap that outlives the process
//! [`heap`](mod@heap): `malloc` whose objects are there again when the program is started the next time, also after it was killed.
//!
//! # A state that survives failures
//! [`durable`](mod@durable): a state in memory; a change of it is durable when the call that has made it returns.
//!
//! # Features
//! `durable` (on unless it is turned off) is the durable state.
//! `heap` (on unless it is turned off) is the recoverable heap; `std` (likewise) has it take the paths of the standard library, and
//! [`allocator_api2`] have containers.
//! `jemalloc`, `mimalloc` and `tcmalloc` build those allocators in (the last is
//! Google's, and takes minutes). Without features no C is compiled; `auto` needs
//! none: it stands on our own allocator and the page-mapped backend.
//!
//! # Limits
//! A library that has Spandrel linked in must not be unloaded (`dlclose`): the kernel
//! would look for its restartable sequences. Between `vfork` and `exec` nothing may
//! be allocated, as POSIX has it; the preload library is more lenient.
//!
//! Invariant: whatever was allocated under one mode may be freed and grown
//! under any other.
#![no_std]

// For paths, and for nothing else.
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "durable")]
pub mod durable;
mod global;
mod handle;
#[cfg(feature = "heap")]
pub mod heap;
mod monitor;
mod scope;

/// The interface of the handles ([`Mmap`], [`Native`], …), in the version that they implement: another version of it has
/// other traits of the same names.
pub use allocator_api2;
pub use global::Spandrel;
#[cfg(feature = "jemalloc")]
pub use handle::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use handle::Mimalloc;
#[cfg(feature = "tcmalloc")]
pub use handle::Tcmalloc;
pub use handle::{Auto, Mmap, Native, Sys};
pub use monitor::{Monitor, ObjectRecord, monitor};
pub use scope::{Mode, scope, try_scope};
pub use spandrel_adaptive::{
    ModeChange, ReallocStats, RequestRow, Stats, count_requests, owner, stats, trim,
};
pub use spandrel_pages::AllocatorId;

/// Puts the whole process into a mode, given by name; see the crate's
/// documentation for the names. Objects stay where they are.
///
/// ```
/// spandrel::set_mode("template=0-64KiB:sys,64KiB-:mmap")?;
/// assert_eq!(spandrel::mode().to_string(), "template=0-64KiB:sys,64KiB-:mmap");
/// assert!(spandrel::set_mode("fast").is_err());
/// # spandrel::set_mode("auto")?;
/// # Ok::<(), spandrel::ModeChange<'static>>(())
/// ```
///
/// # Errors
/// The text is no mode, needs an allocator whose feature is off, or is the 33rd
/// different mode of the process.
pub fn set_mode(mode: &str) -> Result<(), ModeChange<'_>> {
    spandrel_adaptive::set_mode(mode)
}

/// The mode of the process, as [`set_mode`] reads it when printed.
pub fn mode() -> spandrel_policy::Mode {
    spandrel_adaptive::current_mode()
}

/// Runs a block under a mode (Brug, listing 1): `set_allocator_mode!(mode, { … })`.
///
/// The mode is a [`Mode`] or anything that converts into one, such as a name.
///
/// ```
/// use spandrel::{Mode, set_allocator_mode};
/// let squares: Vec<u64> = set_allocator_mode!(Mode::Mmap, { (0..100_000).map(|i| i * i).collect() });
/// let again = set_allocator_mode!("sys", squares.clone());
/// assert_eq!(squares, again);
/// ```
#[macro_export]
macro_rules! set_allocator_mode {
    ($mode:expr, $body:expr) => {
        $crate::scope($mode, || $body)
    };
}

/// The snippets of the project's README, which are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Those of the page about durable states.
#[cfg(all(doctest, feature = "durable"))]
#[doc = include_str!("../../../docs/durable.md")]
struct DurableStates;
