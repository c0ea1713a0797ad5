//! Objects given back twice, and addresses that are none: said, with what is known of them, and the end.

use spandrel_tests::{Program, subject};

#[test]
fn addresses_without_memory_are_reported_in_the_default_mode() {
    subject().required_library();
    ends("auto", ("unmapped", "8192", "free(0x"), USUAL);
    ends("auto", ("unmapped", "8192", "): no memory is there"), USUAL);
    ends("auto", ("resized-unmapped", "90", "realloc(0xdeadbeef0): no memory is there"), USUAL);
}

/// How, with objects of how many bytes, and what is said of it.
type Case = (&'static str, &'static str, &'static str);

/// Runs the program, which ends by the line and not otherwise.
fn ends(mode: &str, (how, size, expected): Case, (variable, value): (&str, &str)) {
    let program = Program::new("wrong_free.c");
    let job = subject().job(program.path(), mode).args([how, size]);
    let done = job.env(variable, value).run();
    assert_eq!(done.signal, Some(6), "{mode}, {how}, {size}: {done}");
    assert!(
        done.err().contains(expected) && done.out().is_empty(),
        "{mode}, {how}, {size}: {expected}\n{done}"
    );
}

const USUAL: (&str, &str) = ("A", "B");

#[test]
fn wrong_frees_of_small_objects_are_reported() {
    subject().required_library();
    for case in [
        ("twice", "90", "): freed twice (an object of 96 bytes)"),
        ("twice-soon", "90", "): freed twice (an object of 96 bytes)"),
        ("twice-apart", "90", "): freed twice (an object of 96 bytes)"),
        ("twice-later", "90", "): freed twice (an object of 96 bytes)"),
        ("twice-later", "16", "): freed twice (an object of 16 bytes)"),
        ("all-twice", "90", "): freed twice (an object of 96 bytes)"),
        ("all-twice", "40", "): freed twice (an object of 48 bytes)"),
        ("all-twice", "2000", "): freed twice (an object of 2048 bytes)"),
        ("twice-gone", "90", "free("),
        ("twice-gone", "60000", "): freed twice (an object of 61440 bytes)"),
        ("before", "4096", "not the beginning of an object (among objects of 4096 bytes)"),
        ("before", "8192", "not the beginning of an object (among objects of 8192 bytes)"),
        ("unmapped", "8192", "): no memory is there"),
        ("resized-unmapped", "90", "realloc(0xdeadbeef0): no memory is there"),
        ("misaligned", "90", "not the beginning of an object (among objects of 96 bytes)"),
        ("inside", "90", "not the beginning of an object (among objects of 96 bytes)"),
    ] {
        for how in [USUAL, ("GLIBC_TUNABLES", "glibc.pthread.rseq=0")] {
            ends("native", case, how);
        }
    }
}

#[test]
fn wrong_frees_of_large_objects_are_reported_with_their_size() {
    subject().required_library();
    // Up to the end of its pages: the object may begin at any line of the first.
    for case in [
        ("twice", "290000", "free(", "freed twice (an object of 29"),
        ("twice", "3000000", "free(", "freed twice (an object of 300"),
        ("twice-gone", "290000", "free(", "freed twice (an object of 29"),
        ("resized-gone", "290000", "realloc(", "freed twice (an object of 29"),
        ("sized-gone", "290000", "malloc_usable_size(", "freed twice (an object of 29"),
        ("inside", "290000", "free(", "not the beginning of an object (of 29"),
        ("resized-inside", "290000", "realloc(", "not the beginning of an object (of 29"),
        ("resized-inside", "3000000", "realloc(", "not the beginning of an object (of 300"),
        ("sized-inside", "290000", "malloc_usable_size(", "not the beginning of an object (of 29"),
        (
            "sized-inside",
            "3000000",
            "malloc_usable_size(",
            "not the beginning of an object (of 300",
        ),
        ("wild", "290000", "free(", "not a live object of the native allocator"),
    ] {
        let (how, size, call, what) = case;
        ends("native", (how, size, what), USUAL);
        ends("native", (how, size, call), USUAL);
    }
    for case in [
        ("twice", "300000", "free(", "freed twice (an object of 300000 bytes)"),
        ("twice", "3000000", "free(", "freed twice (an object of 3000000 bytes)"),
        ("twice-gone", "300000", "free(", "freed twice (an object in a slot of 2097152 bytes)"),
        ("resized-gone", "300000", "realloc(", "freed twice (an object in a slot of"),
        ("sized-gone", "300000", "malloc_usable_size(", "freed twice (an object in a slot of"),
        ("inside", "300000", "free(", "not the beginning of an object (of 300000 bytes)"),
        ("resized-inside", "300000", "realloc(", "not the beginning of an object (of 300000"),
        (
            "sized-inside",
            "300000",
            "malloc_usable_size(",
            "not the beginning of an object (of 300000",
        ),
        ("wild", "300000", "free(", "no object was ever there"),
    ] {
        let (how, size, call, what) = case;
        ends("mmap", (how, size, what), USUAL);
        ends("mmap", (how, size, call), USUAL);
    }
}
