//! Children of forks: they have their parent's heap mapped, and change nothing of it.

use std::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_pheap::collections::{HashMap, SortedMap, Text, Vector};
use spandrel_pheap::{Choice, Error, Heap, Options};
use tempfile::TempDir;

fn created(place: &TempDir, choice: Choice) -> (Heap, String) {
    let path = place.path().join("a.heap").to_str().unwrap().to_owned();
    (Options::new().size(1 << 20).medium(choice).create(&path).unwrap(), path)
}

fn places() -> [TempDir; 2] {
    [
        tempfile::tempdir_in("/dev/shm").unwrap(),
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    ]
}

/// Does work in a child, which ends with 0 if it returns true; killed after some seconds. Its status.
fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child does what the heap allows, writes to nothing else, and ends without the program's end.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(10);
            libc::_exit(i32::from(!work()));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    }
}

#[test]
fn everything_that_changes_a_heap_is_refused_and_nothing_changes() {
    for (place, choice) in places().iter().zip([Choice::Mapped, Choice::Logged]) {
        let (heap, path) = created(place, choice);
        let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
        let mut sorted = SortedMap::<u64, u64>::open(&heap, "sorted").unwrap();
        let mut vector = Vector::<u64>::open(&heap, "vector").unwrap();
        let mut text = Text::open(&heap, "text").unwrap();
        for key in 0..100 {
            map.insert(key, key).unwrap();
            sorted.insert(key, key).unwrap();
            vector.push(key).unwrap();
        }
        text.push("of the parent").unwrap();
        let (small, medium, large) =
            (heap.alloc(64).unwrap(), heap.alloc(9000).unwrap(), heap.alloc(200_000).unwrap());
        let object = heap.new_object(5u64).unwrap();
        let root = heap.root::<u64>("object").unwrap();
        root.set(object).unwrap();
        heap.set_root(0, Some(small)).unwrap();
        heap.checkpoint().unwrap();
        let image = || {
            // SAFETY: all of the heap, which no thread changes.
            unsafe { std::slice::from_raw_parts(heap.base().as_ptr(), heap.bytes()) }.to_vec()
        };
        let before = image();
        let status = in_child(|| {
            let forked = |outcome: Result<(), Error>| outcome == Err(Error::Forked);
            // SAFETY: the parent's objects; none of the calls does anything.
            let objects = unsafe {
                [
                    forked(heap.alloc(16).map(drop)),
                    forked(heap.alloc(9000).map(drop)),
                    forked(heap.alloc(200_000).map(drop)),
                    forked(heap.alloc_zeroed(64).map(drop)),
                    forked(heap.free(small)),
                    forked(heap.free(medium)),
                    forked(heap.free(large)),
                    forked(heap.realloc(small, 63).map(drop)),
                    forked(heap.realloc(large, 300_000).map(drop)),
                    forked(heap.new_object(6u64).map(drop)),
                    forked(heap.replace(object, 6)),
                    forked(heap.free_object(object)),
                ]
            };
            let roots = [
                forked(heap.set_root(3, None)),
                forked(heap.set_roots(&[(4, object.cast())])),
                forked(root.set(object)),
                forked(heap.named_root::<u64>("new").map(drop)),
                forked(heap.named_root::<u64>("object").map(drop)),
                forked(heap.remove_root("object")),
                forked(heap.checkpoint()),
                forked(heap.transaction(|| Ok(()))),
                forked(HashMap::<u64, u64>::open(&heap, "map").map(drop)),
            ];
            let collections = [
                forked(map.insert(5, 6).map(drop)),
                forked(map.insert(1000, 6).map(drop)),
                forked(map.update(5, |_| 7).map(drop)),
                forked(map.remove(&6).map(drop)),
                forked(map.retain(|_, _| false)),
                forked(map.clear()),
                forked(sorted.insert(5, 6).map(drop)),
                forked(sorted.insert(1000, 6).map(drop)),
                forked(sorted.remove(&6).map(drop)),
                forked(sorted.pop_first().map(drop)),
                forked(sorted.retain(|_, _| false)),
                forked(sorted.clear()),
                forked(vector.push(5)),
                forked(vector.set(5, 6)),
                forked(vector.pop().map(drop)),
                forked(vector.truncate(50)),
                forked(vector.insert(5, 6)),
                forked(vector.remove(5).map(drop)),
                forked(vector.swap_remove(5).map(drop)),
                forked(vector.drain(.., |_| ())),
                forked(vector.retain(|_| false)),
                forked(vector.clear()),
                forked(text.push("of the child")),
                forked(text.truncate(2)),
                forked(text.clear()),
            ];
            let number = |all: &[bool]| all.iter().position(|is_refused| !is_refused);
            let found = [number(&objects), number(&roots), number(&collections)];
            if found != [None; 3] {
                eprintln!("not refused: {found:?}");
            }
            // Reading goes on.
            found == [None; 3] && map.get(&5) == Some(5) && vector.len() == 100
        });
        assert_eq!(status, 0, "{choice:?}");
        assert!(before == image(), "{choice:?}");
        map.insert(5, 7).unwrap();
        heap.close().unwrap();
        let (heap, opened) = Options::new().open(&path).unwrap();
        assert!(opened.was_clean);
        let map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
        assert_eq!((map.len(), map.get(&5)), (100, Some(7)));
    }
}

#[test]
fn a_heap_that_a_child_drops_or_closes_is_the_parents() {
    for (place, choice) in places().iter().zip([Choice::Mapped, Choice::Logged]) {
        let (heap, path) = created(place, choice);
        let mut map = HashMap::<u64, u64, _>::open(std::sync::Arc::new(heap), "map").unwrap();
        map.insert(1, 1).unwrap();
        for _ in 0..3 {
            let mut map = Some(&mut map);
            let status = in_child(|| {
                // SAFETY: the child's own copy, which is not used any more.
                let map = unsafe { std::ptr::read(map.take().unwrap()) };
                drop(map);
                true
            });
            assert_eq!(status, 0);
        }
        assert_eq!(map.insert(1, 2), Ok(Some(1)));
        drop(map);
        let (heap, opened) = Options::new().open(&path).unwrap();
        assert!(opened.was_clean);
        let status = in_child(|| {
            // SAFETY: as above.
            unsafe { std::ptr::read(&raw const heap) }.close() == Err(Error::Forked)
        });
        assert_eq!(status, 0);
        assert_eq!(HashMap::<u64, u64>::open(&heap, "map").unwrap().get(&1), Some(2));
        heap.close().unwrap();
    }
}

#[test]
fn a_child_does_not_wait_for_what_another_thread_of_the_parent_had() {
    let [place, _] = places();
    let (heap, _) = created(&place, Choice::Mapped);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (heap, ends) = (&heap, &ends);
            scope.spawn(move || {
                let mut map = HashMap::<u64, u64>::open(heap, &format!("m{number}")).unwrap();
                for key in 0.. {
                    if ends.load(Relaxed) {
                        break;
                    }
                    heap.transaction(|| map.insert(key % 1000, key)).unwrap();
                    heap.set_root(number, None).unwrap();
                    if key % 16 == 0 {
                        heap.checkpoint().unwrap();
                    }
                }
            });
        }
        for _ in 0..200 {
            let status = in_child(|| {
                let heap = std::mem::ManuallyDrop::new(&heap);
                heap.named_root::<u64>("m9") == Err(Error::Forked)
                    && heap.set_root(5, None) == Err(Error::Forked)
                    && heap.checkpoint() == Err(Error::Forked)
                    && heap.transaction(|| Ok(())) == Err(Error::Forked)
                    && HashMap::<u64, u64>::open(*heap, "m0").err() == Some(Error::Forked)
            });
            assert_eq!(status, 0);
        }
        ends.store(true, Relaxed);
    });
    heap.close().unwrap();
}

#[test]
fn a_child_that_is_made_in_a_transaction_neither_ends_it_nor_undoes_it() {
    let [place, _] = places();
    let (heap, _) = created(&place, Choice::Mapped);
    let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
    for does_commit in [true, false] {
        heap.transaction(|| {
            map.insert(1, 1)?;
            let status = in_child(|| {
                let outcome =
                    heap.transaction(|| if does_commit { Ok(()) } else { Err(Error::Full) });
                outcome == Err(Error::Forked)
            });
            assert_eq!(status, 0);
            map.insert(2, 2).map(drop)
        })
        .unwrap();
        assert_eq!((map.get(&1), map.get(&2)), (Some(1), Some(2)));
        map.clear().unwrap();
    }
    // The child leaves the transaction itself.
    // SAFETY: the child ends at once when it has left it.
    let outcome = heap.transaction(|| unsafe {
        map.insert(1, 1)?;
        Ok(libc::fork())
    });
    match outcome {
        Ok(child) if child != 0 => {
            let mut status = -1;
            // SAFETY: waits.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((status, map.get(&1)), (0, Some(1)));
        }
        // SAFETY: ends the child.
        outcome => unsafe { libc::_exit(i32::from(outcome != Err(Error::Forked))) },
    }
    heap.close().unwrap();
}

#[test]
fn a_child_opens_a_heap_of_its_own_whatever_the_parents_threads_open_and_close() {
    let [place, _] = places();
    let ends = AtomicBool::new(false);
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::thread::scope(|scope| {
        for thread in ["one", "two"] {
            let (ends, path) = (&ends, path(thread));
            scope.spawn(move || {
                Options::new().size(1 << 20).create(&path).unwrap().close().unwrap();
                while !ends.load(Relaxed) {
                    let (heap, _) = Options::new().open(&path).unwrap();
                    HashMap::<u64, u64>::open(&heap, "map").unwrap().insert(1, 1).unwrap();
                }
            });
        }
        for number in 0..100 {
            let path = path(&format!("child {number}"));
            let status = in_child(|| {
                let heap = Options::new().size(1 << 20).create(&path).unwrap();
                let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
                map.insert(number, 5).unwrap();
                heap.checkpoint().unwrap();
                heap.close().is_ok()
            });
            assert_eq!(status, 0);
        }
        ends.store(true, Relaxed);
    });
}
