//! The tables.

use super::Outcome;
use spandrel_console::terminal::table::{self, NOTHING, Table};
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, bytes, time};
use std::fmt::Write;
use std::time::Duration;

/// A figure of a run, and how it is shown.
struct Figure {
    key: &'static str,
    what: &'static str,
    show: fn(f64) -> String,
}

const FIGURES: [Figure; 3] = [
    Figure { key: "cpu_ns", what: "CPU time", show: time },
    Figure { key: "peak_rss", what: "peak memory", show: bytes },
    Figure { key: "rested_rss", what: "after a rest", show: bytes },
];

/// A row for each program and allocator: figures, and each to the system's allocator.
pub fn table(outcomes: &[Outcome]) -> Table {
    let header =
        ["program", "allocator", "CPU time", "peak memory", "after a rest", "CPU", "peak", "rest"];
    let mut table = table::new(&header.map(String::from));
    table::left(&mut table, 1);
    for outcome in outcomes {
        for (at, series) in outcome.series.iter().enumerate() {
            let name = if at == 0 { outcome.program.name } else { "" };
            let mut cells = vec![name.to_string(), series.contender.name.clone()];
            let figure = |of: &Figure| median(series, of.key).map_or(NOTHING.into(), of.show);
            cells.extend(FIGURES.iter().map(figure));
            cells.extend(FIGURES.iter().map(|of| {
                let ratio = to_system(outcome, series, of.key).filter(|_| at > 0);
                ratio.map_or(String::new(), |ratio| format!("{ratio:.2}×"))
            }));
            table::add(&mut table, series.contender.ours(), cells);
        }
    }
    table
}

/// The geometric means of what programs took, to the system's allocator.
pub fn means(outcomes: &[Outcome]) -> Table {
    let header = ["geometric mean, × sys", "CPU time", "peak memory", "after a rest"];
    let mut table = table::new(&header.map(String::from));
    for (name, is_ours, means) in all_means(outcomes) {
        let mut cells = vec![name];
        cells.extend(means.map(|mean| mean.map_or(NOTHING.into(), |mean| format!("{mean:.2}"))));
        table::add(&mut table, is_ours, cells);
    }
    table
}

/// The same as a document has it: a row for each program, with a cell for each figure, which has ratios to the system's allocator.
pub fn markdown(outcomes: &[Outcome], rest: Duration) -> String {
    let Some(first) = outcomes.first() else { return String::new() };
    let names: Vec<String> = first
        .series
        .iter()
        .skip(1)
        .map(|series| strong(&series.contender.name, series.contender.ours()))
        .collect();
    let mut text = String::from("| | sys: CPU time, peak memory, after a rest |");
    for figure in &FIGURES {
        let _ = write!(text, " {}: {} |", figure.what, names.join(", "));
    }
    let _ = write!(text, "\n|---|---|{}\n", "---|".repeat(FIGURES.len()));
    for outcome in outcomes {
        let on_system = outcome.series.first().map_or(String::new(), |system| {
            let shown = FIGURES.iter().filter_map(|of| Some((of.show)(median(system, of.key)?)));
            shown.collect::<Vec<_>>().join(", ")
        });
        let _ = write!(text, "| {} | {on_system} |", outcome.program.name);
        for of in &FIGURES {
            let ratios =
                outcome.series.iter().skip(1).map(|series| {
                    ratio(to_system(outcome, series, of.key), series.contender.ours())
                });
            let _ = write!(text, " {} |", ratios.collect::<Vec<_>>().join(", "));
        }
        text.push('\n');
    }
    let means = all_means(outcomes);
    text.push_str("| geometric mean | |");
    for at in 0..FIGURES.len() {
        let ratios = means.iter().map(|(_, is_ours, means)| ratio(means[at], *is_ours));
        let _ = write!(text, " {} |", ratios.collect::<Vec<_>>().join(", "));
    }
    let _ = write!(text, "\n\n{}\n", about(rest));
    text
}

/// A ratio in a document.
fn ratio(ratio: Option<f64>, is_ours: bool) -> String {
    ratio.map_or(NOTHING.into(), |ratio| strong(&format!("{ratio:.2}"), is_ours))
}

fn strong(text: &str, is_ours: bool) -> String {
    if is_ours { format!("**{text}**") } else { text.into() }
}

/// What the figures are.
pub fn about(rest: Duration) -> String {
    format!(
        "CPU time and peak memory of all processes of a program, also those that have ended; memory {} s after the end of the \
         work, where the program stays. Memory counts shared pages by their share. Medians; sys is the C library's allocator.",
        rest.as_secs()
    )
}

fn median(series: &Series, key: &str) -> Option<f64> {
    Some(Summary::of(&series.values(key))?.median)
}

/// A figure to that on the system's allocator, which comes first.
fn to_system(outcome: &Outcome, series: &Series, key: &str) -> Option<f64> {
    let base = median(outcome.series.first()?, key).filter(|base| *base > 0.0)?;
    Some(median(series, key)? / base)
}

/// Names of all but the system's allocator, whether each is ours, and its means.
fn all_means(outcomes: &[Outcome]) -> Vec<(String, bool, [Option<f64>; FIGURES.len()])> {
    let Some(first) = outcomes.first() else { return Vec::new() };
    let of = |at: usize, series: &Series| {
        let means = FIGURES.map(|of| {
            // Of programs that ran on all of them.
            let is_whole = |outcome: &&Outcome| {
                outcome.series.iter().all(|series| median(series, of.key).is_some())
            };
            let ratio = |outcome: &Outcome| to_system(outcome, outcome.series.get(at)?, of.key);
            let ratios: Vec<f64> = outcomes.iter().filter(is_whole).filter_map(ratio).collect();
            let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
            (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
        });
        (series.contender.name.clone(), series.contender.ours(), means)
    };
    first.series.iter().enumerate().skip(1).map(|(at, series)| of(at, series)).collect()
}
