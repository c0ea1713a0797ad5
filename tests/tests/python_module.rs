//! The Python module: its own tests, with the library that was built.

use spandrel_tests::heap::built;
use spandrel_tests::subject::workspace;
use spandrel_tests::{Job, installed};

fn tests_of(module: &str) {
    Job::new(installed("python3"))
        .args(["-W", "error", "-m", "unittest", module])
        .dir(workspace().join("python"))
        .env("SPANDREL_HEAP_LIB", built("libspandrel_heap.so"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .run()
        .expect_ok();
}

#[test]
fn heaps_are_opened_copied_shared_and_say_why_they_fail() {
    tests_of("tests.test_heap");
}

#[test]
fn maps_and_lists_are_those_of_python() {
    tests_of("tests.test_structures");
}

#[test]
fn a_process_that_is_killed_leaves_each_operation_done_or_not_begun() {
    tests_of("tests.test_killed");
}

#[test]
fn damaged_structures_are_errors_and_never_end_the_process() {
    tests_of("tests.test_damage");
}
