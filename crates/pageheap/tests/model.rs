//! Random sequences of calls against a model: what is handed out is nobody else's, what goes back
//! is unused, all counts are right after every call, and nothing is lost in the end.

mod common;

use common::Fake;
use proptest::prelude::*;
use spandrel_pageheap::{Order, PageHeap, Request, Settings, Span, Tracker, Urgency};
use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

const HUGEPAGES: usize = 1400;

#[derive(Clone, Debug)]
enum Call {
    Allocate {
        pages: u32,
        align: u32,
        objects: u32,
    },
    Free(usize),
    /// Frees what need not be a span.
    FreeWrong {
        first: u32,
        pages: u32,
    },
    Grow {
        which: usize,
        by: u32,
    },
    Release {
        pages: u32,
        asked: bool,
    },
    Step {
        after_ms: u64,
        per_s: u32,
    },
    /// An attempt to restore that is left open until the next such call.
    Restore,
}

fn sizes() -> impl Strategy<Value = u32> {
    prop_oneof![
        12 => 1..4u32,
        6 => 1..129u32,
        4 => 120..270u32,
        3 => 256..2000u32,
        1 => prop::sample::select(vec![256, 512, 2048, 131_072, 131_073]),
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        14 => (sizes(), prop_oneof![8 => Just(0), 2 => 0..12u32], prop::sample::select(vec![1, 2, 16, 17, 500]))
            .prop_map(|(pages, align, objects)| Call::Allocate { pages, align: 1 << align, objects }),
        10 => any::<usize>().prop_map(Call::Free),
        1 => (0..40_000u32, 0..600u32).prop_map(|(first, pages)| Call::FreeWrong { first, pages }),
        3 => (any::<usize>(), prop_oneof![1..40u32, 1..700u32]).prop_map(|(which, by)| Call::Grow { which, by }),
        1 => (prop_oneof![1..600u32, Just(u32::MAX)], any::<bool>())
            .prop_map(|(pages, asked)| Call::Release { pages, asked }),
        2 => (prop_oneof![0..300u64, 0..20_000u64], prop_oneof![Just(0), 0..50_000u32])
            .prop_map(|(after_ms, per_s)| Call::Step { after_ms, per_s }),
        1 => Just(Call::Restore),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let orders = vec![
        Order::RangeThenAllocations,
        Order::RangeThenPages,
        Order::AllocationsThenRange,
        Order::BestFit,
    ];
    (prop::sample::select(orders), prop_oneof![Just(u32::MAX), 0..400u32], 0..20u32).prop_map(
        |(order, slack, least)| Settings {
            order,
            region_slack: Length(slack),
            cache_least: HugeLength(least),
            ..Settings::DEFAULT
        },
    )
}

struct Run<'a> {
    heap: PageHeap<'a>,
    fake: Fake,
    spans: Vec<Span>,
    now_ms: u64,
    restoring: Option<HugePageId>,
}

impl Run<'_> {
    fn call(&mut self, call: &Call) {
        let (heap, fake, now) = (&mut self.heap, &mut self.fake, self.now_ms);
        match *call {
            Call::Allocate { pages, align, objects } => {
                let request = Request { pages: Length(pages), align: Length(align), objects };
                let Some(span) = heap.allocate(fake, now, request) else { return };
                assert!(span.first.0.is_multiple_of(align));
                assert_eq!(span.pages, request.pages);
                fake.take(span.first, span.pages, span.zeroed);
                self.spans.push(span);
            }
            Call::Free(which) => {
                if self.spans.is_empty() {
                    return;
                }
                let span = self.spans.swap_remove(which % self.spans.len());
                fake.put(span.first, span.pages);
                assert!(heap.free(fake, now, span.first, span.pages));
                assert!(!heap.free(fake, now, span.first, span.pages), "freed twice");
            }
            Call::FreeWrong { first, pages } => {
                let (first, pages) = (PageId(first), Length(pages));
                if !self.spans.iter().any(|s| s.first == first && s.pages == pages) {
                    assert!(!heap.free(fake, now, first, pages), "no such span");
                }
            }
            Call::Grow { which, by } => {
                if self.spans.is_empty() {
                    return;
                }
                let which = which % self.spans.len();
                let span = &mut self.spans[which];
                let wanted = Length(span.pages.0 + by);
                if let Some(gained) = heap.try_grow(fake, now, span.first, span.pages, wanted) {
                    assert_eq!(gained.first, span.first.after(span.pages));
                    assert_eq!(gained.pages, Length(by));
                    fake.take(gained.first, gained.pages, gained.zeroed);
                    span.pages = wanted;
                }
            }
            Call::Release { pages, asked } => {
                let urgency = if asked { Urgency::Asked } else { Urgency::Background };
                let before = fake.resident();
                let released = heap.release(fake, now, Length(pages), urgency);
                if !fake.was_refused {
                    assert_eq!(before - fake.resident(), released.0 as usize);
                }
            }
            Call::Step { after_ms, per_s } => {
                self.now_ms += after_ms;
                heap.step(fake, self.now_ms, Length(per_s));
            }
            Call::Restore => match self.restoring.take() {
                None => {
                    let refilled = heap.just_refilled(now);
                    self.restoring = refilled.or_else(|| heap.next_to_restore(now));
                }
                Some(page) => {
                    // What was on it may be gone, but it may not have left.
                    let outcome = spandrel_pageheap::Memory::collapse(fake, page);
                    heap.restored(fake, now, page, outcome);
                }
            },
        }
    }

    fn verify(&self) {
        assert_eq!(self.heap.check(), Ok(()));
        let stats = self.heap.stats();
        assert_eq!(stats.spans as usize, self.spans.len());
        assert_eq!(stats.live.0, self.spans.iter().map(|s| s.pages.0).sum::<u32>());
        assert_eq!(self.heap.backed(), stats.resident());
        let all = stats.resident().0 + stats.unbacked.0 + stats.vacant.pages().0;
        assert_eq!(all, self.heap.frontier().first_page().0);
        let resident = self.fake.resident();
        if self.fake.was_refused {
            assert!(resident <= stats.resident().0 as usize);
        } else {
            assert_eq!(resident, stats.resident().0 as usize);
        }
    }

    fn finish(mut self) {
        (self.fake.refuse_back, self.fake.refuse_unback) = (0, 0);
        if self.restoring.is_some() {
            self.call(&Call::Restore);
        }
        while !self.spans.is_empty() {
            self.call(&Call::Free(0));
        }
        self.verify();
        let stats = self.heap.stats();
        assert_eq!((stats.filler, stats.regions, stats.slack), (HugeLength(0), 0, Length(0)));
        self.call(&Call::Release { pages: u32::MAX, asked: true });
        self.verify();
        let stats = self.heap.stats();
        assert_eq!(stats.vacant.0, self.heap.frontier().0);
        assert_eq!(self.fake.resident(), 0);
        // It is one range again.
        assert_eq!(stats.largest, stats.vacant);
    }
}

fn run(settings: Settings, refuse: (u32, u32, u32), begins_small: u32, calls: &[Call]) {
    let mut records = vec![Tracker::default(); HUGEPAGES];
    let mut fake = Fake::new(HUGEPAGES);
    (fake.refuse_back, fake.refuse_unback, fake.refuse_collapse) = refuse;
    fake.refuse_extend = fake.refuse_back;
    fake.begins_small = begins_small;
    let heap = PageHeap::new(&mut records, settings);
    let mut run = Run { heap, fake, spans: vec![], now_ms: 1000, restoring: None };
    for (index, call) in calls.iter().enumerate() {
        run.call(call);
        assert_eq!(run.heap.check(), Ok(()), "after {call:?}");
        // It looks at every page of the slice.
        if index % 32 == 0 {
            run.verify();
        }
    }
    run.verify();
    run.finish();
}

/// `PROPTEST_CASES` asks for more; every call is followed by a count over all records.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if asked { default } else { ProptestConfig { cases: 24, ..default } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_a_kernel_that_obeys(
        settings in settings(),
        begins_small in 0..3u32,
        calls in prop::collection::vec(calls(), 1..500),
    ) {
        run(settings, (0, 0, 0), begins_small, &calls);
    }

    #[test]
    fn with_a_kernel_that_refuses(
        settings in settings(),
        refuse in (0..6u32, 0..6u32, 0..3u32),
        begins_small in 0..3u32,
        calls in prop::collection::vec(calls(), 1..500),
    ) {
        run(settings, refuse, begins_small, &calls);
    }
}
