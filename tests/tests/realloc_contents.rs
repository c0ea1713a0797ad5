//! Reallocation keeps contents, in every mode and with settings that move objects early.

use spandrel_tests::Program;

/// Settings under which an object crosses backends early and often.
const RESTLESS: &[&str] = &[
    "switch=jemalloc,point=64KiB,threshold=2",
    "switch=mimalloc,point=4KiB,threshold=1",
    "template=0-1KiB:mimalloc,1KiB-32KiB:jemalloc,32KiB-512KiB:sys,512KiB-:mmap",
    "template=0-4KiB:mmap,4KiB-:mimalloc",
];

#[test]
fn random_walks() {
    Program::new("realloc_walk.c").run_in_all_modes();
}

#[test]
fn random_walks_across_backends() {
    Program::new("realloc_walk.c").run_each(RESTLESS, |job| job);
}

#[test]
fn appends() {
    Program::new("realloc_append.c").run_in_all_modes();
}

#[test]
fn appends_across_backends() {
    Program::new("realloc_append.c").run_each(RESTLESS, |job| job);
}
