//! What may be asked of the command.

use crate::bench::BenchArgs;
use crate::durable::DurableArgs;
use crate::heap::HeapArgs;
use crate::sim::SimArgs;
use crate::trace::TraceArgs;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// One memory layer for Linux programs: the right allocator for every request,
/// and reallocation that does not copy.
#[derive(Parser, Debug)]
#[command(name = "spandrel", version, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub task: Task,
}

#[derive(Subcommand, Debug)]
pub enum Task {
    Run(RunArgs),
    Tune(TuneArgs),
    Stat(StatArgs),
    Bench(BenchArgs),
    Trace(TraceArgs),
    Sim(SimArgs),
    Heap(HeapArgs),
    Durable(DurableArgs),
}

/// Run a program on Spandrel.
///
/// The program must be dynamically linked; where the library cannot be loaded
/// into it, the command says why and exits with 2. Otherwise the exit code is the
/// program's own, or 128 and the signal that ended it. A signal that was sent to the
/// command and has ended the program ends the command as well.
#[derive(Parser, Debug)]
#[command(after_help = MODES_HELP)]
pub struct RunArgs {
    /// How to choose allocators [default: auto]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// A file that holds the policy, see docs/modes.md
    #[arg(long, value_name = "FILE", conflicts_with = "mode")]
    pub profile: Option<PathBuf>,

    /// After the program's end, show where its requests went
    #[arg(long)]
    pub stats: bool,

    /// After the program's end, write a page about the run, or all that is known of it as JSON
    #[arg(long, value_name = "FILE.html|FILE.json")]
    pub report: Option<PathBuf>,

    /// Then run the program again, unheard and on no input, in its own mode and in these, and have the
    /// report show them side by side: sys (without Spandrel), jemalloc, …; separated by commas or semicolons
    #[arg(long, value_name = "MODES", requires = "report")]
    pub compare: Vec<String>,

    /// Rounds of the comparison
    #[arg(long, value_name = "N", default_value_t = 3, requires = "compare",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Let each process say on standard error that it runs on Spandrel
    #[arg(long)]
    pub verbose: bool,

    /// Where it is not loadable, run the program without Spandrel
    #[arg(long)]
    pub force: bool,

    /// The library to load [default: found beside this command]
    #[arg(long, value_name = "PATH", env = "SPANDREL_LIB", hide_env_values = true)]
    pub lib: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

const MODES_HELP: &str = "\
Modes:
  auto                                   the best choice for each size (default)
  native                                 our own allocator for everything
  sys, jemalloc, mimalloc, tcmalloc      one of these for everything
  mmap                                   everything page-mapped
  template                               by size, our preset
  template=brug                          by size, as in the Brug paper
  template=0-4KiB:jemalloc,4KiB-:mmap    by size, as you say
  switch[=BASE][,point=128KiB][,threshold=8]
                                         BASE below the point, page-mapped above it, and
                                         for objects that are resized often";

/// Learn which allocator serves a job best, and write it down.
///
/// The job is run some rounds on each mode, and with each allocator for each range of sizes that it asks
/// for; what is faster for certain goes into a profile for `spandrel run --profile`. What the job
/// prints is not shown, its input is empty, and it must do the same each time.
#[derive(Parser, Debug)]
pub struct TuneArgs {
    /// Measured rounds; with fewer than six every one has to agree
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// The profile to write
    #[arg(long, value_name = "FILE", default_value = "spandrel.profile")]
    pub out: PathBuf,

    /// The library to load [default: found beside this command]
    #[arg(long, value_name = "PATH", env = "SPANDREL_LIB", hide_env_values = true)]
    pub lib: Option<PathBuf>,

    /// Instead of running a job, make one profile of several that were learnt: what takes their jobs
    /// together the least time
    #[arg(long, value_name = "PROFILE", num_args = 1.., conflicts_with_all = ["runs", "command"])]
    pub merge: Vec<PathBuf>,

    /// The job and its arguments
    #[arg(required_unless_present = "merge", trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

/// Show where the memory of a running program is, or how the groups of an experiment compare.
///
/// Live, kept, free, gone back; on huge pages; what went back, why, and what was
/// kept back. The program is not disturbed: its memory is read, which takes the
/// rights of a debugger.
#[derive(Parser, Debug)]
pub struct StatArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = process, required_unless_present = "compare_groups")]
    pub pid: Option<i32>,

    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,

    /// Again every SECONDS, until interrupted or the program ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub every: Option<f64>,

    /// Compare the groups of an experiment (SPANDREL_EXPERIMENT) by the statistics in a directory
    /// (SPANDREL_STATS=DIR/%h-%p.json)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pid", "every"])]
    pub compare_groups: Option<PathBuf>,
}

fn process(text: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => {
            Err("not the number of a process; `pgrep NAME` finds that of a running program".into())
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86400.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds between 0.01 and 86400".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_program_keeps_its_flags() {
        let args = Args::parse_from(["spandrel", "run", "--stats", "--", "ls", "--mode", "-l"]);
        let Task::Run(run) = args.task else { panic!("not run") };
        assert!(run.stats && run.mode.is_none());
        assert_eq!(run.command, ["ls", "--mode", "-l"]);
        let args = Args::parse_from(["spandrel", "run", "ls", "--stats"]);
        let Task::Run(run) = args.task else { panic!("not run") };
        assert!(!run.stats);
    }
}
