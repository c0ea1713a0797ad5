//! Collections beside models, and after power failures at every moment.

use std::collections::{BTreeMap, HashMap as Model};
use std::fmt::Debug;
use std::prelude::v1::*;
use std::ptr::NonNull;

use proptest::prelude::*;
use spandrel_pmem::simulator::{Bounds, Memory, Outcome, Point};
use spandrel_pmem::{Failed, Medium};

use super::*;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES};
use crate::{Error, Heap, PPtr, RootType};

pub const UUID: [u64; 2] = [5, 6];
pub const BYTES: usize = LEAST_BYTES + 20 * BLOCK_BYTES;

/// Runs steps of which each leaves a state, and looks whether every failure leaves that before or after the step that it was in.
pub fn every_failure_leaves_a_state<S: PartialEq + Debug + Clone>(
    steps: usize,
    step: impl Fn(&Heap<&Memory>, usize),
    state: impl Fn(&Heap<&Memory>) -> Result<S, Error>,
    types: &[RootType<'_>],
) {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut states = vec![state(&heap).unwrap()];
    memory.note(0);
    for number in 1..=steps {
        step(&heap, number);
        states.push(state(&heap).unwrap());
        memory.note(number as u64);
    }
    heap.close().unwrap();
    let check = |image: &[u8], point: &Point<'_>| {
        let Some(least) = point.notes.last().map(|note| *note as usize) else { return Ok(()) };
        let after = Memory::from_image(image);
        let (heap, _) = Heap::open(&after, 0, Some(types)).map_err(|why| format!("{why}"))?;
        let found = state(&heap).map_err(|why| format!("{why}"))?;
        heap.abandon();
        let is_one = states[least..].iter().take(2).any(|state| *state == found);
        if is_one { Ok(()) } else { Err(format!("{found:?} after {:?}", states[least])) }
    };
    // The images of a moment are few where a moment has few lines; a vector that grows has many.
    let bounds = Bounds { lines: 8, most: 64, drawn: 6, seed: 7 };
    let outcome = memory.journal().images(&bounds, check);
    let outcome = outcome.unwrap_or_else(|found| std::panic!("{found}"));
    assert!(matches!(outcome, Outcome { points: 50.., images: 100.., .. }), "{outcome:?}");
}

#[test]
fn vectors_change_at_once() {
    type Numbers = Vec<[u64; 3]>;
    every_failure_leaves_a_state(
        30,
        |heap, number| {
            let mut vector = Vector::<[u64; 3], _>::open(heap, "v").unwrap();
            match number % 6 {
                0 => drop(vector.pop().unwrap()),
                1 if number > 6 => vector.set(number / 8, [number as u64; 3]).unwrap(),
                2 => vector.extend(&[[number as u64; 3]; 3]).unwrap(),
                _ => vector.push([number as u64, 1, 2]).unwrap(),
            }
        },
        |heap| {
            Vector::<[u64; 3], _>::open(heap, "v").map(|vector| vector.iter().collect::<Numbers>())
        },
        &[RootType::of::<VectorHead<[u64; 3]>>("v")],
    );
}

#[test]
fn texts_change_at_once() {
    every_failure_leaves_a_state(
        20,
        |heap, number| {
            let mut text = Text::open(heap, "t").unwrap();
            if number % 7 == 0 {
                text.truncate(5).unwrap();
            }
            text.push(["aé", "ßx", "漢字", "🙂"][number % 4]).unwrap();
        },
        |heap| {
            let text = Text::open(heap, "t")?;
            Ok((text.len(), text.chars().collect::<String>()))
        },
        &[RootType::of::<VectorHead<u8>>("t")],
    );
}

#[test]
fn hash_tables_change_at_once() {
    every_failure_leaves_a_state(
        40,
        |heap, number| {
            let mut map = HashMap::<u64, (u64, u32), _>::open(heap, "m").unwrap();
            let key = number as u64 * 7 % 19;
            if number % 5 == 0 {
                map.remove(&key).unwrap();
            } else {
                map.insert(key, (number as u64, 9)).unwrap();
            }
        },
        |heap| {
            let map = HashMap::<u64, (u64, u32), _>::open(heap, "m")?;
            Ok((map.len(), map.iter().collect::<BTreeMap<u64, (u64, u32)>>()))
        },
        &[RootType::of::<MapHead<u64, (u64, u32)>>("m")],
    );
}

#[test]
fn sorted_maps_change_at_once() {
    every_failure_leaves_a_state(
        40,
        |heap, number| {
            let mut map = SortedMap::<u64, [u8; 20], _>::open(heap, "s").unwrap();
            let key = number as u64 * 7 % 19;
            if number % 5 == 0 {
                map.remove(&key).unwrap();
            } else {
                map.insert(key, [number as u8; 20]).unwrap();
            }
        },
        |heap| {
            let map = SortedMap::<u64, [u8; 20], _>::open(heap, "s")?;
            Ok((map.len(), map.iter().collect::<Vec<(u64, [u8; 20])>>()))
        },
        &[RootType::of::<SortedHead<u64, [u8; 20]>>("s")],
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn maps_agree_with_models(steps in proptest::collection::vec((0u8..4, 0u32..60, any::<u64>()), 1..300)) {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut map = HashMap::<u32, u64, _>::open(&heap, "m").unwrap();
        let mut sorted = SortedMap::<u32, u64, _>::open(&heap, "s").unwrap();
        let (mut model, mut tree) = (Model::new(), BTreeMap::new());
        for (what, key, value) in steps {
            if what == 0 {
                prop_assert_eq!(map.remove(&key).unwrap(), model.remove(&key));
                prop_assert_eq!(sorted.remove(&key).unwrap(), tree.remove(&key));
            } else {
                prop_assert_eq!(map.insert(key, value).unwrap(), model.insert(key, value));
                prop_assert_eq!(sorted.insert(key, value).unwrap(), tree.insert(key, value));
            }
            prop_assert_eq!(map.get(&(key / 2)), model.get(&(key / 2)).copied());
        }
        prop_assert_eq!((map.len(), sorted.len()), (model.len(), tree.len()));
        prop_assert_eq!(map.iter().collect::<Model<_, _>>(), model);
        prop_assert_eq!(sorted.from(Some(&20)).collect::<Vec<_>>(), tree.range(20..).map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
        heap.close().unwrap();
    }
}

#[test]
fn objects_by_type_are_replaced_and_freed() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let object = heap.new_object((7u64, [1u8; 5])).unwrap();
    let root = heap.root::<(u64, [u8; 5])>("pair").unwrap();
    assert!(root.get().is_null());
    root.set(object).unwrap();
    // SAFETY: no other thread has the heap.
    unsafe {
        heap.replace(object, (8, [2; 5])).unwrap();
        assert_eq!(heap.read(root.get()), Some((8, [2; 5])));
        assert_eq!(heap.read(PPtr::<u64>::to(1 << 40)), None);
    }
    assert!(matches!(heap.root::<u64>("pair"), Err(Error::RootType { .. })));
    assert!(matches!(root.set(PPtr::to(64)), Err(Error::Foreign(64))));
    heap.close().unwrap();
}

fn takes_inserts_again<M: Medium>(medium: M) {
    let heap = Heap::create(medium, UUID, 0, 0).unwrap();
    let mut map = HashMap::<u64, [u64; 16]>::open(&heap, "map").unwrap();
    let keys = (0..).take_while(|key| map.insert(*key, [*key; 16]).is_ok()).count() as u64;
    while heap.alloc(16).is_ok() {}
    assert!(map.insert(keys, [1; 16]).is_err_and(Error::is_full));
    for key in 0..keys / 2 {
        assert_eq!(map.remove(&key).unwrap(), Some([key; 16]));
    }
    for key in keys..keys + keys / 2 {
        assert_eq!(map.insert(key, [key; 16]), Ok(None), "{key} of {keys}");
    }
    assert_eq!(map.len() as u64, keys / 2 + keys - keys / 2);
    assert!((keys / 2..keys + keys / 2).all(|key| map.get(&key) == Some([key; 16])));
    assert!((0..keys / 2).all(|key| !map.contains_key(&key)));
}

#[test]
fn a_full_heap_takes_inserts_again_after_keys_were_removed() {
    takes_inserts_again(Memory::new(BYTES));
}

/// Memory that might become longer, on a disk that is full.
struct OnFullDisk<'a>(&'a Memory);

// SAFETY: the bytes are the memory's.
unsafe impl Medium for OnFullDisk<'_> {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn limit(&self) -> usize {
        2 * self.0.bytes()
    }

    fn grow(&self, _: usize) -> Result<(), Failed> {
        Err(Failed(libc::ENOSPC))
    }

    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.store(at, bytes) }
    }

    unsafe fn store_word(&self, at: usize, word: u64) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.store_word(at, word) }
    }

    fn write_back(&self, at: usize, len: usize) {
        self.0.write_back(at, len);
    }

    fn fence(&self) {
        self.0.fence();
    }

    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        self.0.checkpoint_still(still)
    }
}

#[test]
fn a_heap_on_a_full_disk_takes_inserts_again_after_keys_were_removed() {
    takes_inserts_again(OnFullDisk(&Memory::new(BYTES)));
}
