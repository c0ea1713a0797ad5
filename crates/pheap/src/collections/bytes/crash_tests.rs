//! The map after power failures at every moment.

use std::cell::Cell;
use std::prelude::v1::*;

use spandrel_pmem::simulator::Memory;

use super::*;
use crate::RootType;
use crate::collections::tests::every_failure_leaves_a_state;

const TYPES: &[RootType<'_>] = &[RootType::of::<SortedBytesHead>("b")];
type State = (usize, Vec<(Vec<u8>, usize, u8)>);

/// All keys, and what is in their values, which are of one byte each.
fn state(heap: &Heap<&Memory>) -> Result<State, Error> {
    let map = SortedBytes::open(heap, "b")?;
    let all = map.iter().map(|(key, value)| {
        let first = value.first().copied().unwrap_or(0);
        assert!(value.iter().all(|byte| *byte == first), "a value in part");
        (key.to_vec(), value.len(), first)
    });
    Ok((map.len(), all.collect()))
}

fn key(number: usize) -> Vec<u8> {
    match number % 3 {
        0 => format!("{:016}", number * 31 % 97).into_bytes(),
        1 => vec![number as u8],
        _ => format!("a long common beginning, and behind it {}", number * 7 % 23).into_bytes(),
    }
}

#[test]
fn keys_come_change_and_go_at_once() {
    every_failure_leaves_a_state(
        60,
        |heap, number| {
            let mut map = SortedBytes::open(heap, "b").unwrap();
            match number % 6 {
                0 => _ = map.remove(&key(number / 2)).unwrap(),
                5 if number > 50 => map.clear().unwrap(),
                _ => _ = map.insert(&key(number), &vec![number as u8; number * 13 % 200]).unwrap(),
            }
        },
        state,
        TYPES,
    );
}

#[test]
fn nodes_divide_at_once() {
    let place = |number: usize| format!("a beginning{number:05}").into_bytes();
    let is_new = Cell::new(true);
    every_failure_leaves_a_state(
        24,
        |heap, number| {
            // Between full leaves, and twice in a transaction.
            let mut map = SortedBytes::open(heap, "b").unwrap();
            let mut add = |number: usize| {
                let key = place(number * 7919 % 240 * 10 + 5);
                map.insert(&key, &[number as u8; 30]).map(drop)
            };
            if number % 8 == 0 {
                heap.transaction(|| (200..230).map(|at| at + number * 40).try_for_each(add))
                    .unwrap();
            } else {
                add(number).unwrap();
            }
        },
        |heap| {
            if is_new.replace(false) {
                // A root over full leaves, which has no free slot: the first step divides it.
                let mut map = SortedBytes::open(heap, "b")?;
                (0..240).try_for_each(|at| map.insert(&place(at * 10), b"1").map(drop))?;
            }
            state(heap)
        },
        TYPES,
    );
}

#[test]
fn nodes_go_at_once() {
    every_failure_leaves_a_state(
        60,
        |heap, number| {
            let mut map = SortedBytes::open(heap, "b").unwrap();
            let place = |number: usize| format!("{number:08}");
            if number == 1 {
                let mut all = 0..41;
                let add = |at: usize| map.insert(place(at).as_bytes(), b"1").map(drop);
                heap.transaction(|| all.try_for_each(add)).unwrap();
            } else if number < 43 {
                assert!(map.remove(place(number * 3 % 41).as_bytes()).unwrap());
                assert_eq!(map.len(), 42 - number);
            } else {
                map.insert(place(number).as_bytes(), &[number as u8; 20]).unwrap();
            }
        },
        state,
        TYPES,
    );
}
