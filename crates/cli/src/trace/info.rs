//! `spandrel trace info`: what a recording contains.

use super::args::InfoArgs;
use super::{damaged, read};
use crate::bench::table;
use crate::failure::Failure;
use crate::files::{self, write};
use crate::say;
use serde_json::{Value, json};
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_recorder::End;
use spandrel_report::numbers::{bytes, count, counted, whole};
use spandrel_sim::{Chart, Line, Panel};
use spandrel_trace::{Cdf, RequestSummary, SpanSummary, Trace, requests, spans};
use std::path::Path;

/// Shares are told for sizes up to powers of two between these, four octaves in one row.
const LEAST_LOG2: u32 = 4;
const MOST_LOG2: u32 = 40;
const STEP_LOG2: usize = 2;

/// A recording and what it comes to.
struct Summary {
    trace: Trace,
    requests: Option<RequestSummary>,
    spans: Option<SpanSummary>,
}

/// Shows recordings.
pub fn run(args: &InfoArgs) -> Result<u8, Failure> {
    for (flag, path) in [("--sizes", &args.sizes), ("--out", &args.out)] {
        if path.is_some() && args.traces.len() > 1 {
            return Err(Failure::refused(format!(
                "{flag} is of one recording, and there are {}; name one",
                args.traces.len()
            )));
        }
    }
    files::check_plot("--out", args.out.as_deref())?;
    let written = [("--sizes", args.sizes.as_deref()), ("--out", args.out.as_deref())];
    files::check(&written, &args.traces)?;
    for path in &args.traces {
        let summary = summarize(path)?;
        // All that can fail comes before anything is written.
        let sizes = args.sizes.as_ref().map(|file| Ok((file, csv(path, &summary)?)));
        let plot = args.out.as_ref().map(|file| Ok((file, svg(path, &summary)?)));
        for (file, text) in [sizes.transpose()?, plot.transpose()?].into_iter().flatten() {
            write(file, &text)?;
        }
        match args.json {
            true => say::out(as_json(path, &summary))?,
            false => say::out(text(path, &summary))?,
        }
    }
    Ok(0)
}

fn summarize(path: &Path) -> Result<Summary, Failure> {
    let trace = read(path)?;
    let kinds = trace.header.kinds;
    let wrong = |why| damaged(path, &why);
    let of_requests = kinds.requests.then(|| requests(&trace)).transpose().map_err(wrong)?;
    let of_spans = kinds.spans.then(|| spans(&trace)).transpose().map_err(wrong)?;
    Ok(Summary { requests: of_requests, spans: of_spans, trace })
}

fn csv(path: &Path, summary: &Summary) -> Result<String, Failure> {
    let name = &summary.trace.header.program;
    match &summary.spans {
        Some(spans) if spans.made > 0 => {
            let about = format!("spans of {name}, {:.1} s", spans.seconds);
            Ok(spans.csv(&about))
        }
        _ => Err(Failure::refused(format!(
            "--sizes: {} has no spans; record with --of all, a program that uses the native \
             allocator",
            path.display()
        ))),
    }
}

fn ended(end: End) -> &'static str {
    match end {
        End::Open => "its program was killed, executed another, or lives",
        End::Exit => "to the end of its program",
        End::Limit => "to the limit of its size",
        End::Full => "until the disk was full",
        End::Error => "until it could not be written",
    }
}

fn text(path: &Path, summary: &Summary) -> String {
    let header = &summary.trace.header;
    let mut text = format!(
        "{}: {} (process {}), {}, {}",
        path.display(),
        header.program,
        header.pid,
        bytes(summary.trace.len() as f64),
        ended(header.end),
    );
    let mut say = |line: String| {
        text.push('\n');
        text += &table::wrap(&line);
    };
    if header.missed > 0 {
        say(format!("{} could not be recorded", counted(header.missed, "event", "events")));
    }
    if let Some(of) = &summary.requests {
        say(requests_line(of));
        if of.unmatched.unknown + of.unmatched.lost_ends > 0 {
            say(format!(
                "left out: {} of objects whose beginning was not recorded, {} whose end was not",
                counted(of.unmatched.unknown, "end or new size", "ends or new sizes"),
                counted(of.unmatched.lost_ends, "object", "objects")
            ));
        }
    }
    if let Some(of) = &summary.spans {
        say(spans_line(of));
        if of.unknown > 0 {
            say(counted(
                of.unknown,
                "beginning or end of a span does not match",
                "beginnings or ends of spans do not match",
            ));
        }
    }
    if let Some(table) = sizes(summary) {
        text.push('\n');
        text += &table;
    }
    text
}

fn requests_line(of: &RequestSummary) -> String {
    format!(
        "requests: {} made ({}), {} given back, {} resized ({} of them moved); {} zeroed, {} \
         aligned; {}, {:.1} s; live at most {} in {}, at the end {}",
        counted(of.allocations, "object", "objects"),
        bytes(of.bytes),
        count(of.frees),
        count(of.resizes),
        count(of.moved),
        count(of.zeroed),
        count(of.aligned),
        counted(of.threads.into(), "thread", "threads"),
        of.seconds,
        bytes(of.live_peak as f64),
        counted(of.objects_peak.into(), "object", "objects"),
        bytes(of.live_end as f64),
    )
}

fn spans_line(of: &SpanSummary) -> String {
    let pages = |pages: f64| bytes(pages * HEAP_PAGE_BYTES as f64);
    let slack = match of.small_to_slack() {
        Some(ratio) => format!(
            "small to slack {ratio:.2} ({} in spans of up to half a huge page, {} behind larger \
             ones, on average)",
            pages(of.small_pages),
            pages(of.slack_pages)
        ),
        None => format!("no slack ({} in small spans on average)", pages(of.small_pages)),
    };
    let released = match (of.releases - of.releases_of_all, of.releases_of_all) {
        (0, 0) => "never asked to give back".into(),
        (0, all) => format!("asked {} to give back all", counted(all, "time", "times")),
        (some, all) => format!(
            "asked {} to give back {} together, {} all",
            counted(some, "time", "times"),
            pages(of.released_pages as f64),
            counted(all, "time", "times"),
        ),
    };
    format!(
        "page heap: {} made, {} given back, {} grown in place; live at most {} in {}; {slack}; \
         {released}",
        counted(of.made, "span", "spans"),
        count(of.ended),
        count(of.grown),
        pages(of.live_peak as f64),
        counted(of.spans_peak.into(), "span", "spans"),
    )
}

/// The share of bytes in sizes up to this.
fn up_to(points: &[(f64, f64)], size: f64) -> f64 {
    let below = points.iter().take_while(|(at, _)| *at <= size);
    below.last().map_or(0.0, |(_, share)| *share)
}

/// Figs. 4 and 5 as a table.
fn sizes(summary: &Summary) -> Option<String> {
    let cdfs =
        [summary.requests.as_ref().map(|of| &of.sizes), summary.spans.as_ref().map(|of| &of.sizes)];
    let columns: Vec<&[(f64, f64)]> =
        cdfs.iter().flatten().flat_map(|cdf| [cdf.asked.as_slice(), cdf.live.as_slice()]).collect();
    let has = |points: &&[(f64, f64)]| !points.is_empty();
    if !columns.iter().any(has) {
        return None;
    }
    let mut header = vec!["bytes in sizes up to".to_string()];
    let names = [("objects:\nasked for", "objects:\nlive"), ("spans:\nasked for", "spans:\nlive")];
    for ((asked, live), _) in names.iter().zip(&cdfs).filter(|(_, cdf)| cdf.is_some()) {
        header.extend([asked.to_string(), live.to_string()]);
    }
    let mut table = table::new(&header);
    for log2 in (LEAST_LOG2..=MOST_LOG2).step_by(STEP_LOG2) {
        let size = f64::from(log2).exp2();
        let shares: Vec<f64> = columns.iter().map(|points| up_to(points, size)).collect();
        let cells = shares.iter().zip(&columns).map(|(share, points)| match points.is_empty() {
            true => table::NOTHING.into(),
            false => format!("{:.1} %", share * 100.0),
        });
        let row = std::iter::once(whole(1 << log2)).chain(cells).collect();
        table::add(&mut table, false, row);
        let is_all = |(share, points): (&f64, &&[(f64, f64)])| points.is_empty() || *share > 0.9995;
        if shares.iter().zip(&columns).all(is_all) {
            break;
        }
    }
    Some(table.to_string())
}

/// The picture as a file.
fn svg(path: &Path, summary: &Summary) -> Result<String, Failure> {
    let chart = chart(path, summary);
    let nothing = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("--out: {} has nothing to draw: {why}", path.display()))
    };
    if chart.panels.is_empty() {
        return Err(nothing(&"neither requests nor spans are in it"));
    }
    chart.svg().map_err(|why| nothing(&why))
}

/// Figs. 4 and 5 as a picture.
fn chart(path: &Path, summary: &Summary) -> Chart {
    let line = |name: &str, points: &[(f64, f64)]| Line {
        name: name.into(),
        points: points.iter().map(|(size, share)| (size.log2(), share * 100.0)).collect(),
        area: false,
    };
    let panel = |title: &str, cdf: &Cdf| Panel {
        title: title.into(),
        y: "bytes in sizes up to (%)".into(),
        lines: vec![line("asked for", &cdf.asked), line("live, over time", &cdf.live)],
        y_least: 100.0,
    };
    let mut panels = Vec::new();
    if let Some(of) = summary.requests.as_ref().filter(|of| of.allocations > 0) {
        panels.push(panel("objects", &of.sizes));
    }
    if let Some(of) = summary.spans.as_ref().filter(|of| of.made > 0) {
        panels.push(panel("spans of the page heap", &of.sizes));
    }
    let header = &summary.trace.header;
    Chart {
        title: format!("What {} asks for", header.program),
        subtitle: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        x: "size (log2 of bytes)".into(),
        panels,
    }
}

fn as_json(path: &Path, summary: &Summary) -> Value {
    let header = &summary.trace.header;
    let cdf = |cdf: &Cdf| json!({"asked": cdf.asked, "live": cdf.live});
    let of_requests = summary.requests.as_ref().map(|of| {
        json!({
            "allocations": of.allocations, "bytes": of.bytes, "zeroed": of.zeroed,
            "aligned": of.aligned, "frees": of.frees, "resizes": of.resizes, "moved": of.moved,
            "threads": of.threads, "seconds": of.seconds, "live_peak": of.live_peak,
            "objects_peak": of.objects_peak, "live_end": of.live_end,
            "unknown": of.unmatched.unknown, "lost_ends": of.unmatched.lost_ends,
            "refused": of.unmatched.refused, "sizes": cdf(&of.sizes),
        })
    });
    let of_spans = summary.spans.as_ref().map(|of| {
        json!({
            "made": of.made, "ended": of.ended, "grown": of.grown, "releases": of.releases,
            "releases_of_all": of.releases_of_all, "released_pages": of.released_pages,
            "seconds": of.seconds, "live_peak_pages": of.live_peak, "spans_peak": of.spans_peak,
            "small_pages": of.small_pages, "slack_pages": of.slack_pages,
            "small_to_slack": of.small_to_slack(), "unknown": of.unknown,
            "page_bytes": HEAP_PAGE_BYTES, "sizes": cdf(&of.sizes),
        })
    });
    json!({
        "format": 1, "trace": path.display().to_string(), "program": header.program,
        "pid": header.pid, "began_ns": header.began_ns, "bytes": summary.trace.len(),
        "ended": format!("{:?}", header.end).to_lowercase(), "missed": header.missed,
        "requests": of_requests, "spans": of_spans,
    })
}
