//! `spandrel trace info`: what a recording contains.

use super::args::InfoArgs;
use super::distribution::What;
use super::{damaged, distribution, read};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::files::{self, write};
use spandrel_console::say;
use spandrel_console::terminal::table;
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_recorder::End;
use spandrel_report::numbers::{bytes, count, counted};
use spandrel_trace::{Cdf, RequestSummary, SpanSummary, Trace, requests, spans};
use std::path::Path;

/// A recording and what it comes to.
struct Summary {
    trace: Trace,
    requests: Option<RequestSummary>,
    spans: Option<SpanSummary>,
}

impl Summary {
    /// By bytes, the sizes of what there is.
    fn sizes(&self) -> Vec<(What, &Cdf)> {
        let requests = self.requests.as_ref().filter(|of| of.allocations > 0);
        let spans = self.spans.as_ref().filter(|of| of.made > 0);
        let sizes = [
            requests.map(|of| (What::Objects, &of.sizes)),
            spans.map(|of| (What::Spans, &of.sizes)),
        ];
        sizes.into_iter().flatten().collect()
    }
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
        let plot = args.out.as_ref().map(|file| Ok((file, picture(path, &summary)?)));
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
    match &summary.requests {
        None => say("requests: not recorded".into()),
        Some(of) if of.allocations + of.frees + of.resizes == 0 => say("requests: none".into()),
        Some(of) => say(requests_line(of)),
    }
    if let Some(RequestSummary { unmatched: of, .. }) = &summary.requests
        && of.unknown + of.lost_ends > 0
    {
        say(format!(
            "left out: {} of objects whose beginning was not recorded, {} whose end was not",
            counted(of.unknown, "end or new size", "ends or new sizes"),
            counted(of.lost_ends, "object", "objects")
        ));
    }
    match &summary.spans {
        None => say("page heap: not recorded".into()),
        Some(of) if of.made + of.ended + of.releases == 0 => {
            say("page heap: nothing was asked of it".into());
        }
        Some(of) => say(spans_line(of)),
    }
    if let Some(of) = &summary.spans
        && of.unknown > 0
    {
        say(counted(
            of.unknown,
            "beginning or end of a span does not match",
            "beginnings or ends of spans do not match",
        ));
    }
    let sizes = summary.sizes();
    if !sizes.is_empty() {
        text.push('\n');
        text += &distribution::table(&sizes);
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

/// Both distributions as SVG.
fn picture(path: &Path, summary: &Summary) -> Result<String, Failure> {
    let sizes = summary.sizes();
    if sizes.is_empty() {
        return Err(Failure::refused(format!(
            "--out: {} has nothing to draw: neither requests nor spans are in it",
            path.display()
        )));
    }
    let title = format!("What {} asks for", summary.trace.header.program);
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let chart = distribution::chart(title, file.into_owned(), &sizes);
    chart.svg().map_err(|why| Failure::new(format!("--out: {why}")))
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
