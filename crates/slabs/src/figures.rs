//! What the allocator tells of itself.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spandrel_os::budget;
use spandrel_os::live::{self, set};
use spandrel_os::vm::{self, HugePages};
use spandrel_pageheap::Stats;
use spandrel_pages::{Figure, Figures, HEAP_PAGE_BYTES, HUGEPAGE_BYTES};

use crate::{beside, central, cpu_cache, heap, kept, peak, thread_cache, transfer};

/// Nothing is on huge pages, as it was at the last look.
static NO_HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// All figures as they are now; `None` if the allocator has not started, and there is no limit that
/// others are held to.
pub fn figures() -> Option<Figures> {
    set(Figure::Held, budget::held() as u64);
    match heap::stats() {
        Some(stats) => {
            publish_heap(&stats);
            publish_caches();
        }
        None if !budget::counts() => return None,
        None => {}
    }
    Some(live::all())
}

/// Writes down what of it is resident, as the kernel tells: it looks at each page. And whether any of it
/// may be on huge pages.
pub fn measure_resident() {
    NO_HUGE_PAGES.store(vm::huge_pages() == HugePages::Never, Relaxed);
    if heap::stats().is_some() {
        peak::note();
    }
}

/// The child of a fork counts from its beginning: no thread shall read its parent's counts there until it
/// does something itself.
pub fn fork_forget() {
    let counts = Figure::ALL.iter().filter(|figure| figure.never_falls());
    counts.for_each(|figure| set(*figure, 0));
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
        (Figure::FromCache, counters.from_cache),
        (Figure::FromKernel, counters.from_kernel),
        (Figure::BackgroundMicros, beside::taken_micros()),
    ];
    values.into_iter().for_each(|(figure, value)| set(figure, value));
    set(Figure::Held, budget::held() as u64);
    peak::see();
}

/// Writes down what lies in the caches.
pub fn publish_caches() {
    let (bytes, hits) = cpu_cache::counts();
    let (more_bytes, more_hits) = thread_cache::counts();
    set(Figure::InCaches, bytes + more_bytes);
    set(Figure::CacheHits, hits + more_hits);
    let (bytes, hits, misses) = transfer::counts();
    set(Figure::InTransfer, bytes);
    set(Figure::TransferHits, hits);
    set(Figure::TransferMisses, misses);
    set(Figure::InSpans, central::free_bytes());
    set(Figure::InEmptySpans, kept::bytes() as u64);
}
