//! A queue of one producer and one consumer, which wait for each other by letting others run.
//!
//! Each end tells the other how far it is once in many objects. If it did so for each, both would take the line
//! with that number from each other every time: on two processors that do not share a cache four fifths of all
//! time went there, whoever allocated.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

const ROOM: usize = 1024;
/// Objects between two times that an end tells how far it is.
const TOLD_EACH: usize = 64;

/// On lines of its own, so that one end does not slow the other down.
#[repr(align(128))]
struct End {
    /// How far this end is, as it has told.
    told: AtomicUsize,
    /// How far it really is, and how far the other one was when last looked. Only this end uses them.
    at: Cell<usize>,
    other: Cell<usize>,
}

impl End {
    fn new() -> Self {
        Self { told: AtomicUsize::new(0), at: Cell::new(0), other: Cell::new(0) }
    }

    /// Waits until the other end is far enough.
    fn wait(&self, other: &End, is_there: impl Fn(usize) -> bool) {
        while !is_there(self.other.get()) {
            let told = other.told.load(Acquire);
            if told == self.other.replace(told) {
                std::thread::yield_now();
            }
        }
    }

    /// One object further.
    fn step(&self) {
        self.at.set(self.at.get() + 1);
        if self.at.get().is_multiple_of(TOLD_EACH) {
            self.tell();
        }
    }

    fn tell(&self) {
        self.told.store(self.at.get(), Release);
    }
}

pub struct Queue {
    places: Box<[AtomicPtr<u8>]>,
    put: End,
    taken: End,
}

// SAFETY: what is not atomic belongs to one end, and each end to one thread: see `Queue::put` and `Queue::take`.
unsafe impl Sync for Queue {}

impl Queue {
    pub fn new() -> Self {
        let places = (0..ROOM).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { places, put: End::new(), taken: End::new() }
    }

    /// Puts an object, or null as the last.
    ///
    /// # Safety
    /// One thread puts.
    pub unsafe fn put(&self, object: *mut u8) {
        let at = self.put.at.get();
        self.put.wait(&self.taken, |taken| at - taken < ROOM);
        self.places[at % ROOM].store(object, Relaxed);
        self.put.step();
        if object.is_null() {
            self.put.tell();
        }
    }

    /// Takes the next object; `None` for the last.
    ///
    /// # Safety
    /// One thread takes.
    pub unsafe fn take(&self) -> Option<NonNull<u8>> {
        let at = self.taken.at.get();
        self.taken.wait(&self.put, |put| at < put);
        let object = self.places[at % ROOM].load(Relaxed);
        self.taken.step();
        NonNull::new(object)
    }
}
