//! Collections that are opened while other threads go on, and locks of the program's that operations and checkpoints wait for.

use std::prelude::v1::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use spandrel_pmem::simulator::Memory;

use super::tests::{BYTES, UUID};
use super::*;
use crate::{Error, Heap};

type On<'m> = Heap<&'m Memory>;
type Map<'h, 'm> = HashMap<'h, u64, u64, &'h On<'m>>;

fn created(memory: &Memory) -> On<'_> {
    Heap::create(memory, UUID, 0, 0).unwrap()
}

/// The time for which races are looked for.
const RACE: Duration = Duration::from_millis(500);

#[test]
fn a_collection_is_found_or_refused_while_the_removal_of_its_root_is_rolled_back() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    for number in 0..100 {
        HashMap::<u64, u64>::open(&heap, &format!("before {number}")).unwrap();
    }
    HashMap::<u64, u64>::open(&heap, "map").unwrap().insert(1, 10).unwrap();
    let (index, ends) =
        (heap.named_root::<MapHead<u64, u64>>("map").unwrap(), AtomicBool::new(false));
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(SeqCst) {
                let _ = heap.transaction(|| {
                    heap.remove_root("map")?;
                    Err::<(), _>(Error::Full)
                });
            }
        });
        let begin = Instant::now();
        let mut found = Ok(());
        while begin.elapsed() < RACE && found.is_ok() {
            found = match HashMap::<u64, u64>::open(&heap, "map") {
                Ok(map) if map.get(&1) == Some(10) => Ok(()),
                Ok(map) => Err(format!("a map of {}", map.len())),
                Err(Error::InTransaction) => Ok(()),
                Err(why) => Err(format!("{why:?}")),
            };
        }
        ends.store(true, SeqCst);
        found
    });
    assert_eq!(found, Ok(()));
    assert_eq!(heap.named_root::<MapHead<u64, u64>>("map"), Ok(index));
}

#[test]
fn a_collection_that_two_roots_lead_to_has_one_handle() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    HashMap::<u64, u64>::open(&heap, "one").unwrap().insert(1, 10).unwrap();
    let root = |name| heap.root::<MapHead<u64, u64>>(name).unwrap();
    root("two").set(root("one").get()).unwrap();
    let open = |name| HashMap::<u64, u64>::open(&heap, name);
    let one = open("one").unwrap();
    assert!(matches!(open("two").map(drop), Err(Error::HandleLives(name)) if name.text() == "one"));
    drop(one);
    let two = open("two").unwrap();
    assert_eq!(two.get(&1), Some(10));
    assert!(matches!(open("one").map(drop), Err(Error::HandleLives(name)) if name.text() == "two"));
    drop(two);
    // What a transaction has changed under one name is refused under the other.
    heap.transaction(|| {
        open("one")?.insert(2, 20)?;
        let other = || thread::scope(|scope| scope.spawn(|| open("two").map(drop)).join().unwrap());
        assert_eq!(other(), Err(Error::InTransaction));
        Ok(())
    })
    .unwrap();
    // The root of a collection may also be renamed.
    heap.remove_root("one").unwrap();
    assert_eq!(open("two").unwrap().len(), 2);
}

/// Has one thread change `first` by `change`, which takes the lock of `second`, and another thread change `second` under its lock, while
/// checkpoints go on.
fn waits(change: impl Fn(&On<'_>, &mut Map<'_, '_>, &RwLock<Map<'_, '_>>) + Sync) {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut first = HashMap::<u64, u64>::open(&heap, "first").unwrap();
    (0..100).for_each(|key| assert_eq!(first.insert(key, key), Ok(None)));
    let second = RwLock::new(HashMap::<u64, u64>::open(&heap, "second").unwrap());
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let (change, second, heap, rounds, ends) = (&change, &second, &heap, &rounds, &ends);
    thread::scope(|scope| {
        scope.spawn(move || {
            while !ends.load(SeqCst) {
                change(heap, &mut first, second);
                rounds.fetch_add(1, SeqCst);
            }
        });
        scope.spawn(move || {
            let mut key = 0;
            while !ends.load(SeqCst) {
                key = (key + 1) % 100;
                let inserted = second.write().unwrap().insert(key, key);
                assert!(matches!(inserted, Ok(_) | Err(Error::InTransaction)), "{inserted:?}");
            }
        });
        let begin = Instant::now();
        let mut checkpoints = 0;
        while begin.elapsed() < RACE || rounds.load(SeqCst) == 0 {
            heap.checkpoint().unwrap();
            checkpoints += 1;
        }
        ends.store(true, SeqCst);
        assert!(checkpoints > 0);
    });
}

#[test]
fn what_a_closure_waits_for_does_not_wait_for_a_checkpoint() {
    waits(|_, first, second| first.retain(|_, _| second.read().unwrap().len() <= 100).unwrap());
    waits(|_, first, second| {
        first.update(1, |_| second.read().unwrap().len() as u64).unwrap();
    });
}

#[test]
fn a_transaction_may_wait_for_a_lock_of_a_thread_that_changes_a_collection() {
    waits(|heap, _, second| {
        heap.transaction(|| {
            second.write().unwrap().insert(1000, 1)?;
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn readers_that_come_without_a_pause_keep_no_rollback_waiting() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let map = RwLock::new(HashMap::<u64, u64>::open(&heap, "map").unwrap());
    map.write().unwrap().insert(1, 10).unwrap();
    let (ends, worst) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !ends.load(SeqCst) {
                    let map = map.read().unwrap();
                    for _ in 0..1000 {
                        let found = map.get(&1);
                        assert!(found == Some(10) || found == Some(11), "{found:?}");
                    }
                }
            });
        }
        for _ in 0..5 {
            let mut begin = Instant::now();
            let _ = heap.transaction(|| {
                map.write().unwrap().insert(1, 11)?;
                // The readers find the map changed.
                thread::sleep(Duration::from_millis(5));
                begin = Instant::now();
                Err::<(), _>(Error::Full)
            });
            let mut worst = worst.lock().unwrap();
            *worst = begin.elapsed().max(*worst);
        }
        ends.store(true, SeqCst);
    });
    let worst = worst.into_inner().unwrap();
    assert!(worst < Duration::from_secs(2), "{worst:?}");
}
