//! Tables: a row for each job, a column for everybody who is compared.

use super::outcome::{Outcome, middle};
use crate::bench::measure::Series;
use crate::bench::plain::Plain;
use crate::bench::table;

/// Names of all who are compared, in their order.
pub fn names(outcomes: &[&Outcome]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for series in outcomes.iter().flat_map(|outcome| &outcome.series) {
        if !names.contains(&series.contender.name) {
            names.push(series.contender.name.clone());
        }
    }
    names
}

/// A cell for each job and each of those who are compared.
pub fn matrix(
    title: &str,
    outcomes: &[&Outcome],
    cell: impl Fn(&Outcome, &Series) -> Option<String>,
) -> Plain {
    let names = names(outcomes);
    let mut header = vec![title.to_string()];
    header.extend(names.iter().cloned());
    let rows = outcomes.iter().map(|outcome| {
        let cell = |name: &String| {
            let series = outcome.series_of(name);
            series.and_then(|series| cell(outcome, series)).unwrap_or(table::NOTHING.into())
        };
        (false, std::iter::once(outcome.title()).chain(names.iter().map(cell)).collect())
    });
    Plain { header, rows: rows.collect() }
}

/// A number, or that there is none.
pub fn or_nothing(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or(table::NOTHING.into(), text)
}

/// A text and the ratio of times to somebody else, whose own needs none.
pub fn with_ratio(text: String, series: &Series, base: Option<&Series>, key: &str) -> String {
    let ratio = base
        .filter(|base| base.contender.name != series.contender.name)
        .and_then(|base| Some(middle(series, key)? / middle(base, key)?));
    match ratio {
        Some(ratio) => format!("{text} {ratio:.2}×"),
        None => text,
    }
}
