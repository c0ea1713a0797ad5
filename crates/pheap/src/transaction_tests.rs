//! Transactions beside models, after power failures at every moment, and when they are given up.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::prelude::v1::*;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use spandrel_pmem::simulator::{Bounds, Memory, Outcome, Point};

use crate::collections::{HashMap, MapHead, SortedHead, SortedMap, Vector, VectorHead};
use crate::layout::{BLOCK_BYTES, LEAST_BYTES};
use crate::{Error, Heap, PPtr, RootType, check};

const UUID: [u64; 2] = [7, 8];
const BYTES: usize = LEAST_BYTES + 40 * BLOCK_BYTES;

const TYPES: &[RootType<'_>] = &[
    RootType::of::<MapHead<u64, u64>>("map"),
    RootType::of::<SortedHead<u64, [u64; 2]>>("sorted"),
    RootType::of::<VectorHead<u64>>("vector"),
    RootType::of::<[u64; 100]>("object"),
];

/// Collections of one heap.
struct All<'h> {
    heap: &'h Heap<&'h Memory>,
    map: HashMap<'h, u64, u64, &'h Heap<&'h Memory>>,
    sorted: SortedMap<'h, u64, [u64; 2], &'h Heap<&'h Memory>>,
    vector: Vector<'h, u64, &'h Heap<&'h Memory>>,
}

/// What they hold.
#[derive(Clone, PartialEq, Debug, Default)]
struct State {
    map: BTreeMap<u64, u64>,
    sorted: BTreeMap<u64, [u64; 2]>,
    vector: Vec<u64>,
    object: Option<u64>,
}

impl<'h> All<'h> {
    fn open(heap: &'h Heap<&'h Memory>) -> Result<Self, Error> {
        let map = HashMap::open(heap, "map")?;
        let sorted = SortedMap::open(heap, "sorted")?;
        Ok(Self { heap, map, sorted, vector: Vector::open(heap, "vector")? })
    }

    fn state(&self) -> Result<State, String> {
        let state = State {
            map: self.map.iter().collect(),
            sorted: self.sorted.iter().collect(),
            vector: self.vector.iter().collect(),
            object: {
                let to =
                    self.heap.root::<[u64; 100]>("object").map_err(|why| why.to_string())?.get();
                // SAFETY: no other thread has the heap.
                let words = unsafe { self.heap.read(to) };
                if words.is_some_and(|words| words != [words[0]; 100]) {
                    return Err(format!("an object in part: {words:?}"));
                }
                words.map(|words| words[0])
            },
        };
        let lens = (self.map.len(), self.sorted.len());
        if lens != (state.map.len(), state.sorted.len()) {
            return Err(format!("{lens:?} keys of {state:?}"));
        }
        // By the upper levels.
        if let Some(key) = state.sorted.keys().find(|key| !self.sorted.contains_key(key)) {
            return Err(format!("{key} is not found"));
        }
        Ok(state)
    }

    /// A step of a transaction, beside that of a model.
    fn step(&mut self, what: u8, key: u64, value: u64, model: &mut State) -> Result<(), Error> {
        match what % 10 {
            0 | 1 => {
                assert_eq!(self.map.insert(key, value)?, model.map.insert(key, value));
            }
            2 => assert_eq!(self.map.remove(&key)?, model.map.remove(&key)),
            3 | 4 => {
                let value = [value, key];
                assert_eq!(self.sorted.insert(key, value)?, model.sorted.insert(key, value));
            }
            5 => assert_eq!(self.sorted.remove(&key)?, model.sorted.remove(&key)),
            6 => {
                self.vector.extend(&[key, value])?;
                model.vector.extend([key, value]);
            }
            7 => assert_eq!(self.vector.pop()?, model.vector.pop()),
            8 => {
                let root = self.heap.root::<[u64; 100]>("object")?;
                let old = root.get();
                root.set(self.heap.new_object([value; 100])?)?;
                // SAFETY: nothing leads to it, if the transaction ends.
                unsafe { self.heap.free_object(old)? };
                model.object = Some(value);
            }
            _ => {
                let to = self.heap.root::<[u64; 100]>("object")?.get();
                if !to.is_null() {
                    // SAFETY: no other thread has the heap. More words than the undo log holds.
                    unsafe { self.heap.replace(to, [key; 100])? };
                    model.object = Some(key);
                }
            }
        }
        Ok(())
    }
}

fn drawn(round: u64, step: u64) -> (u8, u64, u64) {
    let number = crate::trace::mix(round, step + 1);
    (number as u8, number >> 8 & 15, number >> 12)
}

/// A transaction of several steps; every third one fails, and every fourth has one within it that fails.
fn round(all: &mut All<'_>, number: u64, model: &mut State) {
    let heap = all.heap;
    let mut after = model.clone();
    let outcome = heap.transaction(|| {
        for step in 0..6 {
            let (what, key, value) = drawn(number, step);
            all.step(what, key, value, &mut after)?;
            if number % 4 == 3 && step == 2 {
                let mut lost = after.clone();
                let inner = heap.transaction(|| {
                    (10..14).try_for_each(|step| {
                        let (what, key, value) = drawn(number, step);
                        all.step(what, key, value, &mut lost)
                    })?;
                    Err::<(), _>(Error::Full)
                });
                assert_eq!(inner, Err(Error::Full));
                assert_eq!(all.state().as_ref(), Ok(&after));
            }
        }
        if number % 3 == 2 { Err(Error::Full) } else { Ok(()) }
    });
    match outcome {
        Ok(()) => *model = after,
        Err(why) => assert_eq!((why, number % 3), (Error::Full, 2)),
    }
    assert_eq!(all.state().as_ref(), Ok(&*model), "after {number}");
}

#[test]
fn every_failure_leaves_all_of_a_transaction_or_nothing() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut all = All::open(&heap).unwrap();
    let mut states = vec![State::default()];
    memory.note(0);
    for number in 1..=20 {
        let mut model = states[states.len() - 1].clone();
        round(&mut all, number, &mut model);
        states.push(model);
        memory.note(number);
    }
    drop(all);
    heap.close().unwrap();
    let look = |image: &[u8], least: usize| -> Result<State, String> {
        let after = Memory::from_image(image);
        let (heap, _) = Heap::open(&after, 0, Some(TYPES)).map_err(|why| format!("{why}"))?;
        let found = All::open(&heap).map_err(|why| format!("{why}"))?.state()?;
        if !states[least..].iter().take(2).any(|state| *state == found) {
            return Err(format!("{found:?} after {:?}", states[least]));
        }
        heap.close().map_err(|why| format!("{why}"))?;
        let survey = check(&after, TYPES, &mut |_| ()).map_err(|why| format!("{why}"))?;
        if (survey.damaged, survey.lost) != (0, 0) {
            return Err(format!("{survey:?}"));
        }
        Ok(found)
    };
    let mut number = 0;
    let check = |image: &[u8], point: &Point<'_>| {
        let Some(least) = point.notes.last().map(|note| *note as usize) else { return Ok(()) };
        let found = look(image, least)?;
        // And failures while it is recovered, of some of them.
        number += 1;
        if number % 40 != 0 {
            return Ok(());
        }
        let after = Memory::from_image(image);
        Heap::open(&after, 0, Some(TYPES)).map_err(|why| format!("{why}"))?.0.abandon();
        let again = |image: &[u8], _: &Point<'_>| match look(image, least)? {
            now if now == found => Ok(()),
            now => Err(format!("{now:?} after {found:?}")),
        };
        let bounds = Bounds { most: 16, drawn: 2, ..Bounds::default() };
        after.journal().images(&bounds, again).map(|_| ()).map_err(|found| found.to_string())
    };
    let bounds = Bounds { lines: 8, most: 48, drawn: 4, seed: 9 };
    let outcome = memory.journal().images(&bounds, check);
    let outcome = outcome.unwrap_or_else(|found| std::panic!("{found}"));
    assert!(matches!(outcome, Outcome { points: 250.., images: 2000.., .. }), "{outcome:?}");
}

#[test]
fn a_transaction_that_panics_leaves_nothing_and_the_next_one_runs() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut all = All::open(&heap).unwrap();
    all.map.insert(1, 1).unwrap();
    let before = all.state().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        heap.transaction(|| {
            all.map.insert(1, 2)?;
            all.vector.extend(&[1; 3000])?;
            std::panic!("on purpose");
            #[allow(unreachable_code)]
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(all.state(), Ok(before));
    heap.checkpoint().unwrap();
    heap.transaction(|| all.map.insert(1, 3)).unwrap();
    assert_eq!(all.map.get(&1), Some(3));
    drop(all);
    heap.close().unwrap();
    let survey = check(&&memory, TYPES, &mut |_| ()).unwrap();
    assert_eq!((survey.damaged, survey.lost), (0, 0));
}

#[test]
fn a_transaction_that_does_not_fit_leaves_nothing_and_no_object_behind() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut all = All::open(&heap).unwrap();
    all.vector.push(1).unwrap();
    let before = all.state().unwrap();
    let mut most = Vec::new();
    for _ in 0..3 {
        let mut count = 0;
        let outcome = heap.transaction(|| {
            (0u64..).try_for_each(|number| {
                count = number;
                all.sorted.insert(number, [number; 2]).map(drop)?;
                all.vector.push(number)
            })
        });
        assert_eq!(outcome, Err(Error::Full));
        assert_eq!(all.state().as_ref(), Ok(&before));
        most.push(count);
    }
    // What one left the next one uses again. The ends differ by up to six of forty blocks: the heights of nodes are drawn, and a
    // transaction ends when one of their classes is full while others have room. What is lost the check below finds to the object.
    let (least, largest) = (most.iter().min().unwrap(), most.iter().max().unwrap());
    assert!(*least > 1000 && least * 4 > largest * 3, "{most:?}");
    drop(all);
    heap.close().unwrap();
    let survey = check(&&memory, TYPES, &mut |_| ()).unwrap();
    assert_eq!((survey.damaged, survey.lost), (0, 0));
}

#[test]
fn a_checkpoint_in_a_transaction_is_refused_and_one_of_another_thread_waits() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut all = All::open(&heap).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        heap.transaction(|| {
            all.map.insert(1, 1)?;
            assert_eq!(heap.checkpoint(), Err(Error::InOperation));
            scope.spawn(|| {
                heap.checkpoint().unwrap();
                assert!(is_done.load(std::sync::atomic::Ordering::SeqCst));
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
            all.map.insert(2, 2)
        })
        .unwrap();
    });
    assert_eq!(all.map.len(), 2);
}

#[test]
fn what_a_transaction_has_changed_no_other_thread_changes_before_it_ends() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
    let map = std::sync::Mutex::new(map);
    let insert = |key| map.lock().unwrap().insert(key, key);
    let other = |key| std::thread::scope(|scope| scope.spawn(|| insert(key)).join().unwrap());
    other(1).unwrap();
    heap.transaction(|| {
        assert_eq!(other(2), Ok(None), "the transaction has not changed it yet");
        insert(3)?;
        assert_eq!(other(4), Err(Error::InTransaction));
        insert(5)
    })
    .unwrap();
    assert_eq!(other(6), Ok(None));
    let mut keys: Vec<_> = map.lock().unwrap().keys().collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3, 5, 6]);
}

#[test]
fn transactions_of_two_threads_run_one_after_the_other() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let heap = &heap;
            scope.spawn(move || {
                let mut map = HashMap::<u64, u64>::open(heap, name).unwrap();
                for number in 0..300 {
                    let outcome = heap.transaction(|| {
                        map.insert(number % 7, number)?;
                        map.remove(&(number % 5))?;
                        if number % 2 == 0 { Err(Error::Full) } else { Ok(()) }
                    });
                    assert_eq!(outcome.is_err(), number % 2 == 0);
                }
            });
        }
        for _ in 0..50 {
            heap.checkpoint().unwrap();
        }
    });
    let maps = ["one", "two"].map(|name| {
        HashMap::<u64, u64>::open(&heap, name).unwrap().iter().collect::<BTreeMap<_, _>>()
    });
    assert_eq!(maps[0], maps[1]);
}

#[test]
fn a_damaged_log_of_a_transaction_is_an_error_and_is_mended() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    heap.close().unwrap();
    let at = crate::superblock::UNDO_LOG + 48;
    let mut image = memory.journal().last();
    image[at..at + 8].copy_from_slice(&PPtr::<u8>::to(1 << 20).raw().to_le_bytes());
    let memory = Memory::from_image(&image);
    let survey = check(&&memory, TYPES, &mut |_| ()).unwrap();
    assert_eq!(survey.damaged, 1);
    crate::repair(&&memory, &mut |_| ()).unwrap();
    let survey = check(&&memory, TYPES, &mut |_| ()).unwrap();
    assert_eq!(survey.damaged, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn transactions_agree_with_a_model(rounds in proptest::collection::vec(any::<u64>(), 1..40)) {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut all = All::open(&heap).unwrap();
        let mut model = State::default();
        for number in rounds {
            round(&mut all, number, &mut model);
        }
        drop(all);
        heap.close().unwrap();
        let survey = check(&&memory, TYPES, &mut |_| ()).unwrap();
        prop_assert_eq!((survey.damaged, survey.lost), (0, 0));
    }
}

/// A transaction waits for a lock of the program's, and the thread that has the lock for the gate that a checkpoint would have shut.
#[test]
fn a_checkpoint_that_waits_for_a_transaction_keeps_no_operation_out() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let map = Mutex::new(HashMap::<u64, u64>::open(&heap, "m").unwrap());
    let (begun, runs) = mpsc::channel();
    let (ended, end) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            if end.recv_timeout(Duration::from_secs(30)).is_err() {
                eprintln!("the threads wait for each other");
                std::process::abort();
            }
        });
        let held = map.lock().unwrap();
        scope.spawn(|| {
            let transaction = heap.transaction(|| {
                begun.send(()).unwrap();
                map.lock().unwrap().insert(1, 1)
            });
            transaction.unwrap();
        });
        runs.recv().unwrap();
        let still = scope.spawn(|| {
            // SAFETY: no thread stores to objects but by the collection.
            unsafe { heap.give_back() }.unwrap();
        });
        // Time for the other thread to shut the gate.
        thread::sleep(Duration::from_millis(100));
        let mut map = held;
        map.insert(2, 2).unwrap();
        drop(map);
        still.join().unwrap();
        ended.send(()).unwrap();
    });
    assert_eq!(map.lock().unwrap().len(), 2);
}
