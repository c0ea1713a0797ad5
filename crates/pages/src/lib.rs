//! Typed units of memory.
//!
//! Invariants: nothing here allocates, nothing here is `unsafe`, nothing here
//! knows of an operating system. All arithmetic that a request can reach is
//! total: it saturates or returns `None`, it never wraps and never panics.
//!
//! This room must never know which allocator hands out memory or why.
#![no_std]
#![forbid(unsafe_code)]

mod class;
mod figure;
mod line;
pub mod live;
mod size;
mod unit;

pub use class::{CLASS_COUNT, SizeClass};
pub use figure::{FIGURES, Figure, Figures};
pub use line::{GOLDEN, LINE_BYTES, spread};
pub use size::{ByteSize, ParseSizeError, align_down, align_up};
pub use unit::{HEAP_PAGE_BYTES, HEAP_PAGES_PER_HUGEPAGE, HugeLength, HugePageId, Length, PageId};

/// Bytes in a base page of x86-64.
pub const PAGE_BYTES: usize = 4096;
/// Bytes in a transparent huge page (one entry of a page middle directory).
pub const HUGEPAGE_BYTES: usize = 2 << 20;
/// One kibibyte.
pub const KIB: usize = 1 << 10;
/// One mebibyte.
pub const MIB: usize = 1 << 20;
/// One gibibyte.
pub const GIB: usize = 1 << 30;
/// One tebibyte.
pub const TIB: usize = 1 << 40;
/// First byte beyond the user half of a 47-bit address space.
pub const ADDRESS_SPACE_END: usize = 1 << 47;
/// Alignment that `malloc` guarantees on x86-64 (System V ABI, `max_align_t`).
pub const MIN_ALIGN: usize = 16;

/// The allocators that a request may be served by, in the order of the bytes
/// that name them in policy and owner tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum AllocatorId {
    /// glibc's ptmalloc2; it owns whatever no slice claims.
    Sys = 0,
    /// jemalloc, hosted in its own slice.
    Jemalloc = 1,
    /// mimalloc, hosted in its own slice.
    Mimalloc = 2,
    /// google/tcmalloc, hosted in its own slices.
    Tcmalloc = 3,
    /// Page-mapped slots with room to grow (the `remap` backend).
    Mmap = 4,
    /// Our own general-purpose allocator.
    Native = 5,
    /// Objects between guard pages, in its place: no mode names it.
    Guarded = 6,
}

impl AllocatorId {
    /// Every allocator that a request may name, in numerical order.
    pub const ALL: [Self; 6] =
        [Self::Sys, Self::Jemalloc, Self::Mimalloc, Self::Tcmalloc, Self::Mmap, Self::Native];

    /// The name used in modes, profiles and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mmap => "mmap",
            Self::Native => "native",
            Self::Guarded => "guarded",
        }
    }

    /// The allocator of that name; `glibc` and `ptmalloc2` mean [`Self::Sys`],
    /// `mremap` and `remap` mean [`Self::Mmap`]. Case does not matter.
    pub fn parse(name: &str) -> Option<Self> {
        const ALIASES: [(&str, AllocatorId); 4] = [
            ("glibc", AllocatorId::Sys),
            ("ptmalloc2", AllocatorId::Sys),
            ("mremap", AllocatorId::Mmap),
            ("remap", AllocatorId::Mmap),
        ];
        Self::ALL.into_iter().find(|id| id.name().eq_ignore_ascii_case(name)).or_else(|| {
            ALIASES.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|a| a.1)
        })
    }

    /// Whose requests those to this one are: itself, but for what stands in another's place.
    pub const fn named(self) -> Self {
        match self {
            Self::Guarded => Self::Native,
            id => id,
        }
    }

    /// The allocator with this number.
    #[inline(always)]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Sys),
            1 => Some(Self::Jemalloc),
            2 => Some(Self::Mimalloc),
            3 => Some(Self::Tcmalloc),
            4 => Some(Self::Mmap),
            5 => Some(Self::Native),
            6 => Some(Self::Guarded),
            _ => None,
        }
    }
}
