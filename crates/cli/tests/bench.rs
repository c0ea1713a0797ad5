//! `spandrel bench` with a worker that only says what a worker says: what is
//! printed and written, and how it ends.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
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

/// A program that needs half the memory with the tunable set, and says what a program says.
const PROGRAM: &str = r#"#!/bin/sh
case "$GLIBC_TUNABLES" in
    *hugetlb*) peak=1048576 ;;
    *) peak=2097152 ;;
esac
echo "{\"program\":\"$0\",\"operations\":1,\"checksum\":7,\"peak_bytes\":1,\"live_bytes\":1,\"rss_live\":1,\"rss_drained\":524288,\"peak_rss\":$peak,\"phases\":[{\"name\":\"first peak\",\"live\":100,\"rss\":150,\"rss_idle\":120}]}"
"#;

/// A folder of such programs.
fn programs(directory: &Path, names: &[&str]) {
    for name in names {
        let path = directory.join(name);
        std::fs::write(&path, PROGRAM).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn bench_programs(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "programs", "--quick", "--runs", "1", "--peers", "sys-hugetlb"])
        .args(args)
        .env("SPANDREL_BENCH_WORKER", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.sh"))
        .env("SPANDREL_PEERS", directory)
        .env("SPANDREL_PROGRAMS", directory)
        .env_remove("SPANDREL_LIB")
        .output()
        .unwrap()
}

#[test]
fn programs_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    programs(directory.path(), &["cfrac", "server-life"]);
    let json = directory.path().join("out.json");
    let args = ["--only", "server-life,cfrac", "--json", json.to_str().unwrap()];
    let done = bench_programs(directory.path(), &args);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(out.contains("1.00 MiB") && out.contains("1.50 1.20"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let mean = out.lines().rfind(|line| line.contains("sys-hugetlb")).unwrap();
    assert!(mean.contains("0.50") && mean.contains("1.00"), "{out}");
    assert!(out.contains("elapsed, × sys"), "{out}");

    let written: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let data = &written["suites"][0]["data"];
    assert_eq!(data[0]["program"], "cfrac");
    assert_eq!(data[1]["allocators"][1]["peak_rss"]["median"], 1048576.0);
    for time in ["cpu_ns", "wall_ns"] {
        assert!(data[1]["allocators"][1][time]["median"].as_f64().unwrap() > 0.0, "{time}");
    }
}

#[test]
fn programs_that_are_unknown_or_not_built_are_refused_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let done = bench_programs(directory.path(), &["--only", "nothing"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("larson"), "{}", text(&done.stderr));

    let done = bench_programs(directory.path(), &["--only", "cfrac"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("make -C bench-compare"), "{}", text(&done.stderr));

    let done = bench(directory.path(), &["append", "--only", "cfrac"]);
    assert_eq!(done.status.code(), Some(2));
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
