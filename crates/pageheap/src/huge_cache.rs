//! `HugeCache` (4.3): backed, empty huge pages, as many as demand has lately swung.

use spandrel_pages::{HugeLength, HugePageId};

use crate::demand::Window;
use crate::memory::Memory;
use crate::ranges::{Range, Ranges};
use crate::tracker::{State, Table};

/// Epochs of the demand window.
const EPOCHS: usize = 16;

/// Backed, empty ranges, and the demand that says how many of them to keep.
#[derive(Debug)]
pub(crate) struct HugeCache {
    pub(crate) ranges: Ranges,
    /// Huge pages in use, by whomever.
    used: u32,
    demand: Window<EPOCHS>,
    window_ms: u32,
    /// Kept whatever demand says.
    pub(crate) least: HugeLength,
}

impl HugeCache {
    pub(crate) const fn new(window_ms: u32, least: HugeLength) -> Self {
        Self {
            ranges: Ranges::new(State::Cached, State::CachedEnd),
            used: 0,
            demand: Window::new(window_ms),
            window_ms,
            least,
        }
    }

    /// Takes a backed range, `align` a power of two.
    pub(crate) fn allocate(
        &mut self,
        table: &mut Table,
        count: HugeLength,
        align: HugeLength,
    ) -> Option<Range> {
        let (whole, part) = self.ranges.find(table, count, align)?;
        self.ranges.take(table, whole, part);
        Some(part)
    }

    /// Huge pages in use.
    pub(crate) fn in_use(&self) -> u32 {
        self.used
    }

    /// Huge pages went into use.
    pub(crate) fn taken(&mut self, now_ms: u64, count: HugeLength) {
        self.used = self.used.saturating_add(count.0);
        self.demand.observe(now_ms, self.used);
    }

    /// Huge pages are no longer in use.
    pub(crate) fn returned(&mut self, now_ms: u64, count: HugeLength) {
        self.used = self.used.saturating_sub(count.0);
        self.demand.observe(now_ms, self.used);
    }

    /// How many empty huge pages recent demand justifies.
    pub(crate) fn limit(&mut self, now_ms: u64) -> HugeLength {
        self.demand.advance(now_ms);
        let swing =
            self.demand.high(self.window_ms).saturating_sub(self.demand.low(self.window_ms));
        HugeLength(swing).max(self.least)
    }

    /// Gives back up to `count` huge pages, from the highest address down, so that the heap stays
    /// together at the low end. What the kernel refused stays. Returns how many went.
    pub(crate) fn release(
        &mut self,
        table: &mut Table,
        free: &mut Ranges,
        memory: &mut impl Memory,
        count: HugeLength,
    ) -> HugeLength {
        let mut released = HugeLength::ZERO;
        while released < count {
            let Some(whole) = self.ranges.last(table) else { break };
            let n = whole.count.min(count.saturating_sub(released));
            let first = HugePageId(whole.end().0.saturating_sub(n.0));
            if !memory.unback(first.first_page(), n.pages()) {
                break;
            }
            let part = Range { first, count: n };
            self.ranges.take(table, whole, part);
            free.insert(table, part);
            released = released.saturating_add(n);
        }
        released
    }
}
