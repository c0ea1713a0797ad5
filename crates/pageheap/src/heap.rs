//! The page heap as a whole: its parts, and what it counts.

use spandrel_pages::{HugePageId, Length};

use crate::collapse::Repair;
use crate::huge_allocator::HugeAllocator;
use crate::huge_cache::HugeCache;
use crate::huge_filler::HugeFiller;
use crate::huge_region::HugeRegions;
use crate::patience::Patience;
use crate::request::Settings;
use crate::stats::Counters;
use crate::step::Trickle;
use crate::tracker::{Table, Tracker};

/// The page heap of one slice of address space. See the crate's documentation.
pub struct PageHeap<'a> {
    pub(crate) table: Table<'a>,
    pub(crate) settings: Settings,
    pub(crate) vacant: HugeAllocator,
    pub(crate) cache: HugeCache,
    pub(crate) filler: HugeFiller,
    pub(crate) regions: HugeRegions,
    /// Used pages of the filler over time.
    pub(crate) demand: Patience,
    /// Free pages that demand was seen to want when a release was due last.
    pub(crate) kept_for_demand: u32,
    /// Pages of all spans.
    pub(crate) live: u32,
    pub(crate) spans: u32,
    /// Pages behind living large spans, up to the end of their last huge pages.
    pub(crate) slack: u32,
    pub(crate) counters: Counters,
    pub(crate) repair: Repair,
    pub(crate) trickle: Trickle,
    /// Operations since all records were checked.
    #[cfg(debug_assertions)]
    pub(crate) unchecked: u32,
}

impl<'a> PageHeap<'a> {
    /// A page heap for as many huge pages as there are records, all of them never used: every
    /// record is `Tracker::default()`, which is all bytes zero. They are not looked at.
    ///
    /// Alignments are those of page numbers: the slice's base is to be a multiple of the largest
    /// that will be asked for.
    pub const fn new(trackers: &'a mut [Tracker], settings: Settings) -> Self {
        Self {
            table: Table::new(trackers),
            vacant: HugeAllocator::new(),
            cache: HugeCache::new(settings.cache_window_ms, settings.cache_least),
            filler: HugeFiller::new(settings.order),
            regions: HugeRegions::new(),
            demand: Patience::new(),
            kept_for_demand: 0,
            live: 0,
            spans: 0,
            slack: 0,
            counters: Counters::NONE,
            repair: Repair::new(),
            trickle: Trickle::new(),
            #[cfg(debug_assertions)]
            unchecked: 0,
            settings,
        }
    }

    /// Gives a heap that has none yet its records, as in [`Self::new`]. So one can begin in a static: on a
    /// stack it would take more than some threads have.
    pub fn give_records(&mut self, trackers: &'a mut [Tracker]) {
        self.table = Table::new(trackers);
    }

    /// The first huge page that was never used, nor any after it.
    pub fn frontier(&self) -> HugePageId {
        self.vacant.frontier
    }

    /// Pages of all spans.
    pub fn live(&self) -> Length {
        Length(self.live)
    }
}
