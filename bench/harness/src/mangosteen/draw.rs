//! Tables and verdicts.

use super::list::Case;
use super::stores::{CAPTURES, MEMORY, PLAIN, STATE};
use crate::report::target::Verdict;
use serde_json::{Value, json};
use spandrel_console::plain::Plain;
use spandrel_console::terminal::table;
use spandrel_measure::contender::Contender;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, digits, median, middle_between, time};

/// One case on all stores.
pub struct Outcome {
    pub case: Case,
    /// `tmpfs` or `disk`.
    pub medium: &'static str,
    /// One per store.
    pub series: Vec<Series>,
}

/// Where files lie that lose nothing but at the end of the machine's power.
pub const TMPFS: &str = "tmpfs";
/// An ordinary file system.
pub const DISK: &str = "disk";

/// The median of a number; nothing if it ever failed.
pub fn middle(series: &Series, key: &str) -> Option<f64> {
    if series.failed.is_some() { None } else { median(&series.values(key)) }
}

/// Time per request, as a multiple of another's, against the most that it may be.
pub fn judge_times(
    (target, what): (&str, String),
    ours: &Series,
    others: &Series,
    most: f64,
) -> Option<Verdict> {
    let ratio = middle(others, "rate")? / middle(ours, "rate")?;
    let mut verdict = Verdict::new(target, what, ratio, most, "×");
    let pairs = ours.values("rate").into_iter().zip(others.values("rate"));
    verdict.between = middle_between(&pairs.map(|(one, two)| two / one).collect::<Vec<_>>());
    Some(verdict)
}

impl Outcome {
    fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.contender.name == name)
    }

    fn title(&self) -> String {
        format!("{}, {}", self.case.name, self.medium)
    }

    /// Time per request of one of our stores, as a multiple of another store's.
    fn judge(&self, ours: &str, target: &str, other: &str, most: f64) -> Option<Verdict> {
        let of = if ours == STATE { String::new() } else { format!("{ours}, ") };
        let what = format!("{of}time of {}: {other}", self.title());
        judge_times((target, what), self.of(ours)?, self.of(other)?, most)
    }

    /// What is promised of it.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let (case, is_disk) = (&self.case, self.medium == DISK);
        let is_fill = case.part == "fill" && !case.name.starts_with("read");
        let mut all = Vec::new();
        let mut judge = |target: &str, other: &str, most: f64| {
            all.extend([STATE, PLAIN].map(|ours| self.judge(ours, target, other, most)));
        };
        if is_fill && case.value <= 100 || case.value >= 100_000 {
            let most = match (case.value >= 100_000, is_disk) {
                (true, _) => 1.0 / 2.4,
                (false, false) => 1.0 / 6.0,
                (false, true) => 1.0 / 2.5,
            };
            ["leveldb", "rocksdb"].into_iter().for_each(|other| judge("D7", other, most));
        }
        if !is_disk && case.part == "clients" {
            let most = if case.updates >= 90 { 1.0 / 0.9 } else { 1.0 / 0.98 };
            judge("D1", MEMORY, most);
        }
        if !is_disk && case.part == "updates" && case.updates == 0 {
            judge("D3", MEMORY, 1.02);
        }
        let mut all: Vec<Verdict> = all.into_iter().flatten().collect();
        if is_disk && case.part == "clients" {
            let of_ours = [STATE, PLAIN].into_iter().filter_map(|ours| self.of(ours));
            all.extend(of_ours.filter_map(|series| {
                let name = &series.contender.name;
                let of = if name == STATE { String::new() } else { format!("{name}, ") };
                let what = format!("{of}durable writes that a batch waits for: {}", self.title());
                Some(Verdict::new("D2", what, Waits::of(series)?.of_commands, 1.0, ""))
            }));
        }
        if case.part == "recovery"
            && let Some(series) = self.of(STATE)
            && let Some(taken) = middle(series, "wall_ns")
            && let Some(bytes) = middle(series, "bytes")
        {
            let what = format!("{}: seconds for a GiB", self.title());
            let seconds = taken / 1e9 * (1u64 << 30) as f64 / bytes;
            all.push(Verdict::new("D6", what, seconds, 1.0, " s"));
            if let Some(copied) = middle(series, "copy_ns") {
                let what = format!("{}: time of a copy in memory", self.title());
                all.push(Verdict::new("D6", what, taken / copied, 1.0 / 0.8, "×"));
            }
        }
        all
    }

    /// What did not work.
    pub fn failed(&self) -> impl Iterator<Item = String> {
        let failed =
            self.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        failed.map(|(who, why)| format!("{who}, {}: {why}", self.title()))
    }

    /// Whether a durable state does not work.
    pub fn is_broken(&self) -> bool {
        let ours = [STATE, PLAIN].into_iter().filter_map(|name| self.of(name));
        ours.into_iter().any(|series| series.failed.is_some())
    }

    /// Everything as JSON.
    pub fn data(&self) -> Value {
        let stores = self.series.iter().map(|series| {
            let of = |key| Summary::of(&series.values(key));
            json!({
                "store": series.contender.name,
                "rate": of("rate"),
                "cpu_ns": of("cpu_ns"),
                "cpu_ns_of_one": cpu_of_one(series),
                "p50_ns": of("p50_ns"),
                "p99_ns": of("p99_ns"),
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        json!({"case": self.case, "medium": self.medium, "stores": stores.collect::<Vec<_>>()})
    }
}

/// Requests in a second, with three digits.
pub fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", digits(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} k", digits(rate / 1e3)),
        _ => digits(rate),
    }
}

/// A table of each part and medium.
pub fn tables(outcomes: &[Outcome], stores: &[Contender]) -> Vec<Plain> {
    let mut all = Vec::new();
    for (part, title) in [
        ("fill", "one thread"),
        ("redb", "redb's table, 150 B"),
        ("clients", "puts and threads,\n1 kB"),
        ("updates", "8 threads,\nZipf .99, 1 kB"),
    ] {
        for medium in [TMPFS, DISK] {
            let some: Vec<&Outcome> = outcomes
                .iter()
                .filter(|outcome| outcome.case.part == part && outcome.medium == medium)
                .collect();
            if !some.is_empty() {
                all.push(rates(&format!("{title}:\nrequests/s, {medium}"), &some, stores));
                all.push(processor(&format!("{title}:\nCPU time of one, {medium}"), &some, stores));
                if part == "clients" || part == "updates" {
                    all.push(costs(&format!("{title},\n{medium}: p50, p99"), &some, stores));
                }
            }
        }
    }
    all.extend(waits(outcomes));
    all.extend(captures(outcomes));
    all.extend(recovery(outcomes));
    all
}

/// What a durable state waits for, for a batch.
struct Waits {
    /// Fences and durable writes that commands wait for.
    of_commands: f64,
    /// Syncs of the state's file, by the thread that brings the log into it.
    of_log: f64,
}

impl Waits {
    /// `None`: nothing was written, or the store counts no batches.
    fn of(series: &Series) -> Option<Self> {
        let batches = middle(series, "batches").filter(|batches| *batches > 0.0)?;
        let of = |key| Some(middle(series, key)? / batches);
        Some(Self { of_commands: of("durable_waits")?, of_log: of("state_syncs")? })
    }
}

/// What batches wait for, and what the thread behind them waits for.
fn waits(outcomes: &[Outcome]) -> Option<Plain> {
    let all = outcomes.iter().filter(|outcome| outcome.case.part == "clients");
    let cells = |outcome: &Outcome, name: &str| {
        let Waits { of_commands, of_log } = Waits::of(outcome.of(name)?)?;
        let numbers = [of_commands, of_log, of_commands + of_log];
        let mut cells = vec![format!("{name}, {}", outcome.title())];
        cells.extend(numbers.map(|number| format!("{number:.4}")));
        Some((false, cells))
    };
    let ours = [STATE, PLAIN];
    let rows: Vec<_> = all
        .flat_map(|outcome| ours.into_iter().filter_map(move |name| cells(outcome, name)))
        .collect();
    let header = [
        "fences and durable writes\nfor a batch",
        "that its commands\nwait for",
        "syncs of the\nstate's file",
        "both",
    ];
    (!rows.is_empty()).then(|| Plain { header: header.map(String::from).to_vec(), rows })
}

fn rates(title: &str, outcomes: &[&Outcome], stores: &[Contender]) -> Plain {
    let mut header = vec![title.to_string()];
    header.extend(stores.iter().map(|store| store.name.clone()));
    header.push("× best\nother".into());
    let rows = outcomes.iter().map(|outcome| {
        let rate = |name: &str| middle(outcome.of(name)?, "rate");
        let mut cells = vec![outcome.case.name.clone()];
        let cell = |rate: Option<f64>| rate.map_or(table::NOTHING.into(), per_second);
        cells.extend(stores.iter().map(|store| cell(rate(&store.name))));
        let own = [MEMORY, STATE, PLAIN];
        let others = stores.iter().filter(|store| !own.contains(&store.name.as_str()));
        let best = others.filter_map(|store| rate(&store.name)).max_by(f64::total_cmp);
        let ratio = rate(STATE).zip(best).map(|(ours, best)| ours / best);
        cells.push(ratio.map_or(table::NOTHING.into(), |ratio| format!("{}×", digits(ratio))));
        (false, cells)
    });
    Plain { header, rows: rows.collect() }
}

/// The processor's time for a request, of all threads of the process: what a store takes where it has processors enough.
fn processor(title: &str, outcomes: &[&Outcome], stores: &[Contender]) -> Plain {
    let mut header = vec![title.to_string()];
    header.extend(stores.iter().map(|store| store.name.clone()));
    let rows = outcomes.iter().map(|outcome| {
        let mut cells = vec![outcome.case.name.clone()];
        cells.extend(stores.iter().map(|store| {
            let each = outcome.of(&store.name).and_then(cpu_of_one);
            each.map_or(table::NOTHING.into(), time)
        }));
        (false, cells)
    });
    Plain { header, rows: rows.collect() }
}

/// The median of the processor's time for a request, in nanoseconds; nothing if a run has failed.
fn cpu_of_one(series: &Series) -> Option<f64> {
    let pairs = series.values("cpu_ns").into_iter().zip(series.values("operations"));
    let each: Vec<f64> = pairs.map(|(taken, number)| taken / number.max(1.0)).collect();
    if series.failed.is_some() { None } else { median(&each) }
}

/// How long requests take, of the state and the best others.
fn costs(title: &str, outcomes: &[&Outcome], stores: &[Contender]) -> Plain {
    let mut header = vec![title.to_string()];
    header.extend(stores.iter().map(|store| store.name.clone()));
    let rows = outcomes.iter().map(|outcome| {
        let mut cells = vec![outcome.case.name.clone()];
        cells.extend(stores.iter().map(|store| {
            let of = |key| Some(time(middle(outcome.of(&store.name)?, key)?));
            let both = of("p50_ns").zip(of("p99_ns"));
            both.map_or(table::NOTHING.into(), |(half, most)| format!("{half}\n{most}"))
        }));
        (false, cells)
    });
    Plain { header, rows: rows.collect() }
}

/// What a table calls the stores of [`CAPTURES`], behind the usual one: blocks of 32 bytes.
const CAPTURED: [&str; 6] =
    ["32 B", "16 B", "64 B", "128 B", "32 B,\nwith repeats", "32 B,\nno ranges"];

/// Ways to note stores, as multiples of the usual one's rate, and the bytes of the log for a request.
fn captures(outcomes: &[Outcome]) -> Option<Plain> {
    let some = outcomes.iter().filter(|outcome| outcome.case.part == "capture");
    let rows: Vec<_> = some
        .map(|outcome| {
            let usual = outcome.of(STATE).and_then(|series| middle(series, "rate"));
            let cell = |(number, name): (usize, &str)| {
                let series = outcome.of(name)?;
                let rate = middle(series, "rate")?;
                let logged = middle(series, "logged_bytes")? / middle(series, "operations")?;
                let rate = match (number, usual) {
                    (0, _) | (_, None) => per_second(rate),
                    (_, Some(usual)) => format!("{}×", digits(rate / usual)),
                };
                Some(format!("{rate}\n{} B", digits(logged)))
            };
            let names = std::iter::once(STATE).chain(CAPTURES).enumerate();
            let mut cells = vec![outcome.title()];
            cells.extend(names.map(|one| cell(one).unwrap_or(table::NOTHING.into())));
            (false, cells)
        })
        .collect();
    let mut header = vec!["stores noted as blocks of:\nrequests/s, log of one".to_string()];
    header.extend(CAPTURED.map(String::from));
    (!rows.is_empty()).then_some(Plain { header, rows })
}

fn recovery(outcomes: &[Outcome]) -> Option<Plain> {
    let rows: Vec<_> = outcomes
        .iter()
        .filter(|outcome| outcome.case.part == "recovery")
        .filter_map(|outcome| {
            let series = outcome.of(STATE)?;
            let (taken, bytes) = (middle(series, "wall_ns")?, middle(series, "bytes")?);
            let cells = vec![
                outcome.title(),
                spandrel_report::numbers::bytes(bytes),
                time(taken),
                format!("{} GB/s", digits(bytes / taken)),
                middle(series, "copy_ns").map_or(table::NOTHING.into(), time),
                digits(middle(series, "replayed").unwrap_or(0.0)),
            ];
            Some((false, cells))
        })
        .collect();
    let header =
        ["recovery", "keys and values", "time", "rate", "copy\nin memory", "batches\nreplayed"];
    (!rows.is_empty()).then(|| Plain { header: header.map(String::from).to_vec(), rows })
}

#[cfg(test)]
mod tests {
    use super::super::list::{ALL, SCALE, Sizes, cases};
    use super::*;

    fn outcome(name: &str, medium: &'static str, rates: &[(&str, f64)]) -> Outcome {
        let all = cases(&ALL, &Sizes::at(SCALE));
        let case = all.into_iter().find(|case| case.name == name).expect("a case");
        let series = rates.iter().map(|(store, rate)| Series {
            contender: Contender { name: (*store).into(), ..Contender::system() },
            samples: vec![json!({
                "rate": rate, "p50_ns": 1e3, "p99_ns": 2e6, "cpu_ns": 7e8, "operations": 1e5,
            })],
            failed: None,
        });
        Outcome { case, medium, series: series.collect() }
    }

    #[test]
    fn a_state_is_held_against_the_targets() {
        let rates = [(MEMORY, 2e6), (STATE, 1.2e6), ("leveldb", 1e5), ("rocksdb", 4e5)];
        let with_plain: Vec<_> = rates.into_iter().chain([(PLAIN, 8e5)]).collect();
        let verdicts = outcome("fillseq, 100 B", TMPFS, &with_plain).verdicts();
        assert_eq!(
            verdicts.iter().map(|one| one.met).collect::<Vec<_>>(),
            [true, true, false, false]
        );
        let verdicts = outcome("fillseq, 100 B", TMPFS, &rates).verdicts();
        assert_eq!(verdicts.iter().map(|one| one.met).collect::<Vec<_>>(), [true, false]);
        let verdicts = outcome("100 % puts, 1", TMPFS, &rates).verdicts();
        assert!(verdicts.len() == 1 && verdicts[0].target == "D1" && !verdicts[0].met);
        assert!(outcome("100 % puts, 1", DISK, &rates).verdicts().is_empty(), "no batches");
        assert!(outcome("readseq, 100 B", DISK, &rates).verdicts().is_empty());
    }

    #[test]
    fn a_batch_waits_once_and_the_syncs_of_the_thread_behind_it_are_shown() {
        let with = |medium, durable_waits: u64| {
            let mut outcome = outcome("100 % puts, 1", medium, &[(MEMORY, 2e6), (STATE, 1e4)]);
            outcome.series[1].samples = vec![
                json!({"rate": 1e4, "batches": 1000, "durable_waits": durable_waits, "state_syncs": 14}),
            ];
            outcome
        };
        let judge = |outcome: &Outcome| {
            let verdicts = outcome.verdicts();
            verdicts.iter().find(|one| one.target == "D2").map(|one| one.met)
        };
        // Some records go over the log's end.
        assert_eq!(judge(&with(DISK, 1002)), Some(true));
        assert_eq!(judge(&with(DISK, 2000)), Some(false));
        assert_eq!(judge(&outcome("100 % puts, 1", DISK, &[(STATE, 1e4)])), None);
        let table = waits(&[with(TMPFS, 0), with(DISK, 1002)]).unwrap().text();
        for part in ["spandrel, 100 % puts, 1, disk", "1.0020", "0.0140", "1.0160", "0.0000"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    }

    #[test]
    fn tables_have_a_column_of_each_store() {
        let others = ["leveldb", "rocksdb", "lmdb", "pmemobj", "redb", "fjall"];
        let rates = [(MEMORY, 2e6), (STATE, 1.2e6), (PLAIN, 9e5)];
        let rates: Vec<_> = rates.into_iter().chain(others.map(|name| (name, 4e5))).collect();
        let of =
            |(name, _): &(&str, f64)| Contender { name: (*name).into(), ..Contender::system() };
        let stores: Vec<_> = rates.iter().map(of).collect();
        let outcomes = [
            outcome("fillseq, 100 B", TMPFS, &rates),
            outcome("random reads, 4 threads", DISK, &rates),
            outcome("10 % puts", DISK, &rates),
        ];
        let texts: Vec<String> = tables(&outcomes, &stores).iter().map(Plain::text).collect();
        assert_eq!(texts.len(), 7);
        for part in ["fillseq, 100 B", "1.20 M", "3.00×", "400 k"] {
            assert!(texts[0].contains(part), "{part}: {}", texts[0]);
        }
        for text in [&texts[1], &texts[3], &texts[5]] {
            assert_eq!(text.matches("7.00 µs").count(), 9, "{text}");
        }
        assert!(texts[6].contains("2.00 ms"), "{}", texts[6]);
        let widths = texts.iter().flat_map(|text| text.lines()).map(|line| line.chars().count());
        assert!(widths.max() <= Some(100));
    }
}
