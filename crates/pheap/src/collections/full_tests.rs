//! Operations in transactions of a heap that has become full: they fail and change nothing, or they lose no object.

use std::prelude::v1::*;

use spandrel_pmem::simulator::Memory;

use super::tests::UUID;
use super::*;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES};
use crate::{Error, Heap, RootType, check};

const TYPES: &[RootType<'_>] = &[
    RootType::of::<SortedHead<u64, [u64; 4]>>("sorted"),
    RootType::of::<MapHead<u64, u64>>("map"),
    RootType::of::<VectorHead<u64>>("vector"),
    RootType::of::<QueueHead<u64>>("queue"),
];

type On<'m> = Heap<&'m Memory>;

/// Collections in a heap that is full but for `spare` blocks.
struct All<'h> {
    sorted: SortedMap<'h, u64, [u64; 4], &'h On<'h>>,
    map: HashMap<'h, u64, u64, &'h On<'h>>,
    vector: Vector<'h, u64, &'h On<'h>>,
    queue: Queue<'h, u64, &'h On<'h>>,
}

type State = (Vec<(u64, [u64; 4])>, Vec<(u64, u64)>, Vec<u64>, Vec<u64>);

impl<'h> All<'h> {
    fn filled(heap: &'h On<'h>, spare: usize) -> Self {
        let mut all = Self {
            sorted: SortedMap::open(heap, "sorted").unwrap(),
            map: HashMap::open(heap, "map").unwrap(),
            vector: Vector::open(heap, "vector").unwrap(),
            queue: Queue::open(heap, "queue").unwrap(),
        };
        let spare: Vec<_> = (0..spare).map(|_| heap.alloc(60_000).unwrap()).collect();
        for key in 0..100 {
            all.map.insert(key, key).unwrap();
            all.vector.push(key).unwrap();
            all.queue.push_back(key).unwrap();
        }
        let mut key = 0;
        while all.sorted.insert(key, [key; 4]).is_ok() {
            key += 1;
        }
        // SAFETY: the test's own.
        spare.into_iter().for_each(|object| unsafe { heap.free(object).unwrap() });
        all
    }

    fn state(&self) -> State {
        let mut map: Vec<_> = self.map.iter().collect();
        map.sort_unstable();
        (
            self.sorted.iter().collect(),
            map,
            self.vector.iter().collect(),
            self.queue.iter().collect(),
        )
    }

    fn step(&mut self, number: usize) -> Result<(), Error> {
        match number {
            0 => self.sorted.clear(),
            1 => self.sorted.retain(|_, _| false),
            2 => (0..500).try_for_each(|key| self.sorted.remove(&key).map(drop)),
            3 => (0..500).try_for_each(|_| self.sorted.pop_first().map(drop)),
            4 => (0..500).try_for_each(|_| self.sorted.pop_last().map(drop)),
            5 => self.map.clear(),
            6 => self.map.retain(|key, _| key % 2 == 0),
            7 => self.vector.drain(10..20, drop),
            8 => self.vector.retain(|number| number % 3 == 0),
            9 => self.vector.clear(),
            10 => self.queue.clear(),
            11 => (0..200).try_for_each(|number| self.vector.insert(5, number)),
            12 => (0..1000).try_for_each(|number| self.queue.push_back(number)),
            13 => (0..1000).try_for_each(|key| self.map.insert(key, 1).map(drop)),
            _ => (0..500).try_for_each(|key| self.sorted.insert(key, [1; 4]).map(drop)),
        }
    }
}

/// Runs a step, and returns whether it did something.
fn run(number: usize, spare: usize, work: impl FnOnce(&On<'_>, &mut All<'_>) -> bool) -> bool {
    let memory = Memory::new(LEAST_BYTES + 28 * BLOCK_BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut all = All::filled(&heap, spare);
    let done = work(&heap, &mut all);
    drop(all);
    heap.close().unwrap();
    let survey = check(&&memory, TYPES, &mut |_| ()).unwrap();
    assert_eq!((survey.damaged, survey.lost), (0, 0), "step {number}, {spare} spare, {done}");
    done
}

const STEPS: usize = 15;

#[test]
fn what_frees_objects_in_a_transaction_of_a_full_heap_loses_none() {
    let mut done = [0; STEPS];
    for (number, done) in done.iter_mut().enumerate() {
        for spare in [0, 1, 2, 4, 8] {
            let is_done = run(number, spare, |heap, all| {
                let before = all.state();
                let outcome = heap.transaction(|| all.step(number));
                if let Err(why) = outcome {
                    assert!(why.is_full(), "{why}");
                    assert!(all.state() == before, "step {number}: an error changes nothing");
                }
                outcome.is_ok()
            });
            *done += usize::from(is_done);
        }
    }
    // Both outcomes are there. The log of `clear` has 32 bytes for each key.
    assert!((1..5).contains(&done[0]), "{done:?}");
    assert!(done[2..11].iter().all(|done| *done > 0), "{done:?}");
}

#[test]
fn an_operation_that_fails_in_a_transaction_of_a_full_heap_leaves_what_it_would_have_freed() {
    for number in 0..STEPS {
        for spare in [1, 2, 4] {
            run(number, spare, |heap, all| {
                let before = all.state();
                let outcome = heap.transaction(|| {
                    // The program goes on: the transaction has what the operation did, or nothing of it.
                    let inner = heap.transaction(|| all.step(number));
                    all.queue.pop_front()?;
                    Ok(inner)
                });
                if let Ok(Err(_)) = outcome {
                    let mut state = all.state();
                    state.3.insert(0, 0);
                    assert!(state == before, "step {number}");
                }
                outcome.is_ok_and(|inner| inner.is_ok())
            });
        }
    }
}

#[test]
fn a_large_change_outside_of_transactions_in_a_full_heap_loses_none() {
    for number in [0, 1, 6, 8] {
        for spare in [0, 1, 2, 8] {
            run(number, spare, |_, all| {
                let before = all.state();
                let outcome = all.step(number);
                assert!(outcome.is_ok() || all.state() == before, "step {number}");
                outcome.is_ok()
            });
        }
    }
}
