//! Run a scenario without the library and in each mode, and compare what it says.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spandrel_tests::abi::says_loaded;
use spandrel_tests::subject::{MAIN_MODES, REAL_MODES};
use spandrel_tests::{Finished, Job, installed, subject};

/// One run of a scenario: without the library, or in a mode, in a fresh folder.
pub struct Run<'a> {
    mode: Option<&'a str>,
    folder: tempfile::TempDir,
}

impl<'a> Run<'a> {
    /// A run in `mode`, or without the library.
    pub fn new(mode: Option<&'a str>) -> Self {
        Self { mode, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The folder of this run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A job in this run's folder. Its environment tells nothing of the user's settings.
    pub fn job(&self, program: &str) -> Job {
        let path = if program.contains('/') { PathBuf::from(program) } else { installed(program) };
        let job = match self.mode {
            Some(mode) => subject().job(path, mode),
            None => Job::new(path),
        };
        job.dir(self.folder()).env("HOME", self.folder()).env("LC_ALL", "C.UTF-8").env("TZ", "UTC")
    }

    /// Runs a shell script of `tests/programs` or given as text; what it prints and how it ends.
    pub fn shell(&self, shell: &str, script: &str) -> Finished {
        self.job(shell).args(["-c", script]).run()
    }
}

/// What a scenario says of a finished program: everything it printed. How it ended is known beforehand, so that
/// a scenario that is broken in the same way with and without the library is no success.
#[track_caller]
pub fn account(done: &Finished, code: i32) -> String {
    assert!(done.stopped.is_none() && done.code == Some(code), "expected exit {code}: {done}");
    format!("--- out\n{}\n--- err\n{}", done.out(), done.err())
}

/// Programs that load both cores run one at a time.
pub fn heavy() -> MutexGuard<'static, ()> {
    static HEAVY: Mutex<()> = Mutex::new(());
    HEAVY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file of `tests/programs`.
pub fn program_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Fails unless the scenario gives the same account in every mode as without the library.
#[track_caller]
pub fn same_in_every_mode(scenario: impl Fn(&Run<'_>) -> String) {
    same_in(REAL_MODES, scenario);
}

/// The same of a scenario that takes long: in the modes that users take first, and with `SPANDREL_SOAK` in every mode.
#[track_caller]
pub fn same_in_main_modes(scenario: impl Fn(&Run<'_>) -> String) {
    let has_time = std::env::var_os("SPANDREL_SOAK").is_some();
    same_in(if has_time { REAL_MODES } else { MAIN_MODES }, scenario);
}

#[track_caller]
fn same_in(modes: &[&str], scenario: impl Fn(&Run<'_>) -> String) {
    let expected = scenario(&Run::new(None));
    let mut failures = Vec::new();
    for mode in subject().modes(modes) {
        let account = scenario(&Run::new(Some(mode)));
        if account != expected {
            failures.push(format!("=== mode {mode}\n{}", difference(&expected, &account)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Fails unless the library says that it is loaded into this program.
#[track_caller]
pub fn loads_into(program: &str, arguments: &[&str]) {
    if !subject().is_spandrel() {
        return;
    }
    for mode in subject().modes(REAL_MODES) {
        let run = Run::new(Some(mode));
        let done = run.job(program).args(arguments).env("SPANDREL_VERBOSE", "1").run().expect_ok();
        assert!(says_loaded(&done.library_lines(), mode), "{done}");
    }
}

/// The first lines that differ.
fn difference(expected: &str, found: &str) -> String {
    let (mut left, mut right) = (expected.lines(), found.lines());
    let mut text = String::new();
    for number in 1.. {
        let pair = (left.next(), right.next());
        if pair == (None, None) || text.len() > 4000 {
            break;
        }
        if pair.0 != pair.1 {
            let show = |line: Option<&str>| line.unwrap_or("(end)").to_owned();
            text.push_str(&format!(
                "line {number}:\n  without: {}\n  with:    {}\n",
                show(pair.0),
                show(pair.1)
            ));
        }
    }
    text
}
