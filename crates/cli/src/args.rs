//! What may be asked of the command.

use crate::heap::HeapArgs;
use crate::sim::SimArgs;
use crate::trace::TraceArgs;
use clap::builder::PossibleValue;
use clap::{Parser, Subcommand, ValueEnum};
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

    /// Again after so many seconds, until interrupted or the program ends
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

/// Measure this machine: Spandrel beside every other allocator that is installed.
///
/// Each measurement is a fresh process; allocators take turns, after one
/// unmeasured round, and medians are compared.
#[derive(Parser, Debug)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_name = "SUITE", default_value = "all")]
    pub suite: Suite,

    /// Fewer rounds and smaller jobs: a first impression in minutes
    #[arg(long)]
    pub quick: bool,

    /// Measured rounds [default: 7; 3 with --quick and for `apps` and `world`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,

    /// Write everything that was measured to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw the suite `hugepages`, `paper` or `heap` as a picture
    #[arg(long, value_name = "FILE.svg")]
    pub out: Option<PathBuf>,

    /// Only these allocators, separated by commas (sys is always measured)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,

    /// Modes of Spandrel to measure, separated by commas or semicolons; `static` is `auto` that
    /// does not learn while the program runs
    #[arg(long, value_name = "MODES", default_value = "auto")]
    pub modes: String,

    /// Only these of the suites `programs`, `world`, `paper` or `heap`, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Option<Vec<String>>,

    /// How much of what the papers did, in the suites `paper` (element counts) and `heap` (times; sizes
    /// come in steps) [default: 0.1, or 0.02 with --quick; 1 is the papers' own]
    #[arg(long, value_name = "PART", value_parser = scale)]
    pub scale: Option<f64>,

    /// In the suite `paper`, also train a profile for each workload (`spandrel tune`) and measure
    /// `auto` with it: takes several times as long
    #[arg(long)]
    pub trained: bool,

    /// Write the tables of the suite `world`, `paper` or `heap` as Markdown
    #[arg(long, value_name = "FILE.md")]
    pub markdown: Option<PathBuf>,

    /// Hold the figures against the project's targets (docs/targets.md)
    #[arg(long)]
    pub targets: bool,

    /// The library to measure [default: found beside this command]
    #[arg(long, value_name = "PATH", env = "SPANDREL_LIB", hide_env_values = true)]
    pub lib: Option<PathBuf>,
}

/// A part of the paper's counts: more than nothing, and no more than all of it.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("give a number above 0 and up to 1, such as 0.1".into()),
    }
}

/// What `spandrel bench` can measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    Realloc,
    Append,
    Vec,
    Arrow,
    Copies,
    Fig2,
    Pair,
    Small,
    Mixed,
    Startup,
    Dispatch,
    Hugepages,
    Redis,
    Programs,
    Paper,
    Heap,
    Apps,
    World,
    All,
}

impl Suite {
    /// The name that users type, and what it measures.
    pub fn about(self) -> (&'static str, &'static str) {
        match self {
            Suite::Realloc => ("realloc", "an object doubles from 4 KiB to 128 KiB … 1 GiB"),
            Suite::Append => ("append", "an object grows by 4 KiB to 256 MiB"),
            Suite::Vec => ("vec", "100 million pushes to a Rust Vec"),
            Suite::Arrow => ("arrow", "100 million pushes to an Apache Arrow buffer"),
            Suite::Copies => ("copies", "copies per thread (Brug, Table I)"),
            Suite::Fig2 => ("fig2", "time of each reallocation (Brug, Fig. 2)"),
            Suite::Pair => {
                ("pair", "malloc and free of 64 B and of large objects, in pairs and in batches")
            }
            Suite::Small => ("small", "many small objects that grow to 4 KiB"),
            Suite::Mixed => ("mixed", "random requests of 16 B to 1 MiB, two threads"),
            Suite::Startup => ("startup", "what loading the library costs"),
            Suite::Dispatch => ("dispatch", "what finding the owner of a pointer costs"),
            Suite::Hugepages => ("hugepages", "huge pages and memory over the life of a heap"),
            Suite::Redis => ("redis", "redis-server under redis-benchmark"),
            Suite::Programs => ("programs", "the programs that allocators are judged by"),
            Suite::Paper => {
                ("paper", "the Brug paper's evaluation, every mode beside allocators by themselves")
            }
            Suite::Heap => ("heap", "the recoverable heap: the Makalu paper's evaluation"),
            Suite::Apps => ("apps", "real programs on the system's allocator and on Spandrel"),
            Suite::World => ("world", "servers, interpreters, data systems and desktop programs"),
            Suite::All => ("all", "everything but apps and world"),
        }
    }
}

impl ValueEnum for Suite {
    fn value_variants<'a>() -> &'a [Self] {
        use Suite::*;
        &[
            Realloc, Append, Vec, Arrow, Copies, Fig2, Pair, Small, Mixed, Startup, Dispatch,
            Hugepages, Redis, Programs, Paper, Heap, Apps, World, All,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = self.about();
        Some(PossibleValue::new(name).help(help))
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
    fn a_scale_is_a_part() {
        assert_eq!(scale("0.1"), Ok(0.1));
        assert_eq!(scale("1"), Ok(1.0));
        for wrong in ["0", "-1", "1.01", "nan", "inf", "all", ""] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
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
