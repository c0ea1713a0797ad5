//! `spandrel trace export`: a recording as tables.

use super::args::ExportArgs;
use super::{damaged, read};
use crate::bench::numbers::count;
use crate::failure::Failure;
use crate::say;
use spandrel_trace::{TableError, Trace, requests_to_parquet, spans_to_parquet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Writes the tables.
pub fn run(args: &ExportArgs) -> Result<u8, Failure> {
    if args.requests.is_some() && args.requests == args.spans {
        return Err(Failure::refused("--requests and --spans name the same file; name two"));
    }
    let trace = read(&args.trace)?;
    if let Some(path) = &args.requests {
        if !trace.header.kinds.requests {
            return Err(absent(&args.trace, "requests"));
        }
        write(&args.trace, &trace, path, requests_to_parquet)?;
    }
    if let Some(path) = &args.spans {
        if !trace.header.kinds.spans {
            return Err(absent(&args.trace, "spans"));
        }
        write(&args.trace, &trace, path, spans_to_parquet)?;
    }
    Ok(0)
}

fn absent(trace: &Path, what: &str) -> Failure {
    let path = trace.display();
    Failure::refused(format!("{path}: {what} were not recorded; record with --of all"))
}

fn write(
    of: &Path,
    trace: &Trace,
    path: &Path,
    table: fn(&Trace, BufWriter<File>) -> Result<u64, TableError>,
) -> Result<(), Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("{}: {why}; name a file that can be written", path.display()))
    };
    let file = File::create(path).map_err(|why| refuse(&why))?;
    let rows = table(trace, BufWriter::new(file)).map_err(|why| match why {
        TableError::Trace(why) => damaged(of, &why),
        TableError::Table(why) => refuse(&why),
    })?;
    say::out(format_args!("{}: {} rows", path.display(), count(rows)))
}
