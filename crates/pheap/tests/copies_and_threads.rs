//! Copies of a mapped heap while other threads of its owner allocate, free, and store: each copy is of one moment.

use std::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_pheap::trace::hash;
use spandrel_pheap::{Error, Heap, Media, Options, PPtr, RootType, Trace, Tracer, check};

const TYPES: &[RootType<'_>] = &[RootType::of::<Links>("links")];

/// Rows of objects that lead to each other.
#[repr(C)]
struct Links {
    heads: [PPtr<Link>; 64],
}

#[repr(C)]
struct Link {
    next: PPtr<Link>,
    payload: [u64; 3],
}

// SAFETY: all pointers are named, and zeroes and anything else are such objects.
unsafe impl Trace for Links {
    const LAYOUT: u64 = hash("Links", 1);
    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.heads.trace(tracer);
    }
}

// SAFETY: as above.
unsafe impl Trace for Link {
    const LAYOUT: u64 = hash("Link", 1);
    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.next.trace(tracer);
        self.payload.trace(tracer);
    }
}

/// A thread that uses a heap as if it were alone.
fn use_it(heap: &Heap<Media>, number: usize, is_over: &AtomicBool) {
    let mut random = 88_172_645_463_325_252 + number as u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % below
    };
    let index = heap.named_root::<Links>("links").unwrap();
    let links = heap.get_root(index).unwrap().unwrap().cast::<Links>();
    let mut objects = Vec::new();
    while !is_over.load(Relaxed) {
        match next(100) {
            // Of all sizes, whole regions too.
            kind @ 0..=54 => {
                let bytes = match kind {
                    0 => 70 << 20,
                    1..=3 => 1 << (16 + next(6)),
                    _ => 16 << next(12),
                };
                let object = match heap.alloc(bytes) {
                    Ok(object) => object,
                    Err(Error::Full) => {
                        objects.drain(..).for_each(|object| free(heap, object));
                        continue;
                    }
                    Err(why) => panic!("{why}"),
                };
                // SAFETY: its own; what is not a pointer looks like nothing.
                unsafe { object.as_ptr().write_bytes(0xa5, bytes.min(1 << 20)) };
                objects.push(object);
            }
            55..=89 if !objects.is_empty() => free(heap, objects.swap_remove(next(objects.len()))),
            90..=94 => {
                let root = 8 * number + next(8);
                if let Some(object) = objects.pop() {
                    heap.set_root(root, Some(object)).unwrap();
                    heap.set_root(root, None).unwrap();
                    free(heap, object);
                }
            }
            _ => {
                // A link at the head of a row that is this thread's, and another one away.
                let row = 8 * number + next(8);
                let new = heap.alloc_zeroed(size_of::<Link>()).unwrap().cast::<Link>();
                // SAFETY: the row is this thread's, and the objects are links.
                unsafe {
                    let head = &raw mut (*links.as_ptr()).heads[row];
                    let first = *head;
                    let behind = heap.address(first).map(|link| (*link.as_ptr()).next);
                    (*new.as_ptr()).next = behind.unwrap_or(PPtr::NULL);
                    *head = heap.pointer(new);
                    if let Some(old) = heap.address(first) {
                        free(heap, old.cast());
                    }
                }
            }
        }
    }
    objects.into_iter().for_each(|object| free(heap, object));
}

fn free(heap: &Heap<Media>, object: std::ptr::NonNull<u8>) {
    // SAFETY: the calling thread owns the object.
    unsafe { heap.free(object).unwrap() };
}

/// Tells the other threads of a test that it is over, also if it fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What other threads do while the heap is lent is in the copy or not; but the copy is always one that recovers, and is sound then.
#[test]
fn copies_are_of_one_moment_also_where_other_threads_go_on() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("a.heap").to_str().unwrap().to_owned();
    let heap = Options::new().size(1 << 20).limit(600 << 20).create(&path).unwrap();
    let links = heap.alloc_zeroed(size_of::<Links>()).unwrap();
    let index = heap.named_root::<Links>("links").unwrap();
    heap.set_root(index, Some(links)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (heap, is_over) = (&heap, &is_over);
            scope.spawn(move || use_it(heap, number, is_over));
        }
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                heap.checkpoint().unwrap();
                std::thread::yield_now();
            }
        });
        let _over = Over(&is_over);
        for turn in 0..30 {
            let copy = Options::new().copy_medium(&path).unwrap();
            let mut found = Vec::new();
            check(&copy, &[], &mut |finding| found.push(finding.to_string())).unwrap();
            assert!(found.is_empty(), "turn {turn}, as it is: {found:?}");
            let (heap, opened) = Heap::open(&copy, 0, Some(TYPES)).unwrap();
            assert!(opened.collected.unwrap().live > 0, "turn {turn}");
            heap.close().unwrap();
            check(&copy, TYPES, &mut |finding| found.push(finding.to_string())).unwrap();
            assert!(found.is_empty(), "turn {turn}, recovered: {found:?}");
        }
    });
    heap.close().unwrap();
}
