//! The heap on simulated memory.

use core::ptr::NonNull;
use std::collections::HashMap;
use std::prelude::v1::*;

use spandrel_pmem::Medium as _;
use spandrel_pmem::simulator::Memory;

use super::*;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES, REGION_BYTES, SUPERBLOCK};

const UUID: [u64; 2] = [1, 2];

/// A heap of which the memory can be looked at when it was closed.
type Simulated = Heap<&'static Memory>;

fn memory(image: &[u8]) -> &'static Memory {
    Box::leak(Box::new(Memory::from_image(image)))
}

fn create(bytes: usize) -> Simulated {
    Heap::create(memory(&vec![0; bytes]), UUID, 0, 0).unwrap()
}

/// Pointers to bytes: how many, and behind that each of them.
#[repr(C)]
struct Pointers {
    count: u64,
    first: [PPtr<u64>; 0],
}

// SAFETY: any bytes are numbers and pointers; those behind the first are named as far as they are the object's.
unsafe impl Trace for Pointers {
    const LAYOUT: u64 = crate::trace::hash("Pointers", 0);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        for number in 0..self.count as usize {
            // SAFETY: the test has allocated the object with room for `count` pointers.
            unsafe { (*self.first.as_ptr().add(number)).trace(tracer) };
        }
    }
}

/// The heap after a failure that came when everything was durable.
fn again(heap: Simulated) -> (Simulated, Opened) {
    recovered(heap, &[])
}

/// The same, of which the types of roots are known.
fn recovered(heap: Simulated, types: &[RootType<'_>]) -> (Simulated, Opened) {
    let before = core::ptr::from_ref(*heap.medium()).cast_mut();
    let image = heap.medium().journal().last();
    heap.abandon();
    // SAFETY: it came from a box, and the heap was the last that had it.
    drop(unsafe { Box::from_raw(before) });
    Heap::open(memory(&image), 0, Some(types)).unwrap()
}

/// What a list on root 0 holds: nodes of a pointer and a number.
fn list(heap: &Simulated) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut word = heap.root_word(0).unwrap();
    while let Some(at) = crate::pointer::offset_of(word) {
        word = heap.core().load(at);
        numbers.push(heap.core().load(at + 8));
    }
    numbers
}

fn push(heap: &Simulated, number: u64, bytes: usize) -> Result<(), Error> {
    let node = heap.alloc(bytes)?;
    let at = heap.core().offset(node.as_ptr());
    heap.core().store(at, heap.root_word(0)?);
    heap.core().store(at + 8, number);
    heap.core().write_back(at, 16);
    heap.core().fence();
    heap.set_root(0, Some(node))
}

#[test]
fn what_is_reachable_is_there_after_a_failure_and_nothing_else() {
    let heap = create(LEAST_BYTES + 6 * BLOCK_BYTES);
    for number in 0..300 {
        push(&heap, number, 64).unwrap();
        heap.alloc(64).unwrap();
        heap.alloc(1000).unwrap();
    }
    let (heap, opened) = again(heap);
    assert!(!opened.was_clean);
    let collected = opened.collected.unwrap();
    assert_eq!((collected.live, collected.live_bytes), (300, 300 * 64));
    assert_eq!(list(&heap), (0..300).rev().collect::<Vec<u64>>());
    // All else can be had again.
    let mut count = 0;
    while heap.alloc(64).is_ok() {
        count += 1;
    }
    assert_eq!(count, 7 * 1024 - 300);
}

#[test]
fn a_heap_that_was_closed_is_as_it_was() {
    let heap = create(LEAST_BYTES + 3 * BLOCK_BYTES);
    (0..100).for_each(|number| push(&heap, number, 128).unwrap());
    let (kept, other) = (heap.alloc(128).unwrap(), heap.alloc(128).unwrap());
    // SAFETY: the test owns the object.
    unsafe { heap.free(other).unwrap() };
    heap.set_root(1, Some(kept)).unwrap();
    let medium = *heap.medium();
    heap.close().unwrap();
    let image = medium.journal().last();
    let (heap, opened) = Heap::open(memory(&image), 0, None).unwrap();
    assert_eq!(opened, Opened { was_clean: true, ..Opened::default() });
    assert_eq!(list(&heap).len(), 100);
    let mut count = 0;
    while heap.alloc(128).is_ok() {
        count += 1;
    }
    assert_eq!(count, 4 * 512 - 101);
}

#[test]
fn wrong_frees_are_errors() {
    let heap = create(LEAST_BYTES + 6 * BLOCK_BYTES);
    let object = heap.alloc(64).unwrap();
    let medium = heap.alloc(5000).unwrap();
    let large = heap.alloc(100_000).unwrap();
    let inside = |object: core::ptr::NonNull<u8>, at| object.map_addr(|a| a.saturating_add(at));
    // SAFETY: each is freed once; all else is refused.
    unsafe {
        for wrong in
            [inside(object, 16), inside(medium, 5), inside(large, BLOCK_BYTES), heap.base()]
        {
            assert_eq!(heap.free(wrong), Err(Error::Foreign(wrong.as_ptr() as usize)), "{wrong:?}");
        }
        let elsewhere = core::ptr::NonNull::from(&UUID).cast();
        assert!(matches!(heap.free(elsewhere), Err(Error::Foreign(_))));
        for object in [object, medium, large] {
            heap.free(object).unwrap();
            let twice = heap.free(object);
            assert_eq!(twice, Err(Error::DoubleFree(object.as_ptr() as usize)));
        }
    }
}

#[test]
fn objects_move_when_they_have_to() {
    let heap = create(LEAST_BYTES + 8 * BLOCK_BYTES);
    let object = heap.alloc(100).unwrap();
    let at = heap.core().offset(object.as_ptr());
    // SAFETY: the test owns the object.
    unsafe {
        heap.medium().store(at, &[7; 100]);
        assert_eq!(heap.realloc(object, 112).unwrap(), object);
        let moved = heap.realloc(object, 70_000).unwrap();
        assert_eq!(core::slice::from_raw_parts(moved.as_ptr(), 100), [7; 100]);
        assert_eq!(heap.usable_bytes(moved).unwrap(), 2 * BLOCK_BYTES);
        assert_eq!(heap.realloc(moved, 200_000).unwrap(), moved, "what lies behind it is free");
        let back = heap.realloc(moved, 50).unwrap();
        assert_eq!(core::slice::from_raw_parts(back.as_ptr(), 50), [7; 50]);
        assert_eq!(heap.alloc(700_000), Err(Error::Full));
    }
    assert_eq!(heap.alloc_aligned(24, 4096).unwrap().as_ptr() as usize % 4096, 0);
    assert_eq!(
        heap.alloc_aligned(24, 3),
        heap.alloc(24).map(|_| heap.base()).and(Err(Error::Size(24)))
    );
}

#[test]
fn objects_longer_than_a_region_cover_the_next() {
    let heap = create(4 * REGION_BYTES);
    let long = heap.alloc(100 << 20).unwrap();
    let at = heap.core().offset(long.as_ptr());
    // SAFETY: the test owns the object; the range lies within it, where the metadata of a region was.
    unsafe { heap.medium().store(at + REGION_BYTES, &[0xff; 4096]) };
    let inside = heap.core().object_of(at + (90 << 20)).unwrap();
    assert_eq!(inside.start, at);
    heap.set_root(5, Some(long)).unwrap();
    push(&heap, 1, 64).unwrap();
    let (heap, opened) = again(heap);
    assert_eq!(opened.collected.unwrap().live, 2);
    let long = heap.core().at(at);
    heap.set_root(5, None).unwrap();
    // SAFETY: the test owns the object.
    unsafe { heap.free(long).unwrap() };
    let mut small = 0;
    while heap.alloc(1 << 20).is_ok() {
        small += 1;
    }
    assert!(small >= 4 * 60, "{small}");
}

#[test]
fn roots_have_names_and_types() {
    let heap = create(LEAST_BYTES + BLOCK_BYTES);
    let object = heap.alloc(64).unwrap();
    assert_eq!(heap.set_root(512, Some(object)), Err(Error::RootIndex(512)));
    assert_eq!(
        heap.set_root(0, Some(heap.base())),
        Err(Error::Foreign(heap.base().as_ptr() as usize))
    );
    heap.set_root(3, Some(object)).unwrap();
    assert_eq!(heap.get_root(3).unwrap(), Some(object));
    let index = heap.named_root::<u64>("counter").unwrap();
    assert_eq!(heap.named_root::<u64>("counter").unwrap(), index);
    assert!(matches!(heap.named_root::<u32>("counter"), Err(Error::RootType { .. })));
    assert_eq!(heap.named_root::<u64>(""), Err(Error::RootName));
    heap.set_root(index, Some(object)).unwrap();
    let (heap, _) = again(heap);
    assert_eq!(heap.named_root::<u64>("counter").unwrap(), index);
    assert!(heap.get_root(index).unwrap().is_some());
    heap.remove_root("counter").unwrap();
    assert_eq!(heap.get_root(index).unwrap(), None);
}

#[test]
fn heaps_of_others_are_refused() {
    let heap = Heap::create(memory(&[0; LEAST_BYTES]), UUID, 0, 77).unwrap();
    let image = heap.medium().journal().last();
    heap.abandon();
    let open = |image: &[u8], layout| {
        Heap::open(memory(image), layout, Some(&[])).map(|_| ()).unwrap_err()
    };
    assert_eq!(open(&image, 78), Error::Layout { heap: 77, given: 78 });
    let (has, needs) = (LEAST_BYTES as u64 - 4096, LEAST_BYTES as u64);
    assert_eq!(open(&image[..has as usize], 77), Error::Truncated { has, needs });
    let with = |at: usize, bytes: &[u8]| {
        let mut image = image.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        image
    };
    // Where the copy of the identity is damaged as well: else it takes the place of the line.
    let identity = |at: usize, bytes: &[u8]| {
        let mut image = with(at, bytes);
        image[crate::superblock::IDENTITY_COPY..][..64].fill(0);
        open(&image, 77)
    };
    assert_eq!(identity(8, &[9]), Error::Version(9));
    assert_eq!(identity(24, &[9]), Error::Damaged { at: 0, what: "the heap's identity" });
    assert_eq!(identity(0, &[0; 8]), Error::Unfinished);
    assert_eq!(identity(0, &[3; 8]), Error::NotAHeap);
    let both = with(SUPERBLOCK, &[1; 8192]);
    assert!(matches!(open(&both, 77), Error::Damaged { .. }));
    let header = with(crate::layout::first_block(0).header(), &[1; 8]);
    assert!(matches!(open(&header, 77), Error::Damaged { .. }));
}

/// A block whose mark bits were not written back when it was freed became part of a large object, and then the power failed.
#[test]
fn marks_below_a_large_object_are_forgotten() {
    let heap = create(LEAST_BYTES + 6 * BLOCK_BYTES);
    let large = heap.alloc(3 * BLOCK_BYTES).unwrap();
    let at = heap.core().offset(large.as_ptr());
    heap.core().store(crate::layout::BlockId::of(at).plus(1).bits(), u64::MAX);
    heap.set_root(0, Some(large)).unwrap();
    let (heap, _) = again(heap);
    heap.set_root(0, None).unwrap();
    // SAFETY: the test owns the object.
    unsafe { heap.free(heap.core().at(at)).unwrap() };
    let mut count = 0;
    while heap.alloc(1024).is_ok() {
        count += 1;
    }
    assert_eq!(count, 7 * 64);
}

#[test]
fn all_that_is_reachable_can_be_seen() {
    let heap = create(LEAST_BYTES + 6 * BLOCK_BYTES);
    for (number, bytes) in [64, 5000, 64, 70_000].into_iter().enumerate() {
        push(&heap, number as u64, bytes).unwrap();
        heap.alloc(64).unwrap();
    }
    let (mut objects, mut edges) = (Vec::new(), Vec::new());
    heap.each_object(&[], &mut |object| objects.push(object)).unwrap();
    let mut sizes: Vec<usize> = objects.iter().map(|object| object.bytes).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [64, 64, 5040, 2 * BLOCK_BYTES]);
    for object in &objects {
        heap.each_pointer(*object, &mut |at, to| edges.push((at, to)));
    }
    assert_eq!(edges.len(), 3, "{edges:?}");
    assert!(edges.iter().all(|(at, to)| *at == 0 && objects.contains(to)));
}

#[test]
fn nothing_is_allocated_before_recovery() {
    let heap = create(LEAST_BYTES + BLOCK_BYTES);
    push(&heap, 1, 64).unwrap();
    let image = heap.medium().journal().last();
    heap.abandon();
    let (mut heap, opened) = Heap::open(memory(&image), 0, None).unwrap();
    assert_eq!(opened, Opened::default());
    assert_eq!(heap.alloc(64), Err(Error::NeedsRecovery));
    assert_eq!(heap.collect(&[]).unwrap().live, 1);
    assert!(heap.alloc(64).is_ok());
}

#[test]
fn a_fresh_block_costs_one_flush_and_one_fence_and_a_used_one_nothing() {
    let heap = create(LEAST_BYTES + 6 * BLOCK_BYTES);
    let first = heap.alloc(64).unwrap();
    let before = heap.counters();
    let mut objects = HashMap::new();
    for _ in 1..1024 {
        objects.insert(heap.alloc(64).unwrap(), ());
    }
    assert_eq!(heap.counters().flushes, before.flushes, "all of one block");
    assert_eq!(heap.counters().fences, before.fences);
    objects.insert(heap.alloc(64).unwrap(), ());
    let after = heap.counters();
    assert_eq!((after.flushes, after.fences), (before.flushes + 1, before.fences + 1));
    // SAFETY: the test owns the objects.
    unsafe {
        objects.keys().for_each(|object| heap.free(*object).unwrap());
        heap.free(first).unwrap();
    }
}

#[test]
fn a_random_life_agrees_with_a_model() {
    use proptest::prelude::*;
    let step = prop_oneof![
        4 => (1usize..3000).prop_map(|bytes| (0u8, bytes)),
        1 => (3000usize..200_000).prop_map(|bytes| (0, bytes)),
        4 => (0usize..10_000).prop_map(|which| (1, which)),
        1 => (0usize..100_000).prop_map(|bytes| (2, bytes)),
        1 => Just((3, 0)),
    ];
    let steps = proptest::collection::vec(step, 1..200);
    proptest!(ProptestConfig::with_cases(200), |(steps in steps)| {
        let mut heap = create(LEAST_BYTES + 40 * BLOCK_BYTES);
        // Objects by offset: how many bytes, and what they are full of.
        let mut objects: Vec<(usize, usize, u8)> = Vec::new();
        let full = |heap: &Simulated, (at, bytes, fill): (usize, usize, u8)| {
            // SAFETY: the object has `bytes` bytes.
            let held = unsafe { core::slice::from_raw_parts(heap.core().at(at).as_ptr(), bytes) };
            held[8..].iter().all(|byte| *byte == fill)
        };
        // SAFETY: the test has removed the object from its list.
        let free = |heap: &Simulated, at| unsafe { heap.free(heap.core().at(at)).unwrap() };
        for (number, (what, value)) in steps.into_iter().enumerate() {
            let fill = number as u8;
            match what {
                0 => {
                    let Ok(object) = heap.alloc(value + 8) else { continue };
                    let at = heap.core().offset(object.as_ptr());
                    // SAFETY: the object has room for `value + 8` bytes.
                    unsafe { heap.medium().store(at, &vec![fill; value + 8]) };
                    heap.core().store(at, 0);
                    objects.push((at, value + 8, fill));
                }
                1 if !objects.is_empty() => {
                    let object = objects.swap_remove(value % objects.len());
                    prop_assert!(full(&heap, object));
                    free(&heap, object.0);
                }
                2 if !objects.is_empty() => {
                    let which = value % objects.len();
                    let (at, bytes, fill) = objects[which];
                    // SAFETY: the test knows it by its new address only.
                    let moved = unsafe { heap.realloc(heap.core().at(at), value + 8) };
                    let Ok(moved) = moved else { continue };
                    let kept = bytes.min(value + 8);
                    let at = heap.core().offset(moved.as_ptr());
                    objects[which] = (at, kept, fill);
                    prop_assert!(full(&heap, objects[which]));
                }
                3 => {
                    // All hang on a table, so that a failure changes nothing.
                    let Ok(table) = heap.alloc((objects.len() + 1) * 8) else { continue };
                    let table = heap.core().offset(table.as_ptr());
                    heap.core().store(table, objects.len() as u64);
                    for (number, (at, ..)) in objects.iter().enumerate() {
                        heap.core().store(table + 8 + number * 8, PPtr::<u64>::to(*at).raw());
                    }
                    heap.set_root(0, Some(heap.core().at(table))).unwrap();
                    let types = [RootType::numbered::<Pointers>(0)];
                    let (next, opened) = recovered(heap, &types);
                    heap = next;
                    prop_assert_eq!(opened.collected.unwrap().live, objects.len() as u64 + 1);
                    heap.set_root(0, None).unwrap();
                    free(&heap, table);
                }
                _ => {}
            }
        }
        prop_assert!(objects.iter().all(|object| full(&heap, *object)));
    });
}

#[test]
fn empty_blocks_stay_with_their_class_until_another_needs_them() {
    let heap = create(LEAST_BYTES + 3 * BLOCK_BYTES);
    let fill = |bytes: usize| {
        let mut objects = Vec::new();
        while let Ok(object) = heap.alloc(bytes) {
            objects.push(object);
        }
        objects
    };
    let free = |objects: Vec<core::ptr::NonNull<u8>>| {
        // SAFETY: the test owns the objects.
        objects.into_iter().for_each(|object| unsafe { heap.free(object).unwrap() });
    };
    for round in 0..3 {
        let objects = fill(1024);
        assert_eq!(objects.len(), 4 * 64, "round {round}");
        free(objects);
    }
    // Nothing was waited for but the headers of the first round.
    let counted = heap.counters();
    assert_eq!((counted.fresh_blocks, counted.returned_blocks, counted.fences), (4, 0, 4));
    // Half of a thread's stack of free objects stays with the thread, and so does their block.
    let other = fill(32768);
    assert!((2 * 2..=3 * 2).contains(&other.len()), "{}", other.len());
    assert_eq!(heap.counters().returned_blocks, other.len() as u64 / 2);
    free(other);
    let medium = *heap.medium();
    heap.close().unwrap();
    // What is closed has none of them.
    let image = medium.journal().last();
    let (heap, _) = Heap::open(memory(&image), 0, None).unwrap();
    let large = heap.alloc(4 * BLOCK_BYTES);
    assert!(large.is_ok(), "{large:?}");
}

/// The file of a heap that was shrunk is longer than its record says, until it is cut: the regions behind are not the record's.
#[test]
fn a_medium_may_be_longer_than_a_heap_that_was_closed() {
    let heap = create(3 * REGION_BYTES);
    push(&heap, 1, 64).unwrap();
    let far: Vec<_> = (0..2).map(|_| heap.alloc(60 << 20).unwrap()).collect();
    for object in far {
        // SAFETY: it is not used.
        unsafe { heap.free(object).unwrap() };
    }
    let medium = *heap.medium();
    heap.close().unwrap();
    let mut record = Record::read(medium).unwrap();
    record.bytes = REGION_BYTES as u64;
    let core =
        crate::shared::Core::new(medium, Identity::read(medium).unwrap(), record, 0).unwrap();
    assert_ne!(core.sums(record.bytes), core.sums(3 * record.bytes));
    record.sums = core.sums(record.bytes);
    drop(core);
    record.put(medium);
    assert_eq!(check(medium, &[], &mut |_| ()).unwrap().damaged, 0);
    let (heap, opened) = Heap::open(medium, 0, None).unwrap();
    assert!(opened.was_clean && list(&heap) == [1]);
    let far = heap.alloc(60 << 20).unwrap();
    heap.set_root(1, Some(far)).unwrap();
    heap.close().unwrap();
    assert_eq!(check(medium, &[], &mut |_| ()).unwrap().damaged, 0);
}

#[test]
fn a_word_that_is_no_pointer_becomes_no_root() {
    let heap = create(LEAST_BYTES);
    let object = heap.alloc(64).unwrap();
    let pointer = heap.pointer(object);
    for word in [1, 0x7fff_ffff_f000, u64::MAX, pointer.raw() ^ 1 << 63] {
        let wrong = [(0, pointer), (1, PPtr::from_raw(word))];
        assert_eq!(heap.set_roots(&wrong), Err(Error::Foreign(word as usize)));
        assert_eq!(heap.get_root(0), Ok(None));
    }
    let middle = PPtr::from_raw(pointer.raw() + 16);
    assert!(matches!(heap.set_roots(&[(0, middle)]), Err(Error::Foreign(_))));
    heap.set_roots(&[(0, pointer), (1, PPtr::NULL)]).unwrap();
    assert_eq!(heap.get_root(0), Ok(Some(object)));
}

/// An array that is named several times, with another number of values each time.
#[repr(C)]
struct Several {
    counts: [u64; 3],
    all: [PPtr<PPtr<u64>>; 3],
}

// SAFETY: numbers, and pointers, all of which are named.
unsafe impl Trace for Several {
    const LAYOUT: u64 = crate::trace::hash("Several", 0);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        for (to, count) in self.all.iter().zip(self.counts) {
            tracer.slice(to, count as usize);
        }
    }
}

#[test]
fn an_array_is_followed_as_far_as_the_longest_of_its_pointers_says() {
    for counts in [[1, 3, 10], [10, 1, 3], [0, 1, 0], [1, 0, 1], [0, 0, 4], [0, 4, 10], [0, 0, 0]] {
        let heap = create(LEAST_BYTES + 3 * BLOCK_BYTES);
        let (top, array) = (heap.alloc(48).unwrap(), heap.alloc(80).unwrap());
        let offset = |object: NonNull<u8>| heap.core().offset(object.as_ptr());
        let put =
            |object, number: usize, word| heap.core().store(offset(object) + number * 8, word);
        let to = |object| PPtr::<u64>::to(offset(object)).raw();
        for (number, count) in counts.into_iter().enumerate() {
            put(top, number, count);
            put(top, 3 + number, to(array));
        }
        for number in 0..10 {
            put(array, number, to(heap.alloc(48).unwrap()));
        }
        heap.set_root(0, Some(top)).unwrap();
        let (_, opened) = recovered(heap, &[RootType::numbered::<Several>(0)]);
        let longest = counts.into_iter().max().unwrap();
        assert_eq!(opened.collected.unwrap().live, 2 + longest, "{counts:?}");
    }
}

/// One object says by its type that an array has no values, and another one of no type has a word that leads there: in either order.
#[test]
fn an_array_that_was_found_empty_is_followed_by_a_word_that_may_be_a_pointer() {
    for first in [0, 1] {
        let heap = create(LEAST_BYTES + 3 * BLOCK_BYTES);
        let (top, other) = (heap.alloc(48).unwrap(), heap.alloc(48).unwrap());
        let (array, value) = (heap.alloc(80).unwrap(), heap.alloc(48).unwrap());
        let offset = |object: NonNull<u8>| heap.core().offset(object.as_ptr());
        let to = |object| PPtr::<u64>::to(offset(object)).raw();
        heap.core().store(offset(top) + 24, to(array));
        heap.core().store(offset(other), to(array));
        heap.core().store(offset(array) + 16, to(value));
        heap.set_root(first, Some(top)).unwrap();
        heap.set_root(1 - first, Some(other)).unwrap();
        let (_, opened) = recovered(heap, &[RootType::numbered::<Several>(first)]);
        assert_eq!(opened.collected.unwrap().live, 4, "{first}");
    }
}
