//! What the allocator tells of itself.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spandrel_os::budget;
use spandrel_os::live::{self, set};
use spandrel_os::vm::{self, HugePages};
use spandrel_pageheap::Stats;
use spandrel_pages::{Figure, Figures, HEAP_PAGE_BYTES, HUGEPAGE_BYTES};

use crate::{beside, central, cpu_cache, heap, kept, map, thread_cache, transfer};

/// Nothing is on huge pages, as it was when somebody looked last.
static NO_HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// All figures as they are now; `None` if the allocator has not started.
pub fn figures() -> Option<Figures> {
    let stats = heap::stats()?;
    publish_heap(&stats);
    publish_caches();
    Some(live::all())
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
    set(Figure::InEmptySpans, kept::bytes() as u64);
}
