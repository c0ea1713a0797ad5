//! One policy, one source of operations.

use crate::ahead;
use crate::error::Error;
use crate::hugepages;
use crate::kernel::{Calls, Kernel};
use crate::operation::{Event, Operation, Operations};
use crate::policy::Policy;
use crate::prefetch;
use crate::records::Records;
use crate::release::Release;
use crate::sizes::Sizes;
use crate::summary::{Averages, Bookkeeping, Sample, Summary};
use crate::target::Target;
use serde::Serialize;
use spandrel_pageheap::{Memory, PageHeap, Request, Settings, Tracker, Urgency};
use spandrel_pages::{GIB, HEAP_PAGE_BYTES, HUGEPAGE_BYTES, Length, PageId, TIB};
use std::time::Instant;

/// The largest heap: half of what 32-bit page numbers reach, as a heap that fragments takes more
/// than what lives in it.
pub const HEAP_MAX: u64 = 16 * TIB as u64;
/// Huge pages that 32-bit page numbers reach.
const HUGEPAGES_MAX: usize = 1 << 24;
/// A slice is as large as the heap's peak and this many times that. Untouched records cost nothing.
const SLICE_PER_PEAK: u64 = 8;
/// The number of living spans fluctuates around its target.
const SPANS_MARGIN: f64 = 1.02;
/// How often the work beside the program is done; the allocator's thread does it as often.
const STEP_MS: u64 = 20;

/// How a simulation is done.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How huge pages are chosen.
    pub policy: Policy,
    /// When memory is released.
    pub release: Release,
    /// What else may be tuned; its `order` is the policy's, its `release_guarded` the release's.
    pub settings: Settings,
    /// The most bytes that will be live.
    pub heap_bytes: u64,
    /// About how many spans will live at once, for room to be made at once.
    pub spans: u32,
    /// From when on averages are taken.
    pub settled_s: f64,
    /// How long it will last: samples are spread over this time.
    pub end_s: f64,
    /// How many samples are kept.
    pub samples: u32,
    /// Whether the page heap counts everything again at each sample. For tests: it takes long.
    pub checked: bool,
}

impl Config {
    /// The page heap as it is, for something empty and short.
    pub fn plain(policy: Policy) -> Self {
        Self {
            policy,
            release: Release::Off,
            settings: Settings::DEFAULT,
            heap_bytes: 0,
            spans: 0,
            settled_s: 0.0,
            end_s: 0.0,
            samples: 600,
            checked: false,
        }
    }

    /// The page heap as it is, for what a driver with these will do.
    pub fn new(policy: Policy, sizes: &Sizes, target: &Target) -> Self {
        Self {
            heap_bytes: (target.peak() * HEAP_PAGE_BYTES as f64) as u64,
            spans: (target.peak() / sizes.mean_live_pages() * SPANS_MARGIN) as u32,
            settled_s: target.settled_s(),
            end_s: target.end_s(),
            ..Self::plain(policy)
        }
    }
}

/// What a policy made of a workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// How huge pages were chosen.
    pub policy: Policy,
    /// When memory went back.
    pub release: Release,
    /// What it comes to.
    pub summary: Summary,
    /// What the kernel was asked.
    pub calls: Calls,
    /// The course of it.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// A name for each: of its policy, and of its release where there are several.
    pub fn labels(outcomes: &[Self]) -> Vec<String> {
        let several = outcomes.windows(2).any(|pair| pair[0].release != pair[1].release);
        let label = |outcome: &Self| match several {
            true => format!("{}, {}", outcome.policy.name(), outcome.release),
            false => outcome.policy.name().to_string(),
        };
        outcomes.iter().map(label).collect()
    }
}

/// Memory that a simulation takes, about: records for what the heap may spread to, and a few words
/// for each span.
pub fn bytes_needed(heap_bytes: u64, spans: f64) -> u64 {
    const PER_SPAN: f64 = 20.0;
    let hugepages = 2 * (heap_bytes / HUGEPAGE_BYTES as u64 + 1);
    hugepages * size_of::<Tracker>() as u64 + (spans * PER_SPAN) as u64
}

/// Where a living span lies.
#[derive(Clone, Copy, Default)]
struct Place {
    first: u32,
    /// 0: no such span lives.
    pages: u32,
}

/// Runs operations to their end. `progress` is told now and then how many are done.
///
/// # Errors
/// The heap is too large to be numbered, or the source of operations fails or contradicts itself.
pub fn run(
    config: &Config,
    operations: &mut (impl Operations + Send),
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, Error> {
    if config.heap_bytes > HEAP_MAX {
        let asked = config.heap_bytes / GIB as u64;
        return Err(Error::new(format!(
            "a heap of {asked} GiB is too large; up to {} TiB can be simulated",
            HEAP_MAX >> 40
        )));
    }
    let hugepages = config.heap_bytes.saturating_mul(SLICE_PER_PEAK) / HUGEPAGE_BYTES as u64;
    let mut records = Records::new((hugepages as usize + 4096).min(HUGEPAGES_MAX));
    let first_record = records.as_mut().as_ptr();
    let settings = Settings {
        order: config.policy.order(),
        release_guarded: !matches!(config.release, Release::Rate(_)),
        ..config.settings
    };
    let mut world = World {
        heap: PageHeap::new(records.as_mut(), settings),
        first_record,
        kernel: Kernel::default(),
        places: hugepages::vec(config.spans as usize),
        config,
        next_step_ms: 0,
        averages: Averages::default(),
        samples: Vec::with_capacity(config.samples as usize + 2),
        summary: Summary::default(),
    };
    let begin = Instant::now();
    ahead::each(operations, |batch| {
        world.prefetch(batch);
        for event in batch {
            world.apply(event)?;
        }
        let end_ms = batch.last().map_or(0, |event| event.at_ms);
        world.summary.simulated_s = end_ms as f64 / 1000.0;
        progress(world.summary.operations);
        Ok(())
    })?;
    world.summary.seconds = begin.elapsed().as_secs_f64();
    Ok(world.finish(operations.bookkeeping_bytes()))
}

/// A page heap, its kernel, and what has been seen of them.
struct World<'a> {
    heap: PageHeap<'a>,
    /// Only to be fetched, never read: the heap has borrowed it.
    first_record: *const Tracker,
    kernel: Kernel,
    places: Vec<Place>,
    config: &'a Config,
    next_step_ms: u64,
    averages: Averages,
    samples: Vec<Sample>,
    summary: Summary,
}

impl World<'_> {
    /// Fetches what the batch's deletions will look at: where spans lie, then the records of their
    /// huge pages.
    fn prefetch(&self, batch: &[Event]) {
        let deleted = || {
            batch.iter().filter_map(|event| match event.operation {
                Operation::Delete { id } => Some(id as usize),
                _ => None,
            })
        };
        deleted().for_each(|id| prefetch::element(&self.places, id));
        for place in deleted().filter_map(|id| self.places.get(id)) {
            let record = PageId(place.first).hugepage().0 as usize;
            let address = self.first_record.wrapping_add(record).cast::<u8>();
            prefetch::line(address);
            prefetch::line(address.wrapping_add(64));
        }
    }

    #[inline]
    fn apply(&mut self, event: &Event) -> Result<(), Error> {
        let now_ms = event.at_ms;
        while now_ms >= self.next_step_ms {
            self.step()?;
        }
        match event.operation {
            Operation::New { id, pages, align, objects } => {
                let at = id as usize;
                if at >= self.places.len() {
                    self.make_room(at);
                }
                if self.places[at].pages != 0 {
                    return Err(Error::new(format!("span {id} is made while it lives")));
                }
                let request = Request { pages: Length(pages), align: Length(align), objects };
                match self.heap.allocate(&mut self.kernel, now_ms, request) {
                    Some(span) => self.places[at] = Place { first: span.first.0, pages },
                    None => self.summary.refused += 1,
                }
                self.mend(now_ms);
                self.summary.operations += 1;
            }
            Operation::Delete { id } => {
                // A span that could not be had has no place; its end is no news.
                let place =
                    self.places.get_mut(id as usize).map(std::mem::take).unwrap_or_default();
                if place.pages != 0 {
                    let (first, pages) = (PageId(place.first), Length(place.pages));
                    if !self.heap.free(&mut self.kernel, now_ms, first, pages) {
                        return Err(Error::new(format!("the page heap does not know span {id}")));
                    }
                }
                self.summary.operations += 1;
            }
            Operation::Grow { id, pages } => self.grow(now_ms, id, pages)?,
            Operation::Release { pages } => {
                self.heap.release(&mut self.kernel, now_ms, Length(pages), Urgency::Asked);
            }
            Operation::Pass => {}
        }
        Ok(())
    }

    /// As the allocator does it: longer where it is, or else another one for the old.
    #[cold]
    fn grow(&mut self, now_ms: u64, id: u32, pages: u32) -> Result<(), Error> {
        self.summary.operations += 1;
        let Some(place) = self.places.get_mut(id as usize).filter(|place| place.pages != 0) else {
            return Ok(());
        };
        let (first, old, new) = (PageId(place.first), Length(place.pages), Length(pages));
        if self.heap.try_grow(&mut self.kernel, now_ms, first, old, new).is_some() {
            place.pages = pages;
            self.mend(now_ms);
            return Ok(());
        }
        let request = Request { pages: new, align: Length(1), objects: 1 };
        match self.heap.allocate(&mut self.kernel, now_ms, request) {
            Some(span) => *place = Place { first: span.first.0, pages },
            None => self.summary.refused += 1,
        }
        // What found no room is not there any more either.
        if !self.heap.free(&mut self.kernel, now_ms, first, old) {
            return Err(Error::new(format!("the page heap does not know span {id}")));
        }
        if place.first == first.0 {
            *place = Place::default();
        }
        self.mend(now_ms);
        Ok(())
    }

    /// Makes a huge page whole that the last request has filled again, as the allocator does.
    #[inline]
    fn mend(&mut self, now_ms: u64) {
        if let Some(page) = self.heap.just_refilled(now_ms) {
            let outcome = self.kernel.collapse(page);
            self.heap.restored(&mut self.kernel, now_ms, page, outcome);
        }
    }

    #[cold]
    fn make_room(&mut self, at: usize) {
        if at >= self.places.capacity() {
            // By an eighth: doubling would keep half of it for nothing.
            let more = at + 1 - self.places.len() + self.places.len() / 8 + 1024;
            self.places.reserve_exact(more);
        }
        self.places.resize(at + 1, Place::default());
    }

    /// The work beside the program, and a look at the heap.
    fn step(&mut self) -> Result<(), Error> {
        let now_ms = self.next_step_ms;
        self.next_step_ms += STEP_MS;
        if self.config.release == Release::All {
            self.heap.release(&mut self.kernel, now_ms, Length::MAX, Urgency::Asked);
        }
        self.heap.step(&mut self.kernel, now_ms, self.config.release.per_s());
        let stats = self.heap.stats();
        let sample = Sample::of(now_ms as f64 / 1000.0, &stats);
        let summary = &mut self.summary;
        summary.live_peak = summary.live_peak.max(sample.live);
        summary.resident_peak = summary.resident_peak.max(sample.resident);
        summary.spans_peak = summary.spans_peak.max(stats.spans);
        if sample.seconds >= self.config.settled_s {
            self.averages.add(&sample, STEP_MS as f64 / 1000.0);
        }
        let due =
            self.samples.len() as f64 * self.config.end_s / f64::from(self.config.samples.max(1));
        if sample.seconds >= due {
            self.samples.push(sample);
            if self.config.checked
                && let Err(fault) = self.heap.check()
            {
                return Err(Error::new(format!(
                    "at {now_ms} ms the page heap is wrong: {fault:?}"
                )));
            }
        }
        Ok(())
    }

    fn finish(mut self, source_bytes: usize) -> Outcome {
        self.averages.write(&mut self.summary);
        let stats = self.heap.stats();
        let given_back = stats.counters.released.total();
        let gone = stats.unbacked.saturating_add(self.kernel.gone().pages());
        let hugepages = self.heap.frontier().0;
        let heap_bytes = hugepages as usize * size_of::<Tracker>() + size_of::<PageHeap>();
        let span_bytes = self.places.capacity() * size_of::<Place>() + source_bytes;
        let share = |bytes: usize, of: u32| bytes as f64 / f64::from(of.max(1));
        let summary = Summary {
            broken: stats.counters.broken,
            restored: stats.counters.restored,
            given_back,
            fetched_again: given_back.saturating_sub(gone.0.into()),
            hugepages,
            bookkeeping: Bookkeeping {
                per_hugepage: share(heap_bytes, hugepages),
                per_span: share(span_bytes, self.summary.spans_peak),
            },
            ..self.summary
        };
        Outcome {
            policy: self.config.policy,
            release: self.config.release,
            summary,
            calls: self.kernel.calls,
            samples: self.samples,
        }
    }
}
