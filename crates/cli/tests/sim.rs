//! `spandrel sim`: what is printed and written, and what is refused.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .arg("sim")
        .args(args)
        .env("SPANDREL_BENCH_WORKER", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.sh"))
        .env_remove("SPANDREL_LIB")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs what is to be refused; returns what is said.
fn refused(args: &[&str]) -> String {
    let done = sim(args);
    assert_eq!(done.status.code(), Some(2), "{args:?}: {}", text(&done.stderr));
    assert!(done.stdout.is_empty(), "{args:?}");
    text(&done.stderr)
}

fn file(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn policies_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let sizes = file(directory.path(), "sizes.csv", "bytes,weight,lifetime_s\n8KiB,9,5\n1.5\n");
    assert!(refused(&["--sizes", &sizes]).contains("line 3"));
    let sizes =
        file(directory.path(), "sizes.csv", "bytes,weight,lifetime_s\n8KiB,9,5\n40000,1,50\n");
    let target = file(directory.path(), "target.csv", "seconds,bytes\n0,0\n1,64MiB\n9,64MiB\n");
    let json = directory.path().join("out.json");
    let plot = directory.path().join("plot.svg");
    let (json_path, plot_path) = (json.to_str().unwrap(), plot.to_str().unwrap());
    let args = ["--policy", "lfr,best-fit", "--sizes", &sizes, "--target", &target];
    let done = sim(&[&args[..], &["--json", json_path, "--out", plot_path]].concat());
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(done.stderr.is_empty(), "no progress where there is no terminal");
    assert!(out.contains("resident/live, average") && out.contains("best-fit"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");

    let written: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(written["format"], 2);
    let outcomes = written["outcomes"].as_array().unwrap();
    assert_eq!(outcomes[1]["policy"], "best-fit");
    assert_eq!(outcomes[1]["release"], "adaptive");
    assert_eq!(outcomes[0]["samples"][300]["live"], outcomes[1]["samples"][300]["live"]);
    let plot = std::fs::read_to_string(plot).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("range-then-allocations"));
}

#[test]
fn releases_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let [json, plot] = ["out.json", "plot.svg"].map(|name| directory.path().join(name));
    let files = ["--json", json.to_str().unwrap(), "--out", plot.to_str().unwrap()];
    let args = ["--heap", "256MiB", "--operations", "100_000", "--target", "drop"];
    let done = sim(&[&args[..], &["--release", "off,adaptive,rate=64MiB,all"], &files].concat());
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert!(out.contains("least memory: range-then-allocations, all"), "{out}");
    for part in ["fetched", "on huge", "adaptive", "rate=", "64MiB"] {
        assert!(out.contains(part), "{part}: {out}");
    }

    let written: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let of = |name: &str| {
        let outcomes = written["outcomes"].as_array().unwrap();
        assert_eq!(outcomes.len(), 4);
        outcomes.iter().find(|outcome| outcome["release"] == name).unwrap()["summary"].clone()
    };
    let [off, adaptive, rate, all] = ["off", "adaptive", "rate=64MiB", "all"].map(of);
    let resident = |summary: &Value| summary["resident"].as_f64().unwrap();
    assert!(resident(&off) > resident(&adaptive) && resident(&rate) > resident(&all));
    assert_eq!((off["live"].as_f64(), &off["broken"]), (all["live"].as_f64(), &Value::from(0)));
    let plot = std::fs::read_to_string(plot).unwrap();
    for name in ["off", "adaptive", "rate=64MiB", "all"] {
        assert!(plot.contains(&format!("range-then-allocations, {name}\n")), "{name}");
    }

    // One release of several policies is a column for each, as it was.
    let done = sim(&[&args[..], &["--policy", "lfr,fullness", "--release", "off"]].concat());
    assert!(text(&done.stdout).contains("resident/live, peak to peak"));
    let both = ["--policy", "lfr,fullness", "--release", "off,all"];
    let out = text(&sim(&[&args[..], &both].concat()).stdout);
    assert!(out.contains("allocations-") && out.contains("then-range"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

#[test]
fn several_recordings_share_a_plot_and_a_file() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces");
    let recording = |name: &str| traces.join(name).to_str().unwrap().to_string();
    let (gcc, redis) = (recording("gcc.trace"), recording("redis.trace"));
    let directory = tempfile::tempdir().unwrap();
    let [json, plot] = ["out.json", "plot.svg"].map(|name| directory.path().join(name));
    let (json_path, plot_path) = (json.to_str().unwrap(), plot.to_str().unwrap());
    let files = ["--json", json_path, "--out", plot_path];
    let done = sim(&[&[&gcc[..], &redis, "--release", "off,all"][..], &files].concat());
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(out.matches("least memory").count(), 2, "{out}");
    assert!(out.find("gcc.trace").unwrap() < out.find("redis.trace").unwrap());

    let written: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let targets: Vec<&str> =
        written.as_array().unwrap().iter().map(|one| one["target"].as_str().unwrap()).collect();
    assert_eq!(targets, [&gcc, &redis]);
    assert_eq!(written[1]["outcomes"].as_array().unwrap().len(), 2);
    let svg = std::fs::read_to_string(&plot).unwrap();
    for (part, times) in
        [("resident (MiB)", 2), ("gcc.trace", 2), ("redis.trace", 2), (", off\n", 1)]
    {
        assert_eq!(svg.matches(part).count(), times, "{part}");
    }

    // A bad one is refused before anything is simulated or written.
    std::fs::remove_file(&json).unwrap();
    let empty = file(directory.path(), "empty.trace", "");
    let said = refused(&[&[&gcc[..], &empty][..], &files].concat());
    assert!(said.contains("empty.trace") && said.contains("no recording"), "{said}");
    assert!(!json.exists());
}

#[test]
fn figures_are_drawn_into_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let done = sim(&["--figure", "donation", "--out", directory.path().to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("2000 single pages end up on 8 huge pages"));
    assert!(directory.path().join("donation.svg").exists());
}

#[test]
fn bad_input_is_named_with_its_reason_and_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let zero = file(directory.path(), "zero.csv", "# sizes\npages,weight,lifetime_s\n0,1,1\n");
    let back = file(directory.path(), "back.csv", "seconds,bytes\n5,1GiB\n4,1GiB\n");
    let flat = file(directory.path(), "flat.csv", "seconds,bytes\n0,16MiB\n9,16MiB\n");
    let long = file(directory.path(), "long.csv", "pages,weight,lifetime_s\n1,1,604800\n");
    let gone = directory.path().join("none.csv");
    let gone = gone.to_str().unwrap();
    for (args, parts) in [
        (&["--policy", "worst-fit"][..], &["'worst-fit'", "range-then-allocations"][..]),
        (&["--sizes", &zero], &["zero.csv", "line 3", "whole number from 1"]),
        (&["--sizes", gone], &["none.csv", "docs/sim.md"]),
        (&["--target", &back], &["back.csv", "line 3", "backwards"]),
        (&["--target", gone], &["none.csv", "saw-tooth"]),
        (&["--target", &back, "--heap", "1GiB"], &["--target", "back.csv", "line 3"]),
        (&["--target", &flat, "--heap", "1GiB"], &["--heap", "flat.csv", "leave"]),
        (&["--target", &flat], &["--target: 16.0 MiB", "largest span"]),
        (&["--target", "up", "--heap", "1GiB"], &["--target: 'up'", "saw-tooth"]),
        (&["--heap", "0GiB"], &["--heap", "'0GiB'", "64GiB"]),
        (&["--heap", "8KiB"], &["--heap: 8.00 KiB", "largest span"]),
        (&["--heap", "-1"], &["--heap: '-1'", "64KiB"]),
        (&["--release", "-1"], &["--release: ", "'-1'", "256MiB"]),
        (&["--release", "off,fast"], &["--release: ", "'fast'", "adaptive, rate and all"]),
        (&["--release", "on,256MiB"], &["--release: 'on' and '256MiB'", "name each once"]),
        (&["--policy", "lfr,lfr"], &["--policy: 'lfr'", "twice", "name each once"]),
        (&["--release", "1,10KiB,20KiB,30KiB,40KiB,50KiB,all"], &["--release: 7 ", "6 at most"]),
        (&["--heap", "40MiB", "--sizes", &long], &["--heap: ", "lifetime_s"]),
        (&["--operations", "5", "--heap", "64MiB"], &["--operations: ", "(5)", "ask for at least"]),
        (&["--heap", "100TiB"], &["--heap", "too large", "16.0 TiB"]),
        (&["--operations", "none"], &["--operations", "'none'", "20_000_000"]),
        (&["--out", "/no/such/directory/plot.svg"], &["plot.svg", "can be written"]),
        (&["--out", "plot.png"], &["--out: 'plot.png'", ".svg"]),
        (&["--out", "flat.svg", "--json", "./flat.svg"], &["--json and --out", "same file"]),
        (&["--target", &flat, "--json", &flat], &["--json: ", "flat.csv", "that is read"]),
        (&["--figure", "donation", "--out", "plot.svg"], &["--out: 'plot.svg'", "directory"]),
        (&["--peers", "sys"], &["--on-allocators"]),
        (&["--modes", "auto"], &["--on-allocators"]),
        (&["--on-allocators", "--peers", "nobody"], &["--peers: 'nobody'", "there are: sys"]),
        (&["--on-allocators", "--lib", "/no/such/lib.so"], &["/no/such/lib.so"]),
        (&["--on-allocators", "--heap", "8TiB"], &["--heap: 8.00 TiB"]),
        (&["--figure", "13"], &["'13'", "hardware", "donation"]),
        (&["--figure", "11", "--heap", "1GiB"], &["--heap", "--figure"]),
    ] {
        let said = refused(args);
        assert!(parts.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    }
}

#[test]
fn allocators_are_chosen_as_for_measurements() {
    let args = ["--on-allocators", "--heap", "16MiB", "--operations", "200", "--runs", "1"];
    let directory = tempfile::tempdir().unwrap();
    let sizes = file(directory.path(), "sizes.csv", "bytes,weight,lifetime_s\n1MiB,1,5\n");
    let args = [&args[..], &["--sizes", &sizes, "--peers", "sys-hugetlb"]].concat();
    let done = sim(&args);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(out.contains("sys-hugetlb") && out.contains("medians of 1 round after"), "{out}");
    assert!(!out.contains("jemalloc") && !out.contains("not installed"), "{out}");
}
