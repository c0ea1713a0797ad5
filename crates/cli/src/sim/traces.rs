//! Recordings on paper: what other policies would have made of a program's heap.

use super::compared::{compare, pairs};
use super::report::{self, Described};
use super::{SimArgs, draw};
use crate::trace::read;
use spandrel_console::Failure;
use spandrel_console::files::write;
use spandrel_console::say;
use spandrel_console::terminal::table;
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_report::numbers::{bytes, counted};
use spandrel_sim::{Config, Policy};
use spandrel_trace::{SpanSummary, Spans, Trace, spans};
use std::path::Path;

/// Simulates each recording on its own; plot and JSON are of all of them.
pub fn run(args: &SimArgs) -> Result<u8, Failure> {
    let pairs = pairs(args)?;
    let several = args.traces.len() > 1;
    if several {
        // Better refused now than after those before it. One is read at a time: they may be large.
        args.traces.iter().try_for_each(|recording| summarized(recording).map(drop))?;
    }
    let mut described = Vec::new();
    for recording in &args.traces {
        let (trace, summary) = summarized(recording)?;
        let about = format!(
            "{}: {}, {} in {:.1} s, live at most {} in {}",
            recording.display(),
            trace.header.program,
            counted(summary.made + summary.ended + summary.grown, "operation", "operations"),
            summary.seconds,
            bytes(summary.live_peak as f64 * HEAP_PAGE_BYTES as f64),
            counted(summary.spans_peak.into(), "span", "spans")
        );
        if !several {
            say::out(table::wrap(&about).trim_start())?;
        }
        let peak_bytes = summary.live_peak * HEAP_PAGE_BYTES as u64;
        let config = Config {
            heap_bytes: peak_bytes,
            spans: summary.spans_peak,
            settled_s: 0.0,
            end_s: summary.seconds,
            ..Config::plain(Policy::RangeThenAllocations)
        };
        let source = || Ok(Spans::new(&trace));
        let outcomes = compare(&pairs, config, summary.made + summary.ended, source)?;
        described.push(Described {
            seed: None,
            target: recording.display().to_string(),
            about,
            peak_bytes: peak_bytes as f64,
            settled_s: 0.0,
            outcomes,
        });
    }
    if let Some(path) = &args.json {
        write(path, &report::json(&described)?)?;
    }
    if let Some(path) = &args.out {
        draw(path, &described)?;
    }
    // Last: the files shall be there also when no program reads this.
    for (at, one) in described.iter().enumerate() {
        if several {
            let blank = if at > 0 { "\n" } else { "" };
            say::out(format_args!("{blank}{}", table::wrap(&one.about).trim_start()))?;
        }
        say::out(report::table(&one.outcomes))?;
    }
    Ok(0)
}

fn summarized(path: &Path) -> Result<(Trace, SpanSummary), Failure> {
    let trace = read(path)?;
    let summary =
        spans(&trace).map_err(|why| Failure::refused(format!("{}: {why}", path.display())))?;
    if summary.made == 0 {
        return Err(Failure::refused(format!(
            "{}: there are no spans in it; record with --of all or spans, a program that uses the \
             native allocator",
            path.display()
        )));
    }
    Ok((trace, summary))
}
