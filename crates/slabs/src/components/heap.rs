//! The whole allocator: live objects keep their contents, a request fails only where the kernel refused something,
//! and what is live is as much as the model knows.

extern crate std;

use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use spandrel_pages::{HugeLength, HugePageId};

use super::{Caches, Instruction, begin, census};
use crate::class::{CLASSES, begin_of};
use crate::map::page_of;
use crate::refuse::{clock, refuse, refused};
use crate::{beside, cache, central, heap, transfer};

const OBJECTS: usize = 300;
const MOST_BYTES: usize = 16 << 20;

/// A live object, and what it is filled with.
struct Object {
    at: usize,
    size: usize,
    seed: u8,
}

impl Object {
    /// Where it is looked at: everywhere, or in each of its pages and at its end.
    fn places(size: usize) -> impl Iterator<Item = usize> {
        (0..size).step_by(if size <= 4096 { 1 } else { 4093 }).chain(size.checked_sub(1))
    }

    fn byte(&self, place: usize) -> u8 {
        self.seed ^ (place / 64) as u8
    }

    fn new(at: usize, size: usize, seed: u8) -> Self {
        let object = Self { at, size, seed };
        for place in Self::places(size) {
            // SAFETY: a live object of that size.
            unsafe { (at as *mut u8).add(place).write(object.byte(place)) };
        }
        object
    }

    fn check(&self, size: usize) {
        for place in Self::places(self.size).filter(|place| *place < size) {
            // SAFETY: as above.
            let byte = unsafe { (self.at as *const u8).add(place).read() };
            assert_eq!(byte, self.byte(place), "{:#x} of {} bytes", self.at, self.size);
        }
    }

    fn usable(&self) -> usize {
        // SAFETY: a live object.
        unsafe { crate::usable_size(self.at as *mut u8) }
    }

    /// Bytes of the object that this is given out of.
    fn whole(&self) -> usize {
        let class = page_of(self.at).class().load(Relaxed).into();
        let begin = if class < CLASSES { begin_of(class, self.at) } else { self.at };
        self.at - begin + self.usable()
    }

    fn end(self) {
        self.check(self.size);
        // SAFETY: live until here.
        unsafe { crate::free(self.at as *mut u8) };
    }
}

impl Instruction {
    /// Bytes: mostly few, at times those of a large object.
    fn size(self) -> usize {
        let part = usize::from(self.first >> 3);
        match self.first & 7 {
            0..=3 => part % 300,
            4..=5 => part,
            6 => (8192 << (part % 7)) - 1 + part % 3,
            _ => part * 300,
        }
    }

    fn alloc(self, seed: u8) -> Option<Object> {
        let (size, align) = (self.size(), 16 << (self.second % 13));
        let before = refused();
        let at = match self.second >> 14 {
            0 => crate::alloc_aligned(align, size),
            1 => crate::alloc_zeroed_aligned(align, size),
            _ => crate::alloc(size),
        };
        if at.is_null() {
            assert!(refused() > before, "{size} bytes aligned to {align} without need refused");
            return None;
        }
        assert!(self.second >> 14 > 1 || at.addr().is_multiple_of(align));
        if self.second >> 14 == 1 {
            // SAFETY: a live object of that size.
            let is_zero = |place: usize| unsafe { at.add(place).read() == 0 };
            assert!(Object::places(size).all(is_zero), "{at:p} of {size} bytes is not zero");
        }
        Some(Object::new(at as usize, size, seed))
    }
}

/// Has another thread, which ends then, free objects and make others.
fn elsewhere(caches: Caches, one_in: [u8; 3], gone: Vec<Object>, step: Instruction) -> Vec<Object> {
    let work = move || {
        refuse(one_in, step.second.into());
        begin(caches);
        gone.into_iter().for_each(Object::end);
        (0..step.second % 8).filter_map(|seed| step.alloc(seed as u8)).collect()
    };
    std::thread::spawn(work).join().expect("no thread panics")
}

pub(super) fn run(caches: Caches, one_in: [u8; 3], instructions: &[Instruction]) {
    refuse(one_in, 1);
    let mut objects: Vec<Object> = Vec::new();
    for (turn, step) in instructions.iter().copied().enumerate() {
        let held: usize = objects.iter().map(|object| object.size).sum();
        let room = objects.len() < OBJECTS && held + step.size() <= MOST_BYTES;
        match step.kind(16) {
            0..=4 if room => objects.extend(step.alloc(turn as u8)),
            5..=8 => {
                if let Some(index) = step.index(objects.len()) {
                    objects.swap_remove(index).end();
                }
            }
            9..=10 if room => {
                let Some(index) = step.index(objects.len()) else { continue };
                let (object, size) = (&objects[index], step.size().max(1));
                let before = refused();
                // SAFETY: a live object; if it moved the old address is forgotten.
                let at = unsafe { crate::realloc(object.at as *mut u8, size) };
                if at.is_null() {
                    assert!(refused() > before, "{size} bytes without need refused");
                    object.check(object.size);
                } else {
                    Object { at: at as usize, ..*object }.check(size);
                    objects[index] = Object::new(at as usize, size, turn as u8);
                }
            }
            11 => {
                let one = Instruction { first: step.first & !7, ..step };
                let batch: Vec<_> =
                    (0..step.second % 512).filter_map(|n| one.alloc(n as u8)).collect();
                batch.into_iter().for_each(Object::end);
            }
            12 if room => {
                let from =
                    step.index(objects.len()).unwrap_or(0).max(objects.len().saturating_sub(9));
                let gone = objects.split_off(from);
                objects.extend(elsewhere(caches, one_in, gone, step));
            }
            13 => {
                crate::trim();
                let from = HugePageId((step.first % 64).into());
                heap::give_back_tables((from, from), HugeLength((step.second % 64).into()));
            }
            14 => match step.first % 4 {
                0 => cache::flush(),
                1 => transfer::flush(),
                2 => central::flush(),
                _ => _ = transfer::tend(),
            },
            15 => {
                clock::put_on(u64::from(step.first % 4096));
                beside::tend();
                let beyond = if step.second % 8 == 0 { 1 << 20 } else { 0 };
                heap::pass(beyond, step.second & 1 == 0, step.second & 2 == 0);
            }
            _ => {}
        }
        let census = census();
        assert_eq!(census.live, objects.iter().map(Object::whole).sum::<usize>(), "{step:?}");
        assert_eq!(census.span_bytes, census.handed_out, "{step:?}");
        assert_eq!(crate::stats().map(|stats| stats.spans), Some(census.spans));
        if turn % 16 == 0 {
            objects.iter().for_each(|object| object.check(object.size));
        }
    }
    objects.into_iter().for_each(Object::end);
}
