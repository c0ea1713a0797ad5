//! Every system call that changes a file fails, one at a time: what was acknowledged is there afterwards, the program hears of the fault by an error, and the next opening works.

mod story;

use std::path::Path;
use std::process::{Command, Stdio};

use libc::{EINTR, EIO, ENOSPC};

use super::places;
use spandrel_faults::{Fault, Plan, supervise};
use story::Story;

/// Faults of one call that the program must hear of, or get over.
const FAULTS: [Fault; 4] =
    [Fault::Error(EIO), Fault::Error(ENOSPC), Fault::Late(EIO), Fault::Short];

/// Processes that try calls of a place at a time: most of the time they wait for the disk. A state has its address to itself in each.
const WORKERS: usize = 4;
/// What a process tries: the path, whether it is a recovery, the plans, its number.
const WORKER: &str = "SPANDREL_TEST_DURABLE_INJECTED";

/// Runs the story once for each plan of each call. Returns how often.
fn every_call(is_recovery: bool, plans: &str) -> u64 {
    let places = places();
    let workers = places.iter().flat_map(|(place, _)| (0..WORKERS).map(move |n| (place.path(), n)));
    let workers: Vec<_> = workers
        .map(|(place, number)| {
            let path = place.join(format!("bank-{number}"));
            let words = format!("{}\n{is_recovery}\n{plans}\n{number}", path.display());
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["injected::worker", "--exact", "--ignored", "--nocapture"]);
            command.env(WORKER, words).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let injected = workers.into_iter().map(|worker| {
        let done = worker.wait_with_output().unwrap();
        let [said, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(done.status.success(), "{}\n{said}{errors}", done.status);
        let count = said.lines().find_map(|line| line.strip_prefix("faults: "));
        count.expect(&said).parse::<u64>().unwrap()
    });
    let injected = injected.sum();
    println!("{injected} faults");
    injected
}

#[test]
#[ignore = "is the process whose calls fail"]
fn worker() {
    let Ok(words) = std::env::var(WORKER) else { return };
    let words: Vec<&str> = words.split('\n').collect();
    let plans = match words[2] {
        "single" => single,
        "lasting" => lasting,
        _ => interrupted,
    };
    let (path, is_recovery) = (Path::new(words[0]), words[1] == "true");
    let injected = some_calls(path, is_recovery, plans, words[3].parse().unwrap());
    println!("\nfaults: {injected}");
}

/// Those of one process.
fn some_calls(path: &Path, is_recovery: bool, plans: fn(u64) -> Vec<Plan>, worker: usize) -> u64 {
    let mut injected = 0;
    let story = Story::new(path, is_recovery);
    let (said, calls) = supervise(None, "without faults", || story.tell());
    assert!(said.is_perfect(), "{said:?}");
    story.judge(&said, &calls, "without faults");
    assert!(calls.count >= 20, "{calls:?}");
    if worker == 0 {
        println!("{}: {} calls: {}", path.display(), calls.count, calls.names.join(" "));
    }
    for at in numbers(&calls.names).into_iter().skip(worker).step_by(WORKERS) {
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
    let injected = every_call(false, "single");
    assert!(injected >= 400, "{injected}");
}

#[test]
fn all_calls_fail_from_one_on() {
    let injected = every_call(false, "lasting");
    assert!(injected >= 300, "{injected}");
}

#[test]
fn one_call_of_a_recovery_fails() {
    let injected = every_call(true, "single");
    assert!(injected >= 100, "{injected}");
}

#[test]
fn all_calls_fail_from_one_of_a_recovery_on() {
    let injected = every_call(true, "lasting");
    assert!(injected >= 100, "{injected}");
}

/// A signal that interrupts a call, again and again, is no error.
#[test]
fn signals_interrupt_every_call() {
    let injected = every_call(false, "interrupted") + every_call(true, "interrupted");
    assert!(injected >= 100, "{injected}");
}
