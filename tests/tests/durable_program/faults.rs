//! Servers whose disk fails: a call that changes a file fails, or all from one on. What was acknowledged is there afterwards, and the next server begins.

use std::os::unix::net::UnixStream;
use std::path::Path;

use libc::{EINTR, EIO, ENOSPC};
use spandrel_faults::{Calls, Fault, Plan, supervise_programs};
use spandrel_histories::resp::{Client, Frame};
use spandrel_tests::Finished;
use tempfile::TempDir;

use crate::{PATIENCE, Server, places};

/// Commands of a run.
const COMMANDS: usize = 60;
/// Calls of each name that fail in one way each where `SPANDREL_SOAK` is set. CI tries one.
const OF_A_NAME: usize = 100;

fn value(number: usize) -> String {
    format!("{number} ").repeat(3000)
}

/// A run to its end: how many commands were acknowledged, and what the process said.
fn run(folder: &Path) -> (usize, Finished) {
    let mut server = Server::durable(folder);
    let mut acknowledged = 0;
    if let Some(mut client) = connected(&server) {
        while acknowledged < COMMANDS {
            let key = format!("key{acknowledged}");
            if !client.send(&["SET", &key, &value(acknowledged)]) {
                break;
            }
            match client.try_receive() {
                Some(Frame::SimpleString(_)) => acknowledged += 1,
                None => break,
                Some(other) => panic!("{other:?}"),
            }
        }
        client.send(&["SHUTDOWN"]);
    }
    (acknowledged, server.running.take().expect("it was started").wait())
}

/// `None`: the server has ended before it listened.
fn connected(server: &Server) -> Option<Client> {
    let running = server.running.as_ref().expect("it was started");
    let begun = std::time::Instant::now();
    while !running.has_ended() {
        if let Ok(stream) = UnixStream::connect(&server.socket) {
            return Some(Client::of(stream));
        }
        assert!(begun.elapsed() < PATIENCE, "it does not listen: {}", running.stderr_so_far());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    None
}

/// What is there on a disk that is well, twice: the second server finds what the first one had when it was killed.
fn judge(folder: &Path, acknowledged: usize, what: &str) {
    for _ in 0..2 {
        let mut server = Server::durable(folder);
        let mut client = server.client();
        let keys = client.integer("DBSIZE") as usize;
        assert!((acknowledged..=acknowledged + 1).contains(&keys), "{keys} keys; {what}");
        for number in 0..keys {
            assert_eq!(client.text(&format!("GET key{number}")), value(number), "{what}");
        }
        server.kill();
    }
}

/// Runs with a fault, and judges what it leaves.
fn attempt(place: &Path, plan: Option<Plan>) -> Calls {
    let folder = TempDir::new_in(place).expect("a temporary folder");
    let title = format!("{} {plan:?}", folder.path().display());
    let ((acknowledged, done), calls) = supervise_programs(plan, &title, || run(folder.path()));
    let what = format!("{acknowledged} acknowledged; {title}: {:?}\n{done}", calls.faults);
    assert!(done.signal.is_none() && done.stopped.is_none(), "{what}");
    let is_harmless = plan.is_none_or(|plan| {
        matches!(plan.fault, Fault::Short | Fault::Error(EINTR)) && plan.last < u64::MAX
    });
    assert!(!is_harmless || done.ok() && acknowledged == COMMANDS, "{what}");
    // The reason is said wherever a command was not acknowledged.
    let has_reason = !done.err().is_empty() || !done.out().is_empty();
    assert!(acknowledged == COMMANDS || !done.ok() && has_reason, "{what}");
    judge(folder.path(), acknowledged, &what);
    calls
}

/// What may become of a call.
fn plans(at: u64, name: &str) -> Vec<Plan> {
    let mut plans = vec![
        Plan::once(at, Fault::Error(EIO)),
        Plan::once(at, Fault::Late(EIO)),
        Plan::from(at, Fault::Error(EIO)),
        Plan::from(at, Fault::Error(ENOSPC)),
        Plan { last: at + 2, ..Plan::once(at, Fault::Error(EINTR)) },
    ];
    if name == "pwrite64" {
        plans.push(Plan::once(at, Fault::Short));
    }
    plans
}

#[test]
fn errors_of_the_disk_lose_nothing() {
    for place in places() {
        let calls = attempt(place.path(), None);
        let mut names = calls.names.clone();
        names.sort_unstable();
        names.dedup();
        println!("{} calls: {}", calls.count, names.join(" "));
        fastrand::seed(1);
        let each = if std::env::var_os("SPANDREL_SOAK").is_some() { OF_A_NAME } else { 1 };
        let mut trials: Vec<Plan> = Vec::new();
        for name in names {
            let numbers = (1..).zip(&calls.names).filter(|(_, other)| **other == name);
            let mut all: Vec<Plan> = numbers.flat_map(|(at, _)| plans(at, name)).collect();
            fastrand::shuffle(&mut all);
            trials.extend(all.into_iter().take(each));
        }
        let wanted = trials.len();
        let had_fault = |plan: &Plan| !attempt(place.path(), Some(*plan)).faults.is_empty();
        let faults = trials.iter().filter(|plan| had_fault(plan)).count();
        println!("{}: {faults} faults in {wanted} runs", place.path().display());
        assert!(faults * 4 >= wanted * 3, "{faults} of {wanted}");
    }
}
