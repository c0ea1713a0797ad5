//! The C allocation functions: sizes, zeroes, alignment, refusals, errno, and objects of the C library's own.

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Program, Source};

#[test]
fn malloc_calloc_realloc_reallocarray_free() {
    Program::new("surface.c").run_in_all_modes();
}

#[test]
fn impossible_sizes_are_refused_with_enomem() {
    Program::new("overflow.c").run_in_all_modes();
}

#[test]
fn realloc_to_zero_frees() {
    Program::new("realloc_zero.c").run_in_all_modes();
}

#[test]
fn alignments_to_one_gibibyte() {
    Program::new("aligned.c").run_in_all_modes();
}

#[test]
fn room_between_aligned_objects_costs_no_memory() {
    Program::new("aligned_apart.c").run_each(&["auto", "mmap"], |job| job);
}

#[test]
fn objects_begin_at_different_lines() {
    let program = Program::new("lines.c");
    program.run_each(&["auto", "native"], |job| job.arg("0"));
    // What is page-mapped below 64 KiB has whole pages, and no room for lines.
    program.run_each(&["mmap"], |job| job.arg("65536"));
    // Others have their own layout; objects keep what they hold.
    let is_other = |mode: &&str| !["auto", "native", "mmap"].contains(mode);
    let others: Vec<&str> = ALL_MODES.iter().copied().filter(is_other).collect();
    program.run_each(&others, |job| job.arg("1000000"));
}

#[test]
fn sized_frees_of_c23_and_cfree() {
    Program::new("sized_free.c").run_in_all_modes();
}

#[test]
fn mallinfo_and_its_kin() {
    Program::new("introspection.c").run_in_all_modes();
}

#[test]
fn objects_of_the_c_library() {
    Program::new("libc_interplay.c").run_in_all_modes();
}

/// `malloc` and `free` of the program must be the library's, whichever way the program is linked.
#[test]
fn programs_bound_at_start_run_too() {
    let source = Source { file: "surface.c", flags: &["-Wl,-z,now", "-no-pie"] };
    Program::with(&source).run_each(&["sys", "auto"], |job| job);
    Program::new("surface.c").run_each(&["sys", "auto"], |job| job.env("LD_BIND_NOW", "1"));
}
