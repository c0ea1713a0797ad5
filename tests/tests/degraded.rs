//! System calls that are only an optimisation fail, as on old kernels, in containers, under seccomp: results
//! stay right, and each kind of failure is reported once.

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Finished, Job, Program, subject};

const SECCOMP_EXEC: &str = env!("CARGO_BIN_EXE_seccomp_exec");

/// `madvise` 23 is `MADV_POPULATE_WRITE`, 14 `MADV_HUGEPAGE`, 15 `MADV_NOHUGEPAGE`, 25 `MADV_COLLAPSE`, 8
/// `MADV_FREE`, 4 `MADV_DONTNEED`; `prctl` 0x53564d41 is `PR_SET_VMA`.
const OPTIONAL_CALLS: &[&str] = &[
    "rseq",
    "mremap",
    "madvise:23",
    "madvise:14",
    "madvise:15",
    "madvise:25",
    "madvise:8",
    "madvise:4",
    "membarrier",
    "getrandom",
    "prctl:0x53564d41",
];

fn without(rules: &[String], mode: &str, program: &Program, statistics: &std::path::Path) -> Job {
    let environment = subject()
        .environment(mode)
        .into_iter()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
    Job::new(SECCOMP_EXEC)
        .args(rules)
        .args(environment)
        .args(["SPANDREL_VERBOSE=1".to_owned(), format!("SPANDREL_STATS={}", statistics.display())])
        .arg("--")
        .arg(program.path())
}

/// Every kind that the statistics name has one line on standard error, and there are no other lines than those
/// and the one that says that the library is loaded.
fn check_reports(done: &Finished, statistics: &std::path::Path) {
    if !subject().is_spandrel() {
        return;
    }
    let text = std::fs::read_to_string(statistics).unwrap_or_else(|e| panic!("{e}: {done}"));
    let json: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let kinds: Vec<String> = json["degraded"]
        .as_array()
        .unwrap_or_else(|| panic!("no list of what is degraded: {text}"))
        .iter()
        .map(|entry| entry["what"].as_str().expect("a name").to_owned())
        .collect();
    let lines: Vec<String> =
        done.library_lines().into_iter().filter(|l| !l.contains(" loaded into ")).collect();
    for kind in &kinds {
        let line = format!(" {kind} is not available");
        let about = lines.iter().filter(|l| l.contains(&line)).count();
        assert_eq!(about, 1, "'{kind}' is degraded: {lines:#?}");
    }
    assert_eq!(lines.len(), kinds.len(), "degraded: {kinds:?}, reported: {lines:#?}");
}

fn run_without(rules: &[String], mode: &str, program: &Program) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let statistics = folder.path().join("statistics.json");
    let done = without(rules, mode, program, &statistics).run().expect_ok();
    check_reports(&done, &statistics);
}

fn each_call_fails_with(error: &str, modes: &[&str]) {
    let programs = [Program::new("realloc_append.c"), Program::new("realloc_walk.c")];
    for call in OPTIONAL_CALLS {
        for mode in subject().modes(modes) {
            for program in &programs {
                run_without(&[format!("{call}={error}")], mode, program);
            }
        }
    }
}

#[test]
fn each_call_unknown() {
    each_call_fails_with("ENOSYS", &["mmap", "auto"]);
}

#[test]
fn each_call_forbidden() {
    each_call_fails_with("EPERM", &["switch"]);
}

#[test]
fn each_call_refused() {
    each_call_fails_with("EINVAL", &["mmap"]);
}

/// `madvise` 24 is `MADV_DONTNEED_LOCKED`.
const NOTHING_GOES_BACK: [&str; 2] = ["madvise:4=EPERM", "madvise:24=EPERM"];

/// Memory cannot go back: it stays, is used again, reads as zero where it is to, and nobody says that it had gone.
#[test]
fn nothing_goes_back() {
    let rules = NOTHING_GOES_BACK.map(str::to_owned);
    for name in ["realloc_walk.c", "realloc_zero.c", "surface.c", "producer_consumer.c"] {
        let program = Program::new(name);
        for mode in subject().modes(&["native", "auto", "mmap"]) {
            run_without(&rules, mode, &program);
        }
    }
    let program = Program::new("sleeping_heap.c");
    for mode in subject().modes(&["native"]) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let statistics = folder.path().join("statistics.json");
        let done = without(&rules, mode, &program, &statistics).run().expect_ok();
        check_reports(&done, &statistics);
        if !subject().is_spandrel() {
            continue;
        }
        let text = std::fs::read_to_string(&statistics).expect("statistics");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(text.contains("madvise(MADV_DONTNEED)"), "{text}");
        let figure = |name: &str| json["native"][name].as_u64().expect("a figure");
        for reason in ["demand", "asked", "background", "drained", "pressure"] {
            assert_eq!(figure(&format!("released_{reason}_bytes")), 0, "{reason}: {text}");
        }
        let words = done.out();
        let resident: Vec<u64> =
            words.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert!(resident[1] >= resident[0], "{done}");
    }
}

/// No thread for work beside the program: memory then stays while the program sleeps, and that is all.
#[test]
fn no_thread_to_be_had() {
    let program = Program::new("sleeping_heap.c");
    for mode in subject().modes(&["native"]) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let statistics = folder.path().join("statistics.json");
        let done = without(
            &["clone3=EAGAIN".to_owned(), "clone=EAGAIN".to_owned()],
            mode,
            &program,
            &statistics,
        );
        let done = done.run().expect_ok();
        check_reports(&done, &statistics);
        let text = std::fs::read_to_string(&statistics).expect("statistics");
        assert!(!subject().is_spandrel() || text.contains("pthread_create"), "{text}");
        assert!(done.out().trim().ends_with(" 1"), "threads: {done}");
    }
}

/// What a kernel answers when memory or the number of mappings runs out: copying is the last resort.
#[test]
fn remapping_and_populating_out_of_memory() {
    let programs = [Program::new("realloc_append.c"), Program::new("realloc_walk.c")];
    for rule in ["mremap=ENOMEM", "madvise:23=ENOMEM", "madvise:25=EAGAIN", "madvise:14=ENOMEM"] {
        for mode in subject().modes(&["mmap", "auto"]) {
            for program in &programs {
                run_without(&[rule.to_owned()], mode, program);
            }
        }
    }
}

/// Strict overcommit refuses large writable reservations, small address spaces refuse large ones of any kind.
#[test]
fn no_room_for_large_reservations() {
    let programs = [
        Program::new("surface.c"),
        Program::new("realloc_walk.c"),
        Program::new("producer_consumer.c"),
        Program::new("spawn.c"),
    ];
    let refusals: [&[&str]; 3] = [
        &["mmap:huge-writable=ENOMEM", "mprotect:huge-writable=ENOMEM"],
        &["mmap:huge=ENOMEM"],
        &["mmap:huge=EPERM", "mremap=EPERM"],
    ];
    for refusal in refusals {
        let rules: Vec<String> = refusal.iter().map(|&rule| rule.to_owned()).collect();
        for mode in subject().modes(ALL_MODES) {
            for program in &programs {
                let folder = tempfile::tempdir().expect("a temporary folder");
                let statistics = folder.path().join("statistics-%p.json");
                let done = without(&rules, mode, program, &statistics).run();
                assert!(done.ok(), "mode {mode}: {done}");
            }
        }
    }
}

#[test]
fn all_calls_at_once() {
    let programs = [
        Program::new("surface.c"),
        Program::new("realloc_walk.c"),
        Program::new("spawn.c"),
        Program::new("small_stack.c"),
        Program::new("operators.cc"),
    ];
    let rules: Vec<String> = OPTIONAL_CALLS.iter().map(|call| format!("{call}=EPERM")).collect();
    for mode in subject().modes(ALL_MODES) {
        for program in &programs {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let statistics = folder.path().join("statistics-%p.json");
            let done = without(&rules, mode, program, &statistics).run();
            assert!(done.ok(), "mode {mode}: {done}");
        }
    }
}
