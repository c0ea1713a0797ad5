//! What the allocator tells of itself: when asked, and to whoever reads the memory
//! of the process.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use spandrel_os::budget;
use spandrel_os::vm::{self, HugePages};
use spandrel_pageheap::Stats;
use spandrel_pages::{FIGURES, Figure, Figures, HEAP_PAGE_BYTES, HUGEPAGE_BYTES, LIVE_MAGIC};

use crate::{beside, central, cpu_cache, heap, map, thread_cache, transfer};

/// See [`spandrel_pages::LIVE_SYMBOL`].
#[repr(C)]
struct Live {
    magic: u64,
    count: u64,
    /// First address of the tables, that of the heap behind them, and the one behind its last.
    bounds: [AtomicU64; 3],
    figures: [AtomicU64; FIGURES],
}

#[unsafe(export_name = "spandrel_live")]
static LIVE: Live = Live {
    magic: LIVE_MAGIC,
    count: FIGURES as u64,
    bounds: [const { AtomicU64::new(0) }; 3],
    figures: [const { AtomicU64::new(0) }; FIGURES],
};

/// Nothing is on huge pages, as it was when somebody looked last.
static NO_HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// All figures as they are now; `None` if the allocator has not started.
pub fn figures() -> Option<Figures> {
    let stats = heap::stats()?;
    publish_heap(&stats);
    publish_caches();
    let mut figures = [0; FIGURES];
    for (figure, live) in figures.iter_mut().zip(&LIVE.figures) {
        *figure = live.load(Relaxed);
    }
    Some(figures)
}

/// Writes down where the tables begin, where the heap behind them, and where that ends.
pub fn publish_bounds(bounds: [usize; 3]) {
    for (place, bound) in LIVE.bounds.iter().zip(bounds) {
        place.store(bound as u64, Relaxed);
    }
}

/// Writes down what of it is resident, as the kernel tells: it looks at each page. And whether any of it
/// may be on huge pages.
pub fn measure_resident() {
    if let Some((heap, tables)) = map::resident() {
        set(Figure::Resident, heap as u64);
        set(Figure::Tables, tables as u64);
    }
    NO_HUGE_PAGES.store(vm::huge_pages() == HugePages::Never, Relaxed);
}

/// Writes down what the page heap counts.
pub fn publish_heap(stats: &Stats) {
    let page = |pages: u64| pages * HEAP_PAGE_BYTES as u64;
    let pages = |pages: spandrel_pages::Length| page(pages.0.into());
    let huge = |huge: spandrel_pages::HugeLength| u64::from(huge.0) * HUGEPAGE_BYTES as u64;
    let (counters, released) = (&stats.counters, &stats.counters.released);
    let values = [
        (Figure::Live, pages(stats.live)),
        (Figure::Cached, huge(stats.cached)),
        (Figure::Free, pages(stats.free)),
        (Figure::Unbacked, pages(stats.unbacked)),
        (Figure::Vacant, huge(stats.vacant)),
        (Figure::Covered, if NO_HUGE_PAGES.load(Relaxed) { 0 } else { pages(stats.covered) }),
        (Figure::Spans, stats.spans.into()),
        (Figure::Filler, stats.filler.0.into()),
        (Figure::Broken, stats.broken.0.into()),
        (Figure::Refilled, stats.refilled.0.into()),
        (Figure::BrokenSoFar, counters.broken),
        (Figure::Restored, counters.restored),
        (Figure::CollapseAttempts, counters.collapse_attempts),
        (Figure::CollapseFailures, counters.collapse_failures),
        (Figure::CollapseMicros, counters.collapse_micros),
        (Figure::CollapseMaxMicros, counters.collapse_max_micros.into()),
        (Figure::Regions, stats.regions.into()),
        (Figure::RegionLive, pages(stats.region_live)),
        (Figure::Slack, pages(stats.slack)),
        (Figure::Abandoned, pages(stats.abandoned)),
        (Figure::ReleasedDemand, page(released.demand)),
        (Figure::ReleasedAsked, page(released.asked)),
        (Figure::ReleasedBackground, page(released.background)),
        (Figure::ReleasedDrained, page(released.drained)),
        (Figure::ReleasedPressure, page(released.pressure)),
        (Figure::Subreleased, page(counters.subreleased)),
        (Figure::KeptForDemand, pages(stats.kept_for_demand)),
        (Figure::WantedAgain, page(stats.wanted_again)),
        (Figure::Patience, stats.patience_s.into()),
        (Figure::ReleaseRate, heap::release_rate().into()),
        (Figure::Refused, counters.refused),
        (Figure::BegunSmall, counters.begun_small),
        (Figure::HardLimit, budget::hard().map_or(0, |bytes| bytes as u64)),
        (Figure::SoftLimit, budget::soft().map_or(0, |bytes| bytes as u64)),
        (Figure::Held, budget::held() as u64),
        (Figure::OverLimit, budget::refused()),
        (Figure::FromCache, counters.from_cache),
        (Figure::FromKernel, counters.from_kernel),
        (Figure::BackgroundMicros, beside::taken_micros()),
    ];
    values.into_iter().for_each(|(figure, value)| set(figure, value));
}

/// Writes down what lies in the caches.
pub fn publish_caches() {
    set(Figure::InCaches, cpu_cache::bytes() + thread_cache::bytes());
    let (bytes, hits, misses) = transfer::counts();
    set(Figure::InTransfer, bytes);
    set(Figure::TransferHits, hits);
    set(Figure::TransferMisses, misses);
    set(Figure::InSpans, central::free_bytes());
}

/// Writes down what another allocator of ours holds: bytes of its objects, and of what they left.
#[inline]
pub fn publish_mapped(live: usize, warm: usize) {
    set(Figure::MappedLive, live as u64);
    set(Figure::MappedWarm, warm as u64);
}

fn set(figure: Figure, value: u64) {
    LIVE.figures[figure as usize].store(value, Relaxed);
}
