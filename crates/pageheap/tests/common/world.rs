//! A page heap on a kernel made of arrays, for tests that read like programs.

use super::Fake;
use spandrel_pageheap::{PageHeap, Request, Settings, Span, Tracker, Urgency};
use spandrel_pages::Length;

const HUGEPAGES: usize = 1200;

pub fn table() -> Vec<Tracker> {
    vec![Tracker::default(); HUGEPAGES]
}

/// A heap, its kernel and a clock, for tests that read like programs.
pub struct World<'a> {
    pub heap: PageHeap<'a>,
    pub fake: Fake,
    pub now_ms: u64,
}

impl<'a> World<'a> {
    pub fn new(table: &'a mut [Tracker], settings: Settings) -> Self {
        let fake = Fake::new(table.len());
        Self { heap: PageHeap::new(table, settings), fake, now_ms: 10_000 }
    }

    pub fn ask(&mut self, request: Request) -> Span {
        let span = self.heap.allocate(&mut self.fake, self.now_ms, request).unwrap();
        self.fake.take(span.first, span.pages, span.zeroed);
        span
    }

    pub fn get(&mut self, pages: u32) -> Span {
        self.ask(Request::pages(Length(pages)))
    }

    pub fn put(&mut self, span: Span) {
        self.fake.put(span.first, span.pages);
        assert!(self.heap.free(&mut self.fake, self.now_ms, span.first, span.pages));
        assert_eq!(self.heap.check(), Ok(()));
    }

    /// As [`Self::put`], without counting everything again.
    pub fn put_unchecked(&mut self, span: Span) {
        self.fake.put(span.first, span.pages);
        assert!(self.heap.free(&mut self.fake, self.now_ms, span.first, span.pages));
    }

    pub fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.heap.step(&mut self.fake, self.now_ms, Length(0));
    }

    pub fn release(&mut self, pages: u32, urgency: Urgency) -> u32 {
        self.heap.release(&mut self.fake, self.now_ms, Length(pages), urgency).0
    }

    /// So many huge pages with half of their pages in use, every second one.
    pub fn half_used(&mut self, hugepages: u32) -> Vec<Span> {
        let spans: Vec<Span> = (0..hugepages * 64).map(|_| self.get(4)).collect();
        let (keep, free): (Vec<_>, Vec<_>) = spans.into_iter().partition(|s| s.first.0 % 8 == 0);
        free.into_iter().for_each(|s| self.put(s));
        keep
    }
}
