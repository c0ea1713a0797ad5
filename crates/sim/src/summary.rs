//! What is kept of a simulation: the course of the heap, and what it comes to.

use serde::Serialize;
use spandrel_pageheap::Stats;

/// Where the memory was at a moment; sizes in heap pages.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Sample {
    /// When, in simulated seconds.
    pub seconds: f64,
    /// Pages of all spans.
    pub live: u32,
    /// Pages that are backed.
    pub resident: u32,
    /// Pages of empty huge pages that are kept.
    pub cached: u32,
    /// Backed free pages on huge pages that are partly used.
    pub free: u32,
    /// Free pages of partly used huge pages that went back.
    pub unbacked: u32,
    /// Used pages that lie on whole huge pages.
    pub covered: u32,
    /// Huge pages that are broken.
    pub broken_hugepages: u32,
}

impl Sample {
    pub(crate) fn of(seconds: f64, stats: &Stats) -> Self {
        Self {
            seconds,
            live: stats.live.0,
            resident: stats.resident().0,
            cached: stats.cached.pages().0,
            free: stats.free.0,
            unbacked: stats.unbacked.0,
            covered: stats.covered.0,
            broken_hugepages: stats.broken.0,
        }
    }
}

/// Bytes that the simulation itself takes.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Bookkeeping {
    /// For each huge page up to the highest that was ever used: its record and its share of the
    /// page heap's other data.
    pub per_hugepage: f64,
    /// For each span at the time when most lived: where it lies, and what the source of operations
    /// knows about it.
    pub per_span: f64,
}

/// What a simulation comes to. Averages are over simulated time from when the heap was full first;
/// sizes in heap pages.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Summary {
    /// Spans that were made and freed.
    pub operations: u64,
    /// Simulated time in seconds.
    pub simulated_s: f64,
    /// Time that it took, in seconds.
    pub seconds: f64,
    /// Live pages, on average.
    pub live: f64,
    /// The most of them.
    pub live_peak: u32,
    /// Backed pages, on average.
    pub resident: f64,
    /// The most of them.
    pub resident_peak: u32,
    /// Backed free pages of partly used huge pages, on average.
    pub free: f64,
    /// Pages of empty huge pages that were kept, on average.
    pub cached: f64,
    /// Pages of partly used huge pages that had gone back, on average.
    pub unbacked: f64,
    /// Used pages on whole huge pages, on average.
    pub covered: f64,
    /// Huge pages that were broken.
    pub broken: u64,
    /// Huge pages that were made whole again.
    pub restored: u64,
    /// Pages that went back to the kernel.
    pub given_back: u64,
    /// Of these, pages that had to be fetched again: they were wanted, or their huge page was made
    /// whole.
    pub fetched_again: u64,
    /// Requests that could not be met.
    pub refused: u64,
    /// The most spans that lived at once.
    pub spans_peak: u32,
    /// Huge pages up to the highest that was ever used.
    pub hugepages: u32,
    /// See there.
    pub bookkeeping: Bookkeeping,
}

impl Summary {
    /// Spans made or freed per second.
    pub fn operations_per_s(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    /// Backed pages for each live page.
    pub fn resident_per_live(&self) -> f64 {
        self.resident / self.live.max(1.0)
    }

    /// The part of live pages that lies on whole huge pages.
    pub fn coverage(&self) -> f64 {
        self.covered / self.live.max(1.0)
    }
}

/// Sums over time.
#[derive(Default)]
pub(crate) struct Averages {
    weight: f64,
    live: f64,
    resident: f64,
    free: f64,
    cached: f64,
    unbacked: f64,
    covered: f64,
}

impl Averages {
    pub(crate) fn add(&mut self, sample: &Sample, seconds: f64) {
        self.weight += seconds;
        for (sum, pages) in [
            (&mut self.live, sample.live),
            (&mut self.resident, sample.resident),
            (&mut self.free, sample.free),
            (&mut self.cached, sample.cached),
            (&mut self.unbacked, sample.unbacked),
            (&mut self.covered, sample.covered),
        ] {
            *sum += f64::from(pages) * seconds;
        }
    }

    pub(crate) fn write(&self, summary: &mut Summary) {
        let mean = |sum: f64| if self.weight > 0.0 { sum / self.weight } else { 0.0 };
        summary.live = mean(self.live);
        summary.resident = mean(self.resident);
        summary.free = mean(self.free);
        summary.cached = mean(self.cached);
        summary.unbacked = mean(self.unbacked);
        summary.covered = mean(self.covered);
    }
}
