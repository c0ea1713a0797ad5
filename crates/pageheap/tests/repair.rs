//! Broken huge pages are made whole when they have filled again.

mod common;

use common::world::{World, table};
use spandrel_pageheap::{Collapse, Memory, PageHeap, Paper, Request, Settings, Urgency};
use spandrel_pages::{HugeLength, HugePageId, Length};

/// Broken huge pages that have filled again, though nobody restored them at once.
fn refilled(world: &mut World, hugepages: u32) {
    world.half_used(hugepages);
    world.release(u32::MAX, Urgency::Asked);
    assert_eq!(world.heap.stats().refilled, HugeLength(0), "what has just gone back stays away");
    for _ in 0..hugepages * 32 {
        world.get(4);
    }
    let stats = world.heap.stats();
    assert_eq!((stats.broken, stats.refilled), (HugeLength(hugepages), HugeLength(hugepages)));
    assert_eq!(stats.covered, Length(0));
}

#[test]
fn refilled_hugepages_are_restored_within_the_budget() {
    let mut table = table();
    let settings = Settings { collapse_micros_per_s: 4_000, ..Settings::DEFAULT };
    let mut world = World::new(&mut table, settings);
    refilled(&mut world, 100);
    for _ in 0..50 {
        world.wait(100);
    }
    // 400 us each: ten a second, and one second's worth in the beginning.
    let restored = world.heap.stats().counters.restored;
    assert!((50..=62).contains(&restored), "{restored} restored in five seconds");
    for _ in 0..100 {
        world.wait(100);
    }
    let stats = world.heap.stats();
    assert_eq!((stats.broken, stats.unbacked), (HugeLength(0), Length(0)));
    assert_eq!(stats.covered, stats.live);
    assert_eq!(stats.counters.collapse_micros, 100 * 400);
    assert_eq!(world.heap.check(), Ok(()));
}

#[test]
fn ten_times_as_much_is_restored_while_the_program_does_nothing() {
    let mut table = table();
    let settings = Settings { collapse_micros_per_s: 400, ..Settings::DEFAULT };
    let mut world = World::new(&mut table, settings);
    refilled(&mut world, 100);
    world.heap.at_leisure(true);
    for _ in 0..50 {
        world.wait(100);
    }
    let restored = world.heap.stats().counters.restored;
    assert!((50..=62).contains(&restored), "{restored} restored in five seconds");
    world.heap.at_leisure(false);
    for _ in 0..50 {
        world.wait(100);
    }
    let more = world.heap.stats().counters.restored - restored;
    assert!((4..=6).contains(&more), "{more} restored in five more");
}

#[test]
fn what_began_small_is_made_whole_in_a_hundredth_of_the_time_whatever_the_budget() {
    let mut table = table();
    let settings = Settings { collapse_micros_per_s: 1_000, ..Settings::DEFAULT };
    let mut world = World::new(&mut table, settings);
    world.fake.begins_small = 1;
    for _ in 0..200 * 64 {
        world.get(4);
    }
    let before = world.heap.stats();
    assert!(before.refilled >= HugeLength(190), "{before:?}");
    for _ in 0..4000 {
        world.wait(1);
    }
    // 400 us each, and 99 times as long until the next.
    let restored = world.heap.stats().counters.restored - before.counters.restored;
    assert!((98..=101).contains(&restored), "{restored} made whole in four seconds");
    assert!(world.heap.restores_in_ms(world.now_ms).is_some_and(|wait| wait <= 40));
    assert_eq!(world.heap.check(), Ok(()));
}

#[test]
fn of_what_began_small_one_is_made_whole_at_a_time_and_none_ends_anothers_pause() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    world.fake.begins_small = 1;
    for _ in 0..4 * 64 {
        world.get(4);
    }
    let first = world.heap.next_to_restore(world.now_ms).unwrap();
    assert_eq!(world.heap.next_to_restore(world.now_ms + 10_000), None);
    let slow = Collapse::Done { micros: 5_000 };
    world.heap.restored(&mut world.fake, world.now_ms, first, slow);
    assert_eq!(world.heap.next_to_restore(world.now_ms + 494), None);
    let second = world.heap.next_to_restore(world.now_ms + 495).unwrap();
    // As if it had begun, and ended, with the first: its pause is shorter.
    let quick = Collapse::Done { micros: 100 };
    world.heap.restored(&mut world.fake, world.now_ms, second, quick);
    assert_eq!(world.heap.next_to_restore(world.now_ms + 494), None);
    // And one that was under way when the process was forked.
    let third = world.heap.next_to_restore(world.now_ms + 495).unwrap();
    let now_ms = world.now_ms + 495;
    world.heap.abandon_restoring(&mut world.fake, now_ms);
    assert!(world.heap.next_to_restore(now_ms).is_some(), "{third:?} is nobody's any more");
}

#[test]
fn a_hugepage_that_has_just_filled_again_is_restored_at_once() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let keep = world.half_used(1);
    world.release(u32::MAX, Urgency::Asked);
    for taken in 1..=8 {
        world.get(4);
        let page = world.heap.just_refilled(world.now_ms);
        // 32 of the 128 pages that went back.
        assert_eq!(page, (taken == 8).then_some(HugePageId(0)), "after {taken}");
    }
    let outcome = world.fake.collapse(HugePageId(0));
    world.heap.restored(&mut world.fake, world.now_ms, HugePageId(0), outcome);
    let stats = world.heap.stats();
    assert_eq!((stats.broken, stats.covered), (HugeLength(0), stats.live));
    assert_eq!(world.heap.just_refilled(world.now_ms), None);
    assert_eq!(stats.wanted_again, 32);
    drop(keep);
}

#[test]
fn a_hugepage_that_begins_small_is_made_whole_when_it_has_filled() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    world.fake.begins_small = 1;
    let first = world.get(30);
    assert!(first.zeroed);
    let stats = world.heap.stats();
    assert_eq!((stats.filler, stats.broken), (HugeLength(1), HugeLength(1)));
    assert_eq!((stats.unbacked, stats.covered), (Length(226), Length(0)));
    assert_eq!(world.fake.resident(), 30);
    // A little that goes back does not make it one that was broken.
    let span = world.get(20);
    world.put(span);
    assert_eq!(world.release(u32::MAX, Urgency::Asked), 20);
    assert!(world.get(97).zeroed);
    world.wait(1000);
    assert_eq!(world.heap.just_refilled(world.now_ms), None);
    assert!(world.get(1).zeroed);
    assert_eq!(world.heap.just_refilled(world.now_ms), None, "nobody waits for it");
    let page = world.heap.next_to_restore(world.now_ms);
    assert_eq!(page, Some(HugePageId(0)), "half of it is in use");
    let outcome = world.fake.collapse(HugePageId(0));
    world.heap.restored(&mut world.fake, world.now_ms, HugePageId(0), outcome);
    let stats = world.heap.stats();
    assert_eq!(
        (stats.broken, stats.unbacked, stats.covered),
        (HugeLength(0), Length(0), stats.live)
    );
    let counters = stats.counters;
    assert_eq!((counters.begun_small, counters.broken, counters.restored), (1, 0, 1));
    assert_eq!(stats.wanted_again, 0, "nothing had gone back");
    // One that has drained leaves, and is whole when it comes the next time.
    world.get(128);
    let other = world.get(30);
    assert_eq!(world.heap.stats().broken, HugeLength(1));
    world.put(other);
    assert_eq!(world.heap.stats().vacant, HugeLength(1));
    world.fake.begins_small = 0;
    world.get(30);
    assert_eq!(world.heap.stats().broken, HugeLength(0));
}

#[test]
fn what_would_be_made_whole_at_once_or_never_does_not_begin_small() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    world.fake.begins_small = 1;
    world.get(128);
    world.get(128);
    world.get(33);
    assert_eq!(world.heap.stats().broken, HugeLength(0));
    world.get(1);
    let keep = world.half_used(2);
    world.fake.collapse_unsupported = true;
    world.wait(10_000);
    let begun = world.heap.stats().counters.begun_small;
    assert!(begun > 0 && world.heap.stats().counters.collapse_unsupported);
    (0..100).for_each(|_| _ = world.get(8));
    assert_eq!(world.heap.stats().counters.begun_small, begun);
    drop(keep);
}

#[test]
fn hugepages_below_half_are_not_restored() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let span = world.get(80);
    world.release(u32::MAX, Urgency::Asked);
    world.get(47);
    world.wait(10_000);
    assert_eq!(world.heap.stats().counters.collapse_attempts, 0);
    world.get(1);
    world.wait(10_000);
    assert_eq!(world.heap.stats().counters.restored, 1);
    world.put(span);
}

#[test]
fn failures_are_waited_out() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    refilled(&mut world, 100);
    world.fake.refuse_collapse = 1;
    for _ in 0..600 {
        world.wait(100);
    }
    // After 0, 1, 3, 7, 15, 31 seconds.
    let counters = world.heap.stats().counters;
    assert_eq!((counters.collapse_attempts, counters.collapse_failures), (6, 6));
    world.fake.refuse_collapse = 0;
    for _ in 0..2000 {
        world.wait(100);
    }
    assert_eq!(world.heap.stats().broken, HugeLength(0));
}

#[test]
fn a_kernel_that_cannot_is_not_asked_again() {
    let mut old = Paper { collapse: Collapse::Unsupported };
    let mut table = table();
    let mut heap = PageHeap::new(&mut table, Settings::DEFAULT);
    assert!(heap.allocate(&mut old, 0, Request::pages(Length(100))).is_some());
    assert_eq!(heap.release(&mut old, 0, Length::MAX, Urgency::Asked), Length(156));
    assert!(heap.allocate(&mut old, 0, Request::pages(Length(100))).is_some());
    for second in 0..100 {
        heap.step(&mut old, second * 1000, Length(0));
    }
    let counters = heap.stats().counters;
    assert_eq!((counters.collapse_attempts, counters.collapse_unsupported), (1, true));
}

#[test]
fn a_hugepage_may_drain_while_it_is_restored() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let span = world.get(80);
    world.release(u32::MAX, Urgency::Asked);
    let rest = world.get(80);
    let page = world.heap.next_to_restore(world.now_ms).unwrap();
    assert_eq!(world.heap.next_to_restore(world.now_ms), None);
    world.put(span);
    world.put(rest);
    // It must not go back to the kernel under the one who restores it.
    assert_eq!(world.heap.stats().vacant, HugeLength(0));
    let outcome = world.fake.collapse(page);
    world.heap.restored(&mut world.fake, world.now_ms, page, outcome);
    assert_eq!(world.heap.stats().cached, HugeLength(1));
    assert_eq!(world.heap.check(), Ok(()));
}

#[test]
fn what_is_being_restored_may_be_abandoned() {
    let mut table = table();
    let mut world = World::new(&mut table, Settings::DEFAULT);
    let span = world.get(80);
    world.release(u32::MAX, Urgency::Asked);
    let rest = world.get(80);
    assert!(world.heap.next_to_restore(world.now_ms).is_some());
    world.put(span);
    world.put(rest);
    let now_ms = world.now_ms;
    world.heap.abandon_restoring(&mut world.fake, now_ms);
    assert_eq!(world.heap.check(), Ok(()));
    assert_eq!(world.heap.stats().vacant, HugeLength(1));
}
