//! Random operations across threads, modes and scopes against a model that knows every live byte.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spandrel_tests::subject::{ALL_MODES, ALLOCATORS, RESTLESS_MODES};
use spandrel_tests::{Finished, subject};

const MODEL: &str = env!("CARGO_BIN_EXE_model");

fn random_run(mode: &str, arguments: &[&str]) -> Finished {
    subject().job(MODEL, mode).args(arguments).run().expect_ok()
}

#[test]
fn each_mode_by_itself() {
    let mut failures = Vec::new();
    for (seed, mode) in (1..).zip(subject().modes(ALL_MODES)) {
        let seed = u64::to_string(&seed);
        let arguments = ["--ops", "20000", "--seed", &seed, "--max-size", "4000000", "--no-flips"];
        let done = subject().job(MODEL, mode).args(arguments).run();
        if !done.ok() {
            failures.push(done.to_string());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn modes_and_scopes_mixed() {
    for seed in 1..=6_u64 {
        let seed = seed.to_string();
        let done = random_run("auto", &["--ops", "40000", "--seed", &seed]);
        if subject().is_spandrel() {
            assert!(done.out().contains("flips: true"), "{done}");
        }
    }
}

#[test]
fn modes_mixed_with_large_objects() {
    let arguments = ["--ops", "1200", "--threads", "3", "--seed", "77", "--max-size", "67108864"];
    random_run("switch", &arguments);
}

#[test]
fn modes_mixed_with_many_short_threads() {
    let arguments = ["--ops", "20000", "--threads", "8", "--generations", "100", "--seed", "99"];
    random_run("mimalloc", &arguments);
}

fn slot() -> impl Strategy<Value = u8> {
    0..12_u8
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0..256_usize,
        4 => 256..70_000_usize,
        3 => 100_000..300_000_usize,
        2 => 300_000..5_000_000_usize,
        1 => Just(128 * 1024_usize),
        1 => Just(128 * 1024 - 1_usize),
        1 => Just(2 << 20_usize),
    ]
}

fn mode() -> impl Strategy<Value = &'static str> {
    prop::sample::select([ALL_MODES, RESTLESS_MODES].concat())
}

/// One line of a script for the model's `--script`.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (slot(), size()).prop_map(|(s, n)| format!("malloc {s} {n}")),
        3 => (slot(), size()).prop_map(|(s, n)| format!("calloc {s} {n}")),
        2 => (slot(), 3..23_u8, size()).prop_map(|(s, a, n)| format!("align {s} {a} {n}")),
        2 => (slot(), 0..ALLOCATORS, size()).prop_map(|(s, b, n)| format!("in {s} {b} {n}")),
        12 => (slot(), size()).prop_map(|(s, n)| format!("realloc {s} {n}")),
        2 => (slot(), 0..ALLOCATORS, size()).prop_map(|(s, b, n)| format!("into {s} {b} {n}")),
        5 => slot().prop_map(|s| format!("free {s}")),
        2 => slot().prop_map(|s| format!("slack {s}")),
        1 => slot().prop_map(|s| format!("check {s}")),
        3 => mode().prop_map(|m| format!("mode {m}")),
        2 => mode().prop_map(|m| format!("enter {m}")),
        2 => Just("leave".to_owned()),
        3 => (0..4_u8).prop_map(|t| format!("on {t}")),
        1 => (1..4_u8).prop_map(|t| format!("end {t}")),
    ]
}

/// A failure is shrunk to the shortest list of lines that shows it; feed them to `model --script`.
#[test]
fn short_scripts() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let scripts = prop::collection::vec(line(), 1..250);
    let outcome = runner.run(&scripts, |lines| {
        let script = lines.join("\n") + "\n";
        let done = subject().job(MODEL, "auto").arg("--script").stdin(script.clone()).run();
        prop_assert!(done.ok(), "{done}\n--- script\n{script}");
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
