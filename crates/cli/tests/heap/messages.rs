//! What is refused is refused with the file that is meant, the reason, and the way out.

use super::{BYTES, Done, Place};
use spandrel_pheap::{Choice, Options};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What a heap's log is called.
fn log_of(name: &str) -> String {
    format!("{name}.wal")
}

#[test]
fn what_is_wrong_with_the_log_is_said_of_the_log() {
    let place = Place::new();
    let log = log_of("a.heap");
    place.create("a.heap", Choice::Logged).close().unwrap();
    let _ = std::fs::remove_file(place.path(&log));
    symlink("/etc/passwd", place.path(&log)).unwrap();
    let begins = format!("spandrel: {log}: it has the name of the heap's log, and is none");
    place.refuses(&["gc", "a.heap"], &[&begins, "move it away"]);
    place.refuses(&["info", "a.heap"], &[&begins]);
    // Of the file what is wrong with the file.
    symlink("a.heap", place.path("link")).unwrap();
    place.refuses(&["gc", "link"], &["spandrel: link: it is a symbolic link"]);
}

#[test]
#[ignore = "a process of another test: its child goes on, and it ends"]
fn parent() {
    let heap = Options::new().open(std::env::var("HEAP").unwrap()).unwrap().0;
    // SAFETY: the child only sleeps.
    let child = unsafe {
        match std::env::var_os("BY_NUMBER") {
            Some(_) => libc::syscall(libc::SYS_fork) as i32,
            None => libc::fork(),
        }
    };
    match child {
        // SAFETY: as above; it ends the child.
        0 => unsafe {
            libc::sleep(60);
            libc::_exit(0)
        },
        child => println!("\nchild {child}"),
    }
    std::mem::forget(heap);
    // SAFETY: the process ends here, as one that is killed.
    unsafe { libc::_exit(0) };
}

/// What is said of a heap whose process has ended, and a child of it lives, by its number.
fn behind_a_parent(medium: Choice, is_by_number: bool) -> (Done, i32) {
    let place = Place::new();
    place.create("a.heap", medium).close().unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap());
    parent.args(["--ignored", "--exact", "messages::parent", "--nocapture"]);
    if is_by_number {
        parent.env("BY_NUMBER", "1");
    }
    parent.env("HEAP", place.path("a.heap")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut parent = parent.spawn().unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let child: i32 =
        lines.find_map(|line| line.strip_prefix("child ")?.trim().parse().ok()).unwrap();
    parent.wait().unwrap();
    if !is_by_number {
        // The child gives the lock up as the first thing that it does.
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let done = place.run(&["gc", "a.heap"]);
    // SAFETY: a process that this test has begun.
    unsafe { libc::kill(child, libc::SIGKILL) };
    (done, child)
}

#[test]
fn a_heap_is_not_held_by_the_child_of_a_process_that_has_ended() {
    for medium in [Choice::Logged, Choice::Mapped] {
        let (done, _) = behind_a_parent(medium, false);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
}

/// Without the C library's `fork` the child does not know that it is one.
#[test]
fn the_child_that_holds_a_heap_is_named() {
    let (done, child) = behind_a_parent(Choice::Logged, true);
    assert_eq!(done.code, Some(2), "{done:?}");
    let named = format!("a.heap: process {child} (");
    assert!(done.err.contains(&named) && done.err.contains(") has it open; close"), "{done:?}");
}

/// Runs the command under a limit of the process. What it said, which was refused.
pub fn limited(
    place: &Place,
    resource: libc::__rlimit_resource_t,
    most: u64,
    args: &[&str],
) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    command.arg("heap").args(args).current_dir(place.0.path());
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a system call, which allocates nothing.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn every_limit_is_met_when_a_heap_is_made() {
    let place = Place::new();
    let large = limited(&place, libc::RLIMIT_FSIZE, 1 << 20, &["create", "a.heap"]);
    assert!(
        large.contains("a.heap: the file would exceed its size limit; have 'ulimit -f'"),
        "{large}"
    );
    let space = ["create", "--size", "3GiB", "a.heap"];
    let space = limited(&place, libc::RLIMIT_AS, 2 << 30, &space);
    assert!(space.contains("a.heap: there is no memory or address space for it; "), "{space}");
    assert!(space.contains("3GiB") && space.contains("ulimit -v"), "{space}");
    let name = "x".repeat(252);
    let parts = ["its name has 252 bytes; 251 at most", "; take a shorter name"];
    place.refuses(&["create", &name], &parts);
    assert!(place.names().is_empty());
}

#[test]
fn fixed_heaps_are_made_shown_and_opened_under_ulimit_v() {
    let place = Place::new();
    for args in [
        &["create", "--fixed", "--size", "2MiB", "a.heap"][..],
        &["info", "a.heap"],
        &["gc", "a.heap"],
    ] {
        let mut command = Command::new("bash");
        let spandrel = env!("CARGO_BIN_EXE_spandrel");
        command.args(["-c", "ulimit -v 4000000; exec \"$0\" heap \"$@\"", spandrel]).args(args);
        let done = command.current_dir(place.0.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    assert_eq!(std::fs::metadata(place.path("a.heap")).unwrap().len(), BYTES as u64);
}

#[test]
fn commands_that_recover_without_types_say_what_to_do_first() {
    let place = Place::new();
    for command in ["gc", "shrink"] {
        let said = place.says(0, &[command, "--help"]);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("was not closed with its program first"), "{said}");
    }
}
