//! `spandrel bench paper` with workers that only say what a worker says, and with the real ones where
//! they are built.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// In the mode `native` it comes to another result if it is told to.
const WORKER: &str = r#"#!/bin/sh
[ "$1" != watch ] || { echo '{"run":{},"growth":[[0,200000,1,0,10],[1000,400000,2,1,30]]}'; exit; }
sum=7
[ "$SPANDREL_MODE" != native ] || sum=NATIVE
echo "{\"workload\":\"$1\",\"count\":$2,\"peak_rss\":1048576,\"work_ns\":1000,\"checksum\":\"$sum\"}"
"#;

fn workers(directory: &Path, native_sum: &str) {
    for name in ["system", "jemalloc", "mimalloc", "spandrel"] {
        let path = directory.join(name);
        std::fs::write(&path, WORKER.replace("NATIVE", native_sum)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn bench(workers: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "paper", "--runs", "1", "--targets"])
        .args(args)
        .env("SPANDREL_BENCH_WORKER", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.sh"))
        .env("SPANDREL_PAPER", workers)
        .env_remove("SPANDREL_LIB")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn refused(done: &Output, parts: &[&str]) {
    let why = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{why}");
    for part in parts {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn tables_picture_and_files() {
    let directory = tempfile::tempdir().unwrap();
    workers(directory.path(), "7");
    let file = |name: &str| directory.path().join(name);
    let files = [file("x.json"), file("x.md"), file("x.svg")];
    let [json, markdown, svg] = files.each_ref().map(|path| path.to_str().unwrap());
    let args = ["--only", "phases,vec-pages,hardly", "--scale", "0.001", "--json", json];
    let done =
        bench(directory.path(), &[&args[..], &["--markdown", markdown, "--out", svg]].concat());
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out} {}", text(&done.stderr));
    for part in [
        "Table III",
        "behind Spandrel",
        "P1",
        "P2",
        "P3",
        "spandrel template=brug",
        "spandrel static",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");

    let [json, markdown, svg] = files.map(|path| std::fs::read_to_string(path).unwrap());
    let written: Value = serde_json::from_str(&json).unwrap();
    let data = &written["suites"][0]["data"];
    assert_eq!(data["workloads"][0]["workload"], "vec-pages");
    assert_eq!(data["workloads"][0]["count"], 3932);
    assert_eq!(data["workloads"][0]["allocators"].as_array().unwrap().len(), 11);
    assert_eq!(data["growth"]["growth"][1][1], 400_000);
    assert!(markdown.contains("| Table III |") && markdown.contains("**spandrel**"), "{markdown}");
    for part in ["The best, the worst, and auto", "vec-pages", "How an object grows", "glibc"] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn another_result_ends_with_1_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    workers(directory.path(), "8");
    let done = bench(directory.path(), &["--only", "hardly"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    assert!(out.contains("another result on spandrel native than on sys"), "{out}");
}

#[test]
fn what_would_be_without_effect_is_refused_with_2() {
    let directory = tempfile::tempdir().unwrap();
    refused(&bench(directory.path(), &[]), &["worker 'system'", "make -C bench/peers paper"]);
    let none = directory.path().join("none");
    refused(&bench(&none, &[]), &["were not found", "make -C bench/peers paper"]);
    workers(directory.path(), "7");
    for (args, part) in [
        (["--scale", "0"], "'0'"),
        (["--scale", "1.5"], "'1.5'"),
        (["--only", "nothing"], "'nothing'"),
        (["--peers", "sys"], "--peers"),
        (["--modes", "mmap"], "--modes"),
        (["--out", "x.png"], "x.png"),
        (["--markdown", "/no/such/x.md"], "/no/such/x.md"),
    ] {
        refused(&bench(directory.path(), &args), &[part]);
    }
    for option in [&["--scale", "0.5"][..], &["--markdown", "x.md"], &["--trained"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        refused(&command.args(["bench", "vec"]).args(option).output().unwrap(), &[option[0]]);
    }
}

/// The real ones are built by `make -C bench/peers paper` only.
#[test]
fn real_workers_come_to_one_result() {
    let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers/lib/paper"));
    if !built.join("spandrel").is_file() {
        eprintln!("skipped: the workers are not built");
        return;
    }
    let done = bench(&built, &["--scale", "0.0005"]);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out} {}", text(&done.stderr));
    assert!(out.contains("wasm-linker") && !out.contains("another result"), "{out}");
}
