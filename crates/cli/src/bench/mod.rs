//! `spandrel bench`: what this machine's allocators cost, side by side.

mod args;

pub use args::BenchArgs;

use spandrel_console::Failure;

/// Measures what the flags name. The exit code tells whether it could be measured and programs worked, not how fast they
/// were.
pub fn run(args: BenchArgs) -> Result<u8, Failure> {
    spandrel_harness::run(&args.asked())
}
