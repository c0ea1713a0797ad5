//! A queue of one producer and one consumer, which wait for each other by letting others run.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

const ROOM: usize = 1024;

/// On a line of its own, so that one end does not slow the other down.
#[repr(align(128))]
struct End(AtomicUsize);

pub struct Queue {
    places: Box<[AtomicPtr<u8>]>,
    put: End,
    taken: End,
}

impl Queue {
    pub fn new() -> Self {
        let places = (0..ROOM).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { places, put: End(AtomicUsize::new(0)), taken: End(AtomicUsize::new(0)) }
    }

    /// Puts an object, or null as the last.
    pub fn put(&self, object: *mut u8) {
        let number = self.put.0.load(Relaxed);
        while number - self.taken.0.load(Acquire) >= ROOM {
            std::thread::yield_now();
        }
        self.places[number % ROOM].store(object, Relaxed);
        self.put.0.store(number + 1, Release);
    }

    /// Takes the next object; `None` for the last.
    pub fn take(&self) -> Option<NonNull<u8>> {
        let number = self.taken.0.load(Relaxed);
        while self.put.0.load(Acquire) == number {
            std::thread::yield_now();
        }
        let object = self.places[number % ROOM].load(Relaxed);
        self.taken.0.store(number + 1, Release);
        NonNull::new(object)
    }
}
