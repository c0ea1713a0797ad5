//! What the tuner is told: requests of a short time, and what they took.

use spandrel_pages::AllocatorId;

use super::cost::Tally;

/// Allocators, by number.
pub const ARMS: usize = AllocatorId::ALL.len();
/// Powers of two of sizes that are told apart; all larger ones are one.
pub const ROWS: usize = 48;
/// What can be done to an object.
pub const KINDS: usize = 3;

/// Up to here decisions are by steps of [`SMALL_STEP`] bytes: a size counts as the end of its step.
const SMALL_BYTES: usize = 1024;
const SMALL_STEP: usize = 16;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    /// A new object of the size, by the allocator.
    Made = 0,
    /// An object of the size was given back to the allocator.
    Freed = 1,
    /// An object of the allocator grew to the size, wherever it is now.
    Grown = 2,
}

/// The row of a size: the power of two that it has reached.
#[inline]
pub fn row_of(size: usize) -> usize {
    let size = if size > SMALL_BYTES { size } else { size.max(1).next_multiple_of(SMALL_STEP) };
    (size.ilog2() as usize).min(ROWS - 1)
}

/// The first size of a row, in bytes, and the last.
pub fn sizes_of(row: usize) -> (usize, usize) {
    let end = |row: usize| {
        let next = 1usize << row;
        if next > SMALL_BYTES { next - 1 } else { next.saturating_sub(SMALL_STEP) }
    };
    (
        if row == 0 { 0 } else { end(row) + 1 },
        if row + 1 >= ROWS { usize::MAX } else { end(row + 1) },
    )
}

/// Requests of a window by kind, row and allocator.
pub type Tallies = [[[Tally; ARMS]; ROWS]; KINDS];

/// No requests: what a static or a test's variable begins with.
#[allow(clippy::large_const_arrays)]
pub const NO_TALLIES: Tallies = [[[Tally::NONE; ARMS]; ROWS]; KINDS];

/// A short time in which each request was timed, and the time since the window before.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Processor time of the process in the window, in nanoseconds.
    pub busy_ns: u64,
    /// Processor time of the process since the end of the window before, in nanoseconds.
    pub since_ns: u64,
    /// Page faults since then.
    pub faults: u64,
    /// Nanoseconds that one takes on this machine.
    pub fault_ns: u64,
    /// Resident pages of 4 KiB of the process at the end; 0: not known, or not asked for
    /// ([`super::Tuner::wants_resident`]).
    pub resident_pages: u64,
    /// The requests.
    pub tallies: &'a Tallies,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tile_the_sizes() {
        let mut next = 0;
        for row in 4..ROWS {
            let (first, last) = if row == 4 { (0, sizes_of(4).1) } else { sizes_of(row) };
            assert_eq!(first, next, "row {row}");
            for size in [first, last] {
                assert_eq!(row_of(size), row, "{size}");
            }
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0);
    }
}
