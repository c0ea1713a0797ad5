//! google/tcmalloc in its slices: whose memory it is, from any thread and after a fork.
#![cfg(feature = "tcmalloc")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use spandrel_backends::{Backend, Tcmalloc, fork_done, fork_prepare};
use spandrel_os::slices;
use spandrel_pages::{AllocatorId, GIB, KIB, MIB, TIB};

/// An object and what its first and last bytes have to be.
struct Object {
    at: *mut u8,
    size: usize,
    align: usize,
    mark: u8,
}

// SAFETY: whoever has the value owns the object.
unsafe impl Send for Object {}

impl Object {
    fn new(size: usize, align: usize, zeroed: bool, mark: u8) -> Object {
        let at = match (align > 16, zeroed) {
            (false, false) => Tcmalloc::alloc(size),
            (false, true) => Tcmalloc::alloc_zeroed(size),
            (true, false) => Tcmalloc::alloc_aligned(align, size),
            (true, true) => Tcmalloc::alloc_zeroed_aligned(align, size),
        };
        assert!(!at.is_null(), "{size} bytes aligned to {align}");
        let object = Object { at, size, align, mark };
        object.belongs();
        assert_eq!(at as usize % align, 0, "{size} bytes aligned to {align}");
        // SAFETY: an object of `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at, size) };
        assert!(!zeroed || bytes.iter().all(|byte| *byte == 0));
        object.write();
        object
    }

    fn belongs(&self) {
        for at in [self.at as usize, self.at as usize + self.size.max(1) - 1] {
            assert_eq!(slices::owner(at), AllocatorId::Tcmalloc, "{at:#x}");
        }
        // SAFETY: a live object.
        assert!(unsafe { Tcmalloc::usable_size(self.at) } >= self.size);
    }

    fn write(&self) {
        if self.size > 0 {
            // SAFETY: within the object.
            unsafe {
                self.at.write(self.mark);
                self.at.add(self.size - 1).write(self.mark);
            }
        }
    }

    fn check(&self) {
        if self.size > 0 {
            // SAFETY: within the object.
            let ends = unsafe { [self.at.read(), self.at.add(self.size - 1).read()] };
            assert_eq!(ends, [self.mark; 2], "{} bytes", self.size);
        }
    }

    fn resize(&mut self, size: usize) {
        self.check();
        // SAFETY: a live object, from here on at the new address.
        self.at = unsafe { Tcmalloc::realloc(self.at, size) };
        assert!(!self.at.is_null());
        // SAFETY: not empty, before or after.
        assert!(self.size == 0 || unsafe { self.at.read() } == self.mark);
        (self.size, self.align) = (size, 16);
        self.belongs();
        self.write();
    }

    fn free(self, sized: bool) {
        self.check();
        // SAFETY: a live object with this size and alignment.
        unsafe {
            match sized {
                true => Tcmalloc::free_sized(self.at, self.size, self.align),
                false => Tcmalloc::free(self.at),
            }
        }
    }
}

/// A generator that is good enough to mix operations.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    /// Mostly small, sometimes pages, seldom megabytes.
    fn size(&mut self) -> usize {
        match self.below(100) {
            0 => self.below(4 * MIB),
            1..10 => self.below(300 * KIB),
            _ => self.below(2 * KIB),
        }
    }
}

#[test]
fn every_object_lies_in_the_slices() {
    assert!(Tcmalloc::start());
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..4).map(|_| mpsc::channel::<Object>()).collect();
    std::thread::scope(|scope| {
        for (thread, receiver) in receivers.into_iter().enumerate() {
            let neighbour = senders[(thread + 1) % 4].clone();
            scope.spawn(move || {
                let mut random = Random(thread as u64 + 1);
                let mut live: Vec<Object> = Vec::new();
                for step in 0..60_000 {
                    match random.below(8) {
                        0..3 => {
                            let align = 1 << random.below(if step % 64 == 0 { 17 } else { 5 });
                            let zeroed = random.below(4) == 0;
                            let object = Object::new(random.size(), align, zeroed, step as u8);
                            live.push(object);
                        }
                        3 if !live.is_empty() => {
                            let at = random.below(live.len());
                            live[at].resize(random.size().max(1));
                        }
                        4 if !live.is_empty() => {
                            let object = live.swap_remove(random.below(live.len()));
                            // The neighbour may have finished.
                            if let Err(back) = neighbour.send(object) {
                                back.0.free(true);
                            }
                        }
                        5.. if live.len() > 200 => {
                            live.swap_remove(random.below(live.len())).free(step % 2 == 0);
                        }
                        _ => receiver.try_iter().for_each(|object| object.free(step % 2 == 0)),
                    }
                }
                drop(neighbour);
                live.into_iter().for_each(|object| object.free(true));
                receiver.try_iter().for_each(|object| object.free(false));
            });
        }
        drop(senders);
    });
}

#[test]
fn large_objects_and_alignments_lie_in_the_slices() {
    assert!(Tcmalloc::start());
    for (size, align) in [(GIB, 16), (3 * GIB + 5, 4096), (100, 2 * MIB), (MIB, 2 * MIB)] {
        Object::new(size, align, false, 7).free(true);
    }
    for _ in 0..1000 {
        // More than one region of a gibibyte, one after the other.
        let objects: [Object; 3] = std::array::from_fn(|_| Object::new(700 * MIB, 16, false, 9));
        objects.into_iter().for_each(|object| object.free(false));
    }
}

#[test]
fn what_cannot_be_had_is_refused() {
    assert!(Tcmalloc::start());
    for size in [usize::MAX, usize::MAX - 4096, isize::MAX as usize, 1 << 47, 4 * TIB] {
        assert!(Tcmalloc::alloc(size).is_null(), "{size:#x}");
        assert!(Tcmalloc::alloc_zeroed(size).is_null(), "{size:#x}");
        assert!(Tcmalloc::alloc_aligned(64, size).is_null(), "{size:#x}");
    }
    assert!(Tcmalloc::alloc_aligned(4 * MIB, 1).is_null(), "more than a huge page");
    let object = Object::new(100, 16, false, 3);
    // SAFETY: a live object, which stays where it is.
    assert!(unsafe { Tcmalloc::realloc(object.at, 1 << 47) }.is_null());
    object.free(true);
}

#[test]
fn trimming_gives_memory_back() {
    assert!(Tcmalloc::start());
    let objects: Vec<Object> = (0..64).map(|_| Object::new(MIB, 16, true, 1)).collect();
    objects.into_iter().for_each(|object| object.free(true));
    assert!(Tcmalloc::trim());
    Object::new(MIB, 16, true, 2).free(true);
}

#[test]
fn a_child_can_allocate_whatever_other_threads_were_doing() {
    assert!(Tcmalloc::start());
    let stop = AtomicBool::new(false);
    let work = |seed| {
        let mut random = Random(seed);
        let mut live = Vec::new();
        for _ in 0..200 {
            live.push(Object::new(random.size(), 16, false, 5));
            if live.len() > 50 {
                live.swap_remove(random.below(live.len())).free(true);
            }
        }
        live.into_iter().for_each(|object| object.free(false));
    };
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (stop, rounds) = (&stop, &rounds);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    work(thread + rounds.fetch_add(1, Relaxed) as u64);
                    // Thread starts and ends have locks of their own.
                    std::thread::spawn(move || work(thread)).join().unwrap();
                }
            });
        }
        for round in 0..300 {
            fork_prepare();
            // SAFETY: the child calls only what is meant for this, and leaves.
            let child = unsafe { libc::fork() };
            // SAFETY: prepared above.
            unsafe { fork_done(child == 0) };
            if child == 0 {
                // SAFETY: ends a child that hangs.
                unsafe { libc::alarm(20) };
                for size in (0..400).map(|n| n * 131) {
                    let at = Tcmalloc::alloc(size);
                    let ours = slices::owner(at as usize) == AllocatorId::Tcmalloc;
                    // SAFETY: a live object; ends the child without its parent's handlers.
                    unsafe {
                        Tcmalloc::free(at);
                        if !ours {
                            libc::_exit(1);
                        }
                    }
                }
                Tcmalloc::trim();
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: a child of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "fork {round}");
        }
        stop.store(true, Relaxed);
    });
    assert!(rounds.load(Relaxed) > 3);
}
