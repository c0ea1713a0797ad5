//! What the paper promises, one test for each promise.

mod common;

use common::Content;
use common::world::{World, table};
use spandrel_pageheap::{
    Collapse, Order, PageHeap, Paper, Request, Settings, Span, Tracker, Urgency,
};
use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

#[test]
fn a_drained_hugepage_is_kept_for_the_next_request() {
    // Fig. 9.
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    for _ in 0..100 {
        let span = world.get(64);
        world.put(span);
        world.now_ms += 1;
    }
    assert_eq!(world.fake.calls, 1);
}

#[test]
fn the_cache_keeps_what_demand_swings_by() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let base = world.get(100 * 256);
    for round in 0..20 {
        let calls = world.fake.calls;
        let span = world.get(50 * 256);
        world.wait(300);
        world.put(span);
        world.wait(300);
        // Once it is known to come back nothing goes to the kernel.
        assert!(round == 0 || world.fake.calls == calls, "round {round}");
    }
    assert_eq!(world.heap.stats().cached, HugeLength(50));
    // It stops swinging: ten stay.
    world.wait(2_200);
    assert_eq!(world.heap.stats().cached, HugeLength(10));
    assert_eq!(world.heap.stats().counters.released.demand, 40 * 256);
    // All of the swing that was seen, and no more.
    world.put(base);
    assert_eq!(world.heap.stats().cached, HugeLength(100));
    world.wait(2_200);
    assert_eq!(world.heap.stats().cached, HugeLength(10));
}

#[test]
fn fragmented_hugepages_are_filled_first() {
    // 4.4: X has gaps of 3 and 10, Y one of 5. Three pages go to Y.
    let place = |order| {
        let mut table = table();
        let settings = Settings { order, ..Settings::DEFAULT };
        let mut world = World::new(&mut table, settings);
        let x: Vec<Span> = [3, 1, 10, 120, 122].map(|n| world.get(n)).into();
        let y: Vec<Span> = [5, 1, 125, 125].map(|n| world.get(n)).into();
        assert_eq!((x[4].first.0, y[0].first.0, y[3].first.0), (134, 256, 387));
        for span in [x[0], x[2], y[0]] {
            world.put(span);
        }
        world.get(3).first
    };
    assert_eq!(place(Order::RangeThenAllocations), PageId(256));
    assert_eq!(place(Order::BestFit), PageId(0));
}

#[test]
fn few_allocations_are_left_to_drain() {
    // The same longest free range; one holds a single large span, the other many small ones.
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let one: Vec<Span> = [128, 64].map(|n| world.get(n)).into();
    let filler = world.get(64);
    let many: Vec<Span> = (0..48).map(|_| world.get(4)).collect();
    assert_eq!(many[0].first, PageId(256));
    world.put(filler);
    assert_eq!(world.get(64).first.hugepage(), HugePageId(1));
    drop(one);
}

#[test]
fn dense_and_sparse_spans_lie_apart() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let mut page = |pages, objects| {
        world.ask(Request { pages: Length(pages), align: Length(1), objects }).first.hugepage().0
    };
    assert_eq!([page(1, 16), page(1, 17), page(1, 1), page(1, 500)], [0, 1, 0, 1]);
    // Several pages do not fit wherever one is free, so they are sparse.
    assert_eq!(page(2, 500), 0);
}

#[test]
fn tails_are_used_last() {
    // 4.4: the loop that would leave a huge page behind in every round.
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    for _ in 0..20 {
        let large = world.get(10 * 256 + 1);
        world.get(1);
        world.put(large);
    }
    assert_eq!(world.heap.stats().filler, HugeLength(1));
    assert_eq!(world.heap.stats().abandoned, Length(1));
}

#[test]
fn a_tail_stays_while_others_use_it() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let large = world.get(2 * 256 + 100);
    assert_eq!(world.heap.stats().slack, Length(156));
    let small = world.get(7);
    assert_eq!(small.first, PageId(612));
    assert!(!world.heap.free(&mut world.fake, 0, PageId(512), Length(100)), "the tail is no span");
    world.put(large);
    let stats = world.heap.stats();
    assert_eq!((stats.cached, stats.filler), (HugeLength(2), HugeLength(1)));
    assert_eq!((stats.slack, stats.abandoned), (Length(0), Length(100)));
    world.put(small);
    assert_eq!(world.heap.stats().cached, HugeLength(3));
    assert_eq!(world.heap.stats().abandoned, Length(0));
}

#[test]
fn regions_end_slack_that_nobody_fills() {
    // 4.5: nothing but spans of 1.1 MiB.
    let mut table = vec![Tracker::default(); 2000];
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let spans: Vec<Span> = (0..1000).map(|_| world.get(141)).collect();
    let stats = world.heap.stats();
    // 64 MiB of slack come first: 72 spans on huge pages of their own.
    assert_eq!((stats.regions, stats.filler), (1, HugeLength(72)));
    assert!(f64::from(stats.resident().0) / f64::from(stats.live.0) < 1.07);
    assert_eq!(world.heap.check(), Ok(()));
    spans.into_iter().for_each(|s| world.put(s));
    // The only region stays, with its pages as long as demand may want them.
    assert_eq!(world.heap.stats().regions, 1);
    world.wait(3_000);
    assert_eq!(world.fake.resident(), 10 * 256);
}

#[test]
fn objects_begin_at_different_pages_of_huge_pages() {
    let mut table = table();
    let settings = Settings { coloured: true, ..Settings::DEFAULT };
    let mut world = World::new(&mut table, settings);
    // Twelve fit, and four pages are left.
    let spans: Vec<Span> = (0..12 * 20).map(|_| world.get(21)).collect();
    assert_eq!(world.heap.stats().filler, HugeLength(20));
    let mut met = [0; 21];
    spans.iter().for_each(|span| met[span.first.offset() as usize % 21] += 1);
    assert!(met[..5].iter().all(|times| *times >= 24) && met[5..] == [0; 16], "{met:?}");
    // What is small, aligned or of many objects begins where it did.
    assert_eq!(world.get(3).first.offset(), 0);
    spans.into_iter().for_each(|s| world.put(s));
    let aligned = Request { align: Length(2), ..Request::pages(Length(21)) };
    let at = world.heap.allocate(&mut world.fake, 0, aligned).unwrap();
    assert_eq!(at.first.0 % 2, 0);
}

#[test]
fn empty_pages_of_the_cache_and_of_regions_are_not_kept_for_each_other() {
    let mut table = vec![Tracker::default(); 3000];
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let spans: Vec<Span> = (0..600).map(|_| world.get(141)).collect();
    let most = world.heap.stats().resident();
    spans.into_iter().for_each(|s| world.put(s));
    // The same spans again: the region serves all of them, and the cache releases its huge pages.
    let spans: Vec<Span> = (0..600).map(|_| world.get(141)).collect();
    assert!(world.heap.stats().resident() <= most, "{:?}", world.heap.stats());
    spans.into_iter().for_each(|s| world.put(s));
    // And spans that no region takes have the region's pages go back.
    let spans: Vec<Span> = (0..300).map(|_| world.get(256)).collect();
    assert!(world.heap.stats().resident() <= most, "{:?}", world.heap.stats());
    spans.into_iter().for_each(|s| world.put(s));
}

#[test]
fn whole_hugepages_go_first_and_the_emptiest_next() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let [a, b, c] = [120, 100, 60].map(|n| {
        let filler = world.get(128);
        let span = world.get(n);
        let rest = world.get(128 - n);
        (filler, span, rest)
    });
    let whole = world.get(3 * 256);
    world.put(whole);
    for (filler, _, rest) in [a, b, c] {
        world.put(filler);
        world.put(rest);
    }
    assert_eq!(world.release(257, Urgency::Asked), 512);
    assert_eq!(world.heap.stats().broken, HugeLength(0));
    // One empty huge page is left, and 196 pages on the third one.
    assert_eq!(world.release(300, Urgency::Asked), 256 + 196);
    let stats = world.heap.stats();
    assert_eq!((stats.broken, stats.unbacked), (HugeLength(1), Length(196)));
    assert_eq!(stats.counters.released.asked, 512 + 256 + 196);
    assert_eq!(stats.counters.subreleased, 196);
    assert_eq!(stats.covered, Length(220));
    // Broken huge pages are used after whole ones.
    assert_ne!(world.get(4).first.hugepage(), c.1.first.hugepage());
    assert_eq!(world.release(u32::MAX, Urgency::Asked), 136 - 4 + 156);
}

#[test]
fn a_broken_hugepage_that_drains_comes_back_whole() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let span = world.get(100);
    world.release(u32::MAX, Urgency::Asked);
    assert_eq!(world.fake.resident(), 100);
    world.put(span);
    let stats = world.heap.stats();
    assert_eq!((stats.vacant, stats.counters.released.drained), (HugeLength(1), 100));
    assert!(world.get(100).zeroed);
    assert_eq!(world.heap.stats().broken, HugeLength(0));
}

#[test]
fn recent_demand_is_spared_in_the_background() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    world.wait(1_000);
    let keep = world.half_used(20);
    // It was all in use a moment ago.
    assert_eq!(world.release(1000, Urgency::Background), 0);
    let stats = world.heap.stats();
    assert!(stats.kept_for_demand > Length::ZERO && stats.kept_for_demand == stats.free);
    world.wait(6_000);
    // The peak is out of the window, what demand came down to is not.
    assert!(world.release(1000, Urgency::Background) >= 1000);
    assert!(world.release(u32::MAX, Urgency::Asked) > 1000);
    assert_eq!(world.fake.resident(), keep.len() * 4);
}

#[test]
fn the_background_release_keeps_its_rate() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    world.half_used(300);
    world.wait(6_000);
    for _ in 0..500 {
        world.now_ms += 20;
        world.heap.step(&mut world.fake, world.now_ms, Length(2560));
    }
    let released = world.heap.stats().counters.released.background;
    assert!((24_000..=26_000).contains(&released), "{released} pages in ten seconds");
}

#[test]
fn without_its_guard_the_background_release_takes_what_demand_will_want() {
    let given_back = |release_guarded| {
        let mut table = table();
        let mut world = World::new(&mut table, Settings { release_guarded, ..Settings::DEFAULT });
        world.half_used(20);
        // All was in use a moment ago.
        let released = world.release(1000, Urgency::Background);
        (released, world.heap.stats().kept_for_demand > Length::ZERO)
    };
    assert_eq!(given_back(true), (0, true));
    let (released, kept) = given_back(false);
    assert!((1000..1256).contains(&released) && !kept, "{released}");
}

#[test]
fn empty_hugepages_are_kept_for_a_demand_that_swings() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let mut calls = 0;
    for round in 0..50 {
        let spans: Vec<Span> = (0..40).map(|_| world.get(200)).collect();
        spans.into_iter().for_each(|span| world.put(span));
        world.now_ms += 50;
        world.heap.step(&mut world.fake, world.now_ms, Length(32_768));
        if round == 0 {
            calls = world.fake.calls;
        }
    }
    assert_eq!(world.fake.calls, calls, "nothing went to and fro");
}

#[test]
fn many_nearly_full_hugepages_do_not_hide_emptier_ones() {
    let mut table = vec![Tracker::default(); 12_000];
    let mut world = World::new(&mut table, Settings::DEFAULT);
    // 5,000 with a page free each, and then 500 with half of it.
    let full: Vec<Span> = (0..10_000).map(|n| world.get(128 - n % 2)).collect();
    let half: Vec<Span> = (0..1000).map(|_| world.get(128)).collect();
    half.into_iter().step_by(2).for_each(|span| world.put_unchecked(span));
    world.wait(6_000);
    let released = world.release(10_000, Urgency::Background);
    assert!(released > 0, "{:?}", world.heap.stats());
    drop(full);
}

#[test]
fn spans_grow_where_they_lie() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let now = world.now_ms;
    let grow = |world: &mut World, span: &mut Span, wanted: u32| {
        let (first, pages) = (span.first, span.pages);
        let gained = world.heap.try_grow(&mut world.fake, now, first, pages, Length(wanted));
        if let Some(gained) = gained {
            world.fake.take(gained.first, gained.pages, gained.zeroed);
            span.pages = Length(wanted);
        }
        assert_eq!(world.heap.check(), Ok(()));
        gained.map(|g| g.zeroed)
    };
    let mut small = world.get(10);
    assert_eq!(grow(&mut world, &mut small, 100), Some(true));
    let behind = world.get(1);
    assert_eq!(grow(&mut world, &mut small, 101), None);
    world.put(behind);
    assert_eq!(grow(&mut world, &mut small, 101), Some(false));

    let mut large = world.get(300);
    assert_eq!(grow(&mut world, &mut large, 400), Some(true));
    assert_eq!(world.heap.stats().slack, Length(112));
    assert_eq!(grow(&mut world, &mut large, 1024), Some(true));
    assert_eq!(world.heap.stats().slack, Length(0));
    assert_eq!(grow(&mut world, &mut large, 1030), Some(true));
    let other = world.get(256);
    assert_eq!(grow(&mut world, &mut large, 2000), None);
    world.put(other);
    // Partly cached, partly never used.
    assert_eq!(grow(&mut world, &mut large, 2000), Some(false));
    assert_eq!(grow(&mut world, &mut large, u32::MAX), None);
    world.put(large);
    world.put(small);
}

#[test]
fn alignments_reach_beyond_hugepages() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    world.get(1);
    for align in [2, 64, 256, 512, 4096] {
        for pages in [1, 100, 200, 256, 1000] {
            let span =
                world.ask(Request { pages: Length(pages), align: Length(align), objects: 1 });
            assert!(span.first.0.is_multiple_of(align), "{pages} at {align}: {span:?}");
        }
    }
    let odd = Request { pages: Length(1), align: Length(3), objects: 1 };
    assert_eq!(world.heap.allocate(&mut world.fake, 0, odd), None);
    assert_eq!(world.heap.allocate(&mut world.fake, 0, Request::pages(Length(0))), None);
    assert_eq!(world.heap.allocate(&mut world.fake, 0, Request::pages(Length::MAX)), None);
    assert_eq!(world.heap.check(), Ok(()));
}

#[test]
fn refused_memory_comes_from_the_cache_instead() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let span = world.get(5 * 256);
    world.put(span);
    world.fake.refuse_back = 1;
    assert!(world.heap.allocate(&mut world.fake, 0, Request::pages(Length(6 * 256))).is_none());
    // The cache was given up for it.
    assert_eq!(world.heap.stats().counters.released.pressure, 5 * 256);
    assert_eq!(world.heap.stats().counters.refused, 1);
    world.fake.refuse_back = 0;
    assert_eq!(world.get(6 * 256).first, PageId(0));
    assert!(world.fake.content[..6 * 256].iter().all(|c| *c == Content::Data));
}

/// Fig. 11: demand fluctuates, drops once by much, and fluctuates again. Returns resident over
/// live, averaged over the time after the drop.
fn overhead_after_a_drop(order: Order) -> f64 {
    let mut table = vec![Tracker::default(); 2000];
    let settings = Settings { order, cache_least: HugeLength(0), ..Settings::DEFAULT };
    let mut heap = PageHeap::new(&mut table, settings);
    let mut paper = Paper { collapse: Collapse::Unsupported };
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |end: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        ((u128::from(seed) * u128::from(end)) >> 64) as usize
    };
    let (mut spans, mut sum, mut samples) = (Vec::<Span>::new(), 0.0, 0);
    const OPERATIONS: u64 = 64_000;
    for operation in 0..OPERATIONS {
        let now_ms = operation / 4;
        let after = operation > OPERATIONS / 4;
        let level = if after { 6_000 } else { 20_000 };
        // A tenth up and down.
        let wave = (operation % 8000).abs_diff(4000) as u32 * level / 40_000;
        if heap.live().0 > level + wave {
            let span = spans.swap_remove(below(spans.len() as u64));
            assert!(heap.free(&mut paper, now_ms, span.first, span.pages));
        } else {
            // Mostly one and two pages (Fig. 5).
            let pages = match below(100) {
                0..60 => 1,
                60..90 => 2,
                90..97 => 3 + below(6),
                97..99 => 8 + below(24),
                _ => 32 + below(96),
            };
            let request = Request::pages(Length(pages as u32));
            spans.push(heap.allocate(&mut paper, now_ms, request).unwrap());
        }
        if operation % 100 == 0 {
            heap.step(&mut paper, now_ms, Length(0));
            if operation > OPERATIONS / 2 {
                sum += f64::from(heap.stats().resident().0) / f64::from(heap.live().0);
                samples += 1;
            }
        }
    }
    assert_eq!(heap.check(), Ok(()));
    sum / f64::from(samples)
}

#[test]
fn the_order_of_the_paper_recovers_from_a_drop() {
    let paper = overhead_after_a_drop(Order::RangeThenAllocations);
    let pages = overhead_after_a_drop(Order::RangeThenPages);
    let fullness = overhead_after_a_drop(Order::AllocationsThenRange);
    let best = overhead_after_a_drop(Order::BestFit);
    println!("L-A {paper:.3}, L-U {pages:.3}, A-L {fullness:.3}, best fit {best:.3}");
    // Best fit keeps nearly all that the peak has touched; the others come close to each other.
    assert!(paper - 1.0 < 0.6 * (best - 1.0), "{paper} against best fit's {best}");
    assert!(paper <= pages, "{paper} against {pages} by pages");
}
