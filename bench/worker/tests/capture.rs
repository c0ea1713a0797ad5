//! `spandrel-bench-worker capture` and `spandrel-bench-plain capture`: each way of capture takes time that is told, and not less than half of the native time.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const KINDS: [&str; 5] = ["table", "tree", "copy-4k", "copy-100k", "nothing"];
const BATCHES: [u64; 3] = [1, 16, 100];

fn unlogged(kind: &str, way: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel-bench-worker"))
        .args(["capture", "--command", kind, "--way", way, "--keys", "2000", "--millis", "30"])
        .output()
        .unwrap()
}

fn logged(kind: &str, way: &str, place: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel-bench-plain"))
        .args(["capture", "--command", kind, "--way", way, "--keys", "2000", "--millis", "30"])
        .arg("--directory")
        .arg(place)
        .output()
        .unwrap()
}

fn told(output: &Output) -> Value {
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {why}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Nanoseconds for a command in batches of each size.
fn times(told: &Value) -> [f64; 3] {
    BATCHES.map(|batch| {
        told[format!("ns_{batch}")]
            .as_f64()
            .filter(|time| *time > 0.0)
            .unwrap_or_else(|| panic!("{told}"))
    })
}

/// Holds a way against the native code. The fastest batches of both are compared: a machine that does something else makes any of them slow.
fn compare(what: &str, native: &Value, captured: &Value) {
    let least = |told: &Value| times(told).into_iter().fold(f64::MAX, f64::min);
    let factor = least(captured) / least(native);
    assert!(factor > 0.5, "{what}: {factor:.2}, {native}, {captured}");
}

#[test]
fn each_way_without_a_log_is_timed() {
    for kind in KINDS {
        let native = told(&unlogged(kind, "native"));
        let ways = ["explicit", "translated", "pages"];
        for way in ways.into_iter().filter(|way| (kind, *way) != ("tree", "explicit")) {
            let captured = told(&unlogged(kind, way));
            compare(&format!("{kind}, {way}"), &native, &captured);
            let runs = captured["runs"].as_u64();
            assert!(
                kind == "nothing" || runs >= captured["batches"].as_u64(),
                "{kind}: {captured}"
            );
        }
        let (native, hooks) = (told(&unlogged(kind, "native-c")), told(&unlogged(kind, "hooks")));
        compare(&format!("{kind}, hooks"), &native, &hooks);
        assert!(
            kind == "nothing" || hooks["runs"].as_u64() >= hooks["batches"].as_u64(),
            "{kind}: {hooks}"
        );
    }
    let first = told(&unlogged("text", "translated"));
    for number in ["first_ns", "first_blocks", "first_bytes", "code_bytes"] {
        assert!(first[number].as_u64() > Some(100), "{number}: {first}");
    }
}

#[test]
fn each_way_with_a_log_is_timed() {
    for kind in KINDS {
        let place = tempfile::tempdir().unwrap();
        let native = told(&logged(kind, "native", place.path()));
        for way in ["explicit", "translated", "pages"] {
            let place = tempfile::tempdir().unwrap();
            let captured = told(&logged(kind, way, place.path()));
            compare(&format!("{kind}, {way}, log"), &native, &captured);
            let bytes = captured["logged_bytes"].as_u64();
            assert_eq!(bytes > Some(0), kind != "nothing", "{kind}, {way}: {captured}");
        }
    }
}

#[test]
fn reads_of_a_map_and_of_a_state_are_timed() {
    let place = tempfile::tempdir().unwrap();
    let [native, locked, translated] =
        ["native", "locked", "translated"].map(|way| told(&logged("read", way, place.path())));
    compare("locked", &native, &locked);
    compare("translated", &locked, &translated);
}

#[test]
fn what_there_is_not_is_refused() {
    let place = tempfile::tempdir().unwrap();
    for (output, part) in [
        (unlogged("nothing", "what"), "hooks"),
        (unlogged("what", "native"), "copy-4k"),
        (unlogged("text", "hooks"), "native"),
        (logged("what", "native", place.path()), "copy-4k"),
        (logged("table", "hooks", place.path()), "explicit"),
        (logged("read", "pages", place.path()), "locked"),
    ] {
        assert_eq!(output.status.code(), Some(2));
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains(part), "{part}: {why}");
    }
}
