//! What a simulation came to, on one screen and as JSON.

use crate::bench::table;
use crate::failure::Failure;
use serde::Serialize;
use spandrel_pages::{HEAP_PAGE_BYTES, Length};
use spandrel_report::numbers::{bytes, count, counted};
use spandrel_sim::{Outcome, Summary};

/// Everything, for other programs.
#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    target: &'a str,
    peak_bytes: f64,
    settled_s: f64,
    release_pages_per_s: u32,
    page_bytes: usize,
    outcomes: &'a [Outcome],
}

/// What was simulated.
pub struct Described<'a> {
    /// Of the random operations.
    pub seed: Option<u64>,
    /// The course of the heap, or the recording.
    pub target: &'a str,
    /// The most bytes that were to be live.
    pub peak_bytes: f64,
    /// From when on averages were taken.
    pub settled_s: f64,
    /// Pages that went back each second.
    pub release_per_s: Length,
}

/// All results as JSON.
pub fn json(of: &Described<'_>, outcomes: &[Outcome]) -> Result<String, Failure> {
    let report = Report {
        format: 1,
        version: env!("CARGO_PKG_VERSION"),
        seed: of.seed,
        target: of.target,
        peak_bytes: of.peak_bytes,
        settled_s: of.settled_s,
        release_pages_per_s: of.release_per_s.0,
        page_bytes: HEAP_PAGE_BYTES,
        outcomes,
    };
    serde_json::to_string(&report).map(|text| text + "\n").map_err(Failure::new)
}

/// A row for each figure, a column for each policy.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut header = vec![String::new()];
    header
        .extend(outcomes.iter().map(|outcome| outcome.policy.name().replace("-then-", "-then-\n")));
    let mut table = table::new(&header);
    for (name, value) in ROWS {
        let mut cells = vec![name.to_string()];
        cells.extend(outcomes.iter().map(value));
        table::add(&mut table, false, cells);
    }
    let refused: u64 = outcomes.iter().map(|outcome| outcome.summary.refused).sum();
    let mut text = table.to_string();
    if refused > 0 {
        text += &format!(
            "\n{}",
            table::wrap(&counted(
                refused,
                "request found no room and is left out",
                "requests found no room and are left out",
            ))
        );
    }
    if outcomes.len() > 1 {
        text += &format!("\n{}", table::wrap(&verdict(outcomes)));
    }
    text
}

/// Who needs least, as far as three decimals tell.
fn verdict(outcomes: &[Outcome]) -> String {
    let least = outcomes.iter().map(|o| o.summary.resident_per_live()).fold(f64::MAX, f64::min);
    let shown = |value: f64| format!("{value:.3}");
    let is_least = |o: &&Outcome| shown(o.summary.resident_per_live()) == shown(least);
    let best: Vec<&str> = outcomes.iter().filter(is_least).map(|o| o.policy.name()).collect();
    let of = |o: &Outcome| format!("{} {}", o.policy.name(), shown(o.summary.resident_per_live()));
    let all: Vec<String> = outcomes.iter().map(of).collect();
    format!("least memory: {} (resident/live: {})", best.join(" and "), all.join(", "))
}

type Row = (&'static str, fn(&Outcome) -> String);

const ROWS: [Row; 17] = [
    ("resident/live, average", |o| format!("{:.4}", o.summary.resident_per_live())),
    ("resident/live, peak to peak", |o| {
        let (resident, live) = (o.summary.resident_peak, o.summary.live_peak.max(1));
        format!("{:.4}", f64::from(resident) / f64::from(live))
    }),
    ("live, average", |o| pages(o.summary.live)),
    ("live, peak", |o| pages(o.summary.live_peak.into())),
    ("resident, average", |o| pages(o.summary.resident)),
    ("resident, peak", |o| pages(o.summary.resident_peak.into())),
    ("free in partly used huge pages", |o| part(o.summary.free, &o.summary)),
    ("empty huge pages kept", |o| part(o.summary.cached, &o.summary)),
    ("given back from broken ones", |o| part(o.summary.unbacked, &o.summary)),
    ("live on huge pages", |o| format!("{:.2} %", o.summary.coverage() * 100.0)),
    ("huge pages broken, mended", |o| {
        format!("{}, {}", count(o.summary.broken), count(o.summary.restored))
    }),
    ("system calls", |o| count(o.calls.total())),
    ("operations", |o| count(o.summary.operations)),
    ("operations per second", |o| format!("{:.2} M", o.summary.operations_per_s() / 1e6)),
    ("spans at the peak", |o| count(o.summary.spans_peak.into())),
    ("bytes per simulated huge page", |o| format!("{:.1}", o.summary.bookkeeping.per_hugepage)),
    ("bytes per live span", |o| format!("{:.1}", o.summary.bookkeeping.per_span)),
];

fn pages(pages: f64) -> String {
    bytes(pages * HEAP_PAGE_BYTES as f64)
}

/// Memory, and what part of live memory it is.
fn part(part: f64, summary: &Summary) -> String {
    format!("{} ({:.1} %)", pages(part), 100.0 * part / summary.live.max(1.0))
}
