//! Every interleaving of small programs, by the model checker loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p spandrel-durable --release --test loom`.
//!
//! loom panics when threads access a cell at the same time and when all threads sleep; so a test that passes has no data race
//! and loses no wake-up. Its threads share one thread of the system and so one count of panics: batches that unwind are left to
//! `stress.rs`.
#![cfg(loom)]

use core::ptr::from_mut;
use std::boxed::Box;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use spandrel_durable::combine::{Combiner, Outcome, Seat, Slot};

/// Slots that outlive their combiner.
struct Slots(*mut [Slot]);

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of a box, and the combiner, which is dropped before, had the only reference.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A number that panics when a writer has it beside another thread.
struct State {
    combiner: Combiner<'static>,
    number: UnsafeCell<u32>,
    batches: AtomicU32,
    _slots: Slots,
}

// SAFETY: loom checks every access of the number.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    fn new(seats: usize, batches_in_a_row: u32) -> Arc<Self> {
        let slots = Slots(Box::into_raw((0..seats).map(|_| Slot::new()).collect()));
        // SAFETY: the slots are dropped after the combiner.
        let combiner = Combiner::new(unsafe { &*slots.0 }).with_batches_in_a_row(batches_in_a_row);
        let (number, batches) = (UnsafeCell::new(0), AtomicU32::new(0));
        Arc::new(State { combiner, number, batches, _slots: slots })
    }

    fn seat(&self) -> Seat<'_> {
        self.combiner.register().unwrap()
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that no thread writes to the cell.
        self.number.with(|number| unsafe { *number })
    }

    fn add(&self) -> u32 {
        // SAFETY: loom checks that no other thread has the cell.
        self.number.with_mut(|number| unsafe {
            *number += 1;
            *number
        })
    }

    fn read(&self, seat: &mut Seat<'_>) -> u32 {
        seat.read(|| self.get())
    }

    /// Adds 1, and checks that it is done once.
    fn write(&self, seat: &mut Seat<'_>) -> u32 {
        // loom checks that the batch sees the request as this thread made it, and this thread what the batch made of it.
        let mut executed = UnsafeCell::new(0_u32);
        let outcome = seat.write(from_mut(&mut executed).cast(), |batch| {
            self.batches.fetch_add(1, Relaxed);
            for entry in batch.iter() {
                // SAFETY: the thread of the request waits, and the request is such a cell.
                let executed = unsafe { &*entry.request().cast::<UnsafeCell<u32>>() };
                // SAFETY: loom checks that no other thread has the cell.
                executed.with_mut(|executed| unsafe { *executed += 1 });
                entry.set_outcome(Outcome::new(u64::from(self.add())));
            }
        });
        // SAFETY: as above.
        assert_eq!(executed.with(|executed| unsafe { *executed }), 1);
        outcome.word() as u32
    }
}

/// Tries every interleaving with at most `preemptions`; `LOOM_MAX_PREEMPTIONS` overrides the number, for a long run.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(preemptions));
    model.check(test);
}

fn spawn<T: 'static>(
    state: &Arc<State>,
    run: impl FnOnce(&State) -> T + 'static,
) -> thread::JoinHandle<T> {
    let state = state.clone();
    thread::spawn(move || run(&state))
}

fn join<T, const N: usize>(threads: [thread::JoinHandle<T>; N]) -> [T; N] {
    threads.map(|thread| thread.join().unwrap())
}

#[test]
fn a_reader_is_never_beside_a_batch() {
    model(4, || {
        let state = State::new(2, 4);
        let writer = spawn(&state, |state| assert_eq!(state.write(&mut state.seat()), 1));
        assert!(state.read(&mut state.seat()) <= 1);
        writer.join().unwrap();
        assert_eq!(state.read(&mut state.seat()), 1);
    });
}

#[test]
fn a_reader_that_comes_again_meets_two_batches() {
    for batches_in_a_row in [1, 4] {
        model(3, move || {
            let state = State::new(2, batches_in_a_row);
            let writer = spawn(&state, |state| {
                let mut seat = state.seat();
                assert_eq!([state.write(&mut seat), state.write(&mut seat)], [1, 2]);
            });
            let mut seat = state.seat();
            let first = state.read(&mut seat);
            assert!(first <= state.read(&mut seat));
            writer.join().unwrap();
        });
    }
}

#[test]
fn two_writers_are_executed_once_each() {
    model(4, || {
        let state = State::new(2, 4);
        let writer = spawn(&state, |state| assert!(state.write(&mut state.seat()) <= 2));
        assert!(state.write(&mut state.seat()) <= 2);
        writer.join().unwrap();
        assert_eq!(state.read(&mut state.seat()), 2);
        assert!(state.batches.load(Relaxed) <= 2);
    });
}

#[test]
fn a_writer_that_comes_again_meets_another() {
    model(3, || {
        let state = State::new(2, 4);
        let writer = spawn(&state, |state| {
            let mut seat = state.seat();
            assert!(state.write(&mut seat) < state.write(&mut seat));
        });
        state.write(&mut state.seat());
        writer.join().unwrap();
        assert_eq!(state.read(&mut state.seat()), 3);
    });
}

#[test]
fn three_writers_are_executed_once_each() {
    model(1, || {
        let state = State::new(3, 4);
        let writers = [0, 1].map(|_| spawn(&state, |state| state.write(&mut state.seat())));
        state.write(&mut state.seat());
        join(writers);
        assert_eq!(state.read(&mut state.seat()), 3);
    });
}

#[test]
fn two_writers_and_a_reader() {
    for batches_in_a_row in [1, 4] {
        model(1, move || {
            let state = State::new(3, batches_in_a_row);
            let writers = [0, 1].map(|_| spawn(&state, |state| state.write(&mut state.seat())));
            assert!(state.read(&mut state.seat()) <= 2);
            join(writers);
            assert_eq!(state.read(&mut state.seat()), 2);
        });
    }
}

#[test]
fn two_readers_and_a_writer() {
    for batches_in_a_row in [1, 4] {
        model(1, move || {
            let state = State::new(3, batches_in_a_row);
            let readers =
                [0, 1].map(|_| spawn(&state, |state| assert!(state.read(&mut state.seat()) <= 1)));
            assert_eq!(state.write(&mut state.seat()), 1);
            join(readers);
            assert_eq!(state.read(&mut state.seat()), 1);
        });
    }
}

#[test]
fn an_exclusive_section_is_alone() {
    model(1, || {
        let state = State::new(3, 1);
        let writer = spawn(&state, |state| state.write(&mut state.seat()));
        let reader = spawn(&state, |state| assert!(state.read(&mut state.seat()) <= 2));
        state.seat().exclusive(|| state.add());
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(state.read(&mut state.seat()), 2);
    });
}

#[test]
fn an_exclusive_section_and_requests_hand_on_the_gate() {
    model(3, || {
        let state = State::new(2, 4);
        let writer = spawn(&state, |state| state.write(&mut state.seat()));
        let mut seat = state.seat();
        seat.exclusive(|| state.add());
        seat.exclusive(|| state.add());
        writer.join().unwrap();
        assert_eq!(state.read(&mut seat), 3);
    });
}

#[test]
fn exclusive_sections_and_a_request() {
    model(1, || {
        let state = State::new(3, 4);
        let writer = spawn(&state, |state| state.write(&mut state.seat()));
        let other = spawn(&state, |state| state.seat().exclusive(|| state.add()));
        state.seat().exclusive(|| state.add());
        writer.join().unwrap();
        other.join().unwrap();
        assert_eq!(state.read(&mut state.seat()), 3);
    });
}

#[test]
fn a_thread_that_waits_for_a_seat_gets_it() {
    model(3, || {
        let state = State::new(1, 4);
        let others = [0, 1].map(|_| {
            spawn(&state, |state| state.combiner.seat_or_wait().exclusive(|| state.add()))
        });
        join(others);
        assert_eq!(state.read(&mut state.seat()), 2);
    });
}
