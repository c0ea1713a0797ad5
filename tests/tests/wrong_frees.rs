//! Objects given back twice, and addresses that are none: said, with what is known of them, and the end.

use spandrel_tests::{Program, subject};

#[test]
fn wrong_frees_are_reported() {
    subject().required_library();
    let program = Program::new("wrong_free.c");
    for (how, expected) in [
        ("twice", "freed twice (an object of 96 bytes)"),
        ("twice-soon", "freed twice (an object of 96 bytes)"),
        ("twice-apart", "freed twice (an object of 96 bytes)"),
        ("misaligned", "not the beginning of an object (among objects of 96 bytes)"),
        ("inside", "not the beginning of an object (among objects of 96 bytes)"),
    ] {
        for (variable, value) in [("A", "B"), ("GLIBC_TUNABLES", "glibc.pthread.rseq=0")] {
            let job = subject().job(program.path(), "native").args([how, "90"]);
            let done = job.env(variable, value).run();
            assert_eq!(done.signal, Some(6), "{how}: {done}");
            assert!(done.err().contains(expected) && done.out().is_empty(), "{how}: {done}");
        }
    }
    let done = subject().job(program.path(), "native").args(["inside", "300000"]).run();
    assert_eq!(done.signal, Some(6), "{done}");
    assert!(done.err().contains("not the beginning of an object (of 303104 bytes)"), "{done}");
    for mode in ["native", "mmap"] {
        for size in ["300000", "3000000"] {
            let done = subject().job(program.path(), mode).args(["twice", size]).run();
            assert_eq!(done.signal, Some(6), "{mode}, {size}: {done}");
            assert!(done.err().contains("freed twice"), "{mode}, {size}: {done}");
        }
    }
}
