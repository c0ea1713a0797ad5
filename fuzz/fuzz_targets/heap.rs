//! Any bytes as a heap: an error, or a heap that can be used. Never a fault.
//!
//! A sound heap with some of everything is changed in places that the input names, mostly in its metadata, then looked at,
//! mended, opened and used.
#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use spandrel_pheap::collections::{
    HashMap, MapHead, Queue, QueueHead, SortedHead, SortedMap, Text, Vector, VectorHead,
};
use spandrel_pheap::{Heap, Kind, Medium, PPtr, RootType, check, repair};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Blocks of 64 KiB: eleven of metadata, and some for objects.
const BYTES: usize = 36 << 16;
const BLOCK: usize = 1 << 16;
const SUPERBLOCK: usize = 9 * BLOCK;

/// Memory that nothing is known of but its bytes.
struct Plain(NonNull<u8>);

const LAYOUT: Layout = match Layout::from_size_align(BYTES, BLOCK) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

// SAFETY: the bytes are this process's; the heap orders the stores of threads.
unsafe impl Sync for Plain {}

impl Plain {
    fn new(image: &[u8]) -> Self {
        // SAFETY: its size is not zero.
        let plain = Self(NonNull::new(unsafe { alloc_zeroed(LAYOUT) }).unwrap());
        // SAFETY: no image is longer.
        unsafe { plain.0.as_ptr().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        plain
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: allocated so.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
    }
}

// SAFETY: the memory is there as long as this lives.
unsafe impl Medium for Plain {
    fn base(&self) -> NonNull<u8> {
        self.0
    }

    fn bytes(&self) -> usize {
        BYTES
    }

    fn write_back(&self, at: usize, len: usize) {
        assert!(at + len <= BYTES);
    }

    fn fence(&self) {}

    fn checkpoint_still(
        &self,
        _: &dyn Fn(&mut dyn FnMut()),
    ) -> Result<(), spandrel_pmem::Failed> {
        Ok(())
    }
}

const TYPES: &[RootType<'_>] = &[
    RootType::of::<VectorHead<u64>>("numbers"),
    RootType::of::<MapHead<u32, [u8; 24]>>("map"),
    RootType::of::<SortedHead<u64, PPtr<u64>>>("sorted"),
    RootType::of::<VectorHead<u8>>("text"),
    RootType::of::<QueueHead<PPtr<u64>>>("queue"),
];

fn fill(heap: &Heap<&Plain>) {
    if let Ok(mut numbers) = Vector::<u64, _>::open(heap, "numbers") {
        for number in 0..300 {
            let _ = numbers.push(number);
        }
        let _ = numbers.pop();
    }
    if let Ok(mut map) = HashMap::<u32, [u8; 24], _>::open(heap, "map") {
        for key in 0..100 {
            let _ = map.insert(key, [key as u8; 24]);
        }
        let _ = map.remove(&5);
    }
    if let Ok(mut map) = SortedMap::<u64, PPtr<u64>, _>::open(heap, "sorted") {
        for key in 0..50 {
            if let Ok(object) = heap.new_object(key) {
                let _ = map.insert(key * 7 % 50, object);
            }
        }
        let _ = map.remove(&5);
        map.iter().take(1000).for_each(drop);
    }
    if let Ok(mut text) = Text::open(heap, "text") {
        let _ = text.push("a text");
        text.chars().take(1000).for_each(drop);
    }
    if let Ok(mut queue) = Queue::<PPtr<u64>, _>::open(heap, "queue") {
        let _ = heap.transaction(|| {
            for number in 0..20 {
                queue.push_back(heap.new_object(number)?)?;
            }
            queue.pop_front()
        });
        queue.iter().take(1000).for_each(drop);
    }
    for bytes in [16, 3000, 100_000] {
        if let Ok(object) = heap.alloc(bytes) {
            // SAFETY: the target owns the object.
            let _ = unsafe { heap.free(object) };
        }
    }
}

fn sound() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let plain = Plain::new(&[]);
        let heap = Heap::create(&plain, [1, 2], 0, 0).unwrap();
        fill(&heap);
        let large = heap.alloc_zeroed(3 * BLOCK).unwrap();
        heap.set_root(0, Some(large)).unwrap();
        heap.close().unwrap();
        // SAFETY: the mapping has `BYTES` bytes, and the heap is closed: no thread writes any more.
        unsafe { std::slice::from_raw_parts(plain.0.as_ptr(), BYTES) }.to_vec()
    })
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Place {
    Identity(u8),
    Header(u8, u8),
    Marks(u8, u8),
    Record(u8, bool),
    Root(u16),
    Name(u16),
    Undo(u16),
    Anywhere(u32),
}

#[derive(Debug, arbitrary::Arbitrary)]
enum Word {
    Any(u64),
    Near(u8, bool),
    Pointer(u32),
    Flip(u8),
}

fuzz_target!(|input: (bool, Vec<(Place, Word)>)| {
    let (is_typed, patches) = input;
    let mut image = sound().to_vec();
    for (place, word) in patches.into_iter().take(64) {
        let at = match place {
            Place::Identity(word) => word as usize % 8 * 8,
            Place::Header(block, word) => block as usize % 36 * 64 + word as usize % 8 * 8,
            Place::Marks(block, word) => BLOCK + block as usize % 36 * 512 + word as usize % 64 * 8,
            Place::Record(word, second) => {
                SUPERBLOCK + usize::from(second) * 4096 + word as usize % 16 * 8
            }
            Place::Root(index) => SUPERBLOCK + 8192 + index as usize % 512 * 8,
            Place::Name(word) => SUPERBLOCK + 3 * 4096 + word as usize % 4096 * 8,
            Place::Undo(word) => SUPERBLOCK + 11 * 4096 + word as usize % 512 * 8,
            Place::Anywhere(at) => (at as usize % BYTES) & !7,
        };
        let before = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        let word = match word {
            Word::Any(word) => word,
            Word::Near(by, true) => before.wrapping_add(by.into()),
            Word::Near(by, false) => before.wrapping_sub(by.into()),
            Word::Pointer(at) => PPtr::<u8>::to(at as usize % (2 * BYTES)).raw(),
            Word::Flip(bit) => before ^ 1 << (bit % 64),
        };
        image[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let types = if is_typed { TYPES } else { &[] };
    let plain = Plain::new(&image);
    let _ = check(&plain, types, &mut |_| ());
    if repair(&plain, &mut |_| ()).is_ok() {
        // What was mended is sound.
        let mut findings = Vec::new();
        check(&plain, &[], &mut |finding| findings.push(*finding)).unwrap();
        // Objects of roots that were lost stay allocated.
        assert!(findings.iter().all(|finding| finding.kind == Kind::Lost), "{findings:?}");
    }
    let plain = Plain::new(&image);
    if let Ok((mut heap, _)) = Heap::open(&plain, 0, Some(types)) {
        fill(&heap);
        let _ = heap.collect(types);
        let _ = heap.each_object(&[], &mut |object| heap.each_pointer(object, &mut |_, _| ()));
        let _ = heap.close();
    }
});
