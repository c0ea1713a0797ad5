//! `spandrel trace`: recordings made, shown, made again, and turned into tables.

mod args;
mod claim;
mod distribution;
mod export;
mod info;
mod record;
mod replay;

pub use args::TraceArgs;

use args::TraceTask;
use spandrel_console::Failure;
use spandrel_recorder::layout::MAGIC;
use spandrel_recorder::{Kinds, Recording};
use spandrel_trace::Trace;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What to do where a file is no recording.
const NAME_ONE: &str = "name a recording, which 'spandrel trace record' makes";

/// Does what was asked.
pub fn run(args: &TraceArgs) -> Result<u8, Failure> {
    match &args.task {
        TraceTask::Record(args) => record::run(args),
        TraceTask::Info(args) => info::run(args),
        TraceTask::Replay(args) => replay::run(args),
        TraceTask::Export(args) => export::run(args),
    }
}

/// Reads a recording.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    let bytes = bytes(path)
        .map_err(|why| Failure::refused(format!("{}: {why}; {NAME_ONE}", path.display())))?;
    Trace::new(bytes).map_err(|why| damaged(path, &why))
}

/// The bytes of a recording; of another file the first ones, as it may have no end.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    if bytes == MAGIC {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A recording that is not whole.
fn damaged(path: &Path, why: &spandrel_trace::Error) -> Failure {
    Failure::refused(format!("{}: {why}", path.display()))
}

/// What is to be recorded.
fn kinds(place: &str, text: &str) -> Result<Kinds, Failure> {
    Kinds::parse(text).ok_or_else(|| {
        Failure::refused(format!("{place}: '{text}' is not requests, spans or all; take one"))
    })
}

fn check_limit(place: &str, text: &str) -> Result<(), Failure> {
    match Recording::parse_limit(text) {
        Ok(_) => Ok(()),
        Err(why) => Err(Failure::refused(format!("{place}: {why}"))),
    }
}

/// Refuses what the library would say and ignore.
pub fn check_environment() -> Result<(), Failure> {
    let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if value("SPANDREL_TRACE").is_none() {
        return Ok(());
    }
    if let Some(of) = value("SPANDREL_TRACE_OF") {
        kinds("SPANDREL_TRACE_OF in the environment", &of.to_string_lossy())?;
    }
    match value("SPANDREL_TRACE_LIMIT") {
        Some(limit) => {
            check_limit("SPANDREL_TRACE_LIMIT in the environment", &limit.to_string_lossy())
        }
        None => Ok(()),
    }
}
