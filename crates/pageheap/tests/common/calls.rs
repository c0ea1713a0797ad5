//! Sequences of calls against a model, for property tests and the fuzzer.

use super::Fake;
use spandrel_pageheap::{PageHeap, Request, Settings, Span, Tracker, Urgency};
use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

const HUGEPAGES: usize = 1400;

/// What is asked of the heap.
#[derive(Clone, Debug)]
pub enum Call {
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
        // A region may wait for the next span.
        assert_eq!((stats.filler, stats.slack), (HugeLength(0), Length(0)));
        assert!(stats.regions <= 1);
        self.call(&Call::Release { pages: u32::MAX, asked: true });
        self.verify();
        let stats = self.heap.stats();
        assert_eq!(stats.regions, 0);
        assert_eq!(stats.vacant.0, self.heap.frontier().0);
        assert_eq!(self.fake.resident(), 0);
        // It is one range again.
        assert_eq!(stats.largest, stats.vacant);
    }
}

/// Makes the calls. `refuse`: of this number of calls that back, unback and collapse one fails, 0 for none;
/// of this number of huge pages one begins with small pages.
pub fn run(settings: Settings, refuse: (u32, u32, u32), begins_small: u32, calls: &[Call]) {
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
