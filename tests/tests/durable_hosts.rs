//! What programs do around a durable state of `libspandrel_durable`: to descriptors that they do not know, with small stacks, in handlers of signals, and by another compilation of the same source.

use std::path::{Path, PathBuf};
use std::process::Command;

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::Program;
use tempfile::TempDir;

fn source() -> PathBuf {
    abi_dir().join("durable_hosts.c")
}

/// The folders in which states are tried: in memory and on a disk.
fn places() -> [TempDir; 2] {
    ["/dev/shm", "/tmp"].map(|place| tempfile::tempdir_in(place).expect("a temporary folder"))
}

/// The number that a program has printed first.
fn first(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// A file that is opened then has the number of the standard output.
#[test]
fn what_a_program_without_standard_streams_prints_is_not_in_its_state() {
    for place in places() {
        for closed in ["<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"] {
            let program = Program::durable(&source(), &[]).with_heaps_in(place.path());
            let state = program.heaps().join("heap");
            for _ in 0..2 {
                let line =
                    format!("exec {} {} print {closed}", program.path().display(), state.display());
                let status = Command::new("sh").args(["-c", &line]).status().expect("sh");
                assert!(status.success(), "{line}: {status}");
                program.ends_well(&["check"]);
            }
        }
    }
}

/// As programs do that make themselves daemons, when the state is open.
#[test]
fn files_that_take_the_numbers_of_closed_descriptors_stay_as_they_are() {
    for place in places() {
        let program = Program::durable(&source(), &[]).with_heaps_in(place.path());
        program.ends_well(&["check"]);
        let done = program.job(&["reuse"]).run().expect_ok();
        let acknowledged: u64 = first(&done.stdout);
        let done = program.job(&["count"]).run().expect_ok();
        let there: u64 = first(&done.stdout);
        // A command that was refused may be there.
        assert!((acknowledged..=acknowledged + 1).contains(&there), "{there} of {acknowledged}");
    }
}

#[test]
fn stacks_are_as_small_as_the_header_says() {
    for place in places() {
        let program = Program::durable(&source(), &[]).with_heaps_in(place.path());
        program.ends_well(&["stacks"]);
    }
}

/// It waits for the batch then, or for the gate.
#[test]
fn a_handler_of_a_signal_that_interrupts_a_call_gets_an_error() {
    for stores in ["0", "1", "3"] {
        Program::durable(&source(), &[]).ends_well(&["handler", stores]);
    }
}

/// The linker has the order of variables in a section; each build may have another.
#[test]
fn variables_of_a_section_are_found_by_their_names_or_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let built = |name: &str, flags: &[&str]| {
        let source = abi_dir().join("durable_order.c");
        let flags = [&["-std=c11", "-fno-toplevel-reorder"], flags].concat();
        let program = Program::hooked("cc", &source, &flags);
        let path = folder.path().join(name);
        std::fs::copy(program.path(), &path).expect("a copy");
        (path, program)
    };
    let run = |program: &Path, state: &str| {
        let mut command = Command::new(program);
        command.env("SPANDREL_DURABLE_DIR", folder.path().join(state));
        command.env("LD_LIBRARY_PATH", spandrel_tests::subject::release_dir());
        let output = command.output().expect("the program");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let refused = libc::EPROTOTYPE.to_string();
    let (plain, _a) = built("plain", &[]);
    let (again, _b) = built("again", &["-DONE_MORE"]);
    let (turned, _c) = built("turned", &["-DTURNED"]);
    assert_eq!(run(&plain, "variables"), (Some(0), "1 1000".into()));
    assert_eq!(
        run(&again, "variables"),
        (Some(0), "2 2000".into()),
        "another build with the same order"
    );
    let (status, text) = run(&turned, "variables");
    assert_eq!(status, Some(2), "{text}");
    assert!(text.starts_with(&refused), "{text}");
    assert_eq!(run(&plain, "variables"), (Some(0), "3 3000".into()));
    // One structure is one variable, whose order is the source's.
    let (one, _d) = built("one", &["-DIN_ONE"]);
    let (other, _e) = built("other", &["-DIN_ONE", "-O2"]);
    assert_eq!(run(&one, "structure"), (Some(0), "1 1000".into()));
    assert_eq!(run(&other, "structure"), (Some(0), "2 2000".into()));
    // Without a table of symbols only the same build is known.
    for program in [&plain, &again] {
        let stripped = Command::new("strip").arg(program).status().expect("strip (binutils)");
        assert!(stripped.success());
    }
    assert_eq!(run(&plain, "variables"), (Some(0), "4 4000".into()));
    let (status, text) = run(&again, "variables");
    assert_eq!(status, Some(2), "{text}");
    assert_eq!(run(&plain, "without-symbols"), (Some(0), "1 1000".into()));
    assert_eq!(run(&plain, "without-symbols"), (Some(0), "2 2000".into()));
}
