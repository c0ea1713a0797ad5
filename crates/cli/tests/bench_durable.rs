//! `spandrel bench durable` with a worker that only says what a worker says, and with the real one where it is built.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A durable state is as fast as RATE says; a map in memory is at a million. What a run recovers is left by the run before.
const WORKER: &str = r#"#!/bin/sh
[ "$1" = store ] || { echo "no store: $*" >&2; exit 2; }
store=$2 job= directory=
shift 2
while [ $# -gt 0 ]; do
    case $1 in
        --job) job=$2 ;;
        --directory) directory=$2 ;;
    esac
    shift 2
done
[ -d "$directory" ] || { echo "no directory" >&2; exit 2; }
case $job in
    crash) : >"$directory/left"; exit 0 ;;
    reopen) [ -e "$directory/left" ] || exit 3
            echo '{"wall_ns":500000000,"cpu_ns":1,"bytes":1073741824,"replayed":7}'; exit 0 ;;
esac
rate=1000000
[ $store = memory ] || rate=RATE
echo "{\"rate\":$rate,\"cpu_ns\":1,\"p50_ns\":900,\"p99_ns\":5000}"
"#;

fn bench(directory: &Path, rate: &str, args: &[&str]) -> Output {
    let worker = directory.join("worker");
    std::fs::write(&worker, WORKER.replace("RATE", rate)).unwrap();
    std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "durable", "--runs", "2", "--targets"])
        .args(args)
        .env("SPANDREL_BENCH_WORKER", &worker)
        .env("SPANDREL_PEERS", directory)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn tables_and_targets() {
    let place = tempfile::tempdir().unwrap();
    let done = bench(place.path(), "950000", &["--only", "clients,recovery"]);
    let out = text(&done);
    assert!(done.status.success(), "{out}");
    for part in ["100 % puts, 96", "950 k", "1.00 M", "900 ns", "2.15 GB/s", "redb and fjall"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let line = |parts: &[&str]| {
        let found = out.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found.unwrap_or_else(|| panic!("{parts:?}: {out}"))
    };
    assert!(line(&["D1", "100 % puts, 1, tmpfs"]).ends_with("ok"));
    assert!(line(&["D1", "10 % puts, 1, tmpfs"]).ends_with("missed"));
    assert!(line(&["D6", "tmpfs"]).contains("0.50 s"));
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

/// What captures: native code takes 100 ns, collections twice, translated code FACTOR times that. A durable store is a worker of its own.
const CAPTURES: &str = r#"#!/bin/sh
[ "$1" = store ] && exec "$(dirname "$0")/worker" "$@"
while [ $# -gt 0 ]; do
    [ "$1" = --way ] && way=$2
    shift
done
case $way in
    native*|locked) ns=100 ;;
    translated) ns=FACTOR ;;
    *) ns=200 ;;
esac
echo "{\"ns_1\":$ns,\"ns_16\":$ns,\"ns_100\":$ns,\"first_ns\":900000,\"first_blocks\":300,\"first_bytes\":65536,\"code_bytes\":65536}"
"#;

#[test]
fn what_capturing_costs() {
    let place = tempfile::tempdir().unwrap();
    for (name, script) in [
        ("spandrel-bench-plain", CAPTURES.replace("FACTOR", "180")),
        // The worker captures as well, and has stores.
        ("captures", CAPTURES.replace("FACTOR", "180")),
    ] {
        let path = place.path().join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let json = place.path().join("all.json");
    let worker = place.path().join("captures");
    let stores = WORKER.replace("RATE", "1000000");
    std::fs::write(place.path().join("worker"), stores).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path().join("worker"), executable).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "durable", "--quick", "--runs", "1", "--targets", "--only", "capture"])
        .arg("--json")
        .arg(&json)
        .env("SPANDREL_BENCH_WORKER", &worker)
        .env("SPANDREL_PEERS", place.path())
        .output()
        .unwrap();
    let out = text(&done);
    assert!(done.status.success(), "{out}");
    for part in [
        "without a log",
        "capture and log",
        "hash table, update, 16",
        "B-tree, insertion, 100",
        "1.80×",
        "first execution",
        "DynamoRIO",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let verdict = |part: &str| {
        let found = out.lines().find(|line| line.contains("D8") && line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {out}")).trim_end()
    };
    assert!(verdict("hash table, update, 1:").ends_with("ok"));
    assert!(verdict("hash table, update, log, 16:").ends_with("ok"));
    assert!(verdict("copy of 4 KiB, 100:").ends_with("missed"));
    assert!(verdict("first execution: texts").ends_with("ok"));
    assert!(out.lines().any(|line| line.contains("D3") && line.ends_with("missed")));
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let all: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let captures = all["suites"][0]["data"]["captures"].as_array().unwrap();
    assert_eq!(captures.len(), 12);
    for way in captures.iter().flat_map(|one| one["ways"].as_array().unwrap()) {
        let median = way["ns"]["16"]["median"].as_f64();
        assert!(median >= Some(100.0) && way["failed"].is_null(), "{way}");
    }
}

#[test]
fn a_state_that_does_not_work_is_an_error_and_json_has_all() {
    let place = tempfile::tempdir().unwrap();
    let json = place.path().join("all.json");
    let args = ["--only", "updates", "--json", json.to_str().unwrap()];
    let done = bench(place.path(), "none", &args);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done));
    let all: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let outcomes = &all["suites"][0]["data"]["outcomes"];
    assert_eq!(outcomes.as_array().map(Vec::len), Some(10), "{all:#}");
    let refused = bench(place.path(), "1", &["--only", "nothing"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("recovery"));
}

/// The real one is beside the command where the whole workspace is built.
#[test]
fn the_real_worker_says_what_is_needed() {
    let worker = Path::new(env!("CARGO_BIN_EXE_spandrel")).with_file_name("spandrel-bench-worker");
    if !worker.exists() {
        return;
    }
    let done = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "durable", "--runs", "1", "--scale", "0.0001"])
        .args(["--only", "recovery"])
        .env("SPANDREL_BENCH_WORKER", &worker)
        .output()
        .unwrap();
    let out = text(&done);
    assert!(done.status.success(), "{out}");
    for part in ["one processor, tmpfs", "GB/s", "in memory", "replayed"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("spandrel, "), "it failed at something: {out}");
}
