//! `spandrel bench heap` with a worker that only says what a worker says, and with the real one where it is
//! built.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The heap is twice as fast as others; of queens it makes SUM.
const WORKER: &str = r#"#!/bin/sh
suite=$1
shift
with= path= do= how=
while [ $# -gt 0 ]; do
    case $1 in
        --with) with=$2 ;;
        --path) path=$2 ;;
        --do) do=$2 ;;
        --how) how=$2 ;;
    esac
    shift
done
common='"cpu_ns":1000000,"wall_ns":1000000,"peak_rss":1048576'
operations=10000 sum=73712
case $with in
    spandrel) operations=20000 sum=SUM ;;
    pmemobj) [ -z 'PMEMOBJ' ] || { echo 'worker: PMEMOBJ' >&2; exit 1; }
             [ "$PMEM_IS_PMEM_FORCE" = 1 ] || { echo 'msync is called' >&2; exit 1; } ;;
esac
case $suite in
    heap-pair) echo "{$common,\"ns_per_pair\":4.5}" ;;
    heap-blocks) echo "{$common,\"fresh_blocks\":98,\"flushes_per_fresh_block\":1,\"fences_per_fresh_block\":1,\"refills\":49,\"flushes_of_refills\":0,\"fences_of_refills\":0}" ;;
    heap-resur)
        if [ $do = fill ]; then
            : >"$path"
            echo "{$common,\"online_ns\":1000000000,\"objects\":1000000,\"chain\":16670}"
            kill -ABRT $$
        fi
        [ -e "$path" ] || exit 1
        [ $how != "FAILS" ] || exit 3
        [ $how = typed ] && collect=44000000 || collect=250000000
        echo "{$common,\"open_ns\":1000000,\"collect_ns\":$collect,\"live\":LIVE,\"live_bytes\":1}" ;;
    heap-open) echo "{$common,\"open_ns\":60000,\"close_ns\":300000,\"close_unused_ns\":50000}" ;;
    heap-checkpoint) echo "{$common,\"checkpoint_ns\":2500000,\"plain_ns\":1000000}" ;;
    heap-barnes|heap-queens|heap-cholesky) echo "{$common,\"allocations\":1,\"checksum\":\"$sum\"}" ;;
    *) echo "{$common,\"operations\":$operations,\"flushes\":12,\"fences\":6,\"fresh_blocks\":6,\"lazy_flushes\":0}" ;;
esac
"#;

/// What such a worker says that is otherwise than usual.
#[derive(Clone, Copy)]
struct Says {
    sum: &'static str,
    live: &'static str,
    fails: &'static str,
    pmemobj: &'static str,
}

const USUAL: Says = Says { sum: "73712", live: "500000", fails: "", pmemobj: "" };

/// A folder with the worker, and with files that peers are known by: the dynamic linker does without them.
fn place(says: Says) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let worker = directory.path().join("worker");
    let text =
        WORKER.replace("SUM", says.sum).replace("LIVE", says.live).replace("FAILS", says.fails);
    std::fs::write(&worker, text.replace("PMEMOBJ", says.pmemobj)).unwrap();
    std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
    for peer in ["libpeer_jemalloc.so", "libpeer_mimalloc2.so"] {
        std::fs::write(directory.path().join(peer), "").unwrap();
    }
    directory
}

fn bench(worker: &Path, peers: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["bench", "heap", "--runs", "2", "--targets"])
        .args(args)
        .env("SPANDREL_BENCH_WORKER", worker)
        .env("SPANDREL_PEERS", peers)
        .env_remove("SPANDREL_LIB")
        .output()
        .unwrap()
}

fn bench_in(directory: &Path, args: &[&str]) -> Output {
    bench(&directory.join("worker"), directory, args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The line of the output that has all of these.
#[track_caller]
fn line<'a>(out: &'a str, parts: &[&str]) -> &'a str {
    let found = out.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    found.unwrap_or_else(|| panic!("{parts:?}: {out}"))
}

#[test]
fn every_table_and_every_verdict() {
    let directory = place(USUAL);
    let file = |name: &str| directory.path().join(name);
    let files = [file("x.json"), file("x.md"), file("x.svg")];
    let [json, markdown, svg] = files.each_ref().map(|path| path.to_str().unwrap());
    let args = ["--scale", "0.001", "--json", json, "--markdown", markdown, "--out", svg];
    let done = bench_in(directory.path(), &args);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out} {}", text(&done.stderr));
    for table in ["Fig. 7", "Fig. 8", "Fig. 10", "pair of 64 B", "Table 2", "Fig. 9", "Fig. 11"] {
        assert!(out.contains(table), "{table}: {out}");
    }
    for title in ["jemalloc-5.3.1", "mimalloc2", "OVER_off", "taken fresh", "opening and"] {
        assert!(out.contains(title), "{title}: {out}");
    }
    line(&out, &["larson, 4 threads", "10.0 1.00×", "20.0 2.00×"]);
    line(&out, &["sh6bench, 2 threads", "6.00", "3.00", "600", "300"]);
    line(&out, &["16.7", "typed", "44.0", "4.50"]);
    line(&out, &["conservative", "250", "25.1"]);
    line(&out, &["checkpoint, 64 pages", "2.50 ms", "1.00 ms"]);
    line(&out, &["cholesky, 2 threads", "1.00 ms 1.00×"]);
    line(&out, &["queens, 1 thread, consistent", "1.00 ms 1.00×"]);
    line(&out, &["PMEM_IS_PMEM_FORCE=1"]);
    for job in ["larson, 1 thread", "larson, 2", "larson, 4", "threadtest, 1", "threadtest, 2"] {
        line(&out, &["C1", job, "0.50×", "ok"]);
    }
    for job in ["threadtest, 4", "prod-con, 2", "prod-con, 4", "sh6bench, 1", "sh6bench, 2"] {
        line(&out, &["C1", job, "0.50×", "ok"]);
    }
    line(&out, &["C1", "of 64 B", "4.50 ns", "ok"]);
    for what in ["flushes per fresh", "fences per fresh", "flushes of all", "fences of all"] {
        line(&out, &["C2", what, "ok"]);
    }
    line(&out, &["C4", "open", "0.06 ms", "ok"]);
    line(&out, &["C4", "close", "0.30 ms", "ok"]);
    line(&out, &["C5", "2.50×", "ok"]);
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");

    let [json, markdown, svg] = files.map(|path| std::fs::read_to_string(path).unwrap());
    let written: Value = serde_json::from_str(&json).unwrap();
    let outcomes = written["suites"][0]["data"]["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 10 + 1 + 1 + 1 + 1 + 1 + 12);
    assert_eq!(outcomes[0]["allocators"].as_array().unwrap().len(), 5);
    assert_eq!(outcomes[0]["allocators"][4]["samples"][0]["operations"], 20_000);
    assert!(markdown.contains("| Table 2: SZ MiB |") && markdown.contains("**spandrel**"));
    for part in ["larson, threadtest (Fig. 7)", "prod-con", "sh6bench", "4 threads", "glibc"] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn a_gibibyte_is_judged() {
    let directory = place(USUAL);
    let done = bench_in(directory.path(), &["--only", "resur", "--scale", "0.1"]);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out} {}", text(&done.stderr));
    if out.contains("left out: it takes") {
        eprintln!("skipped: there is no room in memory");
        return;
    }
    line(&out, &["C3", "1024 MiB", "typed", "45.00 ms (at most 50.00 ms)", "ok"]);
    line(&out, &["C3", "1024 MiB", "conservative", "251.00 ms (at most 300.00 ms)", "ok"]);
    for size in ["200", "400", "600", "800"] {
        line(&out, &[size, "16.7", "1.00", "typed"]);
    }
}

#[test]
fn another_result_ends_with_1_and_is_named() {
    for (says, only, what) in [
        (Says { sum: "9", ..USUAL }, "queens", "another result on spandrel than on sys"),
        (Says { live: "9", ..USUAL }, "resur", "objects are lost"),
        (Says { fails: "conservative", ..USUAL }, "resur", "conservative recovery fails"),
    ] {
        let directory = place(says);
        let done = bench_in(directory.path(), &["--scale", "0.001", "--only", only]);
        let out = text(&done.stdout);
        assert_eq!(done.status.code(), Some(1), "{out} {}", text(&done.stderr));
        assert!(out.contains(what), "{out}");
    }
}

#[test]
fn without_libpmemobj_there_is_a_note_and_no_column() {
    let why = "libpmemobj: libpmemobj.so.1: cannot open shared object file";
    let directory = place(Says { pmemobj: why, ..USUAL });
    let done = bench_in(directory.path(), &["--scale", "0.001", "--only", "pair,queens"]);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out} {}", text(&done.stderr));
    assert_eq!(out.matches("pmemobj1").count(), 1, "{out}");
    line(&out, &["not installed: libpmemobj (package libpmemobj1)"]);
    assert!(!out.replace("libpmemobj", "").contains("pmemobj "), "{out}");
}

#[test]
fn what_would_be_without_effect_is_refused_with_2() {
    let directory = place(USUAL);
    for (args, part) in [
        (["--scale", "0"], "'0'"),
        (["--scale", "1.5"], "'1.5'"),
        (["--only", "nothing"], "there are: larson, threadtest"),
        (["--peers", "sys"], "--peers"),
        (["--modes", "mmap"], "--modes"),
        (["--out", "x.png"], "x.png"),
        (["--markdown", "/no/such/x.md"], "/no/such/x.md"),
    ] {
        let done = bench_in(directory.path(), &args);
        let why = text(&done.stderr);
        assert!(done.status.code() == Some(2) && why.contains(part), "{part}: {why}");
        assert!(done.stdout.is_empty());
    }
    let trained = bench_in(directory.path(), &["--trained"]);
    assert_eq!(trained.status.code(), Some(2));
    assert!(text(&trained.stderr).contains("--trained belongs to the suite 'paper'"));
}

/// The real one is beside the command where the whole workspace is built.
#[test]
fn the_real_worker_says_what_is_needed() {
    let worker =
        PathBuf::from(env!("CARGO_BIN_EXE_spandrel")).with_file_name("spandrel-bench-worker");
    if !worker.is_file() || !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: the worker is not built, or there are no files in memory");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let only = "pair,blocks,resur,open,checkpoint";
    let done = bench(&worker, directory.path(), &["--scale", "0.001", "--only", only]);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out} {}", text(&done.stderr));
    if out.contains("left out: it takes") {
        eprintln!("skipped: there is no room in memory");
        return;
    }
    for target in ["C1", "C2", "C4"] {
        line(&out, &[target, "at most"]);
    }
    line(&out, &["8", "typed"]);
    assert!(!out.contains("fails") && !out.contains("exit status"), "{out}");
}
