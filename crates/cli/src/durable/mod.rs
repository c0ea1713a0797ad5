//! `spandrel durable`: durable states looked at and recovered.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::progress::Progress;
use clap::{Args, Subcommand};
use serde_json::json;
use spandrel_console::{Failure, say};
use spandrel_durable::Error;
use spandrel_durable::copy::copy;
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::inspect::{Inspection, inspect};
use spandrel_durable::store::{Settings, recover_files};
use spandrel_pheap::check;
use spandrel_report::numbers::{bytes, counted};

/// States in memory whose changes are durable.
///
/// A state is a directory with two files, `state` and `log`. These commands look at one that no process has open. After `recover` its file `state` is a
/// heap like any other: see `spandrel heap`.
#[derive(Args, Debug)]
pub struct DurableArgs {
    #[command(subcommand)]
    task: DurableTask,
}

#[derive(Subcommand, Debug)]
enum DurableTask {
    /// Show a state: its size, its log, and what only the log has.
    Info(InfoArgs),
    /// Verify that the log continues the state and that each of its batches is whole, and check the state's heap if it has all batches.
    Verify(OneArgs),
    /// Bring all batches of the log into the state, as the next opening would.
    Recover(OneArgs),
    /// Copy a state, with all batches of its log, to a directory that has none. A program copies a state that it has open by `Durable::copy`, without a stop.
    Copy(CopyArgs),
}

#[derive(Args, Debug)]
struct CopyArgs {
    /// The directory of the state.
    directory: PathBuf,
    /// The directory of the copy, which is made if it is missing.
    copy: PathBuf,
}

#[derive(Args, Debug)]
struct InfoArgs {
    /// The directory of the state.
    directory: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct OneArgs {
    /// The directory of the state.
    directory: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: &DurableArgs) -> Result<u8, Failure> {
    match &args.task {
        DurableTask::Info(args) => info(args),
        DurableTask::Verify(args) => verify(&args.directory),
        DurableTask::Recover(args) => recover(&args.directory),
        DurableTask::Copy(args) => copied(args),
    }
}

fn refused(directory: &Path, why: Error) -> Failure {
    Failure::refused(format!("{}: {why}", directory.display()))
}

fn copied(args: &CopyArgs) -> Result<u8, Failure> {
    let paths = |directory: &Path| {
        Paths::new(directory.as_os_str().as_bytes()).map_err(|why| refused(directory, why))
    };
    let (from, to) = (paths(&args.directory)?, paths(&args.copy)?);
    let lock = Directory::open(from.directory.as_c(), false);
    let _lock = lock.map_err(|why| refused(&args.directory, why))?;
    let progress = Progress::bar("copying", size(&args.directory.join("state")));
    let outcome = copy(&from, to, &mut progress.watcher());
    drop(progress);
    outcome
        .map_err(|why| refused(&args.directory, why))?
        .map_err(|why| refused(&args.copy, why))?;
    say::out(format!("{}: a copy of {}", args.copy.display(), args.directory.display()))?;
    Ok(0)
}

/// The paths of a directory, which is locked, and what its files say.
fn opened(directory: &Path) -> Result<(Paths, Directory, Inspection), Failure> {
    let open = || {
        let paths = Paths::new(directory.as_os_str().as_bytes())?;
        let lock = Directory::open(paths.directory.as_c(), false)?;
        let found = inspect(&paths)?;
        Ok((paths, lock, found))
    };
    open().map_err(|why| refused(directory, why))
}

fn info(args: &InfoArgs) -> Result<u8, Failure> {
    let (_, _lock, found) = opened(&args.directory)?;
    match args.json {
        true => say::out(as_json(&args.directory, &found))?,
        false => say::out(text(&args.directory, &found))?,
    }
    Ok(0)
}

fn text(directory: &Path, found: &Inspection) -> String {
    let mut text = format!("{}: a state of {}", directory.display(), bytes(found.bytes as f64));
    let mut line = |words: String| {
        let _ = write!(text, "\n{words}");
    };
    line(format!("identity {:016x}; address {:#x}", found.identity, found.base));
    match found.log {
        None => line("log: none, and the state needs none".into()),
        Some(shape) => line(format!(
            "log: {} of {} used",
            bytes(found.pending_bytes as f64),
            bytes(shape.capacity as f64)
        )),
    }
    match found.pending {
        0 => line("the state has all batches".into()),
        pending => {
            line(format!(
                "{} that only the log has: {} in {}",
                counted(pending, "batch", "batches"),
                bytes(found.run_bytes as f64),
                counted(found.runs, "run", "runs")
            ));
            line(format!("last durable batch: {} ago", age(found.time)));
        }
    }
    if !found.is_complete {
        line("it was not closed: the next opening recovers it".into());
    }
    text
}

/// Bytes of a file; 0: the system does not tell.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

/// The time since a moment, in words.
fn age(nanos: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_nanos(nanos);
    let since = SystemTime::now().duration_since(at).unwrap_or_default().as_secs();
    match since {
        0..120 => format!("{since} s"),
        120..7200 => format!("{} min", since / 60),
        7200..172_800 => format!("{} h", since / 3600),
        _ => format!("{} days", since / 86_400),
    }
}

fn as_json(directory: &Path, found: &Inspection) -> String {
    let log = found.log.map(|shape| {
        json!({
            "capacity_bytes": shape.capacity,
            "align_bytes": shape.align,
            "used_bytes": found.pending_bytes,
        })
    });
    let point = |epoch: u64, sequence: u64| json!({ "epoch": epoch, "sequence": sequence });
    let value = json!({
        "directory": directory.to_string_lossy(),
        "identity": format!("{:016x}", found.identity),
        "address": found.base,
        "state_bytes": found.bytes,
        "is_complete": found.is_complete,
        "settled": point(found.settled.epoch, found.settled.sequence),
        "durable": point(found.last.epoch, found.last.sequence),
        "log": log,
        "pending": {
            "batches": found.pending,
            "runs": found.runs,
            "bytes": found.run_bytes,
            "time_ns": (found.time > 0).then_some(found.time),
        },
    });
    format!("{value:#}")
}

fn verify(directory: &Path) -> Result<u8, Failure> {
    let (paths, _lock, found) = opened(directory)?;
    let mut words = match found.pending {
        0 => "the log has no batch that the state lacks".to_owned(),
        pending => format!(
            "{} of the log continue the state, and each is whole",
            counted(pending, "batch", "batches")
        ),
    };
    if found.pending == 0 && found.is_complete {
        let path = paths.state.as_c().to_bytes();
        let medium = spandrel_pheap::copy(path);
        let survey = medium.and_then(|medium| check(&medium, &[], &mut |_| ()));
        let survey = survey.map_err(|why| refused(directory, why.into()))?;
        if survey.damaged > 0 {
            return Err(Failure::new(format!(
                "{}: the state is damaged in {}; `spandrel heap check {}/state` lists them",
                directory.display(),
                counted(survey.damaged, "place", "places"),
                directory.display()
            )));
        }
        words += "; the heap of the state is sound";
    } else {
        words += "; the heap of the state is checked when it has all batches: `spandrel durable recover` first";
    }
    say::out(format!("{}: {words}", directory.display()))?;
    Ok(0)
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
