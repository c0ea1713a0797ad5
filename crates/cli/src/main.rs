//! `spandrel`: run programs on Spandrel, and measure it beside other allocators.
//!
//! The command is thin: `args` says what may be asked, the folders of the tasks do it,
//! and the library that does the allocating is found, never linked. Nothing here
//! is on an allocation path.

mod args;
mod bench;
mod durable;
mod heap;
mod progress;
mod run;
mod sim;
mod stat;
mod stats;
mod trace;
mod tune;

use args::{Args, Task};
use clap::Parser;
use spandrel_console::{Failure, say, shutdown};
use std::io::Write as _;
use std::process::ExitCode;

/// Names the library, as `--lib` does.
const LIBRARY: &str = "SPANDREL_LIB";

fn main() -> ExitCode {
    // An empty variable is as good as none, as everywhere; clap would read it as a path.
    if std::env::var_os(LIBRARY).is_some_and(|value| value.is_empty()) {
        // SAFETY: the process has one thread.
        unsafe { std::env::remove_var(LIBRARY) };
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(why) => return ended(help(&why)),
    };
    shutdown::listen();
    let done = match args.task {
        Task::Run(asked) => run::run(&asked),
        Task::Tune(asked) => tune::run(&asked),
        Task::Stat(asked) => stat::run(&asked),
        Task::Bench(asked) => bench::run(asked),
        Task::Sim(asked) => sim::run(&asked),
        Task::Trace(asked) => trace::run(&asked),
        Task::Heap(asked) => heap::run(&asked),
        Task::Durable(asked) => durable::run(&asked),
    };
    // A signal that is just ending the command decides how it ends.
    let _steady = shutdown::steady();
    ended(done)
}

/// Prints what is asked for beside a task, or why the arguments say none.
fn help(why: &clap::Error) -> Result<u8, Failure> {
    let printed = why.print().and_then(|()| std::io::stdout().flush());
    if !why.use_stderr() {
        say::written(printed)?;
    }
    Ok(u8::try_from(why.exit_code()).unwrap_or(2))
}

fn ended(done: Result<u8, Failure>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            if !message.is_empty() {
                say::last(format_args!("spandrel: {message}"));
            }
            ExitCode::from(code)
        }
    }
}
