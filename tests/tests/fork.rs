//! Fork in threaded programs: parent and child go on.

use spandrel_tests::{Program, Source};

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
