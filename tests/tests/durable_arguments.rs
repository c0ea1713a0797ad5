//! `libspandrel_durable` and arguments that no program means: each has a documented error, or a documented meaning.

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::Program;

/// `SPANDREL_SOAK` says how many times as many are drawn.
#[test]
fn no_argument_ends_the_process_or_changes_another_object() {
    let times = std::env::var("SPANDREL_SOAK").map_or(1, |times| times.parse().unwrap());
    let source = abi_dir().join("durable_arguments.c");
    for seed in 1..=4 * times {
        let program = Program::durable(&source, &[]);
        program.ends_well(&[&seed.to_string(), "20000"]);
    }
}
