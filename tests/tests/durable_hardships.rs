//! Translated commands of a process that is short of something, or interrupted.

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::Program;

fn program() -> Program {
    Program::durable(&abi_dir().join("durable_hardships.c"), &[])
}

#[test]
fn a_handler_with_a_large_frame_runs_at_any_moment_of_a_command() {
    program().ends_well(&["signals"]);
}

#[test]
fn a_program_without_descriptors_runs_new_code() {
    program().ends_well(&["descriptors"]);
}
