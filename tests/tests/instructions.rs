//! How many instructions the way of an ordinary request takes. Times on a shared machine swing by more than
//! this way costs; instructions do not.

use spandrel_tests::{Job, Program, installed, subject};

/// Instructions of one run under `callgrind`.
fn instructions(program: &Program, mode: &str, rounds: u64, bytes: &[&str]) -> u64 {
    let done = Job::new(installed("valgrind"))
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program.path())
        .arg(rounds.to_string())
        .args(bytes)
        .envs(subject().environment(mode))
        .run()
        .expect_ok();
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    let collected = words.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("{words}"))
}

/// Instructions of one round of a program, its own loop included.
fn per_round(source: &str, mode: &str, rounds: u64, bytes: &[&str]) -> f64 {
    let program = Program::new(source);
    let few = instructions(&program, mode, rounds, bytes);
    let many = instructions(&program, mode, 2 * rounds, bytes);
    (many - few) as f64 / rounds as f64
}

/// An object that doubles from a page to 32, the seven calls of it: what glibc takes is 1,180. The
/// program's loop has 50 of its own.
#[test]
fn doubling_stays_within_its_budget() {
    if !subject().is_spandrel() {
        return;
    }
    let taken = per_round("doublings.c", "auto", 10_000, &["4096", "131072"]);
    assert!(taken <= 1400.0, "{taken} instructions");
}

/// Where no object is so large that it is page-mapped anyway, those that grow find a warm place all the same.
#[test]
fn doubling_of_smaller_objects_stays_within_its_budget() {
    if !subject().is_spandrel() {
        return;
    }
    let taken = per_round("doublings.c", "auto", 5_000, &["4096", "65536"]);
    assert!(taken <= 1300.0, "{taken} instructions");
}

/// What each mode takes, and a few more for another compiler: the build decides.
#[test]
fn a_pair_stays_within_its_budget() {
    if !subject().is_spandrel() {
        return;
    }
    let budgets = [("auto", "64", 82.0), ("auto", "4096", 98.0), ("auto", "4000", 124.0)];
    for (mode, bytes, most) in budgets {
        let taken = per_round("pairs.c", mode, 20_000, &[bytes]);
        assert!(taken <= most, "{mode}, {bytes} B: {taken} instructions, budget {most}");
    }
}
