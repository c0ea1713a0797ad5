//! What may be asked of `spandrel sim`.

use clap::Parser;
use std::path::PathBuf;

/// The page heap on paper: compare ways to place spans without touching memory.
///
/// Every policy is given the same operations: requests come at random, live exponentially long, and
/// keep the heap near its target (docs/sim.md).
#[derive(Parser, Debug)]
#[command(after_help = HELP)]
pub struct SimArgs {
    /// Recordings whose page-heap operations are done again, instead of random ones
    #[arg(value_name = "TRACE",
          conflicts_with_all = ["heap", "operations", "seed", "sizes", "target", "figure", "on_allocators"])]
    pub traces: Vec<PathBuf>,

    /// Policies to compare, separated by commas [default: the first three; beside several releases
    /// the first]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,

    /// The heap's size, or its peak [default: 64GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub heap: Option<String>,

    /// Spans to make and free [default: 20 million, or four times what fills the heap]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub operations: Option<String>,

    /// The same seed gives the same operations
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Sizes, weights and lifetimes of spans [default: built in, after the paper's Figs. 4 and 5]
    #[arg(long, value_name = "FILE.csv")]
    pub sizes: Option<PathBuf>,

    /// The heap's size over time: steady, drop, saw-tooth, or a file of seconds and bytes
    #[arg(long, value_name = "SHAPE", default_value = "steady")]
    pub target: String,

    /// Ways to give memory back, separated by commas: off, adaptive, rate, all, or bytes per second
    /// [default: adaptive]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', allow_negative_numbers = true)]
    pub release: Option<Vec<String>>,

    /// Write all results, with samples over time, to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a plot (.svg), or with --figure the directory for plots
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,

    /// Instead of simulating, make the requests on every allocator that is installed: a span of n
    /// objects becomes n calls of malloc [default for --heap then: 256MiB]
    #[arg(long, conflicts_with_all = ["policy", "release", "out", "figure"])]
    pub on_allocators: bool,

    /// Only these allocators, separated by commas (sys is always measured)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "on_allocators")]
    pub peers: Option<Vec<String>>,

    /// Modes of Spandrel, separated by commas or semicolons [default: auto;native]
    #[arg(long, value_name = "MODES", requires = "on_allocators")]
    pub modes: Option<String>,

    /// Measured rounds [default: 3]
    #[arg(long, value_name = "N", requires = "on_allocators",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,

    // Without `env`: a variable that is set for other commands asks for nothing here.
    /// The library to measure [env: SPANDREL_LIB] [default: found beside this command]
    #[arg(long, value_name = "PATH", requires = "on_allocators")]
    pub lib: Option<PathBuf>,

    /// Draw a figure of the paper again: 9, 10, 11, 12 or donation
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["policy", "heap", "operations", "seed", "sizes", "target", "release", "json"])]
    pub figure: Option<String>,
}

const HELP: &str = "\
Policies, by which huge page a small span goes to:
  range-then-allocations, lfr         the shortest longest free range, then the most allocations
  range-then-pages                    the shortest longest free range, then the most used pages
  allocations-then-range, fullness    the most allocations, then the shortest longest free range
  best-fit                            the free range that fits best (slow: looks at all huge pages)

Releases, which give free memory back (empty huge pages leave in all, when demand stopped swinging):
  adaptive, on                        at 256 MiB/s, what recent demand will not want again: the allocator's
  adaptive=64MiB, 64MiB               the same at another rate
  rate, rate=64MiB                    at a constant rate, whatever demand was
  all                                 everything, every 20 ms
  off, none                           nothing else";
