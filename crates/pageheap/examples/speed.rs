//! Span operations per second, and the bytes that they cost: `cargo run --release -p
//! spandrel-pageheap --example speed [GiB] [operations] [order] [slack]`.
//!
//! A heap is filled to its size with spans of TCMalloc's sizes (paper, Fig. 5: mostly one and two
//! pages), then spans are freed and allocated at random, which is the worst for the caches.

use std::time::Instant;

use spandrel_pageheap::{
    Collapse, Order, PageHeap, Paper, Request, Settings, Span, Tracker, Urgency,
};
use spandrel_pages::{HugeLength, Length};

const PAPER: Paper = Paper { collapse: Collapse::Done { micros: 500 } };

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }

    fn request(&mut self) -> Request {
        let (pages, objects) = match self.below(100) {
            0..50 => (1, 64),
            50..60 => (1, 8),
            60..75 => (2, 8),
            75..88 => (3 + self.below(6), 8),
            88..96 => (8 + self.below(56), 1),
            96..99 => (64 + self.below(192), 1),
            _ => (256 + self.below(1024), 1),
        };
        Request { pages: Length(pages as u32), align: Length(1), objects }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (gib, operations) = (number(16), number(20_000_000));
    let order = match number(0) {
        0 => Order::RangeThenAllocations,
        1 => Order::RangeThenPages,
        2 => Order::AllocationsThenRange,
        _ => Order::BestFit,
    };
    let hugepages = gib as usize * 512;
    let mut records = vec![Tracker::default(); hugepages * 4];
    let slack = number(Settings::DEFAULT.region_slack.0.into()) as u32;
    let settings = Settings { order, region_slack: Length(slack), ..Settings::DEFAULT };
    let mut heap = PageHeap::new(&mut records, settings);
    let mut paper = PAPER;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut spans: Vec<Span> = Vec::new();
    let target = HugeLength(hugepages as u32).pages();

    let start = Instant::now();
    while heap.live() < target {
        spans.extend(heap.allocate(&mut paper, 0, random.request()));
    }
    let filled = start.elapsed().as_secs_f64();
    println!(
        "fill: {:.2} M operations/s, {} spans, {gib} GiB",
        spans.len() as f64 / filled / 1e6,
        spans.len()
    );

    // What the loop below costs without the heap.
    let start = Instant::now();
    let mut dummies = spans.clone();
    for _ in 0..operations / 2 {
        let dummy = dummies.swap_remove(random.below(spans.len() as u64) as usize);
        random.below(2);
        dummies.push(Span { pages: random.request().pages, ..dummy });
    }
    let harness = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let mut done = 0;
    while done < operations {
        let now_ms = done / 5000;
        // Around the target, so that both kinds of calls come equally often.
        if heap.live() > target || random.below(2) == 0 {
            let span = spans.swap_remove(random.below(spans.len() as u64) as usize);
            assert!(heap.free(&mut paper, now_ms, span.first, span.pages));
        } else {
            spans.extend(heap.allocate(&mut paper, now_ms, random.request()));
        }
        if done % 50_000 == 0 {
            heap.step(&mut paper, now_ms, Length(0));
        }
        done += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let stats = heap.stats();
    println!(
        "random: {:.2} M operations/s ({:.0} ns each, {:.0} of them in this program)",
        operations as f64 / seconds / 1e6,
        seconds * 1e9 / operations as f64,
        harness * 1e9 / operations as f64
    );
    let share = |pages: u32| f64::from(pages) / f64::from(stats.live.0);
    println!(
        "resident/live {:.3}, cached {:.3}, free {:.3}, regions {}, frontier {} huge pages",
        share(stats.resident().0),
        share(stats.cached.pages().0),
        share(stats.free.0),
        stats.regions,
        heap.frontier().0
    );
    println!(
        "{} bytes per huge page, {} for the rest",
        size_of::<Tracker>(),
        size_of::<PageHeap>()
    );

    // A drop to a quarter, as in Fig. 11, and a refill.
    let start = Instant::now();
    let before = spans.len();
    while heap.live().0 > target.0 / 4 {
        let span = spans.swap_remove(random.below(spans.len() as u64) as usize);
        heap.free(&mut paper, done / 5000, span.first, span.pages);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("drain: {:.2} M operations/s", (before - spans.len()) as f64 / seconds / 1e6);
    let mut now_ms = done / 5000 + 3000;
    heap.step(&mut paper, now_ms, Length(0));
    let ratio =
        |heap: &PageHeap| f64::from(heap.stats().resident().0) / f64::from(heap.stats().live.0);
    println!("three seconds after a drop to a quarter: resident/live {:.3}", ratio(&heap));
    for round in 0..operations {
        if heap.live().0 > target.0 / 4 {
            let span = spans.swap_remove(random.below(spans.len() as u64) as usize);
            heap.free(&mut paper, now_ms, span.first, span.pages);
        } else {
            spans.extend(heap.allocate(&mut paper, now_ms, random.request()));
        }
        if round % 50_000 == 0 {
            now_ms += 10;
            heap.step(&mut paper, now_ms, Length(0));
        }
    }
    println!("after as many random operations: resident/live {:.3}", ratio(&heap));
    let start = Instant::now();
    let released = heap.release(&mut paper, now_ms, Length::MAX, Urgency::Asked);
    println!(
        "release of all: {} pages in {:.1} ms",
        released.0,
        start.elapsed().as_secs_f64() * 1e3
    );
    println!("{:#?}", heap.stats());
    assert_eq!(heap.check(), Ok(()));
}
