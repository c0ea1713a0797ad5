//! Tables: a row for each job, a column for each contender.

use super::outcome::{Outcome, middle};
use spandrel_console::plain::Plain;
use spandrel_console::terminal::table;
use spandrel_measure::rounds::Series;

/// Names of all contenders, in their order.
pub fn names(outcomes: &[&Outcome]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for series in outcomes.iter().flat_map(|outcome| &outcome.series) {
        if !names.contains(&series.contender.name) {
            names.push(series.contender.name.clone());
        }
    }
    names
}

/// A cell for each job and each contender.
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

/// A text, and how many times another contender's number this one is; the one that is compared with needs no ratio.
pub fn beside(text: String, own: &Series, base: Option<&Series>, ratio: Ratio) -> String {
    let base = base.filter(|base| base.contender.name != own.contender.name);
    let ratio = base.and_then(|base| {
        let (own, base) = (middle(own, ratio.key)?, middle(base, ratio.key)?);
        Some(if ratio.is_inverse { base / own } else { own / base })
    });
    match ratio {
        // Two digits would make nothing of a hundredth.
        Some(ratio) if ratio < 0.0995 => format!("{text} {ratio:.3}×"),
        Some(ratio) => format!("{text} {ratio:.2}×"),
        None => text,
    }
}

/// A ratio of numbers of this name, or, where less of it is more, its inverse.
#[derive(Clone, Copy)]
pub struct Ratio {
    pub key: &'static str,
    pub is_inverse: bool,
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{outcome, series};
    use super::*;
    use serde_json::json;

    #[test]
    fn ratios_stand_beside_what_they_are_of() {
        let of = |name: &str, ns: f64| series(name, vec![json!({"ns": ns})]);
        let all = outcome("larson", 1, vec![of("jemalloc", 10.0), of("pmemobj", 1000.0)]);
        let cell = |series: &Series, is_inverse| {
            let ratio = Ratio { key: "ns", is_inverse };
            beside("x".into(), series, all.jemalloc(), ratio)
        };
        assert_eq!(cell(&all.series[0], false), "x");
        assert_eq!(cell(&all.series[1], false), "x 100.00×");
        assert_eq!(cell(&all.series[1], true), "x 0.010×");
        let nobody = outcome("larson", 1, Vec::new());
        let text = matrix("title", &[&all, &nobody], |_, _| None).text();
        assert!(text.contains(table::NOTHING) && text.contains("larson, 1 thread"), "{text}");
    }
}
