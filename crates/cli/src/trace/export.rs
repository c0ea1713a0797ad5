//! `spandrel trace export`: a recording as tables.

use super::args::ExportArgs;
use super::{damaged, read};
use spandrel_console::Failure;
use spandrel_console::files::{self, not_written};
use spandrel_console::say;
use spandrel_report::numbers::counted;
use spandrel_trace::{TableError, Trace, requests_to_parquet, spans_to_parquet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Writes the tables.
pub fn run(args: &ExportArgs) -> Result<u8, Failure> {
    let trace = read(&args.trace)?;
    let kinds = trace.header.kinds;
    if args.requests.is_some() && !kinds.requests {
        return Err(absent(args, "requests", "spans", args.spans.is_some()));
    }
    let both = [("requests", &args.requests), ("spans", &args.spans)];
    if let Some((option, _)) =
        both.iter().find(|(_, path)| path.as_deref().is_some_and(files::is_output))
    {
        return Err(Failure::refused(format!(
            "--{option}: a table of Parquet is written to a file, not to standard output; name a file"
        )));
    }
    if args.spans.is_some() && !kinds.spans {
        return Err(absent(args, "spans", "requests", args.requests.is_some()));
    }
    let written = [("--requests", args.requests.as_deref()), ("--spans", args.spans.as_deref())];
    files::check(&written, std::slice::from_ref(&args.trace))?;
    if let Some(path) = &args.requests {
        write(&args.trace, &trace, path, requests_to_parquet)?;
    }
    if let Some(path) = &args.spans {
        write(&args.trace, &trace, path, spans_to_parquet)?;
    }
    Ok(0)
}

/// A table that cannot be made; perhaps the other was asked for too, and can.
fn absent(args: &ExportArgs, what: &str, other: &str, other_asked: bool) -> Failure {
    let path = args.trace.display();
    let way_out = match other_asked {
        true => format!("leave --{what} out"),
        false => format!("take --{other}"),
    };
    Failure::refused(format!(
        "--{what}: {path} has no {what}, only {other}; {way_out}, or record with --of all"
    ))
}

fn write(
    of: &Path,
    trace: &Trace,
    path: &Path,
    table: fn(&Trace, BufWriter<File>) -> Result<u64, TableError>,
) -> Result<(), Failure> {
    let rows = files::or_removed(path, || {
        let file = File::create(path).map_err(|why| not_written(path, &why))?;
        table(trace, BufWriter::new(file)).map_err(|why| match why {
            TableError::Trace(why) => damaged(of, &why),
            TableError::Table(why) => not_written(path, &why),
        })
    })?;
    say::out(format_args!("{}: {}", path.display(), counted(rows, "row", "rows")))
}
