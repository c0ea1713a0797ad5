//! The page-mapped backend against a model: contents, alignment, no overlap,
//! accounts that add up, mappings within their budget.

use proptest::prelude::*;
use spandrel_backends::remap;
use std::sync::Mutex;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The backend is one per process: tests that look at its accounts take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Object {
    at: *mut u8,
    size: usize,
    seed: u8,
}

/// Bytes are checked at both ends of every page and around the end.
fn positions(size: usize) -> impl Iterator<Item = usize> {
    (0..size).step_by(2048).chain(size.saturating_sub(3)..size)
}

impl Object {
    fn new(at: *mut u8, size: usize, seed: u8) -> Self {
        let object = Object { at, size, seed };
        object.fill(0);
        object
    }

    fn fill(&self, from: usize) {
        for i in positions(self.size).filter(|i| *i >= from) {
            unsafe { self.at.add(i).write(self.seed ^ i as u8) };
        }
    }

    fn check(&self, up_to: usize) {
        // The end of a smaller, earlier size was filled with the same pattern.
        for i in positions(self.size).filter(|i| *i < up_to) {
            assert_eq!(unsafe { self.at.add(i).read() }, self.seed ^ i as u8, "at {i}");
        }
    }

    unsafe fn resize(&mut self, size: usize) {
        self.check(self.size);
        let moved = unsafe { remap::realloc(self.at, size) };
        assert!(!moved.is_null());
        let kept = self.size.min(size);
        self.at = moved;
        self.check_prefix(kept);
        self.size = size;
        self.fill(0);
    }

    fn check_prefix(&self, kept: usize) {
        for i in positions(self.size).filter(|i| *i < kept) {
            assert_eq!(unsafe { self.at.add(i).read() }, self.seed ^ i as u8, "at {i}");
        }
    }
}

#[test]
fn doubling_keeps_the_contents_and_copies_nothing() {
    let _turn = turn();
    let before = remap::stats();
    let mut object = Object::new(remap::alloc(128 * KIB, 1), 128 * KIB, 7);
    let mut size = 128 * KIB;
    while size < 512 * MIB {
        size *= 2;
        unsafe { object.resize(size) };
    }
    let after = remap::stats();
    assert_eq!(after.copied, before.copied, "pages move, bytes do not");
    assert!(after.moved > before.moved);
    unsafe { remap::free(object.at) };
}

#[test]
fn appending_stays_in_place_within_a_slot() {
    let _turn = turn();
    let mut object = Object::new(remap::alloc(5 * MIB, 1), 5 * MIB, 3);
    let at = object.at;
    while object.size < 31 * MIB {
        let size = object.size + 20 * KIB;
        unsafe { object.resize(size) };
    }
    assert_eq!(object.at, at);
    unsafe { remap::free(at) };
}

#[test]
fn zeroed_objects_are_zero_also_in_used_slots() {
    let _turn = turn();
    for size in [1, 4096, 100 * KIB, 3 * MIB, 9 * MIB] {
        let dirty = remap::alloc(size, 1);
        unsafe {
            dirty.write_bytes(0xff, size);
            remap::free(dirty);
            let clean = remap::alloc_zeroed(size, 1);
            assert!((0..size).all(|i| clean.add(i).read() == 0), "{size}");
            clean.write_bytes(0xff, size);
            // Shrink, then grow: what was there before must not come back.
            let shrunk = remap::realloc(clean, size.div_ceil(3));
            let grown = remap::realloc_zeroed(shrunk, size.div_ceil(3), size * 5);
            assert!((0..size.div_ceil(3)).all(|i| grown.add(i).read() == 0xff), "{size}");
            assert!((size.div_ceil(3)..size * 5).all(|i| grown.add(i).read() == 0), "{size}");
            remap::free(grown);
        }
    }
}

#[test]
fn alignment_up_to_a_gibibyte() {
    let _turn = turn();
    let mut align = 1;
    while align <= 1 << 30 {
        let at = remap::alloc(100, align);
        assert!(!at.is_null() && at as usize % align == 0, "{align}");
        unsafe {
            at.write_bytes(1, 100);
            remap::free(at);
        }
        align *= 2;
    }
}

#[test]
fn the_impossible_is_null_and_the_object_is_as_it_was() {
    let _turn = turn();
    assert!(remap::alloc(usize::MAX, 1).is_null());
    assert!(remap::alloc(1 << 45, 1).is_null());
    let object = Object::new(remap::alloc(MIB, 1), MIB, 9);
    assert!(unsafe { remap::realloc(object.at, 1 << 45) }.is_null());
    object.check(MIB);
    unsafe { remap::free(object.at) };
}

#[test]
fn memory_goes_back_when_trimmed() {
    let _turn = turn();
    let objects: Vec<_> = (0..20).map(|i| Object::new(remap::alloc(MIB, 1), MIB, i)).collect();
    assert!(remap::stats().live_bytes >= 20 * MIB);
    for object in &objects {
        object.check(MIB);
        unsafe { remap::free(object.at) };
    }
    assert!(remap::stats().warm_bytes >= 20 * MIB);
    remap::trim();
    assert_eq!(remap::stats().warm_bytes, 0);
}

#[test]
fn warm_memory_is_bounded() {
    let _turn = turn();
    let objects: Vec<_> =
        (0..100).map(|i| Object::new(remap::alloc(4 * MIB, 1), 4 * MIB, i)).collect();
    for object in objects {
        unsafe { remap::free(object.at) };
    }
    let stats = remap::stats();
    assert!(stats.warm_bytes <= 64 * MIB + stats.live_bytes / 8 + 4 * MIB, "{stats:?}");
    remap::trim();
}

#[test]
fn a_growing_object_gets_a_warm_slot_only_when_there_is_one() {
    let _turn = turn();
    remap::trim();
    assert!(remap::alloc_warm(10 * KIB).is_null());
    let object = Object::new(remap::alloc(300 * KIB, 1), 300 * KIB, 1);
    unsafe { remap::free(object.at) };
    let warm = remap::alloc_warm(10 * KIB);
    assert_eq!(warm, object.at);
    assert_eq!(unsafe { remap::usable_size(warm) }, 12 * KIB);
    unsafe { remap::free(warm) };
}

#[test]
fn the_counter_follows_growth_and_shrinking() {
    let _turn = turn();
    unsafe {
        let mut at = remap::alloc(MIB, 1);
        for size in [2, 4, 8, 16] {
            at = remap::realloc(at, size * MIB);
        }
        assert_eq!(remap::allocation_counter(at), 4);
        at = remap::realloc(at, 8 * MIB);
        assert_eq!(remap::allocation_counter(at), 3);
        remap::free(at);
    }
}

#[test]
fn thousands_of_moved_objects_stay_within_the_mapping_budget() {
    let _turn = turn();
    let mut objects: Vec<_> =
        (0..6000).map(|i| Object::new(remap::alloc(100 * KIB, 1), 100 * KIB, i as u8)).collect();
    for object in &mut objects {
        unsafe { object.resize(2 * MIB + 4096) };
        // Keep the test small: most pages are never touched again.
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    assert!(maps < 30_000, "{maps} mappings");
    for object in objects {
        object.check(object.size);
        unsafe { remap::free(object.at) };
    }
    remap::trim();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    assert!(maps < 2_000, "{maps} mappings after everything went back");
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Aligned(u32, usize),
    Resize(usize, usize),
    Free(usize),
    Trim,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 1..300 * KIB,
        4 => 300 * KIB..5 * MIB,
        1 => 5 * MIB..70 * MIB,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => size().prop_map(Step::Alloc),
        1 => (0u32..24, size()).prop_map(|(align, size)| Step::Aligned(align, size)),
        6 => (any::<usize>(), size()).prop_map(|(i, size)| Step::Resize(i, size)),
        3 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn random_operations_keep_every_object_whole(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let _turn = turn();
        let before = remap::stats();
        let mut objects: Vec<Object> = Vec::new();
        for (seed, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc(size) => {
                    objects.push(Object::new(remap::alloc(size, 1), size, seed as u8));
                }
                Step::Aligned(align, size) => {
                    let at = remap::alloc(size, 1 << align);
                    prop_assert_eq!(at as usize % (1 << align), 0);
                    objects.push(Object::new(at, size, seed as u8));
                }
                Step::Resize(index, size) if !objects.is_empty() => {
                    let index = index % objects.len();
                    unsafe { objects[index].resize(size) };
                }
                Step::Free(index) if !objects.is_empty() => {
                    let index = index % objects.len();
                    let object = objects.swap_remove(index);
                    object.check(object.size);
                    unsafe { remap::free(object.at) };
                }
                Step::Trim => { remap::trim(); }
                _ => {}
            }
            let mut ranges: Vec<_> =
                objects.iter().map(|o| (o.at as usize, o.at as usize + o.size)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
        for object in objects {
            object.check(object.size);
            unsafe { remap::free(object.at) };
        }
        let after = remap::stats();
        prop_assert_eq!(after.live_slots, before.live_slots);
        prop_assert_eq!(after.live_bytes, before.live_bytes);
    }
}

#[test]
fn threads_growing_their_own_objects_do_not_disturb_each_other() {
    let _turn = turn();
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            std::thread::spawn(move || {
                for round in 0..20 {
                    let seed = thread.wrapping_mul(50).wrapping_add(round);
                    let mut object = Object::new(remap::alloc(130 * KIB, 1), 130 * KIB, seed);
                    for grow in
                        [300 * KIB, 2 * MIB, 3 * MIB, 20 * MIB, 40 * MIB, 9 * MIB, 200 * KIB]
                    {
                        unsafe { object.resize(grow) };
                    }
                    object.check(object.size);
                    unsafe { remap::free(object.at) };
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
