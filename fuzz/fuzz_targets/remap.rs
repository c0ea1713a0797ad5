//! The page-mapped backend: random requests, every object's contents checked.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use spandrel_backends::remap;

const PAGE: usize = 4096;
/// Objects at a time; with [`MOST_BYTES`] bounds what a run may take.
const OBJECTS: usize = 12;
const MOST_BYTES: usize = 40 << 20;

/// A size: small ones, those around the borders of slots and huge pages, others.
#[derive(Debug, Clone, Copy)]
struct Size(usize);

impl<'a> Arbitrary<'a> for Size {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        const BORDERS: [usize; 8] =
            [32 << 10, 64 << 10, 128 << 10, 512 << 10, 2 << 20, 4 << 20, 8 << 20, 32 << 20];
        let size = match input.arbitrary::<u8>()? % 4 {
            0 => input.int_in_range(0..=3 * PAGE)?,
            1 => {
                let border = *input.choose(&BORDERS)?;
                border - PAGE + input.int_in_range(0..=2 * PAGE)?
            }
            2 => input.int_in_range(0..=1 << 20)?,
            _ => input.int_in_range(0..=MOST_BYTES)?,
        };
        Ok(Size(size.min(MOST_BYTES)))
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Request {
    Alloc(Size),
    Zeroed(Size),
    Aligned(Size, u8),
    Warm(Size),
    Resize(u8, Size),
    /// By a small step, as appending does.
    Append(u8, u16),
    GrowZeroed(u8, Size),
    Free(u8),
    Trim,
}

struct Object {
    at: *mut u8,
    size: usize,
    seed: u8,
}

impl Object {
    fn byte(&self, i: usize) -> u8 {
        self.seed ^ (i / PAGE) as u8
    }

    /// The first and the last byte of the object, and one in each page.
    fn positions(size: usize) -> impl Iterator<Item = usize> {
        (0..size).step_by(PAGE).chain(size.checked_sub(1))
    }

    fn new(at: *mut u8, size: usize, seed: u8) -> Option<Self> {
        assert!(!at.is_null(), "{size} bytes");
        assert_eq!(at as usize % PAGE, 0);
        let object = Object { at, size, seed };
        // SAFETY: the object is live, of this size, and known to nobody else.
        assert!(unsafe { remap::usable_size(at) } >= size);
        object.fill(0);
        Some(object)
    }

    fn fill(&self, from: usize) {
        for i in Self::positions(self.size).filter(|i| *i >= from) {
            // SAFETY: the object is live, of this size, and known to nobody else.
            unsafe { self.at.add(i).write(self.byte(i)) };
        }
    }

    fn check(&self, kept: usize) {
        for i in Self::positions(self.size).filter(|i| *i < kept) {
            // SAFETY: the object is live, of this size, and known to nobody else.
            assert_eq!(unsafe { self.at.add(i).read() }, self.byte(i), "at {i} of {}", self.size);
        }
    }

    fn is_zero(at: *mut u8, from: usize, to: usize) -> bool {
        let bytes = unsafe { std::slice::from_raw_parts(at, to) };
        bytes[from..].iter().all(|byte| *byte == 0)
    }

    fn resize(&mut self, size: usize, zeroed: bool) {
        let (old, kept) = (self.size, self.size.min(size));
        self.check(old);
        // SAFETY: the object is live, of this size, and known to nobody else.
        self.at = unsafe {
            match zeroed {
                true => remap::realloc_zeroed(self.at, old, size),
                false => remap::realloc(self.at, size),
            }
        };
        assert!(!self.at.is_null());
        self.check(kept);
        assert!(!zeroed || size <= old || Self::is_zero(self.at, old, size));
        self.size = size;
        self.fill(0);
    }

    fn free(self) {
        self.check(self.size);
        // SAFETY: the object is live, of this size, and known to nobody else.
        unsafe { remap::free(self.at) };
    }
}

fuzz_target!(|requests: Vec<Request>| {
    let before = remap::stats();
    let mut objects: Vec<Object> = Vec::new();
    for (step, request) in requests.into_iter().take(64).enumerate() {
        let seed = step as u8;
        let pick = |index: u8| (!objects.is_empty()).then(|| index as usize % objects.len());
        let has_room = objects.len() < OBJECTS;
        match request {
            Request::Alloc(Size(size)) if has_room => {
                objects.extend(Object::new(remap::alloc(size, 1), size, seed));
            }
            Request::Zeroed(Size(size)) if has_room => {
                let at = remap::alloc_zeroed(size, 1);
                assert!(!at.is_null() && Object::is_zero(at, 0, size));
                objects.extend(Object::new(at, size, seed));
            }
            Request::Aligned(Size(size), bits) if has_room => {
                let align = 1 << (bits % 28);
                let at = remap::alloc(size, align);
                assert_eq!(at as usize % align, 0);
                objects.extend(Object::new(at, size, seed));
            }
            Request::Warm(Size(size)) if has_room => {
                let at = remap::alloc_warm(size);
                if !at.is_null() {
                    objects.extend(Object::new(at, size, seed));
                }
            }
            Request::Resize(index, Size(size)) => {
                if let Some(index) = pick(index) {
                    objects[index].resize(size, false);
                }
            }
            Request::Append(index, by) => {
                if let Some(index) = pick(index) {
                    let size = objects[index].size + usize::from(by);
                    objects[index].resize(size.min(MOST_BYTES), false);
                }
            }
            Request::GrowZeroed(index, Size(size)) => {
                if let Some(index) = pick(index) {
                    objects[index].resize(size, true);
                }
            }
            Request::Free(index) => {
                if let Some(index) = pick(index) {
                    objects.swap_remove(index).free();
                }
            }
            Request::Trim => {
                remap::trim();
            }
            _ => {}
        }
        let mut ranges: Vec<_> =
            objects.iter().map(|o| (o.at as usize, o.at as usize + o.size)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
    objects.into_iter().for_each(Object::free);
    let after = remap::stats();
    assert_eq!((after.live_slots, after.live_bytes), (before.live_slots, before.live_bytes));
    remap::trim();
    assert_eq!(remap::stats().warm_bytes, 0);
});
