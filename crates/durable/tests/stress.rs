//! Eight threads on one state, which agrees with itself whenever a thread looks.
#![cfg(not(loom))]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::from_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use spandrel_durable::combine::{Batch, Combiner, Outcome, Slot};

const THREADS: usize = 8;

/// Two counters, equal whenever no batch runs.
struct Pair(UnsafeCell<[u64; 2]>);

// SAFETY: the combiner admits either readers or one writer: what this test is about.
unsafe impl Sync for Pair {}

struct Request {
    add: u64,
    before: u64,
}

fn run(rounds: u64, seats: usize, writes_in: u64, batches_in_a_row: u32) {
    let slots: Vec<_> = (0..seats).map(|_| Slot::new()).collect();
    let combiner = Combiner::new(&slots).with_batches_in_a_row(batches_in_a_row);
    let pair = Pair(UnsafeCell::new([0, 0]));
    let sum = AtomicU64::new(0);
    let batches = AtomicU64::new(0);
    thread::scope(|threads| {
        for number in 0..THREADS as u64 {
            let (combiner, pair, sum, batches) = (&combiner, &pair, &sum, &batches);
            threads.spawn(move || {
                // With fewer seats than threads, each round waits for one.
                let mut kept = (seats >= THREADS).then(|| combiner.register().unwrap());
                let mut random = number + 1;
                let mut last = 0;
                for _ in 0..rounds {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let mut found = None;
                    let seat =
                        kept.as_mut().unwrap_or_else(|| found.insert(combiner.seat_or_wait()));
                    let dice = (random >> 33) % 1000;
                    if dice == 0 {
                        seat.exclusive(|| {
                            // SAFETY: no other thread is inside.
                            let pair = unsafe { &mut *pair.0.get() };
                            assert_eq!(pair[0], pair[1]);
                            *pair = [pair[1], pair[0]];
                        });
                    } else if dice % 100 < writes_in {
                        let mut request = Request { add: dice, before: u64::MAX };
                        let execute = |batch: &Batch<'_>| {
                            if batches.fetch_add(1, Relaxed) % 50 == 0 {
                                resume_unwind(Box::new("a batch fails before it begins"));
                            }
                            // SAFETY: no other thread is inside.
                            let pair = unsafe { &mut *pair.0.get() };
                            for entry in batch.iter() {
                                // SAFETY: the thread of the request waits, and the request is of this type.
                                let request = unsafe { &mut *entry.request().cast::<Request>() };
                                request.before = pair[0];
                                pair[0] += request.add;
                                std::hint::spin_loop();
                                pair[1] += request.add;
                                entry.set_outcome(Outcome::new(pair[1]));
                            }
                        };
                        let address = from_mut(&mut request).cast();
                        let write = || seat.write(address, execute);
                        let outcome = catch_unwind(AssertUnwindSafe(write));
                        let outcome = outcome.unwrap_or(Outcome::ABANDONED);
                        if outcome == Outcome::ABANDONED {
                            assert_eq!(request.before, u64::MAX, "not executed");
                            continue;
                        }
                        assert_eq!(outcome.word(), request.before + request.add, "executed once");
                        sum.fetch_add(request.add, Relaxed);
                        assert!(request.before >= last);
                        last = outcome.word();
                    } else {
                        // SAFETY: no writer is inside.
                        let [one, two] = seat.read(|| unsafe { *pair.0.get() });
                        assert_eq!(one, two);
                        assert!(one >= last, "what this thread has written or read is still there");
                        last = one;
                    }
                }
            });
        }
    });
    assert_eq!(pair.0.into_inner(), [sum.into_inner(); 2]);
    assert!(batches.into_inner() > 0);
}

#[test]
fn mostly_reads() {
    run(40_000, THREADS, 10, 4);
}

#[test]
fn mostly_writes() {
    run(40_000, THREADS, 90, 4);
}

#[test]
fn pure_writer_preference() {
    run(40_000, THREADS, 50, u32::MAX);
}

#[test]
fn each_batch_is_followed_by_a_turn() {
    run(40_000, THREADS, 50, 1);
}

#[test]
fn fewer_seats_than_threads() {
    run(10_000, 3, 50, 4);
}
