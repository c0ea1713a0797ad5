//! Threads: many, short-lived, with destructors, small stacks and signals.

use spandrel_tests::Program;

#[test]
fn destructors_of_thread_specific_data() {
    Program::new("tls_destructors.cc").run_in_all_modes();
}

#[test]
fn ten_thousand_threads() {
    Program::new("thread_churn.c").run_in_all_modes();
}

#[test]
fn objects_freed_by_other_threads() {
    Program::new("producer_consumer.c").run_in_all_modes();
}

#[test]
fn containers_shared_between_threads() {
    let outputs: Vec<_> =
        Program::new("threaded.cc").run_in_all_modes().iter().map(|done| done.out()).collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{outputs:?}");
}

#[test]
fn stacks_of_sixteen_kibibytes() {
    Program::new("small_stack.c").run_in_all_modes();
}

#[test]
fn signals() {
    Program::new("signals.c").run_in_all_modes();
}

/// A request is never served from the cache of a processor on which another is in the middle of one.
#[test]
fn moved_interrupted_and_emptied() {
    let program = Program::new("processors.c");
    program.run_in_all_modes();
    // And where there are no restartable sequences.
    program.run_each(&["native"], |job| job.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0"));
}

/// The library's own thread must not keep the process.
#[test]
fn a_main_thread_that_ends_first() {
    let program = Program::new("main_exits.c");
    program.run_in_all_modes();
    // Here too it is another thread that allocates.
    program.run_each(&["mmap", "native", "auto"], |job| job.arg("other"));
}

/// glibc's sets itself up at the first request, and has to be kept from doing so in two threads at a time: one
/// process in six ended in an assertion of its.
#[test]
fn threads_that_are_the_first_to_need_an_allocator() {
    let program = Program::new("first_in_threads.c");
    program.run_in_all_modes();
    (0..40).for_each(|_| drop(program.run_each(&["template=brug"], |job| job)));
}
