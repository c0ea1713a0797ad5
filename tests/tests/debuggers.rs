//! Programs under debuggers, which execute them instruction by instruction.

use std::time::Duration;

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Job, Program, Source, installed, subject};

#[test]
fn a_program_that_is_stepped() {
    Program::new("stepped.c").run_in_all_modes();
}

/// What gdb says when it carries out commands on a program that is preloaded, from the function `part` on.
fn in_gdb(program: &Program, mode: &str, commands: &[&str]) -> String {
    let mut arguments = vec![
        "set startup-with-shell off".to_owned(),
        "set confirm off".to_owned(),
        "set can-use-hw-watchpoints 0".to_owned(),
    ];
    for (name, value) in subject().environment(mode) {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        arguments.push(format!("set environment {name} {value}"));
    }
    arguments.extend(["break part", "run"].iter().chain(commands).map(|&word| word.to_owned()));
    let flags = arguments.iter().flat_map(|command| ["-ex", command]);
    let job = Job::new(installed("gdb")).args(["-nx", "-batch"]).args(flags).arg(program.path());
    job.timeout(Duration::from_secs(120)).run().out()
}

/// Software watchpoints, of a global and of a local variable: after each instruction gdb looks at the variable,
/// and whether the function that has it is still active. And `record`, which knows few instructions.
#[test]
fn watched_and_recorded_by_gdb() {
    let program = Program::with(&Source { file: "watched.c", flags: &["-O0"] });
    for mode in subject().modes(ALL_MODES) {
        let said = in_gdb(&program, mode, &["watch counter", "continue", "continue", "kill"]);
        assert!(said.contains("New value = 2"), "mode {mode}: {said}");
        let said = in_gdb(&program, mode, &["watch local", "continue", "continue", "kill"]);
        assert!(said.contains("New value = 5"), "mode {mode}: {said}");
    }
    // The other allocators use instructions that it does not know.
    for mode in subject().modes(&["native", "sys", "auto"]) {
        let said = in_gdb(&program, mode, &["record full", "finish", "print counter", "kill"]);
        assert!(said.contains("$1 = 6"), "mode {mode}: {said}");
    }
}

/// memcheck replaces the functions of the program, not what the library does at its start; it takes memory and time for
/// each page that is reserved.
#[test]
fn memcheck_finds_the_programs_faults_and_none_of_the_librarys() {
    let program = Program::new("memchecked.c");
    for mode in subject().modes(ALL_MODES) {
        let job = subject().job(installed("valgrind"), mode).timeout(Duration::from_secs(60));
        let said = job.arg(program.path()).memory_cap(4 << 30).run().err();
        assert!(said.contains("2 errors from 2 contexts"), "mode {mode}: {said}");
        assert!(
            !said.contains("uninitialised") && !said.contains("unhandled"),
            "mode {mode}: {said}"
        );
    }
}
