//! Keys whose comparison, equality or hash code is wrong: safe code of the program, which may spoil its own collection and nothing else.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap as Model};
use std::prelude::v1::*;

use spandrel_pmem::simulator::Memory;

use super::tests::{BYTES, UUID};
use super::*;
use crate::trace::{Trace, Tracer, mix};
use crate::{Heap, RootType, check};

std::thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// A number that differs from call to call.
fn drawn() -> u64 {
    CALLS.set(CALLS.get() + 1);
    mix(CALLS.get(), 5)
}

/// A key that lies about its order and its equality in one of five calls, and always about its hash code.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Liar(u64);

// SAFETY: any bytes are a number, which is no pointer.
unsafe impl Trace for Liar {
    const LAYOUT: u64 = 0x6c69_6172;
    const HAS_POINTERS: bool = false;

    fn trace(&self, _: &mut Tracer<'_>) {}
}

impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        if drawn().is_multiple_of(5) { drawn().is_multiple_of(2) } else { self.0 == other.0 }
    }
}

impl Eq for Liar {}

impl PartialOrd for Liar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Liar {
    fn cmp(&self, other: &Self) -> Ordering {
        match drawn() % 10 {
            0 => Ordering::Less,
            1 => Ordering::Greater,
            _ => self.0.cmp(&other.0),
        }
    }
}

impl Key for Liar {
    fn code(&self) -> u64 {
        drawn() % 16
    }
}

/// The number of objects that are damaged or lost after the heap is closed.
fn damaged_or_lost(heap: Heap<&Memory>, memory: &Memory, types: &[RootType<'_>]) -> (u64, u64) {
    heap.close().unwrap();
    let survey = check(&memory, types, &mut |_| ()).unwrap();
    (survey.damaged, survey.lost)
}

#[test]
fn a_sorted_map_of_keys_without_an_order_spoils_no_other_object() {
    let types = &[
        RootType::of::<SortedHead<Liar, [u64; 4]>>("bad"),
        RootType::of::<SortedHead<u64, [u64; 4]>>("good"),
    ];
    for is_in_transactions in [false, true] {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
        let mut bad = SortedMap::<Liar, [u64; 4], _>::open(&heap, "bad").unwrap();
        let mut good = SortedMap::<u64, [u64; 4], _>::open(&heap, "good").unwrap();
        let mut model = BTreeMap::new();
        for step in 0..12_000_u64 {
            let key = Liar(mix(step, 1) % 200);
            let mut work = || {
                match mix(step, 2) % 64 {
                    0 => bad.retain(|key, _| key.0 % 4 != 0)?,
                    1 => drop(bad.pop_first()?),
                    2 => drop(bad.pop_last()?),
                    3 => drop(bad.update(key, |value| value.unwrap_or([step; 4]))?),
                    4 => drop(bad.range(key..Liar(key.0 + 20)).count() + bad.iter().count()),
                    5 if step % 31 == 0 => bad.clear()?,
                    kind if kind % 2 == 0 => drop(bad.insert(key, [step; 4])?),
                    _ => drop(bad.remove(&key)?),
                }
                Ok(())
            };
            if is_in_transactions { heap.transaction(work) } else { work() }.unwrap();
            let key = mix(step, 3) % 500;
            if mix(step, 4).is_multiple_of(2) {
                assert_eq!(good.insert(key, [step; 4]), Ok(model.insert(key, [step; 4])));
            } else {
                assert_eq!(good.remove(&key), Ok(model.remove(&key)), "step {step}");
            }
            if step % 500 == 0 {
                assert!(good.iter().eq(model.iter().map(|(key, value)| (*key, *value))));
            }
        }
        bad.clear().unwrap();
        assert_eq!((bad.len(), bad.iter().count()), (0, 0));
        drop((bad, good));
        assert_eq!(damaged_or_lost(heap, &memory, types), (0, 0));
    }
}

#[test]
fn a_table_of_keys_that_lie_about_equality_and_code_spoils_no_other_object() {
    let types = &[
        RootType::of::<MapHead<Liar, [u64; 4]>>("bad"),
        RootType::of::<MapHead<u64, [u64; 4]>>("good"),
    ];
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let mut bad = HashMap::<Liar, [u64; 4], _>::open(&heap, "bad").unwrap();
    let mut good = HashMap::<u64, [u64; 4], _>::open(&heap, "good").unwrap();
    let mut model = Model::new();
    for step in 0..12_000_u64 {
        let key = Liar(mix(step, 1) % 200);
        match mix(step, 2) % 64 {
            0 => bad.retain(|key, _| key.0 % 4 != 0).unwrap(),
            1 => drop(bad.update(key, |value| value.unwrap_or([step; 4])).unwrap()),
            _ if bad.len() > 500 => bad.clear().unwrap(),
            kind if kind % 2 == 0 => drop(bad.insert(key, [step; 4]).unwrap()),
            _ => drop(bad.remove(&key).unwrap()),
        }
        assert_eq!(bad.iter().count(), bad.len(), "the count is that of the slots");
        let key = mix(step, 3) % 500;
        if mix(step, 4).is_multiple_of(2) {
            assert_eq!(good.insert(key, [step; 4]), Ok(model.insert(key, [step; 4])));
        } else {
            assert_eq!(good.remove(&key), Ok(model.remove(&key)), "step {step}");
        }
    }
    let all: Model<_, _> = good.iter().collect();
    assert_eq!(all, model);
    drop((bad, good));
    assert_eq!(damaged_or_lost(heap, &memory, types), (0, 0));
}
