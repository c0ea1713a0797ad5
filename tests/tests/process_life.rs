//! Allocation at the edges of a process's life: before and after main, around dlopen and exec.

use spandrel_tests::{Job, Program, Source, subject};

#[test]
fn before_and_after_main() {
    for done in Program::new("early_late.cc").run_in_all_modes() {
        assert_eq!(done.out(), "the end\n", "{done}");
    }
}

#[test]
fn libraries_that_come_and_go() {
    let library = Source { file: "dlopen_lib.c", flags: &[] };
    let program = Source { file: "dlopen.c", flags: &[] };
    Program::with_libraries(&program, &[library]).run_in_all_modes();
}

/// Thread slots are initial-exec, and the C library keeps little room for that: it may say no, and says yes when
/// told to keep more.
#[test]
fn the_library_opened_late() {
    let library = subject().required_library();
    let program = Program::new("late_dlopen.c");
    for mode in ["auto", "mmap", "switch", "jemalloc", "mimalloc"] {
        let job = || Job::new(program.path()).arg(library).env("SPANDREL_MODE", mode);
        let done = job().run();
        let refused = done.code == Some(1) && done.err().contains("static TLS");
        assert!(done.ok() || refused, "{done}");
        job().env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=4096").run().expect_ok();
    }
}

#[test]
fn vfork_children_that_allocate() {
    Program::new("vfork_alloc.c").run_in_all_modes();
}

#[test]
fn vfork_spawn_system_popen() {
    Program::new("spawn.c").run_in_all_modes();
}

/// In the default mode the first objects are the C library's; what ends that, and what must survive it.
#[test]
fn a_young_process_and_what_ends_its_youth() {
    let program = Program::new("young.c");
    for way in ["bytes", "requests", "thread", "mode", "scope", "counting", "vfork"] {
        subject().job(program.path(), "auto").arg(way).run().expect_ok();
    }
    // A race of two threads.
    for _ in 0..60 {
        subject().job(program.path(), "auto").arg("fork").run().expect_ok();
    }
}

/// Hosted allocators look at clocks of their own.
#[test]
fn a_process_that_may_not_read_the_counter_of_ticks_goes_on() {
    let program = Program::new("no_counter.c");
    for way in ["tsc", "strict"] {
        program.run_each(&["auto", "native", "mmap"], |job| job.arg(way));
    }
}
