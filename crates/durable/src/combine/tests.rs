extern crate std;

use super::*;
use core::ptr::{from_mut, null_mut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use std::vec::Vec;

fn slots(number: usize) -> Vec<Slot> {
    (0..number).map(|_| Slot::new()).collect()
}

/// Waits until `is_so`, for some seconds at most.
fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Threads that wait for the gate or in a batch.
fn waiting(combiner: &Combiner<'_>) -> usize {
    combiner.slots.iter().filter(|slot| !Status::Idle.is(slot.status())).count()
}

fn sleeping(combiner: &Combiner<'_>) -> usize {
    combiner.slots.iter().filter(|slot| slot.status() & ASLEEP != 0).count()
}

#[test]
fn a_slot_has_lines_of_its_own() {
    assert_eq!((align_of::<Slot>(), size_of::<Slot>()), (128, 128));
}

#[test]
fn a_combiner_may_be_a_static() {
    static SLOTS: [Slot; 2] = [const { Slot::new() }; 2];
    static COMBINER: Combiner<'static> = Combiner::new(&SLOTS);
    let mut seat = COMBINER.register().unwrap();
    assert_eq!(seat.read(|| 7), 7);
    let mut number = 1_u32;
    let outcome = seat.write(from_mut(&mut number).cast(), |batch| {
        assert_eq!(batch.len(), 1);
        for entry in batch.iter() {
            // SAFETY: the request is this test's number, which nothing else uses meanwhile.
            unsafe { *entry.request().cast::<u32>() += 1 };
            entry.set_outcome(Outcome::new(5));
        }
    });
    assert_eq!((number, outcome.word()), (2, 5));
    assert_eq!(seat.write(null_mut(), |_| ()), Outcome::DONE);
    assert_eq!(seat.exclusive(|| 8), 8);
    assert_eq!(seat.read(|| 9), 9);
}

#[test]
fn seats_are_as_many_as_slots_and_come_back() {
    let slots = slots(2);
    let combiner = Combiner::new(&slots);
    let one = combiner.register().unwrap();
    let two = combiner.register().unwrap();
    assert!(combiner.register().is_none());
    drop(one);
    let one = combiner.register().unwrap();
    thread::scope(|threads| {
        let waiter = threads.spawn(|| combiner.seat_or_wait().index);
        until(|| combiner.vacancies.load(Relaxed) & AWAITED != 0);
        assert!(!waiter.is_finished());
        drop(two);
        assert_eq!(waiter.join().unwrap(), 1);
    });
    drop(one);
}

#[test]
fn requests_that_come_during_a_batch_are_the_next_one() {
    let slots = slots(8);
    let combiner = Combiner::new(&slots);
    let batches = std::sync::Mutex::new(Vec::new());
    let write = |seat: &mut Seat<'_>| {
        seat.write(null_mut(), |batch| batches.lock().unwrap().push(batch.len()))
    };
    let mut first = combiner.register().unwrap();
    thread::scope(|threads| {
        first.write(null_mut(), |batch| {
            assert_eq!(batch.len(), 1);
            for _ in 0..5 {
                threads.spawn(|| write(&mut combiner.register().unwrap()));
            }
            until(|| sleeping(&combiner) == 5);
        });
    });
    assert_eq!(*batches.lock().unwrap(), [5]);
    assert_eq!(waiting(&combiner), 0);
}

#[test]
fn each_request_has_its_own_outcome() {
    let slots = slots(4);
    let combiner = Combiner::new(&slots);
    let write = |number: usize| {
        let request = core::ptr::without_provenance_mut(number);
        combiner.register().unwrap().write(request, |batch| {
            batch.iter().for_each(|e| e.set_outcome(Outcome::new(e.request().addr() as u64 * 2)));
        })
    };
    let mut first = combiner.register().unwrap();
    thread::scope(|threads| {
        let mut others = Vec::new();
        first.write(null_mut(), |_| {
            others.extend((1..4).map(|number| (number, threads.spawn(move || write(number)))));
            until(|| waiting(&combiner) == 4);
        });
        for (number, thread) in others {
            assert_eq!(thread.join().unwrap().word(), number as u64 * 2);
        }
    });
}

#[test]
fn a_batch_that_unwinds_leaves_no_thread_waiting() {
    let slots = slots(4);
    let combiner = Combiner::new(&slots);
    let mut first = combiner.register().unwrap();
    thread::scope(|threads| {
        let mut others = Vec::new();
        first.write(null_mut(), |_| {
            for _ in 0..3 {
                others.push(threads.spawn(|| {
                    let mut seat = combiner.register().unwrap();
                    let write = || {
                        seat.write(null_mut(), |batch| {
                            batch.iter().for_each(|entry| entry.set_outcome(Outcome::new(3)));
                            std::panic::resume_unwind(std::boxed::Box::new(()));
                        })
                    };
                    catch_unwind(AssertUnwindSafe(write))
                }));
            }
            until(|| sleeping(&combiner) == 3);
        });
        let results: Vec<_> = others.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        let abandoned = |result: &&Result<_, _>| matches!(result, Ok(Outcome::ABANDONED));
        assert_eq!(results.iter().filter(abandoned).count(), 2);
    });
    assert_eq!(first.write(null_mut(), |_| ()), Outcome::DONE);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        first.read(|| std::panic::resume_unwind(std::boxed::Box::new(())))
    }));
    assert!(unwound.is_err());
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        first.exclusive(|| std::panic::resume_unwind(std::boxed::Box::new(())))
    }));
    assert!(unwound.is_err());
    assert_eq!(first.write(null_mut(), |_| ()), Outcome::DONE);
}

#[test]
fn a_batch_waits_for_readers_and_takes_along_what_comes_meanwhile() {
    let slots = slots(4);
    let combiner = Combiner::new(&slots);
    let inside = AtomicBool::new(true);
    let (sizes, size) = channel();
    thread::scope(|threads| {
        let mut reader = combiner.register().unwrap();
        reader.read(|| {
            for expected in [1, 2, 3] {
                let (sizes, inside, combiner) = (sizes.clone(), &inside, &combiner);
                threads.spawn(move || {
                    combiner.register().unwrap().write(null_mut(), |batch| {
                        assert!(!inside.load(Relaxed));
                        sizes.send(batch.len()).unwrap();
                    })
                });
                until(|| waiting(combiner) == expected);
            }
            inside.store(false, Relaxed);
        });
    });
    drop(sizes);
    // The combiner may sleep while the later two come: it collects once more when it wakes.
    assert_eq!(size.iter().collect::<Vec<_>>(), [3]);
}

#[test]
fn an_exclusive_section_and_a_request_take_turns() {
    let slots = slots(4);
    let combiner = Combiner::new(&slots);
    let order = std::sync::Mutex::new(Vec::new());
    let mut first = combiner.register().unwrap();
    thread::scope(|threads| {
        first.write(null_mut(), |_| {
            for _ in 0..2 {
                threads.spawn(|| {
                    combiner.register().unwrap().exclusive(|| order.lock().unwrap().push("alone"))
                });
            }
            threads.spawn(|| {
                let mut seat = combiner.register().unwrap();
                seat.write(null_mut(), |_| order.lock().unwrap().push("batch"))
            });
            until(|| sleeping(&combiner) == 3);
        });
    });
    assert_eq!(*order.lock().unwrap(), ["alone", "batch", "alone"]);
}

#[test]
fn readers_have_their_turn_while_batches_follow_each_other() {
    let slots = slots(4);
    // Writers that hold the gate nearly all the time, with another one ready whenever a batch ends.
    for batches in [1, 3] {
        let combiner = Combiner::new(&slots).with_batches_in_a_row(batches);
        let stop = AtomicBool::new(false);
        thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    let mut seat = combiner.register().unwrap();
                    while !stop.load(Relaxed) {
                        seat.write(null_mut(), |_| thread::sleep(Duration::from_millis(1)));
                    }
                });
            }
            let mut seat = combiner.register().unwrap();
            let begin = Instant::now();
            (0..50).for_each(|_| seat.read(|| ()));
            assert!(begin.elapsed() < Duration::from_secs(20));
            stop.store(true, Relaxed);
        });
        assert_eq!(waiting(&combiner), 0);
    }
}

#[test]
fn a_turn_admits_all_readers_that_sleep_before_the_next_batch() {
    let slots = slots(4);
    let combiner = Combiner::new(&slots).with_batches_in_a_row(1);
    let order = std::sync::Mutex::new(Vec::new());
    let mut first = combiner.register().unwrap();
    thread::scope(|threads| {
        first.write(null_mut(), |_| {
            for _ in 0..2 {
                threads.spawn(|| {
                    combiner.register().unwrap().read(|| order.lock().unwrap().push("read"))
                });
            }
            until(|| combiner.gate.waiting() == 2);
            threads.spawn(|| {
                let mut seat = combiner.register().unwrap();
                seat.write(null_mut(), |_| order.lock().unwrap().push("batch"))
            });
            until(|| sleeping(&combiner) == 1);
        });
    });
    assert_eq!(*order.lock().unwrap(), ["read", "read", "batch"]);
}
