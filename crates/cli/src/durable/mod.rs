//! `spandrel durable`: durable states looked at, recovered and copied.

mod backup;
mod compact;
mod copy;
mod files;
mod info;
mod program;
mod prometheus;
mod verify;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::progress::Progress;
use clap::{Args, Subcommand};
use spandrel_console::{Failure, say};
use spandrel_durable::Error;
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::store::{Settings, recover_files};
use spandrel_report::numbers::counted;

/// States in memory whose changes are durable.
///
/// A state is a directory with the files `state`, `log` and `figures`. `info` and `copy` are also for a state that a process has open; `verify`, `recover` and `compact` are for one that no process has open.
/// After `recover` its file `state` is a heap that `spandrel heap` shows, checks and dumps.
#[derive(Args, Debug)]
pub struct DurableArgs {
    #[command(subcommand)]
    task: DurableTask,
}

#[derive(Subcommand, Debug)]
enum DurableTask {
    /// Run an unmodified program whose state survives crashes: what it has acknowledged is there when the same command starts it again.
    ///
    /// An adapter says which of the program's functions change its state. They run as commands of a durable state; all else of the program is native, and its own files are as before.
    #[command(
        override_usage = "spandrel durable run --dir <DIRECTORY> [--adapter <ADAPTER>] -- <PROGRAM> [ARGS]..."
    )]
    Run(program::RunArgs),
    /// List the programs that `run` knows.
    Adapters,
    /// Show a state: its size, its log, what only the log has; batches, capture and waits of the process that has it open.
    Info(InfoArgs),
    /// Verify the files of a state, or that a program's commands note all that they change.
    ///
    /// With a directory: that the log continues the state, that each batch which the state lacks is whole, that the state has what earlier batches have stored, as far as the log still
    /// holds them, and that the heap is sound with all batches. That takes as much memory as the state has bytes. The exit code is 1 if something is damaged.
    ///
    /// With a program (`-- PROGRAM ARGS…`): it runs, and whatever its commands change in states of ordinary types is compared with what their translation has noted. A batch costs as much as
    /// with pages. The exit code is the program's, and 1 if something was not noted.
    #[command(
        override_usage = "spandrel durable verify <DIRECTORY>\n       spandrel durable verify -- <PROGRAM> [ARGS]..."
    )]
    Verify(VerifyArgs),
    /// Bring all batches of the log into the state, as the next opening would.
    Recover(OneArgs),
    /// Release what the files of a state do not need: blocks behind its last object, and a log that has grown.
    Compact(CompactArgs),
    /// Copy a state, with all batches of its log, to a directory that has none.
    ///
    /// A process that has the state open makes the copy, and goes on: the copy has all that was durable before, and batches up to a later one, each as a whole. A program makes one
    /// of its own state by `Durable::copy`.
    Copy(copy::CopyArgs),
    /// Have an unmodified program write the data of a state to a file in its own format, which other builds of it read too.
    ///
    /// It does so beside the program that serves, which goes on, with a copy of the state.
    #[command(
        override_usage = "spandrel durable backup <DIRECTORY> <FILE> [--adapter <ADAPTER>] -- <PROGRAM> [ARGS]..."
    )]
    Backup(backup::BackupArgs),
    /// Make a state of a file that `backup` or the program itself has written.
    #[command(
        override_usage = "spandrel durable restore <DIRECTORY> <FILE> [--adapter <ADAPTER>] -- <PROGRAM> [ARGS]..."
    )]
    Restore(backup::BackupArgs),
}

#[derive(Args, Debug)]
struct InfoArgs {
    /// The directory of the state.
    directory: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print metrics in the text format of Prometheus.
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

#[derive(Args, Debug)]
struct CompactArgs {
    /// The directory of the state.
    directory: PathBuf,
    /// The log's length. Without it a log of more than 64 MiB gets that length, and another one keeps its own.
    #[arg(long, value_name = "SIZE")]
    log: Option<String>,
}

#[derive(Args, Debug)]
struct VerifyArgs {
    /// The directory of the state.
    #[arg(required_unless_present = "program", conflicts_with = "program")]
    directory: Option<PathBuf>,
    /// The program, and what it is called with.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Args, Debug)]
struct OneArgs {
    /// The directory of the state.
    directory: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: &DurableArgs) -> Result<u8, Failure> {
    match &args.task {
        DurableTask::Run(args) => program::run(args),
        DurableTask::Adapters => program::adapters(),
        DurableTask::Info(args) => info::run(args),
        DurableTask::Compact(args) => compact::run(args),
        DurableTask::Verify(VerifyArgs { directory: Some(directory), .. }) => {
            files::verify(directory)
        }
        DurableTask::Verify(args) => verify::program(&args.program),
        DurableTask::Recover(args) => recover(&args.directory),
        DurableTask::Copy(args) => copy::run(args),
        DurableTask::Backup(args) => backup::backup(args),
        DurableTask::Restore(args) => backup::restore(args),
    }
}

fn refused(directory: &Path, why: Error) -> Failure {
    Failure::refused(format!("{}: {why}", directory.display()))
}

fn paths_of(directory: &Path) -> Result<Paths, Failure> {
    Paths::new(directory.as_os_str().as_bytes()).map_err(|why| refused(directory, why))
}

/// Bytes of a file; 0: the system does not tell.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

fn recover(directory: &Path) -> Result<u8, Failure> {
    let progress = Progress::bar("recovering", size(&directory.join("log")));
    let recovered = || {
        let paths = Paths::new(directory.as_os_str().as_bytes())?;
        let _lock = Directory::open(paths.directory.as_c(), false)?;
        let settings = Settings::default();
        let (_, _, recovered) = recover_files(&paths, &settings, &mut progress.watcher())?;
        Ok(recovered)
    };
    let recovered = recovered().map_err(|why| refused(directory, why))?;
    let words = match recovered.records {
        0 => "the state has all batches".to_owned(),
        records => format!("{} brought into the state", counted(records, "batch", "batches")),
    };
    say::out(format!("{}: {words}", directory.display()))?;
    Ok(0)
}
