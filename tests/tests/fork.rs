//! Fork in threaded programs: parent and child go on.

use spandrel_tests::{Job, Program, Source, subject};

#[test]
fn fork_while_threads_allocate() {
    Program::new("fork_threads.c").run_in_all_modes();
}

#[test]
fn fork_handlers_that_allocate() {
    let library = Source { file: "fork_handlers_lib.c", flags: &[] };
    let program = Source { file: "fork_handlers.c", flags: &["-lfork_handlers_lib"] };
    Program::with_libraries(&program, &[library]).run_in_all_modes();
}

#[test]
fn a_signal_handler_that_forks() {
    Program::new("fork_in_handler.c").run_in_all_modes();
}

/// No allocator is started for each of them: 60 faults and 0.2 ms.
#[test]
fn children_of_a_young_server_cost_what_they_cost_without() {
    let program = Program::new("fork_each.c");
    program.run_in_all_modes();
    let faults = |job: Job| -> u64 {
        let done = job.run().expect_ok();
        done.out().trim().parse().unwrap_or_else(|_| panic!("{done}"))
    };
    let without = faults(Job::new(program.path()));
    let with = faults(subject().job(program.path(), "auto"));
    assert!(with <= without + 16, "{with} faults, {without} without");
}
