//! What the heap waits for: when blocks are taken, when it is opened and closed, and at a checkpoint on
//! an ordinary file.

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
use spandrel_measure::rounds;
use spandrel_report::numbers::{count, digits, middle_between, time};
use std::time::Duration;

const BLOCKS: &str = "blocks";
const OPEN: &str = "open";
const CHECKPOINT: &str = "checkpoint";

/// Target C2: key, what it is, and how much of it is allowed.
const WAITS: [(&str, &str, f64); 4] = [
    ("flushes_per_fresh_block", "flushes per fresh block", 1.0),
    ("fences_per_fresh_block", "fences per fresh block", 1.0),
    ("flushes_of_refills", "flushes of all refills", 0.0),
    ("fences_of_refills", "fences of all refills", 0.0),
];
/// Target C4.
const TIMES: [(&str, &str); 2] = [("open_ns", "open"), ("close_ns", "close")];
const TIME_MS: f64 = 5.0;
/// Target C5, and the key of the ratio.
const TO_PLAIN: f64 = 3.0;
const RATIO: &str = "to_plain";

/// Flushes and fences of fresh blocks, and of refills.
pub fn blocks(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Part {
    let mut part = Part::default();
    if chosen.has(BLOCKS) {
        let words = chosen.words("heap-blocks", &[]);
        let outcome = one(bench, chosen, progress, (BLOCKS, String::new(), 0), words, 0);
        part.verdicts = judge_blocks(&outcome);
        if number(&outcome, "refills") == Some(0.0) {
            part.wrong.push(format!("{BLOCKS}: no cache was ever filled from a used block"));
        }
        part.tables.push(blocks_table(&outcome));
        part.wrong.extend(outcome.broken());
        part.outcomes.push(outcome);
    }
    part
}

/// Opening, closing, and checkpoints.
pub fn times(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Part {
    let mut part = Part::default();
    if chosen.has(OPEN) {
        for mib in chosen.sizes.open {
            if let Some(why) = disk::lack(chosen.memory(), (mib + mib / 4) << 20) {
                part.notes.push(format!("{OPEN}, {mib} MiB: {why}"));
                continue;
            }
            let words = chosen.words("heap-open", &[("--mib", *mib)]);
            let named = (OPEN, format!("{mib} MiB"), *mib);
            let reserve = if chosen.sizes.reserve == 0 { 0 } else { *mib };
            let outcome = one(bench, chosen, progress, named, words, reserve);
            part.verdicts.extend(judge_times(&outcome));
            part.outcomes.push(outcome);
        }
    }
    if chosen.has(CHECKPOINT) {
        match disk::find().map(|place| disk::directory_in(&place).map(|own| (place, own))) {
            Some(Ok((place, directory))) => {
                let (pages, rounds) = (chosen.sizes.pages, chosen.sizes.checkpoints);
                let given = [("--pages", pages), ("--rounds", rounds)];
                let mut words = list::words("heap-checkpoint", &given);
                words.extend(["--directory".into(), directory.path().display().to_string()]);
                let named = (CHECKPOINT, format!("{} pages", count(pages)), pages);
                let outcome = one(bench, chosen, progress, named, words, 0);
                part.verdicts.extend(judge_checkpoint(&outcome));
                part.notes.push(format!(
                    "{CHECKPOINT}: in '{}'; a plain file is given the same bytes and one fdatasync",
                    place.display()
                ));
                part.outcomes.push(outcome);
            }
            Some(Err(why)) => part.notes.push(format!("without {CHECKPOINT}: {why}")),
            None => part.notes.push(format!(
                "without {CHECKPOINT}: neither TMPDIR nor /var/tmp nor this directory is on an \
                 ordinary file system; name one in TMPDIR"
            )),
        }
    }
    part.wrong = part.outcomes.iter().filter_map(Outcome::broken).collect();
    part.tables.extend((!part.outcomes.is_empty()).then(|| times_table(&part.outcomes)));
    part
}

/// A job of the heap alone.
fn one(
    bench: &Bench,
    chosen: &Chosen,
    progress: &Progress,
    (name, of, number): (&'static str, String, u64),
    words: Vec<String>,
    reserve_mib: u64,
) -> Outcome {
    let patience = Duration::from_secs(chosen.sizes.patience);
    let mut outcome = Outcome { name, of, number, words, series: Vec::new() };
    let (label, reserve) = (outcome.title(), reserve_mib << 20);
    let heap = [who::heap()];
    outcome.series = rounds::holding(reserve, &heap, bench.runs, progress, &label, |heap| {
        let said = worker::run(&bench.worker, heap, &outcome.words, End::Normal, patience)?;
        if name == CHECKPOINT { with_ratio(said) } else { Ok(said) }
    });
    outcome
}

/// Adds the ratio to a plain file.
fn with_ratio(mut said: Value) -> Result<Value, String> {
    let number = |key: &str| said.get(key).and_then(Value::as_f64);
    let plain = number("plain_ns").filter(|plain| *plain > 0.0);
    let ratio = number("checkpoint_ns").zip(plain).map(|(checkpoint, plain)| checkpoint / plain);
    let ratio = ratio.ok_or("it did not say how long it took")?;
    said.as_object_mut().ok_or("its output is not an object")?.insert(RATIO.into(), ratio.into());
    Ok(said)
}

fn number(outcome: &Outcome, key: &str) -> Option<f64> {
    middle(outcome.heap()?, key)
}

fn judge_blocks(outcome: &Outcome) -> Vec<Verdict> {
    let verdict = |(key, what, most): (&str, &str, f64)| {
        let what = format!("{}, {BLOCKS}: {what}", who::HEAP);
        Some(Verdict::new("C2", what, number(outcome, key)?, most, ""))
    };
    WAITS.into_iter().filter_map(verdict).collect()
}

fn judge_times(outcome: &Outcome) -> Vec<Verdict> {
    let verdict = |(key, what): (&str, &str)| {
        let what = format!("{}, {}: {what}", who::HEAP, outcome.of);
        Some(Verdict::new("C4", what, number(outcome, key)? / 1e6, TIME_MS, " ms"))
    };
    TIMES.into_iter().filter_map(verdict).collect()
}

fn judge_checkpoint(outcome: &Outcome) -> Option<Verdict> {
    let what = format!("{}, {}: a plain file", who::HEAP, outcome.title());
    let mut verdict = Verdict::new("C5", what, number(outcome, RATIO)?, TO_PLAIN, "×");
    verdict.between = middle_between(&outcome.heap()?.values(RATIO));
    Some(verdict)
}

fn blocks_table(outcome: &Outcome) -> Plain {
    let header = ["blocks", "number", "flushes of each", "fences of each"];
    let whole = |key: &str| or_nothing(number(outcome, key), |value| count(value as u64));
    let each = |key: &str| or_nothing(number(outcome, key), digits);
    let of_refill = |key: &str| {
        let refills = number(outcome, "refills").filter(|refills| *refills > 0.0);
        or_nothing(number(outcome, key).zip(refills).map(|(all, refills)| all / refills), digits)
    };
    let row = |name: &str, cells: [String; 3]| {
        (false, std::iter::once(name.to_string()).chain(cells).collect())
    };
    let rows = vec![
        row(
            "taken fresh",
            [
                whole("fresh_blocks"),
                each("flushes_per_fresh_block"),
                each("fences_per_fresh_block"),
            ],
        ),
        row(
            "refills from used ones",
            [whole("refills"), of_refill("flushes_of_refills"), of_refill("fences_of_refills")],
        ),
    ];
    Plain { header: header.map(String::from).to_vec(), rows }
}

fn times_table(outcomes: &[Outcome]) -> Plain {
    let header = [
        "opening and checkpoints",
        "open",
        "close",
        "close unused",
        "checkpoint",
        "plain file",
        "×",
    ];
    let rows = outcomes.iter().map(|outcome| {
        let shown = |key: &str| match outcome.name {
            OPEN if !TIMES.iter().any(|(known, _)| *known == key) && key != "close_unused_ns" => {
                String::new()
            }
            CHECKPOINT if !["checkpoint_ns", "plain_ns"].contains(&key) => String::new(),
            _ => or_nothing(number(outcome, key), time),
        };
        let keys = ["open_ns", "close_ns", "close_unused_ns", "checkpoint_ns", "plain_ns"];
        let ratio = match outcome.name {
            CHECKPOINT => or_nothing(number(outcome, RATIO), |ratio| format!("{ratio:.2}")),
            _ => String::new(),
        };
        let cells = std::iter::once(outcome.title()).chain(keys.map(shown)).chain([ratio]);
        (false, cells.collect())
    });
    Plain { header: header.map(String::from).to_vec(), rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{outcome, series};
    use super::*;
    use serde_json::json;

    fn of(name: &'static str, sample: Value) -> Outcome {
        outcome(name, 1, vec![series(who::HEAP, vec![sample])])
    }

    #[test]
    fn one_wait_for_a_fresh_block_and_none_for_a_refill() {
        let blocks = |flushes: f64, refills: f64| {
            of(
                BLOCKS,
                json!({"flushes_per_fresh_block": flushes, "fences_per_fresh_block": 1.0,
                       "refills": 10, "flushes_of_refills": refills, "fences_of_refills": 0}),
            )
        };
        let met = |outcome| judge_blocks(&outcome).iter().map(|v| v.met).collect::<Vec<_>>();
        assert_eq!(met(blocks(1.0, 0.0)), [true; 4]);
        assert_eq!(met(blocks(1.1, 1.0)), [false, true, false, true]);
        let text = blocks_table(&blocks(1.0, 5.0)).text();
        assert!(text.contains("0.50") && text.contains("taken fresh"), "{text}");
    }

    #[test]
    fn five_milliseconds_and_three_times() {
        let times = of(OPEN, json!({"open_ns": 5e6, "close_ns": 5.1e6, "close_unused_ns": 9e6}));
        assert_eq!(judge_times(&times).iter().map(|v| v.met).collect::<Vec<_>>(), [true, false]);
        let checkpoint = |ns: f64| {
            of(CHECKPOINT, with_ratio(json!({"checkpoint_ns": ns, "plain_ns": 1e6})).unwrap())
        };
        assert!(judge_checkpoint(&checkpoint(3e6)).unwrap().met);
        assert!(!judge_checkpoint(&checkpoint(3.1e6)).unwrap().met);
        assert!(with_ratio(json!({"checkpoint_ns": 1, "plain_ns": 0})).is_err());
        let text = times_table(&[times, checkpoint(3e6)]).text();
        assert!(text.contains("5.10 ms") && text.contains("3.00"), "{text}");
    }
}
