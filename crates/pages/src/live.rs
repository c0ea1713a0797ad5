//! The form in which a running process shows its figures to a process that reads its memory.
//!
//! The symbol [`SYMBOL`] names it. It consists of numbers of 64 bits; where each part begins and
//! how long it is stands below. No lock is held while they are read: they may be some requests
//! apart.

use crate::FIGURES;

/// The name of the symbol.
pub const SYMBOL: &str = "spandrel_live";
/// What the form begins with; the last byte counts changes of its meaning.
pub const MAGIC: u64 = u64::from_le_bytes(*b"spandre\x03");

/// Addresses: the first of the native allocator's tables, of the page heap's records in them, of the
/// caches, of the heap, and the one behind its last. All zero until it has started.
pub const BOUNDS: usize = 5;
/// Slices of address space that are told, each by the number of its allocator, its first address and the
/// one behind its last; not in use where that is zero.
pub const SLICES: usize = 10;
/// Numbers of one slice.
pub const SLICE: usize = 3;
/// The name of the mode in this many numbers: its bytes in the order of memory, zeroes behind. A longer
/// one is cut.
pub const MODE: usize = 16;

/// [`MAGIC`] is the first number, [`FIGURES`] the second. Where the bounds begin,
pub const BOUNDS_AT: usize = 2;
/// a [`Stage`],
pub const STAGE_AT: usize = BOUNDS_AT + BOUNDS;
/// the slices,
pub const SLICES_AT: usize = STAGE_AT + 1;
/// the name of the mode,
pub const MODE_AT: usize = SLICES_AT + SLICES * SLICE;
/// and the figures, in the order of their numbers.
pub const FIGURES_AT: usize = MODE_AT + MODE;
/// How many numbers all of it is.
pub const WORDS: usize = FIGURES_AT + FIGURES;

/// How far the library is in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Stage {
    /// It is loaded, and no request has come.
    Loaded = 0,
    /// In `auto` glibc serves until the process has asked for more than short programs do.
    Young = 1,
    /// It serves as the mode says.
    Serving = 2,
}

impl Stage {
    /// The stage of that number; of an unknown one the last.
    pub const fn of(number: u64) -> Self {
        match number {
            0 => Self::Loaded,
            1 => Self::Young,
            _ => Self::Serving,
        }
    }

    /// The name used in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Young => "young",
            Self::Serving => "serving",
        }
    }
}
