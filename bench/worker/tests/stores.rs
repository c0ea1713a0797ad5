//! `spandrel-bench-worker store` and `spandrel-bench-plain store`: every job on every store. A job verifies what it reads.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const STORES: [&str; 7] = ["spandrel", "memory", "leveldb", "rocksdb", "lmdb", "pmemobj", "plain"];
/// Jobs on a fresh store, and whether several threads may do them.
const JOBS: [(&str, bool); 10] = [
    ("fillseq", true),
    ("fillrandom", true),
    ("overwrite", true),
    ("readseq", true),
    ("readreverse", true),
    ("mixed", true),
    ("bulk", false),
    ("batches", false),
    ("ranges", false),
    ("removals", false),
];

fn worker(store: &str, job: &str, more: &[&str], place: &Path) -> Output {
    let program = match store {
        "plain" => env!("CARGO_BIN_EXE_spandrel-bench-plain"),
        _ => env!("CARGO_BIN_EXE_spandrel-bench-worker"),
    };
    Command::new(program)
        .args(["store", store, "--job", job, "--keys", "600", "--millis", "20", "--directory"])
        .arg(place)
        .args(more)
        .output()
        .unwrap()
}

/// What a job tells; nothing where the store's library is missing.
fn told(store: &str, job: &str, more: &[&str], place: &Path) -> Option<Value> {
    let output = worker(store, job, more, place);
    let why = String::from_utf8_lossy(&output.stderr);
    if why.contains("cannot open shared object file") {
        eprintln!("{store} is left out: {why}");
        return None;
    }
    assert!(output.status.success(), "{store}, {job} {more:?}: {why}");
    Some(serde_json::from_slice(&output.stdout).unwrap_or_default())
}

#[test]
fn every_job_does_something_on_every_store() {
    for store in STORES {
        for (job, has_threads) in JOBS {
            let place = tempfile::tempdir().unwrap();
            let threads = if has_threads { "3" } else { "1" };
            let more = ["--threads", threads, "--updates", "30"];
            let Some(told) = told(store, job, &more, place.path()) else { break };
            assert!(told["operations"].as_u64() > Some(0), "{store}, {job}: {told}");
        }
    }
}

#[test]
fn what_is_left_by_a_crash_is_there() {
    for store in STORES.into_iter().filter(|name| *name != "memory") {
        for value in ["100", "20000"] {
            let place = tempfile::tempdir().unwrap();
            let more = ["--value", value];
            if told(store, "crash", &more, place.path()).is_none() {
                break;
            }
            let told = told(store, "reopen", &more, place.path()).unwrap();
            assert!(told["wall_ns"].as_u64() > Some(0), "{store}: {told}");
        }
    }
}

#[test]
fn a_store_that_there_is_not_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let output = worker("nothing", "bulk", &[], place.path());
    assert!(String::from_utf8_lossy(&output.stderr).contains("pmemobj"));
    assert_eq!(output.status.code(), Some(2));
}
