//! What a recording comes to: how much of what sizes, live and asked for; what the synthetic driver
//! of the simulator needs to resemble it.

use crate::content::Trace;
use crate::error::Error;
use crate::objects::{Objects, Request, Unmatched};
use crate::spans::Spans;
use spandrel_pages::{HEAP_PAGE_BYTES, HEAP_PAGES_PER_HUGEPAGE};
use spandrel_sim::Operation;
use std::collections::BTreeMap;
use std::fmt::Write;

const NS_PER_S: f64 = 1e9;
/// Larger spans begin huge pages of their own, and leave slack at their ends (4.5).
const SMALL_PAGES: u32 = HEAP_PAGES_PER_HUGEPAGE / 2;
/// An octave is cut into this many parts, for distributions of sizes.
const PARTS: f64 = 4.0;
/// A span that hardly lived; the driver knows no shorter one.
const LIFETIME_MIN_S: f64 = 1e-6;
/// The driver reads this many kinds of spans.
const CLASSES_MAX: usize = 4000;

/// Bytes by size, as a distribution: points (size, share of bytes in sizes up to it).
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Cdf {
    /// By what was asked for in all.
    pub asked: Vec<(f64, f64)>,
    /// By what was live, averaged over time.
    pub live: Vec<(f64, f64)>,
}

/// Live bytes of some sizes, and for how long.
#[derive(Clone, Copy, Default)]
struct Share {
    asked: f64,
    live: f64,
    /// Bytes times nanoseconds, to `since_ns`.
    area: f64,
    since_ns: u64,
}

impl Share {
    fn change(&mut self, ns: u64, bytes: f64) {
        self.area += self.live * (ns - self.since_ns.min(ns)) as f64;
        self.since_ns = ns;
        self.live += bytes;
        if bytes > 0.0 {
            self.asked += bytes;
        }
    }
}

/// Shares by size, in quarters of an octave.
#[derive(Default)]
struct BySize(BTreeMap<i32, Share>);

impl BySize {
    fn change(&mut self, ns: u64, size: u64, bytes: f64) {
        let part = (PARTS * (size.max(1) as f64).log2()).ceil() as i32;
        self.0.entry(part).or_default().change(ns, bytes);
    }

    fn cdf(&mut self, end_ns: u64) -> Cdf {
        self.0.values_mut().for_each(|share| share.change(end_ns, 0.0));
        let points = |value: fn(&Share) -> f64| {
            let all: f64 = self.0.values().map(value).sum();
            let mut below = 0.0;
            let point = |(part, share): (&i32, &Share)| {
                below += value(share);
                (f64::exp2(f64::from(*part) / PARTS), below / all.max(f64::MIN_POSITIVE))
            };
            self.0.iter().map(point).collect()
        };
        Cdf { asked: points(|share| share.asked), live: points(|share| share.area) }
    }
}

/// What a program asked for.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct RequestSummary {
    /// Objects made.
    pub allocations: u64,
    /// Bytes that they were asked for with.
    pub bytes: f64,
    /// Of them, zeroed.
    pub zeroed: u64,
    /// Of them, with more than the usual alignment.
    pub aligned: u64,
    /// Objects given back.
    pub frees: u64,
    /// Reallocations.
    pub resizes: u64,
    /// Of them, to another address.
    pub moved: u64,
    /// Threads that asked.
    pub threads: u32,
    /// The most bytes that were live.
    pub live_peak: u64,
    /// The most objects that were live.
    pub objects_peak: u32,
    /// Bytes live at the end.
    pub live_end: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Fig. 4: bytes by the sizes of objects.
    pub sizes: Cdf,
    /// What could not be told.
    pub unmatched: Unmatched,
}

/// Reads all requests.
///
/// # Errors
/// The recording is damaged.
pub fn requests(trace: &Trace) -> Result<RequestSummary, Error> {
    let mut summary = RequestSummary::default();
    let (mut sizes, mut objects) = (BySize::default(), Objects::new(trace));
    let (mut live, mut end_ns) = (0u64, 0);
    for step in objects.by_ref() {
        let step = step?;
        end_ns = step.ns;
        summary.threads = summary.threads.max(step.thread);
        let (old, new) = match step.request {
            Request::Allocate { size, align_log2, zeroed, .. } => {
                summary.allocations += 1;
                summary.zeroed += u64::from(zeroed);
                summary.aligned += u64::from(align_log2 > 0);
                summary.bytes += size as f64;
                (0, size)
            }
            Request::Free { size, .. } => {
                summary.frees += 1;
                (size, 0)
            }
            Request::Resize { size, old_size, moved, .. } => {
                summary.resizes += 1;
                summary.moved += u64::from(moved);
                (old_size, size)
            }
        };
        if old > 0 {
            sizes.change(step.ns, old, -(old as f64));
        }
        if new > 0 {
            sizes.change(step.ns, new, new as f64);
        }
        live = live.saturating_sub(old).saturating_add(new);
        summary.live_peak = summary.live_peak.max(live);
    }
    summary.live_end = live;
    summary.objects_peak = objects.most_ids();
    summary.unmatched = objects.unmatched;
    summary.seconds = end_ns as f64 / NS_PER_S;
    summary.sizes = sizes.cdf(end_ns);
    Ok(summary)
}

/// Spans that are alike, as the driver wants them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpanClass {
    /// How many pages.
    pub pages: u32,
    /// How many objects one is for.
    pub objects: u32,
    /// Alignment in pages.
    pub align: u32,
    /// How many were made.
    pub made: u64,
    /// How long one lived on average, in seconds: what was live over time, divided by how many were
    /// made (Little's law), so that those that live to the end count as what is known of them.
    pub lifetime_s: f64,
}

/// What was asked of the page heap.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct SpanSummary {
    /// Spans made.
    pub made: u64,
    /// Spans given back.
    pub ended: u64,
    /// Spans made longer where they were.
    pub grown: u64,
    /// Requests to give memory back to the kernel.
    pub releases: u64,
    /// Of these, requests for all that can go.
    pub releases_of_all: u64,
    /// Pages that the others were for.
    pub released_pages: u64,
    /// The most pages that were live.
    pub live_peak: u64,
    /// The most spans that were live.
    pub spans_peak: u32,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Fig. 5: bytes by the sizes of spans.
    pub sizes: Cdf,
    /// Live pages in spans of up to half a huge page, averaged over time.
    pub small_pages: f64,
    /// Pages between the ends of larger spans and those of their huge pages, averaged over time.
    pub slack_pages: f64,
    /// Kinds of spans, the most pages times seconds first.
    pub classes: Vec<SpanClass>,
    /// Ends of spans whose beginning is unknown, and beginnings where one lives.
    pub unknown: u64,
}

impl SpanSummary {
    /// The ratio of section 4.5: small spans for each byte of slack. `None`: there is no slack.
    pub fn small_to_slack(&self) -> Option<f64> {
        (self.slack_pages > 0.0).then(|| self.small_pages / self.slack_pages)
    }

    /// The distribution as the driver's CSV.
    pub fn csv(&self, about: &str) -> String {
        let mut text = format!("# {about}\npages,weight,lifetime_s,objects,align_pages\n");
        for class in self.classes.iter().take(CLASSES_MAX) {
            let lifetime_s = class.lifetime_s.max(LIFETIME_MIN_S);
            // A string takes all that is written.
            let _ = writeln!(
                text,
                "{},{},{lifetime_s:.6},{},{}",
                class.pages, class.made, class.objects, class.align
            );
        }
        text
    }
}

#[derive(Clone, Copy, Default)]
struct Living {
    pages: u32,
    objects: u32,
    align: u32,
}

#[derive(Default)]
struct Class {
    made: u64,
    live: Share,
}

/// Reads all of the page heap's operations.
///
/// # Errors
/// The recording is damaged.
pub fn spans(trace: &Trace) -> Result<SpanSummary, Error> {
    let mut summary = SpanSummary::default();
    let mut sizes = BySize::default();
    let (mut small, mut slack) = (Share::default(), Share::default());
    let mut classes = BTreeMap::<(u32, u32, u32), Class>::new();
    let mut living = Vec::<Living>::new();
    let (mut live, mut end_ns) = (0u64, 0);
    let mut operations = Spans::new(trace);
    for next in operations.by_ref() {
        let (ns, operation) = next?;
        end_ns = ns;
        let (id, new) = match operation {
            Operation::New { id, pages, align, objects } => {
                summary.made += 1;
                (id, Living { pages, objects, align })
            }
            Operation::Delete { id } => {
                summary.ended += 1;
                (id, Living::default())
            }
            Operation::Grow { id, pages } => {
                summary.grown += 1;
                let old = living.get(id as usize).copied().unwrap_or_default();
                (id, Living { pages, ..old })
            }
            Operation::Release { pages } => {
                summary.releases += 1;
                match pages {
                    u32::MAX => summary.releases_of_all += 1,
                    pages => summary.released_pages += u64::from(pages),
                }
                continue;
            }
            Operation::Pass => continue,
        };
        if id as usize >= living.len() {
            living.resize(id as usize + 1, Living::default());
        }
        let old = std::mem::replace(&mut living[id as usize], new);
        for (span, sign) in [(old, -1.0), (new, 1.0)].into_iter().filter(|(span, _)| span.pages > 0)
        {
            let bytes = u64::from(span.pages) * HEAP_PAGE_BYTES as u64;
            sizes.change(ns, bytes, sign * bytes as f64);
            if span.pages <= SMALL_PAGES {
                small.change(ns, sign * f64::from(span.pages));
            } else {
                let whole = span.pages.next_multiple_of(HEAP_PAGES_PER_HUGEPAGE);
                slack.change(ns, sign * f64::from(whole - span.pages));
            }
            let class = classes.entry((span.pages, span.objects, span.align)).or_default();
            class.live.change(ns, sign);
            class.made += u64::from(sign > 0.0);
        }
        live = live.saturating_sub(old.pages.into()) + u64::from(new.pages);
        summary.live_peak = summary.live_peak.max(live);
    }
    summary.spans_peak = operations.most_ids();
    summary.unknown = operations.unknown;
    summary.seconds = end_ns as f64 / NS_PER_S;
    let average = |share: &mut Share| {
        share.change(end_ns, 0.0);
        share.area / (end_ns as f64).max(1.0)
    };
    summary.small_pages = average(&mut small);
    summary.slack_pages = average(&mut slack);
    summary.sizes = sizes.cdf(end_ns);
    summary.classes = classes
        .into_iter()
        .map(|((pages, objects, align), mut class)| {
            class.live.change(end_ns, 0.0);
            let lifetime_s = class.live.area / NS_PER_S / class.made.max(1) as f64;
            SpanClass { pages, objects, align, made: class.made, lifetime_s }
        })
        .collect();
    let weight = |class: &SpanClass| f64::from(class.pages) * class.made as f64 * class.lifetime_s;
    summary.classes.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::tests::recorded;
    use spandrel_recorder::Event;
    use spandrel_sim::Sizes;

    const S: u64 = 1_000_000_000;

    #[test]
    fn spans_are_weighted_by_bytes_and_time() {
        let new = |first, pages, objects| Event::New { first, pages, align_log2: 0, objects };
        let events = [
            (0, new(0, 1, 64)),
            (0, new(10, 1, 64)),
            (0, new(256, 300, 1)),
            (S, Event::Delete { first: 0 }),
            (2 * S, Event::Delete { first: 256 }),
            (4 * S, Event::Delete { first: 10 }),
        ];
        let trace = Trace::new(recorded(&[(0, &[&events])])).unwrap();
        let summary = spans(&trace).unwrap();
        assert_eq!((summary.made, summary.ended, summary.spans_peak), (3, 3, 3));
        assert_eq!((summary.live_peak, summary.seconds), (302, 4.0));
        // Small: one page for 1 s, one for 4 s; slack: 212 pages for 2 s.
        assert_eq!((summary.small_pages, summary.slack_pages), (5.0 / 4.0, 106.0));
        assert_eq!(summary.small_to_slack(), Some(1.25 / 106.0));
        assert_eq!(summary.sizes.asked[0], (8192.0, 2.0 / 302.0));
        assert_eq!(summary.sizes.live[0], (8192.0, 5.0 / 605.0));
        let lifetimes: Vec<_> = summary.classes.iter().map(|c| (c.pages, c.lifetime_s)).collect();
        assert_eq!(lifetimes, [(300, 2.0), (1, 2.5)]);
        let sizes = Sizes::parse(&summary.csv("an example")).unwrap();
        assert_eq!(sizes.classes().len(), 2);
        assert_eq!(sizes.page_seconds(), 605.0 / 3.0);
    }

    #[test]
    fn requests_are_weighted_by_bytes() {
        let allocate =
            |address, size| Event::Allocate { address, size, align_log2: 0, zeroed: false };
        let events = [
            (0, allocate(64, 16)),
            (0, allocate(640, 48)),
            (S, Event::Resize { address: 64, size: 64 }),
            (S, Event::Resized { address: 64 }),
            (2 * S, Event::Free { address: 640 }),
        ];
        let trace = Trace::new(recorded(&[(1, &[&events])])).unwrap();
        let summary = requests(&trace).unwrap();
        assert_eq!((summary.allocations, summary.frees, summary.resizes), (2, 1, 1));
        assert_eq!((summary.moved, summary.live_peak, summary.live_end), (0, 112, 64));
        // 16 bytes for 1 s, 48 for 2 s, 64 for 1 s.
        let shares: Vec<_> = summary.sizes.live.iter().map(|(_, share)| *share).collect();
        assert_eq!(shares, [16.0 / 176.0, 112.0 / 176.0, 1.0]);
        assert_eq!(summary.sizes.live[0].0, 16.0);
    }
}
