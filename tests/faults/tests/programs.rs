//! Calls of programs fail as planned, and are carried out as the program would have done.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use libc::EIO;
use spandrel_faults::{Calls, Fault, Plan, supervise_programs};

/// Runs a program in a folder with a text as its input: whether it ends well, and its calls.
fn run(folder: &Path, words: &[&str], plan: Option<Plan>) -> (bool, Calls) {
    supervise_programs(plan, words[0], || {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(folder).stdin(Stdio::piped());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // One that reads nothing may have ended.
        let written = child.stdin.take().unwrap().write_all(b"12345678");
        assert!(written.is_ok() || words[0] != "tee");
        child.wait().unwrap().success()
    })
}

#[test]
fn calls_of_other_programs_fail_as_planned() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = || fs::read_to_string(folder.join("text")).unwrap();
    let tee = |plan| {
        let (is_well, calls) = run(folder, &["tee", "text"], plan);
        assert_eq!(calls.names[..2], ["openat", "write"], "{calls:?}");
        (is_well, text())
    };
    assert_eq!(tee(None), (true, "12345678".into()));
    assert_eq!(tee(Some(Plan::once(2, Fault::Error(EIO)))), (false, String::new()));
    assert_eq!(tee(Some(Plan::once(2, Fault::Late(EIO)))), (false, "12345678".into()));
    let part = Plan { then: Some(Fault::Error(EIO)), ..Plan::once(2, Fault::Short) };
    assert_eq!(tee(Some(part)), (false, "1234".into()));
}

#[test]
fn paths_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let late = Some(Plan::once(1, Fault::Late(EIO)));
    let error = Some(Plan::once(1, Fault::Error(EIO)));
    for (plan, is_there) in [(error, false), (late, true)] {
        let (is_well, calls) = run(folder, &["mkdir", "made"], plan);
        assert!(!is_well && calls.faults.len() == 1, "{calls:?}");
        assert_eq!(folder.join("made").is_dir(), is_there);
    }
    let (is_well, calls) = run(folder, &["mv", "-T", "made", "moved"], late);
    assert!(!is_well || calls.faults.is_empty(), "{calls:?}");
    assert!(folder.join("moved").is_dir() && !folder.join("made").exists());
}
