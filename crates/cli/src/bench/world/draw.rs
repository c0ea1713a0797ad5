//! The tables.

use super::Outcome;
use crate::bench::measure::Series;
use crate::terminal::table::{self, NOTHING, Table};
use spandrel_report::numbers::{Summary, bytes, time};
use std::fmt::Write;
use std::time::Duration;

/// The figures, and how each is shown.
const FIGURES: [(&str, &str, fn(f64) -> String); 3] = [
    ("cpu_ns", "CPU time", time),
    ("peak_rss", "peak memory", bytes),
    ("rested_rss", "after a rest", bytes),
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
            cells.extend(
                FIGURES
                    .iter()
                    .map(|(key, _, show)| median(series, key).map_or(NOTHING.into(), show)),
            );
            cells.extend(FIGURES.iter().map(|(key, ..)| {
                let ratio = to_system(outcome, series, key).filter(|_| at > 0);
                ratio.map_or(String::new(), |ratio| format!("{ratio:.2}×"))
            }));
            table::add(&mut table, series.contender.ours(), cells);
        }
    }
    table
}

/// The geometric means of what all programs took, to the system's allocator.
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

/// The same as a document has it: a row for each program, ratios to the system's allocator.
pub fn markdown(outcomes: &[Outcome], rest: Duration) -> String {
    let Some(first) = outcomes.first() else { return String::new() };
    let names: Vec<&str> =
        first.series.iter().skip(1).map(|series| series.contender.name.as_str()).collect();
    let mut text = String::from("| | |");
    for (_, what, _) in FIGURES {
        for name in &names {
            let _ = write!(text, " {what}, {name} |");
        }
    }
    let _ = write!(text, "\n|---|---|{}\n", "---|".repeat(names.len() * FIGURES.len()));
    for outcome in outcomes {
        let system = outcome.series.first();
        let on_system = FIGURES.map(|(key, _, show)| {
            system.and_then(|series| median(series, key)).map_or(NOTHING.into(), show)
        });
        let _ = write!(text, "| {} | {} |", outcome.program.name, on_system.join(", "));
        for (key, ..) in FIGURES {
            for series in outcome.series.iter().skip(1) {
                let ratio = to_system(outcome, series, key);
                let _ = match ratio {
                    Some(ratio) => write!(text, " {ratio:.2} |"),
                    None => write!(text, " |"),
                };
            }
        }
        text.push('\n');
    }
    let means = all_means(outcomes);
    text.push_str("| **geometric mean** | |");
    for at in 0..FIGURES.len() {
        for (_, _, means) in &means {
            let _ = match means[at] {
                Some(mean) => write!(text, " **{mean:.2}** |"),
                None => write!(text, " |"),
            };
        }
    }
    let _ = write!(text, "\n\n{}\n", about(rest));
    text
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
        let means = FIGURES.map(|(key, ..)| {
            let ratios: Vec<f64> = outcomes
                .iter()
                .filter_map(|outcome| to_system(outcome, outcome.series.get(at)?, key))
                .collect();
            let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
            (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
        });
        (series.contender.name.clone(), series.contender.ours(), means)
    };
    first.series.iter().enumerate().skip(1).map(|(at, series)| of(at, series)).collect()
}
