//! The paper's workloads on the C library's allocator, which is Rust's own choice.
//!
//! Invariant: nothing here but the choice of the allocator; what is measured is the same program.

use std::process::ExitCode;

fn main() -> ExitCode {
    paper_workloads::main()
}
