//! Programs and libraries with a `malloc` of their own, in front of the library's.

use std::ffi::OsString;
use std::time::Duration;

use spandrel_tests::abi::compile;
use spandrel_tests::subject::{ALL_MODES, spandrel_command};
use spandrel_tests::{Job, Program, Source, subject};

/// Chromium and Firefox are such programs. The library is loaded with them, and must not allocate through them
/// while they start.
#[test]
fn a_program_with_an_allocator_of_its_own_is_left_alone() {
    let program = Program::with(&Source { file: "own_malloc.cc", flags: &["-rdynamic"] });
    for mode in subject().modes(ALL_MODES) {
        let job = || subject().job(program.path(), mode).timeout(Duration::from_secs(20));
        let done = job().env("SPANDREL_VERBOSE", "1").run().expect_ok();
        assert_eq!(done.out(), "ok\n", "mode {mode}: {done}");
        let says = |word: &str| done.library_lines().iter().any(|line| line.contains(word));
        assert!(!subject().is_spandrel() || says("a malloc of its own"), "mode {mode}: {done}");
        job().env("SPANDREL_STATS", "1").run().expect_ok();
    }
}

#[test]
fn the_command_says_that_a_program_has_an_allocator_of_its_own() {
    let program = Program::with(&Source { file: "own_malloc.cc", flags: &["-rdynamic"] });
    let library = subject().required_library();
    let job = Job::new(spandrel_command()).args(["run", "--mode", "native", "--lib"]).arg(library);
    let done = job.arg("--").arg(program.path()).run().expect_ok();
    assert_eq!(done.out(), "ok\n", "{done}");
    assert!(done.err().contains("a malloc of its own"), "{done}");
}

/// node is such a program: it has stubs of these names, and no allocator of its own.
#[test]
fn a_program_that_takes_the_address_of_malloc_is_served() {
    let flags = &["-no-pie", "-fno-pie"];
    let program = Program::with(&Source { file: "malloc_by_address.c", flags });
    for mode in subject().modes(ALL_MODES) {
        let done =
            subject().job(program.path(), mode).env("SPANDREL_VERBOSE", "1").run().expect_ok();
        assert_eq!(done.out(), "ok\n", "mode {mode}: {done}");
        let says = |word: &str| done.library_lines().iter().any(|line| line.contains(word));
        assert!(!subject().is_spandrel() || !says("a malloc of its own"), "mode {mode}: {done}");
    }
}

/// As tools do that count memory.
#[test]
fn a_library_in_front_that_wraps_each_object() {
    let program = Program::new("wrapped.cc");
    let threaded = Program::new("threaded.cc");
    let wrapper = program.folder().join("libwrapping.so");
    compile(&Source { file: "wrapping_lib.c", flags: &["-shared", "-fPIC"] }, &wrapper);
    for mode in subject().modes(ALL_MODES) {
        let mut preload = OsString::from(&wrapper);
        if let Some(library) = subject().library() {
            preload.push(":");
            preload.push(library);
        }
        for program in [&program, &threaded] {
            subject().job(program.path(), mode).env("LD_PRELOAD", &preload).run().expect_ok();
        }
    }
}
