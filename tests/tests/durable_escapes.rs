//! An address of the process's own memory in a state of `libspandrel_durable` is named on the standard error, in whichever way stores are captured.

use spandrel_tests::Job;
use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::{Program, built};

const MODES: [&str; 4] = ["named", "translated", "verified", "pages"];

/// What the program was told of an address that it has stored, which it prints first. Empty: nothing is to be said.
#[track_caller]
fn said(program: &Program, mode: &str, what: &str, preload: Option<&str>) -> Option<String> {
    let mut job = program.job(&[mode, what]);
    if let Some(library) = preload {
        job = job.env("LD_PRELOAD", built(library));
    }
    let done = job.run().expect_ok();
    std::fs::remove_dir_all(program.heaps().join("heap")).expect("a state");
    let address = done.out().trim().to_owned();
    let lines: Vec<_> = done
        .err()
        .lines()
        .filter(|line| line.contains("a durable state has at "))
        .map(str::to_owned)
        .collect();
    if address == "none" {
        assert!(lines.is_empty(), "{mode} {what}: {done}");
        return None;
    }
    let [line] = &lines[..] else { panic!("{mode} {what}: one line: {done}") };
    assert!(line.contains(&format!("the address {address}")), "{mode} {what}: {done}");
    Some(line.clone())
}

#[test]
fn an_address_of_the_processs_memory_is_named_however_stores_are_captured() {
    let source = abi_dir().join("durable_escapes.c");
    let programs =
        [Program::durable(&source, &["-rdynamic"]), Program::hooked("cc", &source, &["-std=c11"])];
    for program in &programs {
        for mode in MODES {
            for what in ["heap", "large", "thread", "stack", "init"] {
                let line = said(program, mode, what, None).expect("a line");
                assert!(line.contains("memory of the process ("), "{line}");
            }
            assert_eq!(said(program, mode, "frame", None).is_some(), mode == "named");
            for what in ["number", "freed", "undone"] {
                assert_eq!(said(program, mode, what, None), None);
            }
        }
    }
}

/// What is found when the state is closed becomes durable, and is looked at as all else is.
#[test]
fn an_address_that_no_command_has_stored_is_named_when_the_state_is_closed() {
    let program = Program::durable(&abi_dir().join("durable_escapes.c"), &[]);
    said(&program, "translated", "closed", None).expect("a line");
}

/// Another allocator has its memory elsewhere.
#[test]
fn an_address_of_a_preloaded_allocator_is_named() {
    let program = Program::durable(&abi_dir().join("durable_escapes.c"), &[]);
    for mode in MODES {
        for what in ["heap", "large", "thread"] {
            said(&program, mode, what, Some("libspandrel.so")).expect("a line");
        }
        assert_eq!(said(&program, mode, "number", Some("libspandrel.so")), None);
    }
}

/// Where the kernel draws addresses, what lies in the program or a library is elsewhere in the next process.
#[test]
fn a_function_and_a_variable_are_named_by_file_and_symbol() {
    let program = Program::durable(&abi_dir().join("durable_escapes.c"), &["-rdynamic"]);
    for mode in MODES {
        for (what, file, symbol) in [
            ("function", "libc.so.6+0x", ", qsort)"),
            ("variable", "program+0x", ", durable_escapes_variable)"),
        ] {
            let line = said(&program, mode, what, None);
            let is_fixed = ["translated", "verified"].contains(&mode);
            // In a process whose parent has fixed addresses all are.
            assert!(!is_fixed || line.is_none(), "{mode}: {line:?}");
            if let Some(line) = line {
                assert!(line.contains(file) && line.contains(symbol), "{line}");
            }
        }
    }
}

/// A durable variable of a program whose own memory is the state.
#[test]
fn an_address_in_a_durable_variable_is_named() {
    let program = Program::transparent(&abi_dir().join("durable_escapes_variable.c"));
    for (what, lines) in [("outside", 1), ("inside", 0)] {
        let state = program.heaps().join(what);
        let done = Job::new(program.path()).arg(what).env("SPANDREL_DURABLE_DIR", state).run();
        let done = done.expect_ok();
        let address = done.out().trim().to_owned();
        assert_eq!(done.err().matches("a durable state has at ").count(), lines, "{done}");
        assert!(lines == 0 || done.err().contains(&format!("the address {address}")), "{done}");
    }
}
