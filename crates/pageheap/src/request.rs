//! What is asked of the page heap, what it answers, and how it is set up.

use spandrel_pages::{HEAP_PAGES_PER_HUGEPAGE, HugeLength, Length, PageId};

use crate::order::Order;

/// A span that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// How many pages; at least one.
    pub pages: Length,
    /// The first page's number is to be a multiple of this power of two; 0 and 1 mean any.
    pub align: Length,
    /// How many objects the span is for; 1 for a large object.
    pub objects: u32,
}

impl Request {
    /// A span for one object.
    pub const fn pages(pages: Length) -> Self {
        Self { pages, align: Length(1), objects: 1 }
    }
}

/// A span that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its first page.
    pub first: PageId,
    /// How many there are.
    pub pages: Length,
    /// Nothing was ever written to it since the kernel gave it: it reads as zeroes.
    pub zeroed: bool,
}

/// What may be tuned. The default is what TEMERAIRE and google/tcmalloc have found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How huge pages are chosen for small spans.
    pub order: Order,
    /// A span of more objects than this is dense and lies among its like (google/tcmalloc: 16).
    pub sparse_objects: u32,
    /// Demand for huge pages is watched for so long (4.3: 2 s).
    pub cache_window_ms: u32,
    /// Empty huge pages that are kept whatever demand says (google/tcmalloc: 10).
    pub cache_least: HugeLength,
    /// Huge pages at the beginning that are not advised to be huge, and do not count as whole ones.
    pub not_advised: HugeLength,
    /// The largest span that always lies within one huge page (4.1: half of it). A larger one may lie in a region.
    pub within_hugepage: Length,
    /// Whether spans of 32 KiB and more for few objects begin at different pages of huge pages, as addresses that are the same in each of these
    /// share their places in the processor's caches.
    pub coloured: bool,
    /// Regions are made when slack and what was abandoned reach this (google/tcmalloc: 64 MiB).
    pub region_slack: Length,
    /// Whether the release in the background leaves what recent demand will want again. Without, it
    /// is a constant rate; for comparison.
    pub release_guarded: bool,
    /// Time that restoring huge pages may take. Restoring what a terabyte holds must not cost
    /// its program more than one percent (the design's rule for work beside the program). Pages
    /// that began small are not in it: they may take another.
    pub collapse_micros_per_s: u32,
    /// After a failure nothing is restored for so long; twice as long after each further one.
    pub collapse_delay_ms: u32,
}

impl Settings {
    /// See the fields.
    pub const DEFAULT: Self = Self {
        order: Order::RangeThenAllocations,
        sparse_objects: 16,
        cache_window_ms: 2_000,
        cache_least: HugeLength(10),
        not_advised: HugeLength(0),
        within_hugepage: Length(HEAP_PAGES_PER_HUGEPAGE / 2),
        coloured: false,
        region_slack: HugeLength(32).pages(),
        release_guarded: true,
        collapse_micros_per_s: 10_000,
        collapse_delay_ms: 1_000,
    };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}
