//! Caches of processors, their operations interrupted after any instruction, by the scheduler shuttle:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p spandrel-slabs --release --test shuttle`.
//!
//! No object is handed out twice and none is lost, while tasks move between processors and another empties
//! their caches.
#![cfg(shuttle)]

use std::collections::HashSet;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner, thread};
use spandrel_os::rseq;
use spandrel_slabs as slabs;

/// Of these sizes two, three, 64 and 1024 objects are cached.
const SIZES: [usize; 4] = [32_000, 20_000, 1000, 40];
const TASKS: usize = 3;
const STEPS: usize = 12;
const EXECUTIONS: usize = 50_000;

/// What the tasks have.
static LIVE: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

fn live<T>(change: impl FnOnce(&mut HashSet<usize>) -> T) -> T {
    change(LIVE.lock().expect("no test has failed").get_or_insert_default())
}

fn alloc(size: usize) -> usize {
    let object = slabs::alloc(size) as usize;
    assert_ne!(object, 0);
    assert!(live(|live| live.insert(object)), "{object:#x} is handed out twice");
    object
}

fn free(object: usize) {
    assert!(live(|live| live.remove(&object)));
    // SAFETY: a live object, and this task's.
    unsafe { slabs::free(object as *mut u8) };
}

/// A program of one execution: some of the tasks allocate and free at random, the main one empties caches.
fn program() {
    assert!(slabs::start());
    slabs::start_cpu_caches();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            thread::spawn(|| {
                let mut objects = Vec::new();
                for _ in 0..STEPS {
                    if objects.is_empty() || thread_rng().gen_range(0..5) < 3 {
                        objects.push(alloc(SIZES[thread_rng().gen_range(0..SIZES.len())]));
                    } else {
                        free(objects.swap_remove(thread_rng().gen_range(0..objects.len())));
                    }
                }
                objects.into_iter().for_each(free);
            })
        })
        .collect();
    for _ in 0..3 {
        slabs::trim();
    }
    tasks.into_iter().for_each(|task| task.join().expect("no task panics"));
    slabs::trim();
    let stats = slabs::stats().expect("the heap is there");
    assert_eq!((stats.spans, stats.resident().0), (0, 0), "objects were lost");
}

/// Executes the program so often, each time in another order.
fn check(executions: usize) {
    rseq::start();
    assert!(rseq::area().is_some(), "needs glibc 2.35 and Linux 5.10");
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    Runner::new(RandomScheduler::new(executions), config).run(program);
}

/// One test: the heap is the process's.
#[test]
fn nothing_is_lost_or_handed_out_twice() {
    check(EXECUTIONS);
}

#[test]
#[ignore = "fails, as it has to: see below"]
fn without_the_barrier() {
    slabs::restartable::HAS_BARRIER.store(false, Relaxed);
    check(EXECUTIONS);
}

/// Shows that the tests above would find that somebody is in the middle of a sequence.
#[test]
fn a_cache_that_is_emptied_without_the_barrier_is_found_out() {
    let this = std::env::current_exe().expect("the path of this test");
    let test = ["--ignored", "--exact", "without_the_barrier"];
    let output = Command::new(this).args(test).output().expect("run this test");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let found = ["handed out twice", "were lost", "spandrel: free"];
    assert!(found.iter().any(|word| text.contains(word)), "{text}");
}
