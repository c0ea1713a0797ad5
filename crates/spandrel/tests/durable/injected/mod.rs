//! Every system call that changes a file fails, one at a time: what was acknowledged is there afterwards, the program hears of the fault by an error, and the next opening works.

mod calls;
mod story;

use std::path::Path;

use libc::{EINTR, EIO, ENOSPC};

use super::places;
use calls::{Fault, Plan, supervise};
use story::Story;

/// Faults of one call that the program must hear of, or get over.
const FAULTS: [Fault; 4] =
    [Fault::Error(EIO), Fault::Error(ENOSPC), Fault::Late(EIO), Fault::Short];

/// Threads that try calls at a time: most of the time they wait for the disk.
const THREADS: usize = 4;

/// Runs the story once for each plan of each call. Returns how often.
fn every_call(is_recovery: bool, plans: fn(u64) -> Vec<Plan>) -> u64 {
    let places = places();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..places.len() * THREADS)
            .map(|number| {
                let path = places[number / THREADS].0.path().join(format!("bank-{number}"));
                scope.spawn(move || some_calls(&path, is_recovery, plans, number % THREADS))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Those of one thread.
fn some_calls(path: &Path, is_recovery: bool, plans: fn(u64) -> Vec<Plan>, thread: usize) -> u64 {
    let mut injected = 0;
    let story = Story::new(path, is_recovery);
    let (said, calls) = supervise(None, "without faults", || story.tell());
    assert!(said.is_perfect(), "{said:?}");
    story.judge(&said, &calls, "without faults");
    assert!(calls.count >= 20, "{calls:?}");
    if thread == 0 {
        println!("{}: {} calls: {}", path.display(), calls.count, calls.names.join(" "));
    }
    for at in numbers(&calls.names).into_iter().skip(thread).step_by(THREADS) {
        for plan in plans(at) {
            story.reset();
            let what = format!("{}, {plan:?}", path.display());
            let (said, calls) = supervise(Some(plan), &what, || story.tell());
            injected += u64::from(!calls.faults.is_empty());
            let faults = &calls.faults[..calls.faults.len().min(4)];
            let what = format!("{what}\n{faults:#?}\n{said:#?}");
            let is_no_fault = matches!(plan.fault, Fault::Short | Fault::Error(EINTR));
            let is_well = !is_no_fault || plan.then.is_some() || said.is_perfect();
            assert!(is_well, "an error without a reason: {what}");
            story.judge(&said, &calls, &what);
        }
    }
    injected
}

/// The numbers of the calls that fail. Of a row of calls of the same name these are the first, the last and one between them; `SPANDREL_SOAK`: all.
fn numbers(names: &[&str]) -> Vec<u64> {
    let takes_all = std::env::var_os("SPANDREL_SOAK").is_some();
    let mut numbers = Vec::new();
    let mut first = 0;
    for row in names.chunk_by(|one, next| one == next) {
        let (len, drawn) = (row.len(), first * 7 % row.len());
        let takes = |at: &usize| takes_all || [0, drawn, len - 1].contains(at);
        numbers.extend((0..len).filter(takes).map(|at| (first + at) as u64 + 1));
        first += len;
    }
    numbers
}

fn single(at: u64) -> Vec<Plan> {
    FAULTS.map(|fault| Plan::once(at, fault)).into()
}

/// The disk stays bad, or stays full; also in the middle of a write. It is well when the state is opened again.
fn lasting(at: u64) -> Vec<Plan> {
    let full = Fault::Error(ENOSPC);
    let part = Plan { then: Some(full), ..Plan::once(at, Fault::Short) };
    vec![Plan::from(at, Fault::Error(EIO)), Plan::from(at, full), part]
}

fn interrupted(at: u64) -> Vec<Plan> {
    vec![Plan { last: at + 2, ..Plan::once(at, Fault::Error(EINTR)) }]
}

#[test]
fn one_call_fails() {
    let injected = every_call(false, single);
    println!("{injected} faults");
    assert!(injected >= 400, "{injected}");
}

#[test]
fn all_calls_fail_from_one_on() {
    let injected = every_call(false, lasting);
    println!("{injected} faults");
    assert!(injected >= 300, "{injected}");
}

#[test]
fn one_call_of_a_recovery_fails() {
    let injected = every_call(true, single);
    println!("{injected} faults");
    assert!(injected >= 100, "{injected}");
}

#[test]
fn all_calls_fail_from_one_of_a_recovery_on() {
    let injected = every_call(true, lasting);
    println!("{injected} faults");
    assert!(injected >= 100, "{injected}");
}

/// A signal that interrupts a call, again and again, is no error.
#[test]
fn signals_interrupt_every_call() {
    let injected = every_call(false, interrupted) + every_call(true, interrupted);
    assert!(injected >= 100, "{injected}");
}
