//! The native allocator: random requests, of which some are refused for a limit; every object's contents
//! checked.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use spandrel_backends::{Backend, Native};
use spandrel_os::budget;

/// Objects at a time; with [`MOST_BYTES`] bounds what a run may take.
const OBJECTS: usize = 256;
const MOST_BYTES: usize = 3 << 20;
const STEP: usize = 512;

#[derive(Debug, Clone, Copy)]
struct Size(usize);

impl<'a> Arbitrary<'a> for Size {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Size(match input.int_in_range(0..=7u8)? {
            0..=2 => input.int_in_range(0..=256)?,
            3..=4 => input.int_in_range(0..=8192)?,
            5 => input.int_in_range(0..=300 << 10)?,
            6 => (8192usize << input.int_in_range(0..=8)?) + input.int_in_range(0..=2)? - 1,
            _ => input.int_in_range(0..=MOST_BYTES)?,
        }))
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Request {
    Alloc(Size),
    Zeroed(Size),
    Aligned(Size, u8),
    AlignedZeroed(Size, u8),
    Resize(u8, Size),
    Free(u8),
    FreeSized(u8),
    /// Many of one size, then all of them freed: batches go through the caches.
    Batch(Size, u8),
    Trim,
    /// From now on the heap may hold so many times 64 KiB and what it was known to hold, and refuses more.
    Limit(u8),
    Unlimited,
}

struct Object {
    at: *mut u8,
    size: usize,
    align: usize,
    seed: u8,
}

impl Object {
    fn places(size: usize) -> impl Iterator<Item = usize> {
        (0..size).step_by(STEP).chain(size.checked_sub(1))
    }

    /// `None`: it was refused, as is right under a limit.
    fn new(at: *mut u8, size: usize, align: usize, seed: u8, zeroed: bool) -> Option<Self> {
        if at.is_null() {
            assert!(budget::counts(), "{size} bytes aligned to {align}");
            return None;
        }
        assert_eq!(at as usize % align, 0);
        // SAFETY: the object is live, of this size, and known to nobody else.
        unsafe {
            assert!(Native::usable_size(at) >= size);
            let zero = || Self::places(size).all(|place| at.add(place).read() == 0);
            assert!(!zeroed || zero(), "{size} bytes are not zero");
        }
        let object = Object { at, size, align, seed };
        // SAFETY: as above.
        Self::places(size).for_each(|place| unsafe { at.add(place).write(object.byte(place)) });
        Some(object)
    }

    fn byte(&self, place: usize) -> u8 {
        self.seed ^ (place / STEP) as u8
    }

    fn check(&self, size: usize) {
        for place in Self::places(self.size).filter(|place| *place < size) {
            // SAFETY: as above.
            assert_eq!(unsafe { self.at.add(place).read() }, self.byte(place));
        }
    }

    fn end(self, sized: bool) {
        self.check(self.size);
        // SAFETY: the object is live and not used any more.
        unsafe {
            if sized {
                Native::free_sized(self.at, self.size, self.align);
            } else {
                Native::free(self.at);
            }
        }
    }
}

fuzz_target!(|requests: Vec<Request>| {
    assert!(Native::start());
    let mut objects: Vec<Object> = Vec::new();
    for (turn, request) in requests.into_iter().enumerate() {
        let seed = turn as u8;
        let room = objects.len() < OBJECTS;
        match request {
            Request::Alloc(Size(size)) if room => {
                objects.extend(Object::new(Native::alloc(size), size, 16, seed, false));
            }
            Request::Zeroed(Size(size)) if room => {
                objects.extend(Object::new(Native::alloc_zeroed(size), size, 16, seed, true));
            }
            Request::Aligned(Size(size), log2) if room => {
                let align = 16 << (log2 % 18);
                let at = Native::alloc_aligned(align, size);
                objects.extend(Object::new(at, size, align, seed, false));
            }
            Request::AlignedZeroed(Size(size), log2) if room => {
                let align = 16 << (log2 % 18);
                let at = Native::alloc_zeroed_aligned(align, size);
                objects.extend(Object::new(at, size, align, seed, true));
            }
            Request::Resize(which, Size(size)) if !objects.is_empty() => {
                let object = objects.swap_remove(which as usize % objects.len());
                let kept = object.size.min(size);
                object.check(object.size);
                // SAFETY: the object is live.
                let at = unsafe { Native::realloc(object.at, size.max(1)) };
                if at.is_null() {
                    assert!(budget::counts());
                    object.check(object.size);
                    objects.push(object);
                    continue;
                }
                Object { at, ..object }.check(kept);
                objects.extend(Object::new(at, size, 16, seed, false));
            }
            Request::Free(which) | Request::FreeSized(which) if !objects.is_empty() => {
                let sized = matches!(request, Request::FreeSized(_));
                objects.swap_remove(which as usize % objects.len()).end(sized);
            }
            Request::Batch(Size(size), count) => {
                let size = size.min(16 << 10);
                let one = |_| Object::new(Native::alloc(size), size, 16, seed, false);
                let batch: Vec<Object> = (0..usize::from(count) * 4).filter_map(one).collect();
                batch.into_iter().for_each(|object| object.end(false));
            }
            Request::Trim => {
                Native::trim();
            }
            Request::Limit(room) => {
                budget::set(Some(budget::held() + usize::from(room) * (64 << 10)), None);
            }
            Request::Unlimited => budget::set(None, None),
            _ => {}
        }
    }
    objects.into_iter().for_each(|object| object.end(false));
    budget::set(None, None);
});
