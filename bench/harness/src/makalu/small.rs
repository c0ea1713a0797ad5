//! Section 13.1: benchmarks of small objects, and a pair by itself.

use super::draw::{Ratio, beside, matrix, or_nothing};
use super::outcome::{Outcome, middle, threads};
use super::{Chosen, Part, who, worker};
use crate::report::target::Verdict;
use crate::suite::Bench;
use serde_json::Value;
use spandrel_console::plain::Plain;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::contender::Contender;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{Summary, bytes, count, digits, range};
use std::time::Duration;

/// Benchmarks that go on for a given time: what the worker calls them, and threads.
const TIMED: [(&str, &str, &[u64]); 4] = [
    ("larson", "heap-larson", &[1, 2, 4]),
    ("threadtest", "heap-threadtest", &[1, 2, 4]),
    ("prod-con", "heap-prodcon", &[2, 4]),
    ("sh6bench", "heap-sh6bench", &[1, 2]),
];
/// An allocation and a free at once.
const PAIR: &str = "pair";

/// What is compared: elapsed time per pair of allocation and free.
const TIME: &str = "ns_per_operation";
const PAIR_TIME: &str = "ns_per_pair";

/// Target C1.
const TO_JEMALLOC: f64 = 1.0;
const PAIR_NS: f64 = 10.0;

/// Whether it is one of the benchmarks that go on for a given time.
pub fn is_timed(outcome: &Outcome) -> bool {
    outcome.name != PAIR
}

/// Measures them.
pub fn run(bench: &Bench, chosen: &Chosen, who: &[Contender], progress: &Progress) -> Part {
    let mut outcomes = Vec::new();
    for (name, suite, numbers) in TIMED.into_iter().filter(|(name, ..)| chosen.has(name)) {
        for number in numbers {
            let given = [("--threads", *number), ("--millis", chosen.sizes.millis)];
            let of = threads(*number);
            outcomes.push(one(bench, chosen, who, progress, (name, of, *number), suite, &given));
        }
    }
    if chosen.has(PAIR) {
        let given = [("--pairs", chosen.sizes.pairs)];
        let named = (PAIR, String::new(), 1);
        outcomes.push(one(bench, chosen, who, progress, named, "heap-pair", &given));
    }
    let mut part = Part { tables: tables(&outcomes), ..Part::default() };
    part.verdicts = outcomes.iter().flat_map(judge).collect();
    part.wrong = outcomes.iter().filter_map(Outcome::broken).collect();
    if outcomes.iter().any(|outcome| is_timed(outcome) && outcome.jemalloc().is_none()) {
        part.notes.push("without jemalloc there are no times to compare with".into());
    }
    part.outcomes = outcomes;
    part
}

fn one(
    bench: &Bench,
    chosen: &Chosen,
    who: &[Contender],
    progress: &Progress,
    (name, of, number): (&'static str, String, u64),
    suite: &str,
    given: &[(&str, u64)],
) -> Outcome {
    let words = chosen.words(suite, given);
    let patience = Duration::from_secs(chosen.sizes.patience);
    let mut outcome = Outcome { name, of, number, words, series: Vec::new() };
    let (label, reserve) = (outcome.title(), chosen.sizes.reserve << 20);
    outcome.series = rounds::holding(reserve, who, bench.runs, progress, &label, |contender| {
        let said = worker::on(&bench.worker, contender, &outcome.words, patience)?;
        if name == PAIR { Ok(said) } else { with_time(said) }
    });
    outcome
}

/// Adds the time per pair of allocation and free.
fn with_time(mut said: Value) -> Result<Value, String> {
    let number = |key: &str| said.get(key).and_then(Value::as_f64);
    let operations = number("operations").filter(|operations| *operations > 0.0);
    let time = number("wall_ns").zip(operations).map(|(wall, operations)| wall / operations);
    let time = time.ok_or("it did nothing in its time")?;
    let members = said.as_object_mut().ok_or("its output is not an object")?;
    members.insert(TIME.into(), time.into());
    Ok(said)
}

/// Million pairs of allocation and free per second.
pub fn rate(series: &Series) -> Option<f64> {
    middle(series, TIME).map(|time| 1e3 / time)
}

fn judge(outcome: &Outcome) -> Option<Verdict> {
    if is_timed(outcome) {
        return outcome.judge("C1", outcome.jemalloc()?, TIME, TO_JEMALLOC);
    }
    let time = middle(outcome.heap()?, PAIR_TIME)?;
    let what = format!("{}: allocation and free of 64 B", who::HEAP);
    Some(Verdict::new("C1", what, time, PAIR_NS, " ns"))
}

fn tables(outcomes: &[Outcome]) -> Vec<Plain> {
    let timed: Vec<&Outcome> = outcomes.iter().filter(|outcome| is_timed(outcome)).collect();
    let mut tables = Vec::new();
    if !timed.is_empty() {
        let is_compared = timed.iter().any(|outcome| outcome.jemalloc().is_some());
        let ratio = if is_compared { ",\nrate × jemalloc" } else { "" };
        tables.push(matrix(&format!("Fig. 7: million/s{ratio}"), &timed, |outcome, series| {
            let rate = digits(rate(series)?);
            let ratio = Ratio { key: TIME, is_inverse: true };
            Some(beside(rate, series, outcome.jemalloc(), ratio))
        }));
        tables.push(waits(&timed));
        tables.push(matrix("Fig. 10: peak memory", &timed, |_, series| {
            middle(series, "peak_rss").map(bytes)
        }));
    }
    tables.extend(outcomes.iter().find(|outcome| !is_timed(outcome)).map(pair));
    tables
}

/// What the heap waits for.
fn waits(outcomes: &[&Outcome]) -> Plain {
    let header = [
        "Fig. 8: spandrel waits",
        "flushes\nper thread",
        "fences\nper thread",
        "flushes per\nmillion",
        "fences per\nmillion",
        "fresh\nblocks",
        "lazy\nflushes",
    ];
    let rows = outcomes.iter().map(|outcome| {
        let heap = outcome.heap();
        let number = |key: &str| middle(heap?, key);
        let per = |key: &str, of: Option<f64>| {
            or_nothing(number(key).zip(of).map(|(number, of)| number / of), digits)
        };
        let threads = Some(outcome.number as f64);
        let millions = number("operations").map(|operations| operations / 1e6);
        let whole = |key: &str| or_nothing(number(key), |number| count(number as u64));
        let cells = vec![
            outcome.title(),
            per("flushes", threads),
            per("fences", threads),
            per("flushes", millions),
            per("fences", millions),
            whole("fresh_blocks"),
            whole("lazy_flushes"),
        ];
        (false, cells)
    });
    Plain { header: header.map(String::from).to_vec(), rows: rows.collect() }
}

fn pair(outcome: &Outcome) -> Plain {
    let header = ["pair of 64 B", "per pair", "from – to", "× jemalloc"];
    let base = outcome.jemalloc().and_then(|series| middle(series, PAIR_TIME));
    let rows = outcome.series.iter().map(|series| {
        let summary = Summary::of(&series.values(PAIR_TIME));
        let time = middle(series, PAIR_TIME);
        let cells = vec![
            series.contender.name.clone(),
            or_nothing(time, |time| format!("{time:.2} ns")),
            summary.map_or(table::NOTHING.into(), |s| range(s.min, s.max)),
            or_nothing(time.zip(base).map(|(time, base)| time / base), |r| format!("{r:.2}")),
        ];
        (series.contender.ours(), cells)
    });
    Plain { header: header.map(String::from).to_vec(), rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{outcome, series};
    use super::*;
    use serde_json::json;

    fn timed(ours: f64) -> Outcome {
        let sample = |ns: f64| {
            let said = json!({"operations": 2e6, "wall_ns": 2e6 * ns, "flushes": 400,
                              "fences": 200, "fresh_blocks": 200, "peak_rss": 1 << 20});
            vec![with_time(said).unwrap()]
        };
        let all = [("sys", 20.0), ("jemalloc", 10.0), ("spandrel", ours)];
        outcome("larson", 2, all.into_iter().map(|(name, ns)| series(name, sample(ns))).collect())
    }

    #[test]
    fn no_slower_than_jemalloc() {
        let judged = |ours| judge(&timed(ours)).unwrap();
        assert!(judged(10.0).met && judged(5.0).met && !judged(10.2).met);
        assert_eq!(judged(10.0).target, "C1");
        let mut alone = timed(5.0);
        alone.series.retain(|series| !who::is_jemalloc(&series.contender));
        assert!(judge(&alone).is_none());
    }

    #[test]
    fn a_pair_has_a_time_of_its_own() {
        let pair = |ns: f64| {
            let mut pair = outcome(PAIR, 1, vec![series("spandrel", vec![json!({PAIR_TIME: ns})])]);
            pair.of.clear();
            judge(&pair).unwrap()
        };
        assert!(pair(4.2).met && pair(10.0).met && !pair(10.1).met);
    }

    #[test]
    fn figures_as_tables() {
        let outcomes = [timed(5.0)];
        let texts: Vec<String> = tables(&outcomes).iter().map(Plain::text).collect();
        assert_eq!(texts.len(), 3);
        for part in ["larson, 2 threads", "50.0 0.50×", "100", "200 2.00×"] {
            assert!(texts[0].contains(part), "{part}: {}", texts[0]);
        }
        // 400 flushes of two threads and two million operations.
        assert!(texts[1].contains("200") && texts[1].contains("100"), "{}", texts[1]);
        assert!(texts[2].contains("1.00 MiB"));
    }

    #[test]
    fn who_does_nothing_has_no_time() {
        assert!(with_time(json!({"operations": 0, "wall_ns": 5})).is_err());
    }
}
