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
    assert!(
        !out.contains("missed") && !out.contains("at most"),
        "targets are for the project: {out}"
    );
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
fn a_dash_is_standard_output_and_text_makes_room() {
    let directory = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "append", "--runs", "1", "--peers", "sys-hugetlb", "--json", "-"])
        .env("SPANDREL_BENCH_WORKER", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.sh"))
        .env("SPANDREL_PEERS", directory.path())
        .env_remove("SPANDREL_LIB")
        .current_dir(directory.path())
        .output()
        .unwrap();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{err}");
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
    assert_eq!(value["suites"][0]["cases"][0]["rows"][1]["allocator"], "sys-hugetlb");
    assert!(err.contains("sys-hugetlb") && err.contains("2.00 ms"), "{err}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_life_of_a_heap_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let (svg, json) = (directory.path().join("heap.svg"), directory.path().join("heap.json"));
    let files = ["--out", svg.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let done =
        bench(directory.path(), &[&["hugepages", "--peers", "sys-hugetlb"], &files[..]].concat());
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(out.contains("plot: ") && out.contains("heap.svg"), "{out}");
    let drawn = std::fs::read_to_string(svg).unwrap();
    for part in ["glibc-hugetlb", "medians of 2 rounds", "2.50", "1.50", "1.25", "200", "250"] {
        assert!(drawn.contains(part), "{part}");
    }
    let written: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let samples = &written["suites"][0]["data"][1]["samples"];
    assert_eq!(samples[0]["idle.resident_to_live"], 2.5);
}

#[test]
fn a_picture_that_cannot_be_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plot.svg");
    let file = file.to_str().unwrap();
    let cases: [(&[&str], &str); 3] = [
        (&["append", "--out", file], "draws the suite 'hugepages'"),
        (&["hugepages", "--out", "/no/such/directory/plot.svg"], "can be written"),
        (&["hugepages", "--out", file, "--json", file], "name two"),
    ];
    for (args, why) in cases {
        let done = bench(directory.path(), &[args, &["--peers", "sys-hugetlb"]].concat());
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(text(&done.stderr).contains(why), "{}", text(&done.stderr));
        assert!(done.stdout.is_empty(), "{}", text(&done.stdout));
    }
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
    assert!(text(&done.stderr).contains("make -C bench/peers"), "{}", text(&done.stderr));

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
