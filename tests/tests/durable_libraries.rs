//! What the C library and the C++ library keep for themselves, where a translated command is the first to need it: it outlives the command that is undone, and the state.

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::Program;

/// Each kind in a process of its own: what another one has made before would be there.
fn outlives(file: &str, kinds: &[&str]) {
    let program = Program::durable(&abi_dir().join(file), &[]);
    for kind in kinds {
        let done = program.job(&[kind]).run();
        assert!(done.code == Some(0) && done.stderr.is_empty(), "{kind}: {done}");
        std::fs::remove_dir_all(program.heaps().join("heap")).unwrap();
    }
}

#[test]
fn what_the_c_library_keeps_outlives_a_command_that_is_undone() {
    let kinds = [
        "conversions",
        "locales",
        "errors",
        "files",
        "names",
        "times",
        "sorting",
        "ends",
        "keys",
        "libraries",
        "traces",
        "expressions",
        "tables",
        "environment",
        "processes",
    ];
    outlives("durable_libc.c", &kinds);
}

#[test]
fn what_the_cpp_library_keeps_outlives_a_command_that_is_undone() {
    let kinds = ["locales", "numbers", "files", "streams", "exceptions", "threads"];
    outlives("durable_libcxx.cc", &kinds);
}

#[test]
fn what_the_c_library_allocates_for_its_caller_is_the_states() {
    outlives("durable_libc.c", &["results"]);
}
