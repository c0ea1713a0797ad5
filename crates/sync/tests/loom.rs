//! Every interleaving of small programs, by the model checker loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p spandrel-sync --release`.
//!
//! loom panics when threads access a cell at the same time and when all threads
//! sleep; so a test that passes has no data race and loses no wake-up.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU8;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;
use spandrel_sync::{Gate, Handshake, Lock, Once, Pool, Wakeup};

/// A value that panics when two use it at a time.
struct Value(UnsafeCell<u32>);

// SAFETY: loom checks every access.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new() -> Self {
        Value(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: loom checks that no other thread has the cell.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that no thread writes to the cell.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn a_lock_admits_one_at_a_time_and_wakes_a_waiter() {
    // The main thread is the third.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lock = Arc::new(Lock::new(Value::new()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || lock.lock().add())
            })
            .collect();
        lock.lock().add();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(lock.lock().get(), 3);
    });
}

#[test]
fn two_threads_take_turns_at_a_lock() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Value::new()));
        let other = lock.clone();
        let thread = thread::spawn(move || (0..2).for_each(|_| other.lock().add()));
        (0..2).for_each(|_| lock.lock().add());
        thread.join().unwrap();
        assert_eq!(lock.lock().get(), 4);
    });
}

#[test]
fn a_lock_that_is_tried_admits_one_at_a_time() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Value::new()));
        let other = lock.clone();
        let thread = thread::spawn(move || other.try_lock().map(|value| value.add()).is_some());
        let taken = lock.try_lock().map(|value| value.add()).is_some();
        let taken_too = thread.join().unwrap();
        assert!(taken || taken_too, "a free lock is not refused to both");
        assert_eq!(lock.lock().get(), u32::from(taken) + u32::from(taken_too));
    });
}

#[test]
fn a_lock_held_without_a_guard_as_for_a_fork() {
    loom::model(|| {
        let lock = Arc::new(Lock::new(Value::new()));
        let other = lock.clone();
        let thread = thread::spawn(move || other.lock().add());
        lock.acquire();
        // SAFETY: acquired above.
        unsafe { lock.release() };
        lock.lock().add();
        thread.join().unwrap();
        assert_eq!(lock.lock().get(), 2);
    });
}

#[test]
fn a_start_is_run_once_and_seen_by_all() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let once = Arc::new((Once::new(), Value::new()));
        let start = |once: &(Once, Value)| {
            assert!(once.0.run(|| once.1.add()));
            assert_eq!(once.1.get(), 1);
            assert!(once.0.is_done());
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let once = once.clone();
                thread::spawn(move || start(&once))
            })
            .collect();
        start(&once);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_thread_that_finds_a_start_done_sees_it_and_the_running_thread_knows() {
    loom::model(|| {
        let once = Arc::new((Once::new(), Value::new()));
        let other = once.clone();
        let thread = thread::spawn(move || {
            other.0.run(|| {
                assert!(other.0.runs_here());
                assert!(!other.0.run(|| unreachable!()));
                other.1.add();
            });
        });
        assert!(!once.0.runs_here());
        if once.0.is_done() {
            assert_eq!(once.1.get(), 1);
        }
        thread.join().unwrap();
        assert!(once.0.is_done());
    });
}

/// A structure whose changes pass a gate: two words that agree whenever the gate is shut.
struct Gated {
    gate: Gate<2>,
    words: [Lock<Value>; 2],
    whole: Value,
}

impl Gated {
    fn new() -> Self {
        Gated {
            gate: Gate::new(),
            words: [Lock::new(Value::new()), Lock::new(Value::new())],
            whole: Value::new(),
        }
    }

    fn change(&self, shard: usize) {
        self.gate.enter(shard);
        self.words[shard].lock().add();
        // Read by every thread inside, written by the one that has shut the gate.
        self.whole.get();
        self.gate.leave(shard);
    }

    /// Alone with the structure.
    fn copy(&self) {
        while !self.gate.try_shut(1) {
            thread::yield_now();
        }
        self.whole.add();
        self.gate.open();
    }
}

#[test]
fn a_thread_that_shuts_a_gate_is_alone() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gated = Arc::new(Gated::new());
        let other = gated.clone();
        let thread = thread::spawn(move || {
            other.change(0);
            other.change(0);
        });
        gated.copy();
        gated.change(1);
        thread.join().unwrap();
        assert_eq!(gated.whole.get(), 1);
    });
}

#[test]
fn a_thread_that_only_tries_a_gate_is_inside_or_not_at_all() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gated = Arc::new(Gated::new());
        let other = gated.clone();
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                if other.gate.try_enter(0) {
                    // Read while the other thread is out.
                    other.whole.get();
                    other.gate.leave(0);
                }
            }
        });
        gated.copy();
        thread.join().unwrap();
        assert!(gated.gate.try_enter(1));
        gated.gate.leave(1);
    });
}

#[test]
fn two_threads_that_shut_a_gate_take_turns_and_a_third_passes() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let gated = Arc::new(Gated::new());
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let gated = gated.clone();
                thread::spawn(move || if number == 0 { gated.copy() } else { gated.change(1) })
            })
            .collect();
        gated.copy();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(gated.whole.get(), 2);
    });
}

/// A thread inside waits for a lock whose holder waits at the gate: a gate that stayed shut would never have the first one leave.
#[test]
fn a_thread_inside_may_wait_for_one_at_the_gate() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (gate, lock) = (Arc::new(Gate::<2>::new()), Arc::new(Lock::new(Value::new())));
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (gate, lock) = (gate.clone(), lock.clone());
                thread::spawn(move || {
                    if number == 0 {
                        gate.enter(0);
                        lock.lock().add();
                        gate.leave(0);
                    } else {
                        let held = lock.lock();
                        gate.enter(1);
                        held.add();
                        gate.leave(1);
                    }
                })
            })
            .collect();
        // Two tries; the model would go on for ever with the one interleaving in which each try is too short.
        if (0..2).any(|_| gate.try_shut(1)) {
            gate.open();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(lock.lock().get(), 2);
    });
}

const LIVE: u8 = 1;
const EMPTY: u8 = 2;

/// A slot of the page-mapped backend: its record belongs to the owner of the
/// object or, between `visit` and `depart`, to the thread that trims; once it is empty,
/// to the thread that has the lists' lock.
struct Slot {
    state: AtomicU8,
    handshake: Handshake,
    record: Value,
    lists: Lock<()>,
}

impl Slot {
    fn new() -> Self {
        Slot {
            state: AtomicU8::new(LIVE),
            handshake: Handshake::new(),
            record: Value::new(),
            lists: Lock::new(()),
        }
    }

    /// The owner resizes its object.
    fn resize(&self) {
        self.handshake.enter();
        self.record.add();
        self.handshake.leave();
    }

    /// The owner frees its object; another thread gets the slot from its list.
    fn free(&self) {
        self.handshake.enter();
        self.state.store(EMPTY, Release);
        self.handshake.leave();
        let _lists = self.lists.lock();
        self.record.add();
    }

    /// Trims behind the object, if it is one: the lock is released meanwhile.
    fn trim(&self) -> bool {
        let lists = self.lists.lock();
        let visiting = self.handshake.visit(|| self.state.load(Acquire) == LIVE);
        drop(lists);
        if visiting {
            self.record.add();
            self.handshake.depart();
        }
        visiting
    }
}

#[test]
fn an_owner_and_a_visitor_do_not_meet() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let other = slot.clone();
        let visitor = thread::spawn(move || other.trim());
        slot.resize();
        slot.resize();
        let trimmed = visitor.join().unwrap();
        assert_eq!(slot.record.get(), 2 + u32::from(trimmed));
    });
}

#[test]
fn an_object_that_is_being_freed_is_not_visited() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let other = slot.clone();
        let visitor = thread::spawn(move || other.trim());
        slot.free();
        let trimmed = visitor.join().unwrap();
        assert_eq!(slot.record.get(), 1 + u32::from(trimmed));
    });
}

#[test]
fn visitors_come_and_go_while_the_owner_waits() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slot = Arc::new(Slot::new());
        let other = slot.clone();
        let visitor = thread::spawn(move || u32::from(other.trim()) + u32::from(other.trim()));
        slot.resize();
        slot.free();
        let trimmed = visitor.join().unwrap();
        assert_eq!(slot.record.get(), 2 + trimmed);
    });
}

/// The model is worth something: it finds what goes wrong when a visitor looks
/// at the state before it knows that the owner has gone.
#[test]
#[should_panic(expected = "Causality violation")]
fn looking_before_the_owner_has_gone_is_found_out() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let other = slot.clone();
        let visitor = thread::spawn(move || {
            let lists = other.lists.lock();
            let live = other.state.load(Relaxed) == LIVE;
            let visiting = other.handshake.visit(|| live);
            drop(lists);
            if visiting {
                other.record.add();
                other.handshake.depart();
            }
        });
        slot.free();
        visitor.join().unwrap();
    });
}

#[test]
fn work_that_comes_up_is_done_before_the_thread_sleeps() {
    loom::model(|| {
        let shared = Arc::new((Wakeup::new(), Lock::new(Value::new())));
        assert!(shared.0.start());
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (state, todo) = &*shared;
                state.started();
                // If it slept for good, the model would tell.
                while state.look() && todo.lock().get() == 0 {
                    state.sleep(1000);
                }
            })
        };
        shared.1.lock().add();
        shared.0.wake();
        thread.join().unwrap();
    });
}

#[test]
fn work_that_comes_up_while_the_thread_leaves_is_done_or_makes_another_thread() {
    loom::model(|| {
        let shared = Arc::new((Wakeup::new(), Lock::new(Value::new())));
        let run = |shared: Arc<(Wakeup, Lock<Value>)>| {
            thread::spawn(move || {
                let (state, todo) = &*shared;
                state.started();
                while state.look() {
                    let found = todo.lock().get();
                    if found > 0 || state.retire(1) {
                        return found;
                    }
                }
                0
            })
        };
        assert!(shared.0.start());
        let first = run(shared.clone());
        shared.1.lock().add();
        let second = shared.0.start().then(|| run(shared.clone()));
        let found = first.join().unwrap() + second.map_or(0, |thread| thread.join().unwrap());
        assert!(found > 0);
    });
}

#[test]
fn a_thread_that_is_dismissed_ends_and_another_one_may_be_started() {
    loom::model(|| {
        let state = Arc::new(Wakeup::new());
        assert!(state.start());
        state.started();
        let raw = {
            let state = state.clone();
            thread::spawn(move || {
                while state.look() {
                    if !state.is_leaving() && state.retire(1) {
                        break;
                    }
                }
                state.gone();
            })
        };
        assert!(state.dismiss(), "it has begun");
        raw.join().unwrap();
        assert!(!state.is_there() && state.start());
    });
}

#[test]
fn a_thread_that_is_to_leave_leaves_whatever_it_does() {
    loom::model(|| {
        let state = Arc::new(Wakeup::new());
        // One thread wants it while another ends it.
        let wants = {
            let state = state.clone();
            thread::spawn(move || {
                state.start().then(|| {
                    thread::spawn(move || {
                        state.started();
                        while state.look() {
                            state.sleep(1000);
                        }
                    })
                })
            })
        };
        let to_join = state.leave();
        let thread = wants.join().unwrap();
        assert_eq!(to_join, thread.is_some());
        if let Some(thread) = thread {
            thread.join().unwrap();
            state.left();
        }
        assert!(!state.start() && !state.is_there());
    });
}

/// Takes a worker's part: each piece of work finds as many more as its number says. What was done.
fn work(pool: &Pool<u32, 1>, mut found: Vec<u32>) -> u32 {
    let mut done = 0;
    loop {
        while let Some(piece) = found.pop() {
            done += 1;
            found.extend((0..piece).map(|_| piece - 1));
            if pool.is_wanted()
                && let Some(piece) = found.pop()
                && let Err([Some(back)]) = pool.leave([Some(piece)])
            {
                found.push(back);
            }
        }
        let Some(taken) = pool.take() else { return done };
        found.extend(taken.into_iter().flatten());
    }
}

#[test]
fn work_that_finds_work_is_all_done_once_and_then_all_end() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pool = Arc::new(Pool::new(2));
        let other = pool.clone();
        let thread = thread::spawn(move || work(&other, Vec::new()));
        let done = work(&pool, vec![2]);
        // 2 finds 1 and 1, and each of these 0.
        assert_eq!(done + thread.join().unwrap(), 5);
    });
}
