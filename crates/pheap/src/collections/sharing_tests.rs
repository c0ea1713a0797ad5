//! Collections, roots and transactions of several threads, and what is left of a handle or an iterator after a rollback.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::prelude::v1::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use spandrel_pmem::simulator::Memory;

use super::tests::{BYTES, UUID};
use super::*;
use crate::layout::SUPERBLOCK;
use crate::{Error, Heap, PPtr, RootType, check};

type On<'m> = Heap<&'m Memory>;

fn created(memory: &Memory) -> On<'_> {
    Heap::create(memory, UUID, 0, 0).unwrap()
}

/// Ends the loops of other threads when it is dropped.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `work` in another thread.
fn other<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// The objects that nothing leads to, after the heap is closed.
fn lost(heap: On<'_>, memory: &Memory, types: &[RootType<'_>]) -> (u64, u64) {
    heap.close().unwrap();
    let survey = check(&memory, types, &mut |_| ()).unwrap();
    (survey.damaged, survey.lost)
}

#[test]
fn what_a_transaction_has_changed_is_refused_to_others_also_after_its_handle_is_dropped() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    Vector::<u64>::open(&heap, "v").unwrap().push(1).unwrap();
    let outcome = heap.transaction(|| {
        Vector::<u64>::open(&heap, "v")?.extend(&[2; 100])?;
        let opened = other(|| Vector::<u64>::open(&heap, "v").map(drop));
        assert_eq!(opened, Err(Error::InTransaction));
        assert_eq!(other(|| heap.remove_root("v")), Err(Error::InTransaction));
        // The thread itself goes on, and passes a new handle on in vain.
        let mut again = Vector::<u64>::open(&heap, "v")?;
        again.push(3)?;
        assert_eq!(other(|| again.push(4)), Err(Error::InTransaction));
        // Another collection is free.
        other(|| Vector::<u64>::open(&heap, "w")?.push(5))?;
        Err::<(), _>(Error::Full)
    });
    assert_eq!(outcome, Err(Error::Full));
    let mut vector = other(|| Vector::<u64>::open(&heap, "v")).unwrap();
    vector.push(6).unwrap();
    assert_eq!(vector.iter().collect::<Vec<_>>(), [1, 6]);
    assert_eq!(Vector::<u64>::open(&heap, "w").unwrap().last(), Some(5));
}

#[test]
fn a_collection_is_not_opened_by_a_root_that_a_transaction_has_removed_or_set() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let open = || HashMap::<u64, u64>::open(&heap, "m");
    open().unwrap().insert(1, 10).unwrap();
    let index = heap.named_root::<MapHead<u64, u64>>("m").unwrap();
    for is_removed in [true, false] {
        let outcome = heap.transaction(|| {
            if is_removed {
                heap.remove_root("m")?;
            } else {
                heap.root::<MapHead<u64, u64>>("m")?.set(PPtr::NULL)?;
            }
            assert_eq!(open().map(drop), Err(Error::InTransaction));
            assert_eq!(other(|| open().map(drop)), Err(Error::InTransaction));
            if is_removed {
                let named = other(|| heap.named_root::<MapHead<u64, u64>>("m"));
                assert_eq!(named, Err(Error::InTransaction));
            }
            let name = if is_removed { "one" } else { "two" };
            let found = other(|| heap.named_root::<MapHead<u64, u64>>(name))?;
            assert_ne!(found, index, "another name took the place");
            other(|| HashMap::<u64, u64>::open(&heap, name)?.insert(2, 20))?;
            Err::<(), _>(Error::Full)
        });
        assert_eq!(outcome, Err(Error::Full));
        assert_eq!(heap.named_root::<MapHead<u64, u64>>("m"), Ok(index));
        assert_eq!(open().unwrap().get(&1), Some(10));
    }
    assert_eq!(HashMap::<u64, u64>::open(&heap, "one").unwrap().get(&2), Some(20));
    heap.transaction(|| heap.remove_root("m")).unwrap();
    assert!(open().unwrap().is_empty());
}

#[test]
fn a_root_is_not_set_while_its_collection_has_a_handle() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut map = HashMap::<u64, u64>::open(&heap, "m").unwrap();
    let root = heap.root::<MapHead<u64, u64>>("m").unwrap();
    let index = root.index();
    let refused = |heap: &On<'_>| {
        let outcomes = [
            root.set(PPtr::NULL),
            heap.set_root(index, None),
            heap.set_roots(&[(0, PPtr::NULL), (index, PPtr::NULL)]),
        ];
        outcomes.iter().all(|why| matches!(why, Err(Error::HandleLives(_))))
    };
    assert!(refused(&heap));
    heap.transaction(|| {
        assert!(refused(&heap));
        Ok(())
    })
    .unwrap();
    map.insert(1, 2).unwrap();
    drop(map);
    assert_eq!(HashMap::<u64, u64>::open(&heap, "m").unwrap().get(&1), Some(2));
    // What a transaction has set, another thread does not set before it ends.
    let object = heap.root_word(index).unwrap();
    heap.transaction(|| {
        root.set(PPtr::NULL)?;
        assert_eq!(other(|| heap.set_root(index, None)), Err(Error::InTransaction));
        root.set(PPtr::from_raw(object))
    })
    .unwrap();
    root.set(PPtr::NULL).unwrap();
    assert!(HashMap::<u64, u64>::open(&heap, "m").unwrap().is_empty());
}

#[test]
fn a_root_is_removed_before_its_collection_is_opened_or_not_at_all() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also where a check below fails.
        let _end = AtEnd(&is_done);
        scope.spawn(|| {
            while !is_done.load(SeqCst) {
                match heap.remove_root("m") {
                    Ok(()) | Err(Error::RootName | Error::HandleLives(_)) => {}
                    Err(why) => std::panic!("{why}"),
                }
            }
        });
        for round in 0..1500 {
            let mut map = HashMap::<u64, u64>::open(&heap, "m").unwrap();
            map.insert(round, 1).unwrap();
            // The name leads to the collection as long as the handle lives.
            let root = heap.root::<MapHead<u64, u64>>("m").unwrap();
            assert!(!root.get().is_null(), "round {round}");
            assert!(matches!(heap.remove_root("m"), Err(Error::HandleLives(_))));
        }
    });
}

/// What a thread does under a lock that the thread of a transaction waits for.
fn large_changes<'h>(
    heap: &'h On<'h>,
) -> Result<impl FnMut(u64) -> Result<(), Error> + Send, Error> {
    let mut map = HashMap::<u64, [u64; 100]>::open(heap, "map")?;
    let mut sorted = SortedMap::<u64, [u64; 100]>::open(heap, "sorted")?;
    let mut vector = Vector::<[u64; 100]>::open(heap, "vector")?;
    vector.extend(&[[0; 100]; 3])?;
    for key in 0..20 {
        map.insert(key, [0; 100])?;
        sorted.insert(key, [0; 100])?;
    }
    Ok(move |value| {
        map.insert(7, [value; 100])?;
        sorted.insert(8, [value; 100])?;
        vector.set(1, [value; 100])?;
        vector.swap_remove(0)?;
        sorted.retain(|key, _| key % 4 == 0)
    })
}

#[test]
fn a_large_change_waits_for_no_transaction() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let changes = Mutex::new(large_changes(&heap).unwrap());
    let mut own = Vector::<u64>::open(&heap, "own").unwrap();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let outcome = heap.transaction(|| {
            own.push(1)?;
            scope.spawn(|| {
                // The transaction's thread takes this lock below.
                let mut changes = changes.lock().unwrap();
                let outcome = changes(5);
                done.send(outcome).unwrap();
            });
            let outcome = is_done.recv_timeout(Duration::from_secs(10));
            assert_eq!(outcome, Ok(Ok(())), "the change waits for the transaction");
            drop(changes.lock().unwrap());
            own.push(2)?;
            // A failure now: the transaction is undone, and the changes are there.
            let image = memory.journal().last();
            let after = Memory::from_image(&image);
            let (heap, _) = Heap::open(&after, 0, Some(&[])).unwrap();
            assert!(Vector::<u64>::open(&heap, "own").unwrap().is_empty());
            let map = HashMap::<u64, [u64; 100]>::open(&heap, "map").unwrap();
            assert_eq!((map.get(&7), map.len()), (Some([5; 100]), 20));
            let sorted = SortedMap::<u64, [u64; 100]>::open(&heap, "sorted").unwrap();
            assert_eq!((sorted.get(&8), sorted.len()), (Some([5; 100]), 5));
            Ok(())
        });
        outcome.unwrap();
    });
    assert_eq!(own.len(), 2);
}

#[test]
fn a_sorted_map_that_retains_in_a_transaction_is_rolled_back_with_it() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut map = SortedMap::<u64, u64>::open(&heap, "s").unwrap();
    (0..50).for_each(|key| assert_eq!(map.insert(key, key), Ok(None)));
    let outcome = heap.transaction(|| {
        map.retain(|key, _| key % 2 == 0)?;
        assert_eq!(map.len(), 25);
        Err::<(), _>(Error::Full)
    });
    assert_eq!((outcome, map.len()), (Err(Error::Full), 50));
    heap.transaction(|| map.retain(|key, _| key % 2 == 0)).unwrap();
    assert!(map.keys().eq((0..50).step_by(2)));
    let fences = heap.counters().fences;
    map.retain(|_, _| true).unwrap();
    assert_eq!(heap.counters().fences, fences);
    map.retain(|_, _| false).unwrap();
    assert!(map.is_empty() && map.first().is_none());
    drop(map);
    let types = [RootType::of::<SortedHead<u64, u64>>("s")];
    assert_eq!(lost(heap, &memory, &types), (0, 0));
}

#[test]
fn a_large_change_that_finds_no_room_changes_nothing() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut map = SortedMap::<u64, [u64; 70]>::open(&heap, "s").unwrap();
    let mut count = 0;
    while map.insert(count, [count; 70]).is_ok() {
        count += 1;
    }
    while heap.alloc(16).is_ok() {}
    assert_eq!(map.retain(|key, _| key % 50 == 0), Err(Error::Full));
    assert_eq!(map.insert(1, [0; 70]), Err(Error::Full));
    assert_eq!(map.len() as u64, count);
    assert!(map.iter().eq((0..count).map(|key| (key, [key; 70]))));
    assert!((0..count).all(|key| map.contains_key(&key)));
    // With room for a log.
    for key in 0..count / 2 {
        map.remove(&key).unwrap();
    }
    map.retain(|key, _| key % 2 == 0).unwrap();
    assert!(map.keys().eq((count / 2..count).filter(|key| key % 2 == 0)));
}

#[test]
fn a_change_that_took_effect_is_no_error_where_what_it_replaced_cannot_be_freed() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut vector = Vector::<u64>::open(&heap, "v").unwrap();
    let mut map = HashMap::<u64, u64>::open(&heap, "m").unwrap();
    let mut queue = Queue::<u64>::open(&heap, "q").unwrap();
    // Objects of the middle sizes say by their mark bits alone that they are free.
    let free = |name: &str| {
        let index =
            (0..512).find(|index| heap.root_name(*index).is_some_and(|found| found.text() == name));
        let head = PPtr::<PPtr<u8>>::from_raw(heap.root_word(index.unwrap()).unwrap());
        // SAFETY: damage on purpose.
        unsafe {
            let object = heap.read(head).unwrap();
            heap.free(heap.address(object).unwrap()).unwrap();
        }
    };
    (0..500).for_each(|number| vector.push(number).unwrap());
    let room = 500 + (0..1000).take_while(|_| vector.len() < 512 && vector.push(0).is_ok()).count();
    free("v");
    vector.extend(&vec![7; room * 2]).unwrap();
    assert_eq!((vector.len(), vector.get(499)), (room * 3, Some(499)));
    free("v");
    vector.clear().unwrap();
    (0..200).for_each(|key| assert_eq!(map.insert(key, key), Ok(None)));
    free("m");
    map.retain(|key, _| key % 2 == 0).unwrap();
    assert_eq!(map.len(), 100);
    for key in 0..200 {
        map.insert(key, key).unwrap();
    }
    free("m");
    map.clear().unwrap();
    (0..512).for_each(|number| queue.push_back(number).unwrap());
    free("q");
    queue.push_back(512).unwrap();
    assert!(queue.iter().eq(0..513));
    free("q");
    queue.clear().unwrap();
    assert!(vector.is_empty() && map.is_empty() && queue.is_empty());
}

#[test]
fn a_link_to_the_heaps_own_structures_is_no_key() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut map = SortedMap::<u64, u64>::open(&heap, "s").unwrap();
    map.insert(1, 1).unwrap();
    let head = heap.root::<SortedHead<u64, u64>>("s").unwrap().get().offset().unwrap();
    let first = heap.core().load(head);
    // Bytes of the superblock that nothing uses, as a node of one level.
    let at = SUPERBLOCK + 1024;
    for (number, word) in [1, 77, 78, 0].into_iter().enumerate() {
        heap.core().store(at + number * 8, word);
    }
    heap.core().store(head, PPtr::<u8>::to(at).raw());
    assert_eq!((map.first(), map.get(&77)), (None, None));
    heap.core().store(head, first);
    assert_eq!(map.first(), Some((1, 1)));
}

#[test]
fn what_changes_nothing_waits_for_nothing() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut set = HashSet::<u64>::open(&heap, "set").unwrap();
    let mut sorted = SortedSet::<u64>::open(&heap, "sorted").unwrap();
    let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
    let mut vector = Vector::<u64>::open(&heap, "vector").unwrap();
    assert!(set.insert(1).unwrap() && sorted.insert(1).unwrap());
    map.insert(1, 1).unwrap();
    vector.push(1).unwrap();
    let fences = heap.counters().fences;
    assert!(!set.insert(1).unwrap() && !sorted.insert(1).unwrap());
    map.retain(|_, _| true).unwrap();
    vector.retain(|_| true).unwrap();
    assert_eq!(heap.counters().fences, fences);
    // A closure is called once for each key.
    for key in 0..20 {
        map.insert(key, key).unwrap();
    }
    let mut seen = Vec::new();
    map.retain(|key, _| {
        seen.push(*key);
        key % 5 != 2
    })
    .unwrap();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..20) && map.len() == 16);
}

#[test]
fn a_vector_grows_by_what_it_needs_where_the_heap_has_no_room_for_twice_as_much() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut vector = Vector::<u64>::open(&heap, "v").unwrap();
    let full = (8 * crate::layout::BLOCK_BYTES - 16) / 8;
    vector.extend(&vec![3; full]).unwrap();
    vector.push(4).unwrap();
    assert_eq!((vector.len(), vector.last()), (full + 1, Some(4)));
    vector.truncate(full).unwrap();
    assert_eq!(vector.get(full - 1), Some(3));
}

#[test]
fn a_closure_that_panics_leaves_no_object_behind() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut vector = Vector::<u64>::open(&heap, "v").unwrap();
    let mut map = HashMap::<u64, u64>::open(&heap, "m").unwrap();
    let mut sorted = SortedMap::<u64, u64>::open(&heap, "s").unwrap();
    for key in 0..20 {
        vector.push(key).unwrap();
        map.insert(key, key).unwrap();
        sorted.insert(key, key).unwrap();
    }
    let mut count = 0;
    let mut stays = || {
        count += 1;
        assert!(count % 10 != 0, "on purpose");
        count % 2 == 0
    };
    let panicked = [
        catch_unwind(AssertUnwindSafe(|| vector.retain(|_| stays()).unwrap())).is_err(),
        catch_unwind(AssertUnwindSafe(|| map.retain(|_, _| stays()).unwrap())).is_err(),
        catch_unwind(AssertUnwindSafe(|| sorted.retain(|_, _| stays()).unwrap())).is_err(),
    ];
    assert_eq!(panicked, [true; 3]);
    assert_eq!((vector.len(), map.len(), sorted.len()), (20, 20, 20));
    drop((vector, map, sorted));
    let types = [
        RootType::of::<VectorHead<u64>>("v"),
        RootType::of::<MapHead<u64, u64>>("m"),
        RootType::of::<SortedHead<u64, u64>>("s"),
    ];
    assert_eq!(lost(heap, &memory, &types), (0, 0));
}

#[test]
fn an_iterator_that_outlives_a_rollback_reads_what_was_restored() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut vector = Vector::<u64>::open(&heap, "v").unwrap();
    let mut queue = Queue::<u64>::open(&heap, "q").unwrap();
    let mut map = HashMap::<u64, u64>::open(&heap, "m").unwrap();
    let mut sorted = SortedMap::<u64, u64>::open(&heap, "s").unwrap();
    vector.extend(&[1, 2]).unwrap();
    [1, 2].into_iter().for_each(|number| queue.push_back(number).unwrap());
    [1, 2].into_iter().for_each(|number| assert_eq!(map.insert(number, number), Ok(None)));
    [1, 2].into_iter().for_each(|number| assert_eq!(sorted.insert(number, number), Ok(None)));
    let mut found: [Option<Box<dyn Iterator<Item = u64> + '_>>; 4] = [const { None }; 4];
    let (slot, changed) = (&mut found, (&mut vector, &mut queue, &mut map, &mut sorted));
    let outcome = heap.transaction(move || {
        let (vector, queue, map, sorted) = changed;
        for number in 100..200 {
            vector.push(number)?;
            queue.push_front(number)?;
            map.insert(number, number)?;
            sorted.insert(number, number)?;
        }
        sorted.remove(&1)?;
        let (vector, queue, map, sorted) = (&*vector, &*queue, &*map, &*sorted);
        *slot = [
            Some(Box::new(vector.iter())),
            Some(Box::new(queue.iter())),
            Some(Box::new(map.keys())),
            Some(Box::new(sorted.keys())),
        ];
        Err::<(), _>(Error::Full)
    });
    assert_eq!(outcome, Err(Error::Full));
    // The objects that they read from are other objects now.
    while let Ok(object) = heap.alloc(64) {
        // SAFETY: just allocated.
        unsafe { object.write_bytes(0xee, heap.usable_bytes(object).unwrap()) };
    }
    for iterator in found {
        let mut numbers: Vec<u64> = iterator.unwrap().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2]);
    }
}

#[test]
fn threads_read_what_a_transaction_has_changed_beside_its_rollback() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let mut map = HashMap::<u64, [u64; 4]>::open(&heap, "m").unwrap();
    let mut sorted = SortedMap::<u64, [u64; 4]>::open(&heap, "s").unwrap();
    let mut vector = Vector::<[u64; 4]>::open(&heap, "v").unwrap();
    for key in 0..10 {
        map.insert(key, [key; 4]).unwrap();
        sorted.insert(key, [key; 4]).unwrap();
        vector.push([key; 4]).unwrap();
    }
    let all = Mutex::new((map, sorted, vector));
    let is_done = AtomicBool::new(false);
    let is_whole = |value: [u64; 4]| value == [value[0]; 4] && value[0] < 200;
    thread::scope(|scope| {
        let _end = AtEnd(&is_done);
        scope.spawn(|| {
            while !is_done.load(SeqCst) {
                let all = all.lock().unwrap();
                let (map, sorted, vector) = &*all;
                for _ in 0..20 {
                    // Of each call the result is of one moment.
                    for key in 0..10 {
                        assert!(map.get(&key).is_some_and(is_whole), "{key}");
                        assert!(sorted.get(&key).is_some_and(is_whole), "{key}");
                        assert!(vector.get(key as usize).is_some_and(is_whole), "{key}");
                    }
                    assert!(map.values().all(is_whole));
                    assert!(sorted.values().all(is_whole) && sorted.keys().is_sorted());
                    assert!(vector.iter().rev().all(is_whole));
                }
            }
        });
        for _ in 0..150 {
            let outcome = heap.transaction(|| {
                let mut all = all.lock().unwrap();
                for key in 0..60 {
                    all.0.insert(key, [key + 100; 4])?;
                    all.1.insert(key, [key + 100; 4])?;
                    all.2.push([key + 100; 4])?;
                }
                drop(all);
                thread::yield_now();
                Err::<(), _>(Error::Full)
            });
            assert_eq!(outcome, Err(Error::Full));
        }
    });
    let (map, sorted, vector) = &*all.lock().unwrap();
    assert_eq!((map.len(), sorted.len(), vector.len()), (10, 10, 10));
}

/// A heap whose free callback uses it.
struct Called<'h> {
    heap: &'h On<'h>,
    second: PPtr<u64>,
    calls: u64,
}

unsafe extern "C" fn free_and_use(object: *mut u8, data: *mut u8) {
    // SAFETY: what was given with the function; only this thread frees.
    let called = unsafe { &mut *data.cast::<Called<'_>>() };
    let (heap, second) = (called.heap, core::mem::replace(&mut called.second, PPtr::NULL));
    called.calls += 1;
    let outcome = heap.transaction(|| {
        // A collection that the transaction that has ended had changed.
        HashMap::<u64, u64>::open(heap, "m")?.insert(called.calls, 1)?;
        // SAFETY: nothing leads to it.
        unsafe { heap.free_object(second) }
    });
    outcome.unwrap();
    // SAFETY: nothing leads to it any more.
    unsafe { heap.safe_free(core::ptr::NonNull::new(object).unwrap()).unwrap() };
}

#[test]
fn a_free_callback_of_a_transaction_that_has_ended_may_use_the_heap() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let [first, second] = [1u64, 2].map(|value| heap.new_object(value).unwrap());
    let mut called = Called { heap: &heap, second, calls: 0 };
    // SAFETY: the function takes such data, which lives until it is unset.
    unsafe { heap.set_free_callback(Some(free_and_use), (&raw mut called).cast()) };
    heap.transaction(|| {
        HashMap::<u64, u64>::open(&heap, "m")?.insert(0, 0)?;
        // SAFETY: nothing leads to it.
        unsafe { heap.free_object(first) }
    })
    .unwrap();
    // SAFETY: none.
    unsafe { heap.set_free_callback(None, core::ptr::null_mut()) };
    assert_eq!(called.calls, 2);
    assert_eq!(HashMap::<u64, u64>::open(&heap, "m").unwrap().len(), 3);
    let types = [RootType::of::<MapHead<u64, u64>>("m")];
    assert_eq!(lost(heap, &memory, &types), (0, 0));
}

/// A structure with bytes that no field has.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
struct Padded {
    small: u8,
    large: u32,
}

// SAFETY: any bytes are two numbers.
unsafe impl crate::Trace for Padded {
    const LAYOUT: u64 = crate::trace::hash("Padded", 8);
    const HAS_POINTERS: bool = false;

    fn trace(&self, _: &mut crate::Tracer<'_>) {}
}

#[test]
fn values_with_padding_are_stored_by_all_collections() {
    let memory = Memory::new(BYTES);
    let heap = created(&memory);
    let value = |number: u32| Padded { small: number as u8, large: number };
    let mut map = HashMap::<u64, [Padded; 70]>::open(&heap, "m").unwrap();
    map.insert(1, [value(1); 70]).unwrap();
    map.insert(1, [value(2); 70]).unwrap();
    assert_eq!(map.get(&1), Some([value(2); 70]));
    let mut vector = Vector::<Padded>::open(&heap, "v").unwrap();
    vector.extend(&(0..1000).map(value).collect::<Vec<_>>()).unwrap();
    vector.set(3, value(4)).unwrap();
    assert!(vector.iter().enumerate().all(|(at, found)| found == value(at as u32) || at == 3));
    assert_eq!(vector.get(3), Some(value(4)));
    let object = heap.new_object(value(9)).unwrap();
    // SAFETY: no other thread has the heap.
    assert_eq!(unsafe { heap.read(object) }, Some(value(9)));
}
