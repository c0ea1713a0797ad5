//! Every operation of every collection beside its model of the standard library, and after power failures at every moment.

use std::collections::{BTreeMap, BTreeSet, HashMap as Model, HashSet as ModelSet, VecDeque};
use std::ops::Bound;
use std::prelude::v1::*;

use proptest::prelude::*;
use spandrel_pmem::simulator::Memory;

use super::tests::{BYTES, UUID, every_failure_leaves_a_state};
use super::*;
use crate::{Heap, PPtr, RootType, check};

#[test]
fn elements_within_a_vector_change_at_once() {
    every_failure_leaves_a_state(
        40,
        |heap, number| {
            let mut vector = Vector::<[u64; 2]>::open(heap, "v").unwrap();
            let (len, value) = (vector.len(), [number as u64; 2]);
            match number % 8 {
                0 if len > 4 => vector.drain(1..3, |_| ()).unwrap(),
                1 if len > 2 => drop(vector.swap_remove(len / 2).unwrap()),
                2 if len > 2 => drop(vector.remove(1).unwrap()),
                3 => vector.insert(len / 2, value).unwrap(),
                4 if number > 20 => vector.retain(|value| value[0] % 3 != 0).unwrap(),
                5 if number > 35 => vector.clear().unwrap(),
                _ => vector.extend(&[value, [7, 8]]).unwrap(),
            }
        },
        |heap| {
            let vector = Vector::<[u64; 2]>::open(heap, "v")?;
            Ok(vector.iter().collect::<Vec<_>>())
        },
        &[RootType::of::<VectorHead<[u64; 2]>>("v")],
    );
}

#[test]
fn a_table_of_large_values_changes_at_once() {
    every_failure_leaves_a_state(
        24,
        |heap, number| {
            let mut map = HashMap::<Str<12>, [u64; 150]>::open(heap, "m").unwrap();
            let key = Str::cut(["one", "two", "three", "four"][number % 4]);
            match number % 7 {
                0 => drop(map.remove(&key).unwrap()),
                1 => drop(map.get_or_insert_with(key, || [3; 150]).unwrap()),
                5 if number > 15 => map.retain(|_, value| value[0] % 2 == 0).unwrap(),
                6 if number > 19 => map.clear().unwrap(),
                _ => drop(
                    map.update(key, |old| old.map_or([1; 150], |old| old.map(|x| x + 1))).unwrap(),
                ),
            }
        },
        |heap| {
            let map = HashMap::<Str<12>, [u64; 150]>::open(heap, "m")?;
            let all = map.iter().map(|(key, value)| (key.as_str().to_owned(), value));
            let all: BTreeMap<_, _> = all.collect();
            assert!(all.values().all(|value| *value == [value[0]; 150]), "a value in part");
            assert_eq!(all.len(), map.len());
            Ok(all.into_iter().map(|(key, value)| (key, value[0])).collect::<Vec<_>>())
        },
        &[RootType::of::<MapHead<Str<12>, [u64; 150]>>("m")],
    );
}

#[test]
fn ends_and_parts_of_a_sorted_map_change_at_once() {
    every_failure_leaves_a_state(
        40,
        |heap, number| {
            let mut map = SortedMap::<(u32, u64), u64>::open(heap, "s").unwrap();
            let key = ((number * 7 % 19) as u32, 5);
            match number % 8 {
                0 => drop(map.pop_first().unwrap()),
                1 => drop(map.pop_last().unwrap()),
                2 if number > 20 => map.retain(|key, _| key.0 % 3 != 0).unwrap(),
                3 if number > 32 => map.clear().unwrap(),
                4 => drop(map.get_or_insert_with(key, || 4).unwrap()),
                _ => drop(map.update(key, |old| old.unwrap_or(0) + 1).unwrap()),
            }
        },
        |heap| {
            let map = SortedMap::<(u32, u64), u64>::open(heap, "s")?;
            Ok((map.len(), map.iter().collect::<Vec<_>>()))
        },
        &[RootType::of::<SortedHead<(u32, u64), u64>>("s")],
    );
}

#[test]
fn queues_change_at_once() {
    every_failure_leaves_a_state(
        50,
        |heap, number| {
            let mut queue = Queue::<[u64; 2]>::open(heap, "q").unwrap();
            let value = [number as u64; 2];
            match number % 9 {
                0 | 5 => drop(queue.pop_front().unwrap()),
                1 => drop(queue.pop_back().unwrap()),
                2 | 6 => queue.push_front(value).unwrap(),
                3 if number > 45 => queue.clear().unwrap(),
                _ => queue.push_back(value).unwrap(),
            }
        },
        |heap| Ok(Queue::<[u64; 2]>::open(heap, "q")?.iter().collect::<Vec<_>>()),
        &[RootType::of::<QueueHead<[u64; 2]>>("q")],
    );
}

#[test]
fn sets_change_at_once() {
    every_failure_leaves_a_state(
        40,
        |heap, number| {
            let mut set = HashSet::<u32>::open(heap, "h").unwrap();
            let key = (number * 5 % 13) as u32;
            if number % 3 == 0 {
                set.remove(&key).unwrap()
            } else {
                set.insert(key).unwrap()
            };
        },
        |heap| {
            let set = HashSet::<u32>::open(heap, "h")?;
            let all = set.iter().collect::<BTreeSet<_>>();
            assert_eq!(all.len(), set.len());
            Ok(all)
        },
        &[RootType::of::<SetHead<u32>>("h")],
    );
}

/// Pointers of a queue that has gone round its ring keep their objects, and those that were taken keep none.
#[test]
fn what_a_queue_leads_to_is_kept_and_nothing_else() {
    let types = [RootType::of::<QueueHead<PPtr<u64>>>("q")];
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut queue = Queue::<PPtr<u64>>::open(&heap, "q").unwrap();
    for number in 0..20u64 {
        queue.push_back(heap.new_object(number).unwrap()).unwrap();
        if number >= 6 {
            queue.pop_front().unwrap();
        }
    }
    heap.abandon();
    let memory = Memory::from_image(&memory.journal().last());
    let (heap, opened) = Heap::open(&memory, 0, Some(&types)).unwrap();
    // The head, the ring, and what is in it.
    assert_eq!(opened.collected.unwrap().live, 2 + 6);
    let queue = Queue::<PPtr<u64>>::open(&heap, "q").unwrap();
    // SAFETY: no other thread has the heap.
    let numbers = queue.iter().map(|at| unsafe { heap.read(at) }.unwrap());
    assert!(numbers.eq(14..20));
}

fn is_sound(memory: &Memory) -> bool {
    let survey = check(&memory, &[], &mut |_| ()).unwrap();
    (survey.damaged, survey.lost) == (0, 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn vectors_agree_with_a_model(steps in proptest::collection::vec((0u8..12, any::<usize>(), any::<[u8; 3]>()), 1..120)) {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut vector = Vector::<[u8; 3]>::open(&heap, "v").unwrap();
        let mut model = Vec::new();
        for (what, at, value) in steps {
            let (len, at) = (model.len(), at % (model.len() + 1));
            match what {
                0 => prop_assert_eq!(vector.pop().unwrap(), model.pop()),
                1 if at < len => prop_assert_eq!(vector.remove(at).unwrap(), model.remove(at)),
                2 if at < len => prop_assert_eq!(vector.swap_remove(at).unwrap(), model.swap_remove(at)),
                3 if at < len => { vector.set(at, value).unwrap(); model[at] = value; }
                4 => { vector.insert(at, value).unwrap(); model.insert(at, value); }
                5 => { vector.truncate(at).unwrap(); model.truncate(at); }
                6 => {
                    let mut taken = Vec::new();
                    vector.drain(at / 2..at, |value| taken.push(value)).unwrap();
                    prop_assert_eq!(taken, model.drain(at / 2..at).collect::<Vec<_>>());
                }
                7 => {
                    vector.retain(|other| other[0] % 5 != value[0] % 5).unwrap();
                    model.retain(|other| other[0] % 5 != value[0] % 5);
                }
                8 if at == 0 => { vector.clear().unwrap(); model.clear(); }
                _ => { vector.extend(&[value; 5]).unwrap(); model.extend([value; 5]); }
            }
            prop_assert!(vector.iter().eq(model.iter().copied()));
            prop_assert!(vector.iter().rev().eq(model.iter().rev().copied()));
            prop_assert_eq!((vector.first(), vector.last()), (model.first().copied(), model.last().copied()));
            let mut part = [[0; 3]; 4];
            let count = vector.copy_to_slice(at / 2, &mut part);
            prop_assert_eq!(&part[..count], &model[(at / 2).min(model.len())..][..count]);
            prop_assert_eq!(count, model.len().saturating_sub(at / 2).min(4));
        }
        heap.close().unwrap();
        prop_assert!(is_sound(&memory));
    }

    #[test]
    fn queues_agree_with_a_model(steps in proptest::collection::vec((0u8..20, any::<u64>()), 1..200)) {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut queue = Queue::<u64>::open(&heap, "q").unwrap();
        let mut model = VecDeque::new();
        for (what, value) in steps {
            match what {
                0..=4 => prop_assert_eq!(queue.pop_front().unwrap(), model.pop_front()),
                5..=7 => prop_assert_eq!(queue.pop_back().unwrap(), model.pop_back()),
                8..=11 => { queue.push_front(value).unwrap(); model.push_front(value); }
                12 if value % 8 == 0 => { queue.clear().unwrap(); model.clear(); }
                _ => { queue.push_back(value).unwrap(); model.push_back(value); }
            }
            prop_assert!(queue.iter().eq(model.iter().copied()));
            prop_assert_eq!((queue.front(), queue.back()), (model.front().copied(), model.back().copied()));
            let index = value as usize % 9;
            prop_assert_eq!(queue.get(index), model.get(index).copied());
        }
        heap.close().unwrap();
        prop_assert!(is_sound(&memory));
    }

    #[test]
    fn tables_and_sets_agree_with_models(steps in proptest::collection::vec((0u8..24, 0u16..50, any::<u64>()), 1..250)) {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut map = HashMap::<(u16, Str<6>), u64>::open(&heap, "m").unwrap();
        let mut set = HashSet::<[u16; 3]>::open(&heap, "h").unwrap();
        let (mut model, mut model_set) = (Model::new(), ModelSet::new());
        for (what, number, value) in steps {
            let key = (number, Str::cut(["a", "bc", "def"][number as usize % 3]));
            let element = [number, 1, number];
            match what {
                0..=5 => {
                    prop_assert_eq!(map.remove(&key).unwrap(), model.remove(&key));
                    prop_assert_eq!(set.remove(&element).unwrap(), model_set.remove(&element));
                }
                6..=8 => {
                    let new = map.update(key, |old| old.unwrap_or(0).wrapping_add(value)).unwrap();
                    let slot = model.entry(key).or_insert(0u64);
                    *slot = slot.wrapping_add(value);
                    prop_assert_eq!(new, *slot);
                }
                9 | 10 => prop_assert_eq!(map.get_or_insert_with(key, || value).unwrap(), *model.entry(key).or_insert(value)),
                11 => {
                    map.retain(|key, value| (u64::from(key.0) + *value) % 4 != 0).unwrap();
                    model.retain(|key, value| (u64::from(key.0) + *value) % 4 != 0);
                    set.retain(|element| !element[0].is_multiple_of(5)).unwrap();
                    model_set.retain(|element: &[u16; 3]| !element[0].is_multiple_of(5));
                }
                12 if value % 6 == 0 => { map.clear().unwrap(); model.clear(); set.clear().unwrap(); model_set.clear(); }
                _ => {
                    prop_assert_eq!(map.insert(key, value).unwrap(), model.insert(key, value));
                    prop_assert_eq!(set.insert(element).unwrap(), model_set.insert(element));
                }
            }
            prop_assert_eq!((map.get(&key), map.contains_key(&key)), (model.get(&key).copied(), model.contains_key(&key)));
            prop_assert_eq!(set.contains(&element), model_set.contains(&element));
        }
        prop_assert_eq!((map.len(), set.len()), (model.len(), model_set.len()));
        prop_assert_eq!(map.keys().collect::<ModelSet<_>>(), model.keys().copied().collect());
        prop_assert_eq!(map.values().fold(0, u64::wrapping_add), model.values().copied().fold(0, u64::wrapping_add));
        prop_assert_eq!(map.iter().collect::<Model<_, _>>(), model);
        prop_assert_eq!(set.iter().collect::<ModelSet<_>>(), model_set);
        heap.close().unwrap();
        prop_assert!(is_sound(&memory));
    }

    #[test]
    fn sorted_collections_agree_with_models(steps in proptest::collection::vec((0u8..24, 0u16..60, any::<u64>()), 1..250)) {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut map = SortedMap::<u16, u64>::open(&heap, "m").unwrap();
        let mut set = SortedSet::<Str<8>>::open(&heap, "s").unwrap();
        let (mut model, mut model_set) = (BTreeMap::new(), BTreeSet::new());
        for (what, key, value) in steps {
            let element = Str::cut(&format!("{key}é"));
            match what {
                0..=3 => {
                    prop_assert_eq!(map.remove(&key).unwrap(), model.remove(&key));
                    prop_assert_eq!(set.remove(&element).unwrap(), model_set.remove(&element));
                }
                4 => prop_assert_eq!(map.pop_first().unwrap(), model.pop_first()),
                5 => prop_assert_eq!(map.pop_last().unwrap(), model.pop_last()),
                6 => prop_assert_eq!(set.pop_first().unwrap(), model_set.pop_first()),
                7 => prop_assert_eq!(set.pop_last().unwrap(), model_set.pop_last()),
                8 => {
                    map.retain(|key, value| (u64::from(*key) + *value) % 4 != 0).unwrap();
                    model.retain(|key, value| (u64::from(*key) + *value) % 4 != 0);
                }
                9 if value % 6 == 0 => { map.clear().unwrap(); model.clear(); set.clear().unwrap(); model_set.clear(); }
                10 => {
                    let new = map.update(key, |old| old.unwrap_or(0) / 2 + 1).unwrap();
                    let slot = model.entry(key).or_insert(0u64);
                    *slot = *slot / 2 + 1;
                    prop_assert_eq!(new, *slot);
                }
                _ => {
                    prop_assert_eq!(map.insert(key, value).unwrap(), model.insert(key, value));
                    prop_assert_eq!(set.insert(element).unwrap(), model_set.insert(element));
                }
            }
            let (from, to) = (key.min(value as u16 % 60), key.max(value as u16 % 60));
            let bounds = [Bound::Included, Bound::Excluded];
            let range = (bounds[value as usize % 2](from), bounds[value as usize / 2 % 2](to));
            if from < to {
                prop_assert!(map.range(range).eq(model.range(range).map(|(key, value)| (*key, *value))));
            }
            prop_assert!(map.range(to..from).next().is_none() || from == to);
            prop_assert!(map.range(..=to).eq(model.range(..=to).map(|(key, value)| (*key, *value))));
            prop_assert_eq!(map.first(), model.first_key_value().map(|(key, value)| (*key, *value)));
            prop_assert_eq!(map.last(), model.last_key_value().map(|(key, value)| (*key, *value)));
            prop_assert_eq!((set.first(), set.last()), (model_set.first().copied(), model_set.last().copied()));
            prop_assert_eq!((map.len(), map.contains_key(&key)), (model.len(), model.contains_key(&key)));
        }
        prop_assert!(map.keys().eq(model.keys().copied()) && map.values().eq(model.values().copied()));
        prop_assert!(set.iter().eq(model_set.iter().copied()) && set.len() == model_set.len());
        prop_assert!(set.range(Str::cut("3")..).eq(model_set.range(Str::cut("3")..).copied()));
        heap.close().unwrap();
        prop_assert!(is_sound(&memory));
    }
}
