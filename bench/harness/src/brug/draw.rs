//! The figures as tables: for a terminal, and as Markdown for a document.

use super::outcome::{CPU, Outcome, PEAK, behind};
use super::workers::{STILL, TRAINED, both_ways};
use spandrel_console::plain::Plain;
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, Role};
use spandrel_report::numbers::{bytes, time};

/// Workloads beside each other in a table of a terminal's width.
const COLUMNS: usize = 5;

fn ratio(value: Option<f64>) -> String {
    value.map_or(table::NOTHING.into(), |value| format!("{value:.2}"))
}

/// The names of all allocators, of those too that some outcome lacks.
pub fn names(outcomes: &[Outcome]) -> Vec<(String, bool)> {
    let mut names: Vec<(String, bool)> = Vec::new();
    for outcome in outcomes {
        let mut at = 0;
        for Contender { name, role, .. } in outcome.series.iter().map(|s| &s.contender) {
            match names.iter().position(|(known, _)| known == name) {
                Some(known) => at = known + 1,
                None => {
                    names.insert(at, (name.clone(), *role == Role::Ours));
                    at += 1;
                }
            }
        }
    }
    names
}

/// A number of all workloads on all allocators, relative to the system's, which is shown itself.
fn matrix(
    title: &str,
    part: &[Outcome],
    all: &[Outcome],
    key: &str,
    text: fn(f64) -> String,
) -> Plain {
    let mut header = vec![title.to_string()];
    header.extend(part.iter().map(|outcome| {
        let figure = outcome.workload.figure;
        format!("{}\n{figure}", outcome.workload.name).trim_end().to_string()
    }));
    let rows = names(all).into_iter().map(|(name, ours)| {
        let cell = |outcome: &Outcome| match name.as_str() {
            "sys" => outcome.median("sys", key).map_or(table::NOTHING.into(), text),
            _ => ratio(outcome.to_system(&name, key)),
        };
        let cells = std::iter::once(name.clone()).chain(part.iter().map(cell));
        (ours, cells.collect())
    });
    Plain { header, rows: rows.collect() }
}

/// The paper's Table III, of all workloads.
fn best_auto_worst(outcomes: &[Outcome]) -> Plain {
    let mut header = vec![
        "Table III",
        "best fixed mode",
        "auto",
        "× best",
        "worst fixed mode",
        "× best",
        "static",
    ];
    let is_trained = outcomes.iter().any(|outcome| outcome.of(TRAINED).is_some());
    header.extend(is_trained.then_some("trained"));
    let rows = outcomes.iter().map(|outcome| {
        let best = outcome.best();
        let to_best = |value: Option<f64>| ratio(value.zip(best).map(|(v, (_, b))| v / b));
        let mode = |of: Option<(&str, f64)>| {
            of.map_or(table::NOTHING.into(), |(name, value)| {
                let name = name.strip_prefix("spandrel ").unwrap_or(name);
                format!("{} {name}", time(value))
            })
        };
        let mut cells = vec![
            outcome.workload.name.to_string(),
            mode(best),
            outcome.auto().map_or(table::NOTHING.into(), time),
            to_best(outcome.auto()),
            mode(outcome.worst()),
            to_best(outcome.worst().map(|(_, value)| value)),
            to_best(outcome.median(STILL, CPU)),
        ];
        cells.extend(is_trained.then(|| to_best(outcome.median(TRAINED, CPU))));
        (false, cells)
    });
    Plain { header: header.into_iter().map(String::from).collect(), rows: rows.collect() }
}

/// Allocators behind Spandrel beside the same by themselves.
fn overhead(outcomes: &[Outcome]) -> Plain {
    let mut header = vec!["behind Spandrel, × by itself".to_string()];
    header.extend(both_ways().map(|(direct, _)| direct.to_string()));
    let mut rows: Vec<(bool, Vec<String>)> = outcomes
        .iter()
        .map(|outcome| {
            let of = |(direct, name): (&str, String)| {
                ratio(
                    outcome.median(&name, CPU).zip(outcome.median(direct, CPU)).map(|(a, b)| a / b),
                )
            };
            let cells = std::iter::once(outcome.workload.name.to_string());
            (false, cells.chain(both_ways().map(of)).collect())
        })
        .collect();
    let means = both_ways().map(|(direct, name)| ratio(behind(outcomes, direct, &name)));
    rows.push((true, std::iter::once("geometric mean".to_string()).chain(means).collect()));
    Plain { header, rows }
}

/// All tables; the first two in as many parts as fit beside each other.
pub fn tables(outcomes: &[Outcome]) -> Vec<Plain> {
    if outcomes.is_empty() {
        return Vec::new();
    }
    let parts = || outcomes.chunks(COLUMNS);
    let mut tables: Vec<Plain> =
        parts().map(|part| matrix("CPU time, × sys", part, outcomes, CPU, time)).collect();
    tables.extend(parts().map(|part| matrix("peak memory, × sys", part, outcomes, PEAK, bytes)));
    tables.push(best_auto_worst(outcomes));
    tables.push(overhead(outcomes));
    tables
}
