//! Recordings on paper: what other policies would have made of a program's heap.

use super::asked::{policies, release};
use super::report::{self, Described};
use super::{SimArgs, compare, draw};
use crate::bench::table;
use crate::failure::Failure;
use crate::files::write;
use crate::say;
use crate::trace::read;
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_report::numbers::{bytes, counted};
use spandrel_sim::{Config, Policy};
use spandrel_trace::{SpanSummary, Spans, Trace, spans};
use std::path::Path;

/// Simulates each recording on its own.
pub fn run(args: &SimArgs) -> Result<u8, Failure> {
    for (flag, path) in [("--json", &args.json), ("--out", &args.out)] {
        if path.is_some() && args.traces.len() > 1 {
            return Err(Failure::refused(format!("{flag} is of one recording; name one")));
        }
    }
    let policies = policies(args.policy.as_deref())?;
    let release_per_s = release(&args.release)?;
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
        say::out(table::wrap(&about).trim_start())?;
        let peak_bytes = summary.live_peak * HEAP_PAGE_BYTES as u64;
        let config = |policy: Policy| Config {
            release_per_s,
            heap_bytes: peak_bytes,
            spans: summary.spans_peak,
            settled_s: 0.0,
            end_s: summary.seconds,
            ..Config::plain(policy)
        };
        let source = || Ok(Spans::new(&trace));
        let outcomes = compare(&policies, config, summary.made + summary.ended, source)?;
        if let Some(path) = &args.json {
            let of = Described {
                seed: None,
                target: &recording.display().to_string(),
                peak_bytes: peak_bytes as f64,
                settled_s: 0.0,
                release_per_s,
            };
            write(path, &report::json(&of, &outcomes)?)?;
        }
        if let Some(path) = &args.out {
            draw(path, &about, &outcomes, 0.0)?;
        }
        say::out(report::table(&outcomes))?;
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
