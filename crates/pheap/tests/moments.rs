//! What a checkpoint holds while other threads go on: each collection as of one moment between operations, and each transaction as a
//! whole.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use spandrel_pheap::collections::{
    HashMap, MapHead, Queue, QueueHead, SortedHead, SortedMap, Vector, VectorHead,
};
use spandrel_pheap::{Choice, Heap, Options, RootType};

const THREADS: usize = 3;
const NAMES: [[&str; 4]; THREADS] =
    [["v0", "m0", "s0", "q0"], ["v1", "m1", "s1", "q1"], ["v2", "m2", "s2", "q2"]];

fn types() -> Vec<RootType<'static>> {
    let of = |[vector, map, sorted, queue]: [&'static str; 4]| {
        [
            RootType::of::<VectorHead<u64>>(vector),
            RootType::of::<MapHead<u64, u64>>(map),
            RootType::of::<SortedHead<u64, u64>>(sorted),
            RootType::of::<QueueHead<u64>>(queue),
        ]
    };
    NAMES.into_iter().flat_map(of).collect()
}

/// Changes four collections in one transaction each time, and some of them by themselves, which says nothing of the others.
fn work(heap: &Heap, thread: usize, ends: &AtomicBool, done: &AtomicU64) {
    let [vector, map, sorted, queue] = NAMES[thread];
    let mut vector = Vector::<u64>::open(heap, vector).unwrap();
    let mut map = HashMap::<u64, u64>::open(heap, map).unwrap();
    let mut sorted = SortedMap::<u64, u64>::open(heap, sorted).unwrap();
    let mut queue = Queue::<u64>::open(heap, queue).unwrap();
    for number in vector.len() as u64.. {
        if ends.load(Relaxed) {
            break;
        }
        heap.transaction(|| {
            vector.push(number)?;
            map.insert(number % 50, number)?;
            if number >= 100 {
                sorted.remove(&(number - 100))?;
                queue.pop_front()?;
            }
            sorted.insert(number, number)?;
            queue.push_back(number)
        })
        .unwrap();
        done.store(number + 1, Release);
    }
}

/// All four of a thread agree. How many transactions there were.
fn look(heap: &Heap, thread: usize) -> u64 {
    let [vector, map, sorted, queue] = NAMES[thread];
    let count = Vector::<u64>::open(heap, vector).unwrap();
    let count = count.iter().enumerate().map(|(at, number)| assert_eq!(at as u64, number)).count();
    let count = count as u64;
    let last = count.saturating_sub(100)..count;
    let map = HashMap::<u64, u64>::open(heap, map).unwrap();
    let expected = (count.saturating_sub(50)..count).map(|number| (number % 50, number));
    assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), expected.collect());
    let sorted = SortedMap::<u64, u64>::open(heap, sorted).unwrap();
    assert!(sorted.keys().eq(last.clone()) && sorted.len() as u64 == last.end - last.start);
    assert!(Queue::<u64>::open(heap, queue).unwrap().iter().eq(last));
    count
}

#[test]
fn a_checkpoint_holds_transactions_of_other_threads_as_a_whole() {
    let places = [
        (tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), Choice::Logged),
        (tempfile::tempdir_in("/dev/shm").unwrap(), Choice::Mapped),
    ];
    for (place, choice) in places {
        let path = place.path().join("a.heap").to_str().unwrap().to_owned();
        Options::new().size(1 << 20).medium(choice).create(&path).unwrap().close().unwrap();
        let types = types();
        for _ in 0..4 {
            let (heap, _) = Options::new().roots(&types).open(&path).unwrap();
            let ends = AtomicBool::new(false);
            let done: [AtomicU64; THREADS] = Default::default();
            let mut least = [0; THREADS];
            std::thread::scope(|scope| {
                for (thread, done) in done.iter().enumerate() {
                    let (heap, ends) = (&heap, &ends);
                    scope.spawn(move || work(heap, thread, ends, done));
                }
                for _ in 0..30 {
                    let before = done.each_ref().map(|done| done.load(Acquire));
                    heap.checkpoint().unwrap();
                    least = before;
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                ends.store(true, Relaxed);
            });
            // As a failure leaves it: on a file as of the last checkpoint.
            heap.abandon();
            let (heap, opened) = Options::new().roots(&types).open(&path).unwrap();
            assert!(!opened.was_clean);
            for (thread, least) in least.into_iter().enumerate() {
                assert!(look(&heap, thread) >= least, "{choice:?}");
            }
            heap.close().unwrap();
        }
    }
}
