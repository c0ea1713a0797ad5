//! The paper's workloads on Spandrel as global allocator, in the mode that `SPANDREL_MODE` names;
//! `watch WORKLOAD COUNT` tells of how an object of one grows.
//!
//! Invariant: a workload that is not watched is the same program as with the other allocators.

mod growth;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: spandrel::Spandrel = spandrel::Spandrel::new();

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((first, rest)) if first == "watch" => paper_workloads::print(growth::watch(rest)),
        _ => paper_workloads::main(),
    }
}
