//! Containers that know nothing of persistence, in a heap with a base of its own.
#![cfg(feature = "heap")]

use hashbrown::HashMap;
use spandrel::heap::{InHeap, Options, PPtr, Trace};
use std::hash::BuildHasherDefault;
use std::hash::Hasher;

/// The same in every process.
#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

type Map = HashMap<u64, allocator_api2::vec::Vec<u32, InHeap>, BuildHasherDefault<Fnv>, InHeap>;

#[test]
fn a_hash_map_lies_in_a_heap_and_is_there_again() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("map.heap");
    let path = path.to_str().unwrap();
    let options = Options::new().size(1 << 20).limit(1 << 30);
    let heap = options.fixed().create(path).unwrap();
    // SAFETY: what is allocated through it is used while the heap is open.
    let allocator = unsafe { InHeap::new(&heap) }.unwrap();
    let at = heap.alloc(size_of::<Map>()).unwrap().cast::<Map>();
    // SAFETY: the object has room for the map, and the test owns it.
    let map = unsafe {
        at.write(Map::with_hasher_in(BuildHasherDefault::default(), allocator));
        &mut *at.as_ptr()
    };
    for key in 0..5000u64 {
        map.entry(key % 700)
            .or_insert_with(|| allocator_api2::vec::Vec::new_in(allocator))
            .push(key as u32);
    }
    heap.set_root(0, Some(at.cast())).unwrap();
    // As a crash of the process leaves it.
    heap.abandon();

    let (heap, opened) = options.open(path).unwrap();
    assert!(!opened.was_clean);
    let at = heap.get_root(0).unwrap().unwrap().cast::<Map>();
    // SAFETY: what was written there, at the same address.
    let map = unsafe { &mut *at.as_ptr() };
    assert_eq!(map.len(), 700);
    for (key, values) in map.iter() {
        assert!(values.iter().all(|value| u64::from(*value) % 700 == *key) && values.len() >= 7);
    }
    for key in 0..350 {
        map.remove(&key);
    }
    for key in 10_000..11_000u64 {
        map.insert(key, allocator_api2::vec::Vec::new_in(allocator_of(&heap)));
    }
    assert_eq!(map.len(), 1350);
    heap.close().unwrap();
}

fn allocator_of(heap: &spandrel::heap::Heap) -> InHeap {
    // SAFETY: as above.
    unsafe { InHeap::new(heap) }.unwrap()
}

#[test]
fn only_heaps_with_a_base_of_their_own_are_allocators() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("a.heap");
    let heap = Options::new().size(1 << 20).create(path.to_str().unwrap()).unwrap();
    // SAFETY: nothing is allocated.
    assert_eq!(unsafe { InHeap::new(&heap) }, None);
}

/// A list of one's own.
#[derive(Trace)]
#[repr(C)]
struct Node {
    next: PPtr<Node>,
    name: [u8; 16],
    parts: [(PPtr<u64>, u32); 2],
}

#[test]
fn derived_types_are_followed() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("list.heap");
    let path = path.to_str().unwrap();
    const TYPES: &[spandrel::heap::RootType<'_>] = &[spandrel::heap::RootType::of::<Node>("list")];
    let heap = Options::new().size(1 << 20).create(path).unwrap();
    let root = heap.root::<Node>("list").unwrap();
    for number in 0..100u64 {
        let parts = [(heap.new_object(number).unwrap(), 1), (PPtr::NULL, 2)];
        let node = Node { next: root.get(), name: *b"a node of a list", parts };
        root.set(heap.new_object(node).unwrap()).unwrap();
        heap.alloc(64).unwrap();
    }
    heap.abandon();
    let (heap, opened) = Options::new().roots(TYPES).open(path).unwrap();
    assert_eq!(opened.collected.unwrap().live, 200);
    // SAFETY: the test owns the heap; no thread stores to it.
    let node = unsafe { heap.address(heap.root::<Node>("list").unwrap().get()).unwrap().as_ref() };
    // SAFETY: as above.
    let part = unsafe { heap.read(node.parts[0].0) };
    assert_eq!((&node.name, part), (b"a node of a list", Some(99)));
    let other = spandrel::heap::RootType::of::<u64>("list");
    heap.abandon();
    let refused = Options::new().roots(&[other]).open(path).err();
    let refused = refused.map(spandrel::heap::Error::from);
    assert!(matches!(refused, Some(spandrel::heap::Error::RootType { .. })), "{refused:?}");
}
