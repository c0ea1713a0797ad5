//! Power failures at every moment of a heap's life, also of its recovery.

use std::collections::BTreeSet;
use std::prelude::v1::*;

use spandrel_pmem::Medium;
use spandrel_pmem::simulator::{Bounds, Memory, Outcome, Point};

use super::*;
use crate::layout::{BLOCK_BYTES, BlockId, LEAST_BYTES};

const UUID: [u64; 2] = [3, 4];
/// Blocks for objects.
const BLOCKS: usize = 5;
const BYTES: usize = LEAST_BYTES + (BLOCKS - 1) * BLOCK_BYTES;
/// Objects that are allocated to see what is free.
const ASKED: usize = 1024;

/// A stack of numbers: nodes of a pointer and a number.
struct Stack<'a>(Heap<&'a Memory>);

impl Stack<'_> {
    fn numbers(&self) -> Result<Vec<u64>, String> {
        let (heap, mut numbers) = (&self.0, Vec::new());
        let mut word = heap.root_word(0).map_err(|why| format!("{why}"))?;
        while word != 0 {
            let at = crate::pointer::offset_of(word).ok_or("a pointer that is none")?;
            let found = heap.core().object_of(at).ok_or("a node that is no object")?;
            if found.start != at || numbers.len() > 100 {
                return Err("a node in the middle of something".into());
            }
            word = heap.core().load(at);
            numbers.push(heap.core().load(at + 8));
        }
        Ok(numbers)
    }

    fn push(&self, number: u64, bytes: usize) {
        let heap = &self.0;
        let node = heap.alloc(bytes).unwrap();
        let at = heap.core().offset(node.as_ptr());
        heap.core().store(at, heap.root_word(0).unwrap());
        heap.core().store(at + 8, number);
        heap.medium().write_back(at, 16);
        heap.medium().fence();
        heap.set_root(0, Some(node)).unwrap();
        heap.medium().note(number);
    }

    fn pop(&self, note: u64) {
        let heap = &self.0;
        let node = heap.get_root(0).unwrap().unwrap();
        let next = heap.core().load(heap.core().offset(node.as_ptr()));
        let next = crate::pointer::offset_of(next).map(|at| heap.core().at(at));
        heap.set_root(0, next).unwrap();
        heap.medium().note(note);
        // SAFETY: nothing leads to it any more.
        unsafe { heap.free(node).unwrap() };
    }
}

/// What the stack held after each step, the empty one before the first.
type States = Vec<Vec<u64>>;

/// Whether a heap that a failure has left holds what it should, and can be used.
fn look(image: &[u8], states: &States, least: Option<usize>) -> Result<usize, String> {
    let memory = Memory::from_image(image);
    let heap = match Heap::open(&memory, 0, Some(&[])) {
        Ok((heap, _)) => heap,
        Err(Error::NotAHeap | Error::Unfinished) if least.is_none() => return Ok(0),
        Err(why) => return Err(format!("{why}")),
    };
    let stack = Stack(heap);
    let numbers = stack.numbers()?;
    let least = least.unwrap_or(0);
    let is_one = |at: &usize| states.get(*at).is_some_and(|state| *state == numbers);
    let found = [least, least + 1].into_iter().find(is_one);
    let found = found.ok_or_else(|| format!("{numbers:?} after {:?}", states.get(least)))?;
    // All that is not in the stack can be had, once, and nothing else.
    let heap = &stack.0;
    let (mut given, mut used, mut in_place) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut word = heap.root_word(0).unwrap_or(0);
    while let Some(at) = crate::pointer::offset_of(word) {
        let found = heap.core().object_of(at).ok_or("no object")?;
        given.extend((found.start..found.start + found.bytes).step_by(ASKED));
        used.extend(BlockId::of(found.start).0..=BlockId::of(found.start + found.bytes - 1).0);
        in_place += usize::from(found.bytes == ASKED);
        word = heap.core().load(at);
    }
    let has_place = usize::from(in_place > 0) * BLOCK_BYTES / ASKED - in_place;
    let wanted = (BLOCKS - used.len()) * (BLOCK_BYTES / ASKED) + has_place;
    let mut count = 0;
    while let Ok(object) = heap.alloc(ASKED) {
        let at = heap.core().offset(object.as_ptr());
        if !given.insert(at) {
            return Err(format!("{at:#x} was given out twice"));
        }
        count += 1;
    }
    if count != wanted {
        return Err(format!("{count} objects of {wanted} can be had"));
    }
    stack.0.abandon();
    Ok(found)
}

fn enumerate(memory: &Memory, states: &States, bounds: &Bounds) -> Outcome {
    let mut number = 0;
    let check = |image: &[u8], point: &Point<'_>| {
        let least = point.notes.len().checked_sub(1);
        let found = look(image, states, least)?;
        number += 1;
        // And failures while it is recovered, of some of them.
        if number % 50 != 0 || least.is_none() {
            return Ok(());
        }
        let after = Memory::from_image(image);
        let heap = Heap::open(&after, 0, Some(&[])).map_err(|why| format!("{why}"))?.0;
        heap.abandon();
        let again = |image: &[u8], _: &Point<'_>| {
            let least = found.saturating_sub(1);
            let now = look(image, &vec![states[found].clone(); least + 2], Some(least))?;
            if now == least || now == found { Ok(()) } else { Err("another state".into()) }
        };
        let bounds = Bounds { most: 16, drawn: 2, ..Bounds::default() };
        after.journal().images(&bounds, again).map(|_| ()).map_err(|found| found.to_string())
    };
    memory.journal().images(bounds, check).unwrap_or_else(|found| std::panic!("{found}"))
}

#[test]
fn no_state_is_lost_none_leaks_and_none_is_given_out_twice() {
    let memory = Memory::new(BYTES);
    let stack = Stack(Heap::create(&memory, UUID, 0, 0).unwrap());
    memory.note(0);
    let mut states: States = vec![vec![]];
    let mut now = Vec::new();
    // Small, medium and large ones, so that blocks are taken and freed.
    for (number, bytes) in [(1, 64), (2, 5000), (3, 64), (4, 70_000), (5, 1024)] {
        stack.push(number, bytes);
        now.insert(0, number);
        states.push(now.clone());
    }
    for note in 6..=8 {
        stack.pop(note);
        now.remove(0);
        states.push(now.clone());
    }
    stack.push(9, 40_000);
    now.insert(0, 9);
    states.push(now.clone());
    stack.0.close().unwrap();
    let outcome = enumerate(&memory, &states, &Bounds { most: 2048, ..Bounds::default() });
    assert!(matches!(outcome, Outcome { points: 30.., images: 200.., .. }), "{outcome:?}");
    // Closing has more lines in flight than are tried in every order.
    assert!(outcome.exhaustive * 20 >= outcome.points * 17, "{outcome:?}");
}

#[test]
fn names_and_several_roots_are_there_or_not() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let object = heap.alloc(64).unwrap();
    let pointer = heap.pointer(object);
    memory.note(0);
    let index = heap.named_root::<u64>("a counter with a name of forty bytes ok").unwrap();
    memory.note(1);
    heap.set_roots(&[(0, pointer), (100, pointer), (index, pointer)]).unwrap();
    memory.note(2);
    heap.remove_root("a counter with a name of forty bytes ok").unwrap();
    memory.note(3);
    heap.abandon();
    let check = |image: &[u8], point: &Point<'_>| {
        let after = Memory::from_image(image);
        let heap = match Heap::open(&after, 0, Some(&[])) {
            Ok((heap, _)) => heap,
            Err(_) if point.notes.is_empty() => return Ok(()),
            Err(why) => return Err(format!("{why}")),
        };
        let has_name = heap.root_name(index).is_some();
        let set = [0, 100, index].map(|index| heap.root_word(index) == Ok(pointer.raw()));
        let step = point.notes.last().copied().unwrap_or(0);
        let is_right = match (has_name, set) {
            (false, [false, false, false]) => step == 0,
            (true, [false, false, false]) => step <= 1,
            (true, [true, true, true]) => step == 1 || step == 2,
            (false, [true, true, false]) => step >= 2,
            _ => false,
        };
        heap.abandon();
        if is_right { Ok(()) } else { Err(format!("name {has_name}, roots {set:?} after {step}")) }
    };
    let outcome = memory.journal().images(&Bounds::default(), check);
    let outcome = outcome.unwrap_or_else(|found| std::panic!("{found}"));
    assert!(matches!(outcome, Outcome { points: 15.., .. }), "{outcome:?}");
}
