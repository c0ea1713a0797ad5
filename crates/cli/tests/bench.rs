//! `spandrel bench` with a worker that only says what a worker says: what is
//! printed and written, and how it ends.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn bench(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .arg("bench")
        .args(args)
        .args(["--runs", "2"])
        .env("SPANDREL_BENCH_WORKER", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.sh"))
        .env("SPANDREL_PEERS", directory)
        .env_remove("SPANDREL_LIB")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn ratios_are_printed_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let args = ["append", "--peers", "sys-hugetlb", "--json", json.to_str().unwrap()];
    let done = bench(directory.path(), &args);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let row = out.lines().find(|line| line.contains("sys-hugetlb")).unwrap();
    assert!(row.contains("2.00 ms") && row.contains("2.00"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");

    let written: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(written["format"], 1);
    let rows = &written["suites"][0]["cases"][0]["rows"];
    assert_eq!(rows[1]["allocator"], "sys-hugetlb");
    assert_eq!(rows[1]["to_system"], 2.0);
    assert_eq!(rows[1]["samples"].as_array().unwrap().len(), 2);
}

#[test]
fn a_failing_worker_is_a_note_not_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let done = bench(directory.path(), &["vec", "--peers", "sys-hugetlb"]);
    let out = text(&done.stdout);
    assert!(done.status.success());
    assert!(out.contains("broken") && out.contains("exit status: 9"), "{out}");
}

#[test]
fn wrong_requests_are_refused_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let done = bench(directory.path(), &["append", "--peers", "nobody"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("'nobody' is not installed"));

    let done = bench(directory.path(), &["append", "--lib", "/no/such/lib.so"]);
    assert_eq!(done.status.code(), Some(2));

    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    let done = command.args(["bench", "nothing"]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("realloc"));
}
