//! Handles of collections: one for each collection, by a reference or by what keeps the heap open.

use std::rc::Rc;
use std::sync::{Arc, RwLock};

use spandrel_pheap::collections::{HashMap, SortedMap, Text, Vector};
use spandrel_pheap::{Error, Heap, Options};

fn created() -> (tempfile::TempDir, String, Heap) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("a.heap").to_str().unwrap().to_owned();
    let heap = Options::new().size(1 << 20).create(&path).unwrap();
    (place, path, heap)
}

fn lives<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::HandleLives(name)) => name.text().to_owned(),
        Err(why) => panic!("{why}"),
        Ok(_) => panic!("a second handle"),
    }
}

#[test]
fn a_second_handle_is_refused_until_the_first_is_dropped() {
    let (_place, _, heap) = created();
    let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
    let vector = Vector::<u64>::open(&heap, "vector").unwrap();
    let other = std::thread::scope(|scope| {
        scope.spawn(|| lives(HashMap::<u64, u64>::open(&heap, "map"))).join().unwrap()
    });
    assert_eq!(other, "map");
    assert_eq!(lives(Vector::<u64>::open(&heap, "vector")), "vector");
    assert_eq!(lives(heap.remove_root("map")), "map");
    let why = HashMap::<u64, u64>::open(&heap, "map").unwrap_err().to_string();
    assert!(why.contains("\"map\"") && why.contains("lock"), "{why}");
    // Another type is the first error; other collections are free.
    assert!(matches!(Text::open(&heap, "map"), Err(Error::RootType { .. })));
    map.insert(1, 1).unwrap();
    drop(map);
    assert_eq!(HashMap::<u64, u64>::open(&heap, "map").unwrap().get(&1), Some(1));
    heap.remove_root("map").unwrap();
    assert!(HashMap::<u64, u64>::open(&heap, "map").unwrap().is_empty());
    drop(vector);
    heap.close().unwrap();
}

#[test]
fn a_handle_that_outlives_the_use_of_its_heap_keeps_none_of_the_next_one() {
    let (_place, path, heap) = created();
    let (next, first);
    {
        let _map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
        heap.close().unwrap();
        // The next heap has the same number, and its root the same place.
        next = Options::new().open(&path).unwrap().0;
        first = HashMap::<u64, u64>::open(&next, "map").unwrap();
    }
    assert_eq!(lives(HashMap::<u64, u64>::open(&next, "map")), "map");
    drop(first);
    HashMap::<u64, u64>::open(&next, "map").unwrap();
}

#[test]
fn threads_that_open_one_collection_in_turns_lose_nothing() {
    let (_place, _, heap) = created();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let heap = &heap;
            scope.spawn(move || {
                for key in 0..500 {
                    let mut map = loop {
                        match HashMap::<u64, u64>::open(heap, "map") {
                            Err(Error::HandleLives(_)) => std::thread::yield_now(),
                            map => break map.unwrap(),
                        }
                    };
                    map.insert(key * 4 + thread, key).unwrap();
                }
            });
        }
    });
    let map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
    assert_eq!((map.len(), map.keys().count()), (2000, 2000));
    assert!((0..2000).all(|key| map.contains_key(&key)));
}

/// What a server has.
struct Server {
    visits: RwLock<HashMap<'static, u64, u64, Arc<Heap>>>,
    names: RwLock<SortedMap<'static, u64, [u8; 16], Arc<Heap>>>,
    heap: Arc<Heap>,
}

fn is_shared<T: Send + Sync + 'static>(value: T) -> T {
    value
}

#[test]
fn handles_that_have_the_heap_are_shared_and_stay_as_long_as_they_are_needed() {
    let (_place, path, heap) = created();
    let heap = Arc::new(heap);
    let visits = HashMap::<u64, u64, _>::open(Arc::clone(&heap), "visits").unwrap();
    let names = SortedMap::<u64, [u8; 16]>::open(Arc::clone(&heap), "names").unwrap();
    let server = Server { visits: RwLock::new(visits), names: RwLock::new(names), heap };
    let server = Arc::new(is_shared(server));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || {
                for visit in 0..200u64 {
                    let mut visits = server.visits.write().unwrap();
                    visits.update(visit % 10, |count| count.unwrap_or(0) + 1).unwrap();
                    drop(visits);
                    server.names.write().unwrap().insert(visit, [thread; 16]).unwrap();
                    if visit % 50 == 0 {
                        server.heap.checkpoint().unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(server.visits.read().unwrap().values().sum::<u64>(), 800);
    assert_eq!(server.names.read().unwrap().len(), 200);
    // The last of them closes the heap.
    drop(server);
    let (heap, opened) = Options::new().open(&path).unwrap();
    assert!(opened.was_clean);
    // A handle may have the heap for itself, or share it with others of its thread.
    let map = HashMap::<u64, u64>::open(Rc::new(heap), "visits").unwrap();
    assert_eq!(map.len(), 10);
    drop(map);
    let (heap, _) = Options::new().open(&path).unwrap();
    let map = HashMap::<u64, u64>::open(heap, "visits").unwrap();
    assert_eq!(map.get(&3), Some(80));
}

#[test]
fn a_heap_is_taken_by_any_reference_to_it() {
    let (_place, _, heap) = created();
    let heap = Arc::new(heap);
    let by_reference = |heap: &Heap| HashMap::<u64, u64>::open(heap, "one").map(drop);
    by_reference(&heap).unwrap();
    HashMap::<u64, u64, _>::open(&heap, "one").map(drop).unwrap();
    HashMap::<u64, u64>::open(&*heap, "one").map(drop).unwrap();
    HashMap::<u64, u64>::open(&&&heap, "one").map(drop).unwrap();
    let map: HashMap<'_, u64, u64> = HashMap::open(&*heap, "one").unwrap();
    assert_eq!(format!("{map:?}"), "{}");
    assert!(format!("{:?}", Text::open(&heap, "text").unwrap()).contains('"'));
}
