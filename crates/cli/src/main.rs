//! `spandrel`: run programs on Spandrel, and measure it beside other allocators.
//!
//! The command is thin: `args` says what may be asked, the folders of the tasks do it,
//! and the library that does the allocating is found, never linked. Nothing here
//! is on anybody's allocation path.

mod args;
mod bench;
mod failure;
mod modes;
mod places;
mod run;
mod sim;
mod stat;
mod stats;

use args::{Args, Task};
use clap::Parser;
use failure::Failure;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    if matches!(args.task, Task::Stat(_) | Task::Sim(_)) {
        // `| head` ends them, as it ends other tools. Those that start programs tidy up first.
        // SAFETY: no handler is installed.
        let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    }
    let done = match args.task {
        Task::Run(asked) => run::run(&asked),
        Task::Stat(asked) => stat::run(&asked),
        Task::Bench(asked) => bench::run(&asked),
        Task::Sim(asked) => sim::run(&asked),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            eprintln!("spandrel: {message}");
            ExitCode::from(code)
        }
    }
}
