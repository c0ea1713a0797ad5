//! The paper's workloads on jemalloc as global allocator.
//!
//! Invariant: nothing here but the choice of the allocator; what is measured is the same program.

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    paper_workloads::main()
}
