//! Limits of memory, address space and mappings; what is freed goes back.

use std::os::unix::fs::PermissionsExt;

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Job, Program, subject};

fn under_limit(resource: &str, megabytes: u64) {
    let program = Program::new("limited.c");
    let bytes = (megabytes << 20).to_string();
    program.run_each(ALL_MODES, |job| job.args([resource, &bytes]));
}

#[test]
fn half_a_gibibyte_of_address_space() {
    under_limit("as", 512);
}

#[test]
fn two_gibibytes_of_address_space() {
    under_limit("as", 2 << 10);
}

#[test]
fn eight_gibibytes_of_address_space() {
    under_limit("as", 8 << 10);
}

#[test]
fn sixty_four_gibibytes_of_address_space() {
    under_limit("as", 64 << 10);
}

/// What is reserved by then must not count: it is released.
#[test]
fn a_limit_of_address_space_that_comes_later() {
    let program = Program::new("limit_later.c");
    // mimalloc takes a gibibyte from the start, for itself.
    let others: Vec<&str> = ALL_MODES.iter().copied().filter(|m| *m != "mimalloc").collect();
    for set_by in ["self", "outside"] {
        program.run_each(&["mimalloc"], |job| job.args([set_by, "2000"]));
        program.run_each(&others, |job| job.args([set_by, "1200"]));
    }
    program.run_each(&["auto", "native"], |job| job.args(["self", "1200", "rested"]));
}

#[test]
fn a_limit_of_a_child_that_has_the_parents_memory() {
    Program::new("vfork_limit.c").run_each(ALL_MODES, |job| job);
}

/// What another maps where address space was given back is its own, also when the next limit comes.
#[test]
fn a_limit_of_data_behind_one_of_address_space() {
    let program = Program::new("limit_hole.c");
    program.run_each(ALL_MODES, |job| job);
    let done = &program.run_each(&["native"], |job| job)[0];
    assert!(done.out().contains("a hole"), "{done}");
}

#[test]
fn half_a_gibibyte_of_data() {
    under_limit("data", 512);
}

#[test]
fn two_gibibytes_of_data() {
    under_limit("data", 2 << 10);
}

#[test]
fn memory_locked() {
    // What is reserved and not used must not become resident; the cap saves the machine if it does.
    Program::new("locked.c").run_each(ALL_MODES, |job| job.memory_cap(4 << 30));
}

#[test]
fn huge_pages_switched_off() {
    Program::new("no_huge_pages.c").run_in_all_modes();
}

#[test]
fn huge_pages_unasked() {
    // The hosted allocators keep their own layout.
    let own: Vec<&str> =
        ALL_MODES.iter().copied().filter(|m| !["jemalloc", "mimalloc"].contains(m)).collect();
    Program::new("unasked_huge_pages.c").run_each(&own, |job| job);
}

#[test]
fn thirty_two_thousand_large_objects() {
    let program = Program::new("many_objects.c");
    // mimalloc asks for huge pages, and jemalloc gets them where the kernel has them unasked, so that each object would cost its whole size: fewer will do there.
    let hosted = ["jemalloc", "mimalloc"];
    program.run_each(&hosted, |job| job.arg("6000"));
    let others: Vec<&str> = ALL_MODES.iter().copied().filter(|m| !hosted.contains(m)).collect();
    program.run_each(&others, |job| job);
}

#[test]
fn freed_memory_goes_back_while_the_program_does_nothing() {
    let program = Program::new("idle_memory.c");
    without_root(&program, &[("auto", &[]), ("native", &[]), ("mmap", &["large"])]);
    program.run_each(&["auto"], |job| job.env("KEEP_ROOT", "1"));
}

#[test]
fn large_objects_leave_few_mappings() {
    let program = Program::new("mappings_after.c");
    program.run_each(&["auto", "native", "mmap"], |job| job);
    program.run_each(&["auto", "mmap"], |job| job.arg("idle"));
}

/// What counts from then on, though nothing is in it, is closed.
#[test]
fn a_limit_of_data_that_comes_later_and_memory_that_is_locked_late() {
    Program::new("charged.c").run_each(&["auto", "native", "mmap", "sys", "jemalloc"], |job| job);
}

/// The thread that does so is none that the program could notice.
#[test]
fn a_program_of_one_thread_stays_one() {
    let program = Program::new("beside.c");
    without_root(&program, &[("auto", &[]), ("native", &[]), ("sys", &[])]);
    program.run_each(&["auto", "native"], |job| job.env("KEEP_ROOT", "1"));
}

#[test]
fn a_program_of_roots_takes_another_identity_with_all_of_its_threads() {
    Program::new("another_identity.c").run_each(&["auto", "native", "sys"], |job| job);
}

/// Runs a program that gives root's rights up, in modes with arguments.
fn without_root(program: &Program, runs: &[(&str, &[&str])]) {
    // Others may not enter every directory of root's.
    let place = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
    let copy = subject().library().map(|library| {
        let copy = place.path().join("library.so");
        std::fs::copy(library, &copy).expect("a copy");
        copy
    });
    let with_copy = |job: Job| match &copy {
        Some(copy) => job.env("LD_PRELOAD", copy),
        None => job,
    };
    for (mode, arguments) in runs {
        program.run_each(&[mode], |job| with_copy(job).args(*arguments));
    }
}

#[test]
fn freed_memory_goes_back() {
    Program::new("memory_drop.c").run_in_all_modes();
}
