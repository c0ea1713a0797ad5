//! Section 13.3: applications with their data in the heap, with failures out of consideration (Fig. 9) and
//! with all that they store consistent after any (Fig. 11).

use super::draw::{Ratio, beside, matrix};
use super::outcome::{Outcome, middle, threads};
use super::{Chosen, Part, who, worker};
use crate::suite::Bench;
use serde_json::Value;
use spandrel_console::plain::Plain;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::time;
use std::time::Duration;

/// What the worker calls them.
const APPS: [(&str, &str); 3] =
    [("barnes", "heap-barnes"), ("queens", "heap-queens"), ("cholesky", "heap-cholesky")];

const TIME: &str = "wall_ns";
/// Adds consistency after failures.
const CONSISTENT: &str = "--consistent";

/// Measures those that were chosen.
pub fn run(bench: &Bench, chosen: &Chosen, who: &[Contender], progress: &Progress) -> Part {
    let mut part = Part::default();
    let safe: Vec<Contender> =
        who.iter().filter(|c| c.ours() || who::is_pmemobj(c)).cloned().collect();
    for (is_consistent, who) in [(false, who), (true, &safe[..])] {
        for (name, suite) in APPS.into_iter().filter(|(name, _)| chosen.has(name)) {
            for number in chosen.sizes.app_threads {
                let mut words = chosen.words(suite, &chosen.given(name));
                words.extend(["--threads".into(), number.to_string()]);
                words.extend(is_consistent.then(|| CONSISTENT.to_string()));
                let outcome = one(bench, chosen, who, progress, (name, *number), words);
                part.outcomes.push(outcome);
            }
        }
    }
    part.tables = tables(&part.outcomes);
    part.wrong = wrong(&part.outcomes);
    part
}

impl Chosen {
    /// How large an application's work is.
    fn given(&self, name: &str) -> Vec<(&'static str, u64)> {
        let sizes = &self.sizes;
        match name {
            "barnes" => vec![("--bodies", sizes.bodies), ("--steps", sizes.steps)],
            "queens" => vec![("--board", sizes.board)],
            _ => vec![("--order", sizes.order)],
        }
    }
}

fn one(
    bench: &Bench,
    chosen: &Chosen,
    who: &[Contender],
    progress: &Progress,
    (name, number): (&'static str, u64),
    words: Vec<String>,
) -> Outcome {
    let patience = Duration::from_secs(chosen.sizes.patience);
    let suffix = if is_consistent(&words) { ", consistent" } else { "" };
    let of = threads(number) + suffix;
    let mut outcome = Outcome { name, of, number, words, series: Vec::new() };
    let (label, reserve) = (outcome.title(), chosen.sizes.reserve << 20);
    outcome.series = rounds::holding(reserve, who, bench.runs, progress, &label, |contender| {
        worker::on(&bench.worker, contender, &outcome.words, patience)
    });
    outcome
}

fn is_consistent(words: &[String]) -> bool {
    words.iter().any(|word| word == CONSISTENT)
}

/// Results that differ from the first result, of any contender and any number of threads: one of the two
/// is wrong.
fn wrong(outcomes: &[Outcome]) -> Vec<String> {
    let mut wrong: Vec<String> = outcomes.iter().filter_map(Outcome::broken).collect();
    for (name, _) in APPS {
        let of_name = || outcomes.iter().filter(|outcome| outcome.name == name);
        let all = || of_name().flat_map(|outcome| &outcome.series);
        let Some(first) = all().find(|series| !series.samples.is_empty()) else { continue };
        let expected = checksum(&first.samples[0]);
        for outcome in of_name() {
            let other = |sample: &Value| {
                let sum = checksum(sample);
                sum.is_none() || sum != expected
            };
            let differs = |series: &&Series| series.samples.iter().any(other);
            wrong.extend(outcome.series.iter().filter(differs).map(|series| {
                let who = &series.contender.name;
                let first = &first.contender.name;
                format!("{}: another result on {who} than on {first} at first", outcome.title())
            }));
        }
    }
    wrong
}

fn checksum(sample: &Value) -> Option<&str> {
    sample.get("checksum")?.as_str()
}

fn tables(outcomes: &[Outcome]) -> Vec<Plain> {
    let table = |title: &str, consistent: bool| {
        let chosen: Vec<&Outcome> =
            outcomes.iter().filter(|o| is_consistent(&o.words) == consistent).collect();
        let cell = |outcome: &Outcome, series: &Series| {
            let text = time(middle(series, TIME)?);
            let ratio = Ratio { key: TIME, is_inverse: false };
            Some(beside(text, series, outcome.series_of(who::PMEMOBJ), ratio))
        };
        let is_compared = chosen.iter().any(|outcome| outcome.series_of(who::PMEMOBJ).is_some());
        let ratio = if is_compared { ",\n× pmemobj" } else { "" };
        (!chosen.is_empty()).then(|| matrix(&format!("{title}{ratio}"), &chosen, cell))
    };
    let all = [table("Fig. 9: time", false), table("Fig. 11: time", true)];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{outcome, series};
    use super::*;
    use serde_json::json;

    fn apps(sum: &str, consistent_sum: &str) -> [Outcome; 2] {
        let sample = |ns: f64, sum: &str| vec![json!({TIME: ns, "checksum": sum})];
        let plain = vec![
            series("sys", sample(1e9, "73712")),
            series("pmemobj", sample(4e9, "73712")),
            series("spandrel", sample(1e9, sum)),
        ];
        let safe = vec![
            series("pmemobj", sample(8e9, "73712")),
            series("spandrel", sample(2e9, consistent_sum)),
        ];
        let mut all = [outcome("queens", 1, plain), outcome("queens", 1, safe)];
        all[1].words.push(CONSISTENT.into());
        all
    }

    #[test]
    fn both_figures_are_relative_to_libpmemobj() {
        let texts: Vec<String> = tables(&apps("73712", "73712")).iter().map(Plain::text).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("Fig. 9") && texts[0].contains("1.00 s 0.25×"), "{}", texts[0]);
        assert!(texts[1].contains("Fig. 11") && texts[1].contains("2.00 s 0.25×"), "{}", texts[1]);
        assert!(!texts[1].contains("sys"));
    }

    #[test]
    fn another_result_is_wrong() {
        assert!(wrong(&apps("73712", "73712")).is_empty());
        for wrong in [wrong(&apps("1", "73712")), wrong(&apps("73712", "1"))] {
            assert_eq!(wrong.len(), 1);
            assert!(wrong[0].contains("another result on spandrel than on sys"), "{wrong:?}");
        }
        let mut none = apps("73712", "73712");
        none[1].series[0].samples[0] = json!({TIME: 1.0});
        assert_eq!(wrong(&none).len(), 1);
    }
}
