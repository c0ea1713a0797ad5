//! Reallocation keeps contents, in every mode and with settings that move objects early.

use spandrel_tests::Program;
use spandrel_tests::subject::RESTLESS_MODES;

#[test]
fn random_walks() {
    Program::new("realloc_walk.c").run_in_all_modes();
}

#[test]
fn random_walks_across_backends() {
    Program::new("realloc_walk.c").run_each(RESTLESS_MODES, |job| job);
}

#[test]
fn appends() {
    Program::new("realloc_append.c").run_in_all_modes();
}

#[test]
fn appends_across_backends() {
    Program::new("realloc_append.c").run_each(RESTLESS_MODES, |job| job);
}
