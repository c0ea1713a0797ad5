//! Section 13.2, Table 2: a heap is filled, its process crashes, and the heap is recovered, with types
//! and without.

use super::disk;
use super::draw::or_nothing;
use super::outcome::{Outcome, middle};
use super::worker::{self, End};
use super::{Chosen, Part, list, who};
use crate::report::target::Verdict;
use crate::suite::Bench;
use serde_json::Value;
use spandrel_console::plain::Plain;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::reserve::Reserve;
use spandrel_measure::rounds;
use spandrel_report::numbers::digits;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "resur";

/// What is done in a round, one after the other.
const FILL: &str = "fill";
const TYPED: &str = "typed";
const CONSERVATIVE: &str = "conservative";

/// Opening and collecting together.
const RECOVERY: &str = "recovery_ns";

/// Target C3: the heap that it is about, in MiB.
const JUDGED_MIB: u64 = 1024;
const LIMITS: [(&str, f64); 2] = [(TYPED, 50.0), (CONSERVATIVE, 300.0)];

/// Measures all sizes that there is memory for.
pub fn run(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Part {
    let mut part = Part::default();
    if !chosen.has(NAME) {
        return part;
    }
    for mib in chosen.sizes.resur {
        if let Some(why) = disk::lack(chosen.memory(), needed_bytes(*mib)) {
            part.notes.push(format!("{NAME}, {mib} MiB: {why}"));
            continue;
        }
        let file = chosen.memory().join(format!("{mib}.heap"));
        let outcome = one(bench, chosen, progress, *mib, &file);
        part.verdicts.extend(judge(&outcome));
        part.wrong.extend(wrong(&outcome));
        part.outcomes.push(outcome);
    }
    part.tables.extend((!part.outcomes.is_empty()).then(|| table(&part.outcomes)));
    part
}

/// Half of what is allocated stays; what collects has room of its own, and so has whatever else runs.
fn needed_bytes(mib: u64) -> u64 {
    (mib << 20) + (mib << 18)
}

/// A size, from filling to both recoveries of the same file, in turns.
fn one(bench: &Bench, chosen: &Chosen, progress: &Progress, mib: u64, file: &Path) -> Outcome {
    let turns =
        [FILL, TYPED, CONSERVATIVE].map(|name| Contender { name: name.into(), ..who::heap() });
    let of = format!("{mib} MiB");
    let words = list::words("heap-resur", &[("--mib", mib)]);
    let mut outcome = Outcome { name: NAME, of, number: mib, words, series: Vec::new() };
    let patience = Duration::from_secs(chosen.sizes.patience);
    let label = outcome.title();
    // The memory of the last round's file.
    let hold = || Reserve::of(if chosen.sizes.reserve == 0 { 0 } else { mib << 20 });
    let mut reserve = Some(hold());
    outcome.series = rounds::turns(&turns, bench.runs, progress, &label, |turn| {
        let path = ["--path".to_string(), file.display().to_string()];
        if turn.name == FILL {
            drop(reserve.take());
            // There is one where the turn that was to remove it failed before, and is not taken any more.
            let _ = std::fs::remove_file(file);
            let words = [&outcome.words[..], &["--do".into(), FILL.into()], &path].concat();
            return worker::run(&bench.worker, turn, &words, End::Crash, patience);
        }
        if !file.exists() {
            return Err("there is nothing to recover".into());
        }
        let how = ["heap-resur", "--do", "recover", "--how", &turn.name].map(String::from);
        let words = [&how[..], &path].concat();
        let said = worker::run(&bench.worker, turn, &words, End::Normal, patience);
        if turn.name == CONSERVATIVE {
            let _ = std::fs::remove_file(file);
            reserve = Some(hold());
        }
        with_sum(said?)
    });
    let _ = std::fs::remove_file(file);
    outcome
}

/// Adds what opening and collecting take together.
fn with_sum(mut said: Value) -> Result<Value, String> {
    let number = |key: &str| said.get(key).and_then(Value::as_f64);
    let sum = number("open_ns").zip(number("collect_ns")).map(|(open, collect)| open + collect);
    let sum = sum.ok_or("it did not say how long it took")?;
    said.as_object_mut().ok_or("its output is not an object")?.insert(RECOVERY.into(), sum.into());
    Ok(said)
}

fn number(outcome: &Outcome, turn: &str, key: &str) -> Option<f64> {
    middle(outcome.series_of(turn)?, key)
}

fn judge(outcome: &Outcome) -> Vec<Verdict> {
    if outcome.number != JUDGED_MIB {
        return Vec::new();
    }
    let verdict = |(how, most): (&str, f64)| {
        let time = number(outcome, how, RECOVERY)? / 1e6;
        let what = format!("{}, {}: {how} recovery", who::HEAP, outcome.title());
        Some(Verdict::new("C3", what, time, most, " ms"))
    };
    LIMITS.into_iter().filter_map(verdict).collect()
}

/// What was lost, or could not be recovered.
fn wrong(outcome: &Outcome) -> Vec<String> {
    let title = outcome.title();
    let fails = |how: &&str| outcome.series_of(how).is_some_and(|s| s.failed.is_some());
    if fails(&FILL) {
        // What there is to be recovered then is unknown.
        return vec![format!("{title}: filling a heap fails")];
    }
    let mut wrong: Vec<String> = [TYPED, CONSERVATIVE]
        .iter()
        .filter(|how| fails(how))
        .map(|how| format!("{title}: {how} recovery fails"))
        .collect();
    // Both see at least the longest list, and without types at least what is seen with them.
    let [chain, typed, conservative] = [
        number(outcome, FILL, "chain"),
        number(outcome, TYPED, "live"),
        number(outcome, CONSERVATIVE, "live"),
    ];
    let is_less = |some: Option<f64>, than: Option<f64>| some.zip(than).is_some_and(|(a, b)| a < b);
    if is_less(typed, chain) || is_less(conservative, typed) {
        wrong.push(format!("{title}: objects are lost"));
    }
    wrong
}

/// Table 2 with the paper's columns, for both ways to recover.
fn table(outcomes: &[Outcome]) -> Plain {
    let header = [
        "Table 2: SZ\nMiB",
        "longest chain\n×10³",
        "T_ON\ns",
        "recovery",
        "T_REC\nms",
        "T_GC\nms",
        "OVER_off\n%",
        "live objects\n×10³",
    ];
    let rows = outcomes.iter().flat_map(|outcome| {
        let online = number(outcome, FILL, "online_ns");
        [TYPED, CONSERVATIVE].map(|how| {
            let of = |key: &str, unit: f64| {
                or_nothing(number(outcome, how, key), |number| digits(number / unit))
            };
            let overhead = number(outcome, how, RECOVERY).zip(online);
            let mut cells = match how {
                TYPED => vec![
                    outcome.number.to_string(),
                    or_nothing(number(outcome, FILL, "chain"), |chain| digits(chain / 1e3)),
                    or_nothing(online, |online| digits(online / 1e9)),
                ],
                _ => vec![String::new(); 3],
            };
            cells.extend([
                how.to_string(),
                of("open_ns", 1e6),
                of("collect_ns", 1e6),
                or_nothing(overhead.map(|(off, on)| off / on * 100.0), digits),
                of("live", 1e3),
            ]);
            (false, cells)
        })
    });
    Plain { header: header.map(String::from).to_vec(), rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::series;
    use super::*;
    use serde_json::json;

    fn recovered(typed_ns: f64, live: f64) -> Outcome {
        let recovery = |ns: f64, live: f64| {
            with_sum(json!({"open_ns": 1e6, "collect_ns": ns - 1e6, "live": live})).unwrap()
        };
        let filled = json!({"online_ns": 1e9, "chain": 3390.0});
        let series = vec![
            series(FILL, vec![filled]),
            series(TYPED, vec![recovery(typed_ns, live)]),
            series(CONSERVATIVE, vec![recovery(250e6, 100_000.0)]),
        ];
        let of = "1024 MiB".to_string();
        Outcome { name: NAME, of, number: JUDGED_MIB, words: Vec::new(), series }
    }

    #[test]
    fn opening_and_collecting_are_judged_together() {
        let met = |ns| judge(&recovered(ns, 1e5)).iter().map(|v| v.met).collect::<Vec<_>>();
        assert_eq!(met(50e6), [true, true]);
        assert_eq!(met(50.1e6), [false, true]);
        assert!(judge(&Outcome { number: 200, ..recovered(50e6, 1e5) }).is_empty());
    }

    #[test]
    fn the_papers_columns() {
        let text = table(&[recovered(50e6, 1e5)]).text();
        for part in ["1024", "3.39", "1.00", "typed", "49.0", "5.00", "conservative", "249", "25.0"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_lost_is_wrong() {
        assert!(wrong(&recovered(50e6, 1e5)).is_empty());
        assert_eq!(wrong(&recovered(50e6, 3000.0)).len(), 1);
        assert_eq!(wrong(&recovered(50e6, 2e5)).len(), 1);
        let mut failing = recovered(50e6, 1e5);
        failing.series[1].failed = Some("signal".into());
        assert!(wrong(&failing)[0].contains("typed recovery fails"));
        failing.series[0].failed = Some("signal".into());
        assert_eq!(wrong(&failing), ["resur, 1024 MiB: filling a heap fails"]);
    }
}
