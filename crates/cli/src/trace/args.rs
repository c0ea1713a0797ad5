//! What may be asked of `spandrel trace`.

use clap::{ArgGroup, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Record what a program asks for, look at it, and do it again.
///
/// A recording has the program's requests (objects: made, resized, given back) and what its heap
/// asked of the page heap (spans). Each process writes its own file, a forked child too; one that is
/// killed leaves all that it did until then. See docs/traces.md.
#[derive(Parser, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    pub task: TraceTask,
}

#[derive(Subcommand, Debug)]
pub enum TraceTask {
    Record(RecordArgs),
    Info(InfoArgs),
    Replay(ReplayArgs),
    Export(ExportArgs),
}

/// Run a program on Spandrel and record what it asks for.
#[derive(Parser, Debug)]
pub struct RecordArgs {
    /// The file; `%p` stands for the process id [default: PROGRAM.trace]
    ///
    /// Without `%p` the program itself writes this file, and other processes that it starts write
    /// files beside it, with their ids before the extension.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// What to record: requests, spans or all
    #[arg(long, value_name = "WHAT", default_value = "all")]
    pub of: String,

    /// The size at which a file ends, at least 68KiB [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<String>,

    /// How to choose allocators meanwhile [default: auto]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// The library to load [default: found beside this command]
    #[arg(long, value_name = "PATH", env = "SPANDREL_LIB", hide_env_values = true)]
    pub lib: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

/// Show what recordings contain: sizes of objects and of spans by bytes, as in Figs. 4 and 5 of
/// the paper, what was live, and how much slack large spans leave for small ones.
#[derive(Parser, Debug)]
pub struct InfoArgs {
    /// Recordings
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Write the distribution of spans for `spandrel sim --sizes` (of one recording)
    #[arg(long, value_name = "FILE.csv")]
    pub sizes: Option<PathBuf>,

    /// Draw both distributions as SVG (of one recording)
    #[arg(long, value_name = "FILE.svg")]
    pub out: Option<PathBuf>,

    /// One JSON object for each recording, a line each, instead of text
    #[arg(long)]
    pub json: bool,
}

/// Make a recording's requests again, on every allocator that is installed.
///
/// One thread makes all of them, in their order and as fast as it can; each object is written to,
/// and looked at when it is resized or freed.
#[derive(Parser, Debug)]
pub struct ReplayArgs {
    /// The recording
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Measured rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Only these allocators, separated by commas (sys is always measured)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,

    /// Modes of Spandrel, separated by commas or semicolons
    #[arg(long, value_name = "MODES", default_value = "auto")]
    pub modes: String,

    /// Write everything that was measured to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// The library to measure [default: found beside this command]
    #[arg(long, value_name = "PATH", env = "SPANDREL_LIB", hide_env_values = true)]
    pub lib: Option<PathBuf>,
}

/// Write a recording as Parquet tables, for analysis by anything that reads them.
#[derive(Parser, Debug)]
#[command(group(ArgGroup::new("tables").args(["requests", "spans"]).required(true).multiple(true)))]
pub struct ExportArgs {
    /// The recording
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Where the requests go, if they were recorded
    #[arg(long, value_name = "FILE.parquet")]
    pub requests: Option<PathBuf>,

    /// Where the page heap's operations go, if they were recorded
    #[arg(long, value_name = "FILE.parquet")]
    pub spans: Option<PathBuf>,
}
