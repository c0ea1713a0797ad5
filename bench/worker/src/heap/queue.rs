//! A queue of one producer and one consumer, which wait for each other by letting others run.
//!
//! Each end tells the other how far it is once in many objects. If it did so for each, both would take the line
//! with that number from each other every time: on two processors that do not share a cache four fifths of all
//! time went there, whoever allocated.

use spandrel_sync::CachePadded;
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

const ROOM: usize = 1024;
/// Objects between two times that an end tells how far it is.
const TOLD_EACH: usize = 64;

struct End {
    /// How far this end is, as it has told. The other one looks at it again and again where it waits.
    told: CachePadded<AtomicUsize>,
    /// How far it really is, and how far the other one was when last looked. Only this end uses them.
    own: CachePadded<(Cell<usize>, Cell<usize>)>,
}

impl End {
    fn new() -> Self {
        Self { told: CachePadded::default(), own: CachePadded::default() }
    }

    fn at(&self) -> usize {
        self.own.0.get()
    }

    /// Waits until the other end is far enough.
    fn wait(&self, other: &End, is_there: impl Fn(usize) -> bool) {
        let seen = &self.own.1;
        while !is_there(seen.get()) {
            let told = other.told.load(Acquire);
            if told == seen.replace(told) {
                std::thread::yield_now();
            }
        }
    }

    /// One object further.
    fn step(&self) {
        self.own.0.set(self.at() + 1);
        if self.at().is_multiple_of(TOLD_EACH) {
            self.tell();
        }
    }

    fn tell(&self) {
        self.told.store(self.at(), Release);
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
        let at = self.put.at();
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
        let at = self.taken.at();
        self.taken.wait(&self.put, |put| at < put);
        let object = self.places[at % ROOM].load(Relaxed);
        self.taken.step();
        NonNull::new(object)
    }
}
