//! How many instructions the way of an ordinary request takes. Times on a shared machine swing by more than
//! this way costs; instructions do not.

use spandrel_tests::{Job, Program, installed, subject};

/// Instructions of one run under `callgrind`.
fn instructions(program: &Program, mode: &str, pairs: u64, bytes: &str) -> u64 {
    let done = Job::new(installed("valgrind"))
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program.path())
        .args([&pairs.to_string(), bytes])
        .envs(subject().environment(mode))
        .run()
        .expect_ok();
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    let collected = words.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("{words}"))
}

/// Instructions of a pair of `malloc` and `free`, with the program's loop: seven of its own.
fn per_pair(mode: &str, bytes: &str) -> f64 {
    const PAIRS: u64 = 20_000;
    let program = Program::new("pairs.c");
    let few = instructions(&program, mode, PAIRS, bytes);
    let many = instructions(&program, mode, 2 * PAIRS, bytes);
    (many - few) as f64 / PAIRS as f64
}

/// What each mode takes, and a few more for another compiler: the build decides.
#[test]
fn a_pair_stays_within_its_budget() {
    if !subject().is_spandrel() {
        return;
    }
    let budgets = [("auto", "64", 82.0), ("auto", "4096", 86.0)];
    for (mode, bytes, most) in budgets {
        let taken = per_pair(mode, bytes);
        assert!(taken <= most, "{mode}, {bytes} B: {taken} instructions, budget {most}");
    }
}
