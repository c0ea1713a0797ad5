//! CPython: its own regression tests, and a job that grows large buffers.

use std::path::PathBuf;

use spandrel_tests::job::seconds;
use spandrel_tests::{Finished, Job, subject};

use crate::compare::{Run, account, heavy, loads_into, program_file, same_in_every_mode};

/// Modules of the regression tests that are heavy on memory or threads.
const ALL: &[&str] = &[
    "test_list",
    "test_dict",
    "test_bytes",
    "test_threading",
    "test_fork1",
    "test_subprocess",
    "test_mmap",
    "test_ctypes",
    "test_multiprocessing_fork",
];
/// Those that take seconds.
const QUICK: &[&str] = &[
    "test_list",
    "test_dict",
    "test_bytes",
    "test_threading",
    "test_fork1",
    "test_mmap",
    "test_ctypes",
];

/// An interpreter that has these regression tests: not every installation has all of them.
fn interpreter(modules: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&path).map(|folder| folder.join("python3"));
    let probe = "import sys, test.libregrtest, importlib.util as u
all(u.find_spec('test.' + name) for name in sys.argv[1:]) or sys.exit(1)
print(sys.executable)";
    for candidate in candidates.filter(|path| path.is_file()) {
        // A shim of a version manager is a shell script; the interpreter itself is what is wanted.
        let done = Job::new(&candidate).args(["-c", probe]).args(modules).run();
        if done.ok() {
            return PathBuf::from(done.out().trim());
        }
    }
    panic!("install python3 with its regression tests (libpython3-testsuite): make setup");
}

fn regression_tests(run: &Run<'_>, modules: &[&str], more: &[&str]) -> Finished {
    let python = interpreter(modules);
    run.job(&python.display().to_string())
        .args(["-m", "test", "-j2", "--timeout", "400"])
        .args(more)
        .args(modules)
        // Every object from the allocator under test, not from the interpreter's own pools.
        .env("PYTHONMALLOC", "malloc")
        .env("TMPDIR", run.folder())
        .timeout(seconds(900))
        .memory_cap(16 << 30)
        .run()
}

/// The modules that a run says have failed, with nothing if it passed.
fn failed_modules(done: &Finished) -> Vec<&'static str> {
    if done.ok() {
        return Vec::new();
    }
    let text = done.out() + &done.err();
    ALL.iter()
        .copied()
        .filter(|module| {
            text.lines().any(|l| {
                l.contains(module)
                    && (l.contains("failed") || l.contains("crashed") || l.contains("timed out"))
                    || l.split_whitespace().all(|w| w.starts_with("test_"))
                        && l.split_whitespace().any(|w| w == *module)
            })
        })
        .collect()
}

/// Names of the single tests that failed.
fn failed_tests(done: &Finished) -> Vec<String> {
    let text = done.out() + &done.err();
    let mut names: Vec<String> = text
        .lines()
        .filter(|l| l.starts_with("FAIL: ") || l.starts_with("ERROR: "))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Passes if all pass. Otherwise what fails must fail without the library too, test by test: some need what a
/// container does not give.
fn pass_as_without(mode: &str, modules: &[&str]) {
    let with = Run::new(Some(mode));
    let first = regression_tests(&with, modules, &[]);
    if first.ok() {
        return;
    }
    let suspects = failed_modules(&first);
    assert!(!suspects.is_empty() && first.stopped.is_none(), "mode {mode}: {first}");
    let without = failed_tests(&regression_tests(&Run::new(None), &suspects, &["-v"]));
    // Once more, by name: a test that depends on timing may fail in either run.
    let again = regression_tests(&with, &suspects, &["-v"]);
    let more: Vec<String> =
        failed_tests(&again).into_iter().filter(|name| !without.contains(name)).collect();
    assert!(more.is_empty(), "mode {mode}: fail only with the library: {more:#?}\n{again}");
    let crashed = again.err() + &again.out();
    assert!(
        !crashed.contains("crashed") && again.stopped.is_none() && again.signal.is_none(),
        "mode {mode}: {again}"
    );
}

#[test]
fn python_loads_it() {
    loads_into(&interpreter(QUICK).display().to_string(), &["--version"]);
}

#[test]
fn python_regression_tests_in_auto() {
    let _alone = heavy();
    for mode in subject().modes(&["auto"]) {
        pass_as_without(mode, ALL);
    }
}

#[test]
fn python_regression_tests_in_native() {
    let _alone = heavy();
    for mode in subject().modes(&["native"]) {
        pass_as_without(mode, QUICK);
    }
}

#[test]
#[ignore = "minutes: make soak"]
fn python_regression_tests_in_template() {
    let _alone = heavy();
    for mode in subject().modes(&["template=brug"]) {
        pass_as_without(mode, QUICK);
    }
}

#[test]
#[ignore = "minutes: make soak"]
fn python_regression_tests_in_switch() {
    let _alone = heavy();
    for mode in subject().modes(&["switch"]) {
        pass_as_without(mode, QUICK);
    }
}

#[test]
fn python_growing_large_buffers() {
    let python = interpreter(&[]).display().to_string();
    for pools in ["malloc", "pymalloc"] {
        same_in_every_mode(|run| {
            let job = run.job(&python).arg(program_file("job.py")).env("PYTHONMALLOC", pools);
            account(&job.env("PYTHONHASHSEED", "0").run(), 5)
        });
    }
}
