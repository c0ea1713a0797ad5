//! What the page-mapped backend remembers of its slots stays true over many
//! lives of a slot: mappings, spare pages, bytes beyond the size asked for.

use spandrel_backends::remap;
use spandrel_pages::PAGE_BYTES;
use std::sync::Mutex;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// The backend is one per process: tests that look at its accounts take turns,
/// and no warm slot of one is left to the next.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    remap::trim();
    turn
}

fn is_resident(at: *mut u8) -> bool {
    let mut resident = 0u8;
    // SAFETY: one page of a slot, which is mapped; the answer is one byte.
    let failed = unsafe { libc::mincore(at.cast(), PAGE, &mut resident) } != 0;
    assert!(!failed);
    resident & 1 != 0
}

#[test]
fn pages_still_move_after_moved_huge_objects_came_and_went() {
    let _turn = turn();
    for round in 0..5 {
        let before = remap::stats();
        // SAFETY: each address is the object's when it is used.
        unsafe {
            let mut at = remap::alloc(MIB, 1);
            for size in [3 * MIB, 20 * MIB, 40 * MIB] {
                at = remap::realloc(at, size);
                at.write(round);
                at.add(size - 1).write(round);
            }
            remap::free(at);
        }
        remap::trim();
        let after = remap::stats();
        assert!(after.moved > before.moved, "round {round}");
        assert_eq!(after.copied_bytes, before.copied_bytes, "round {round}");
    }
}

#[test]
fn all_of_the_usable_size_is_kept_when_an_object_is_copied() {
    let _turn = turn();
    // SAFETY: each address is the object's when it is used.
    unsafe {
        // Too small to be moved by pages.
        let at = remap::alloc(30_000, 1);
        let usable = remap::usable_size(at);
        assert!(usable > 30_000);
        at.write_bytes(7, usable);
        let at = remap::realloc(at, 300 * KIB);
        assert!((0..usable).all(|i| at.add(i).read() == 7));
        remap::free(at);
    }
}

#[test]
fn pages_brought_ahead_of_an_appended_object_go_back_when_trimmed() {
    let _turn = turn();
    // SAFETY: each address is the object's when it is used; what lies behind it
    // is only asked about.
    unsafe {
        let mut size = 300 * KIB;
        let mut at = remap::alloc(size, 1);
        for _ in 0..6 {
            size += 8 * KIB;
            at = remap::realloc(at, size);
        }
        let behind = at.add(remap::usable_size(at));
        assert!(is_resident(behind), "appended objects get pages in batches");
        remap::trim();
        assert!(!is_resident(behind));
        assert_eq!(remap::stats().warm_bytes, 0);
        remap::free(at);
    }
}

#[test]
fn statistics_know_what_objects_grew_by() {
    let _turn = turn();
    let before = remap::stats().live_bytes;
    let objects: Vec<_> = (0..100)
        // SAFETY: only the new address is used.
        .map(|_| unsafe { remap::realloc(remap::alloc(128 * KIB, 1), 1000 * KIB) })
        .collect();
    // Pages from the first to the last one; an object begins at any line of its first.
    // SAFETY: live objects.
    let pages = |at: &*mut u8| unsafe { *at as usize % PAGE_BYTES + remap::usable_size(*at) };
    let all: usize = objects.iter().map(pages).sum();
    assert!((100 * 1000 * KIB..=100 * 1004 * KIB).contains(&all), "{all}");
    assert_eq!(remap::stats().live_bytes - before, all);
    // SAFETY: the objects are not used any more.
    objects.into_iter().for_each(|at| unsafe { remap::free(at) });
    assert_eq!(remap::stats().live_bytes, before);
}

#[test]
fn freed_and_resized_objects_are_not_trimmed_in_somebody_elses_hands() {
    let _turn = turn();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped() {
                remap::trim();
            }
        });
        let workers: Vec<_> = (1..4u8)
            .map(|seed| {
                scope.spawn(move || {
                    for round in 0..4000usize {
                        // SAFETY: each address is the object's when it is used.
                        unsafe {
                            let size = 64 * KIB + round % 7 * PAGE;
                            let at = remap::alloc(size, 1);
                            (0..size).step_by(PAGE).for_each(|i| at.add(i).write(seed));
                            let small = remap::realloc(at, 2 * PAGE);
                            let at = remap::realloc(small, 40 * KIB);
                            assert_eq!((at.read(), at.add(PAGE).read()), (seed, seed));
                            (0..40 * KIB).step_by(PAGE).for_each(|i| at.add(i).write(seed));
                            assert!((0..40 * KIB).step_by(PAGE).all(|i| at.add(i).read() == seed));
                            remap::free(at);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    remap::trim();
    let stats = remap::stats();
    assert_eq!((stats.live_slots, stats.live_bytes, stats.warm_bytes), (0, 0, 0));
}
