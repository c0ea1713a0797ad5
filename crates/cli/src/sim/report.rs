//! What a simulation came to, on one screen and as JSON.

use serde::Serialize;
use spandrel_console::Failure;
use spandrel_console::terminal::table;
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_report::numbers::{bytes, count, counted};
use spandrel_sim::{Outcome, Summary};

/// What was simulated, and what it came to.
#[derive(Serialize)]
pub struct Described {
    /// Of the random operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The course of the heap, or the recording.
    pub target: String,
    /// The same in a line.
    #[serde(skip)]
    pub about: String,
    /// The most bytes that were to be live.
    pub peak_bytes: f64,
    /// From when on averages were taken.
    pub settled_s: f64,
    /// Of every policy and release.
    pub outcomes: Vec<Outcome>,
}

/// The same for other programs.
#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    version: &'static str,
    page_bytes: usize,
    #[serde(flatten)]
    described: &'a Described,
}

/// All results as JSON: an object, or for several recordings a list of as many.
pub fn json(all: &[Described]) -> Result<String, Failure> {
    let report = |described| Report {
        format: 2,
        version: env!("CARGO_PKG_VERSION"),
        page_bytes: HEAP_PAGE_BYTES,
        described,
    };
    let text = match all {
        [one] => serde_json::to_string(&report(one)),
        several => serde_json::to_string(&several.iter().map(report).collect::<Vec<_>>()),
    };
    text.map(|text| text + "\n").map_err(Failure::new)
}

/// All of it on a screen.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text =
        if several_releases(outcomes) { by_release(outcomes) } else { by_policy(outcomes) };
    let refused: u64 = outcomes.iter().map(|outcome| outcome.summary.refused).sum();
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

fn several_releases(outcomes: &[Outcome]) -> bool {
    outcomes.windows(2).any(|pair| pair[0].release != pair[1].release)
}

/// A row for each policy with each release, a column for what tells releases apart.
fn by_release(outcomes: &[Outcome]) -> String {
    let header = [
        "policy",
        "release",
        "resident\n/live",
        "on huge\npages",
        "broken",
        "mended",
        "given\nback",
        "fetched\nagain",
        "system\ncalls",
    ];
    let mut table = table::new(&header.map(String::from));
    table::left(&mut table, 1);
    for Outcome { policy, release, summary, calls, .. } in outcomes {
        let cells = vec![
            // In two lines of about the same length.
            policy
                .name()
                .replace("range-then-", "range-then-\n")
                .replace("allocations-t", "allocations-\nt"),
            release.to_string().replace('=', "=\n"),
            format!("{:.4}", summary.resident_per_live()),
            format!("{:.2} %", summary.coverage() * 100.0),
            count(summary.broken),
            count(summary.restored),
            pages(summary.given_back as f64),
            pages(summary.fetched_again as f64),
            count(calls.total()),
        ];
        table::add(&mut table, false, cells);
    }
    table.to_string()
}

/// A row for each figure, a column for each policy.
fn by_policy(outcomes: &[Outcome]) -> String {
    let mut header = vec![String::new()];
    header
        .extend(outcomes.iter().map(|outcome| outcome.policy.name().replace("-then-", "-then-\n")));
    let mut table = table::new(&header);
    for (name, value) in ROWS {
        let mut cells = vec![name.to_string()];
        cells.extend(outcomes.iter().map(value));
        table::add(&mut table, false, cells);
    }
    table.to_string()
}

/// Which outcome needs least memory, as far as three decimals tell.
fn verdict(outcomes: &[Outcome]) -> String {
    let least = outcomes.iter().map(|o| o.summary.resident_per_live()).fold(f64::MAX, f64::min);
    let shown = |value: f64| format!("{value:.3}");
    let of: Vec<(String, String)> = Outcome::labels(outcomes)
        .into_iter()
        .zip(outcomes.iter().map(|o| shown(o.summary.resident_per_live())))
        .collect();
    let best = of.iter().filter(|(_, ratio)| *ratio == shown(least)).map(|(name, _)| &name[..]);
    let best = best.collect::<Vec<&str>>().join(" and ");
    if several_releases(outcomes) {
        // The table has the others close by.
        return format!("least memory: {best} (resident/live: {})", shown(least));
    }
    let all: Vec<String> = of.iter().map(|(name, ratio)| format!("{name} {ratio}")).collect();
    format!("least memory: {best} (resident/live: {})", all.join(", "))
}

type Row = (&'static str, fn(&Outcome) -> String);

const ROWS: [Row; 18] = [
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
    ("given back, fetched again", |o| {
        format!("{}, {}", pages(o.summary.given_back as f64), pages(o.summary.fetched_again as f64))
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
