//! The paper's workloads on mimalloc as global allocator.
//!
//! Invariant: nothing here but the choice of the allocator; what is measured is the same program.

use mimalloc::MiMalloc;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    paper_workloads::main()
}
