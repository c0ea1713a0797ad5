//! Which bytes did this code write? Each front end answers behind one trait, [`Capture`]:
//!
//! - [`Explicit`]: the code names its writes.
//! - [`DirtyPages`]: the kernel names the written pages, and a comparison with an older copy the blocks.
//!
//! - [`CompilerHooks`]: code that is compiled with hooks names its stores.
//!
//! The first and the last note writes in [`Captured`]: small ones in a table of blocks without duplicates (Mangosteen, section 4.3), large ones as
//! ranges.
//!
//! Invariants:
//! - No write is lost. A batch that outgrows the table goes to the overflow; one that outgrows the overflow is noted in whole pages; one that
//!   outgrows these is every byte of the durable regions. Each step names more bytes than were written, never fewer.
//! - The runs of a batch are disjoint and sorted. Each begins and ends at a multiple of the block size and lies within the durable regions.
//! - The memory is mapped when a front end is made; only the overflow is opened later. A refusal of the kernel makes a batch coarser.
//! - A note allocates nothing, takes no lock and does not panic.
//!
//! This room must never know what becomes of the bytes: neither the log nor the medium nor the heap that they lie in.
#![no_std]

#[cfg(any(test, fuzzing))]
#[macro_use]
extern crate std;

mod captured;
mod dirty;
mod explicit;
pub mod hooks;
mod memory;
mod ranges;
mod regions;
mod table;
#[cfg(target_arch = "x86_64")]
pub mod translate;

pub use captured::{Captured, Extent, Sizes};
pub use dirty::{DirtyPages, Older, differing};
pub use explicit::Explicit;
pub use hooks::CompilerHooks;
pub use ranges::RANGE_BYTES;
pub use regions::{MOST_REGIONS, Region, Regions};

/// Finds the bytes that were written between [`Capture::begin`] and [`Capture::end`]: one batch.
pub trait Capture {
    /// Begins a batch. Writes that a front end finds without a note count for the batch in which they are found.
    fn begin(&mut self);

    /// The batch writes `bytes` bytes at `at`, before or after this call. Zero bytes are no write.
    fn note(&mut self, at: *const u8, bytes: usize);

    /// Ends the batch: calls `see` with the address and the number of bytes of each run, in order of address. The runs are disjoint and
    /// cover every byte that was written within the durable regions.
    fn end(&mut self, see: &mut dyn FnMut(*const u8, usize));

    /// Figures of all batches so far.
    fn statistics(&self) -> Statistics;
}

/// Figures of all batches of a front end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Blocks of the ended batches. A block of the overflow counts each time that it was noted.
    pub blocks: u64,
    /// Blocks that were noted once more in the same batch.
    pub duplicates: u64,
    /// Large writes, which are noted as ranges.
    pub ranges: u64,
    /// Notes that found the table full and went to the overflow.
    pub overflowed: u64,
    /// Batches that were noted in whole pages.
    pub coarse: u64,
    /// Batches that consist of every byte of the durable regions.
    pub whole: u64,
}

/// Why a front end or a region is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// A size is out of bounds, or not a multiple of what it has to be.
    Size,
    /// The kernel has no memory.
    Memory,
    /// There are [`MOST_REGIONS`] regions already.
    Regions,
    /// A batch of another thread is open.
    Thread,
    /// The system forbids memory with code, or the processor lacks instructions that translated code uses.
    Code,
}
