//! What capturing stores costs: commands in batches, natively and in each way that there is, without a log and with one.
//!
//! The state is one of a million keys at a scale of 1. `spandrel-bench-worker` captures without a log, `spandrel-bench-plain` with a log on tmpfs.

use super::list::Sizes;
use super::servers::Rounds;
use super::stores::Programs;
use crate::report::target::Verdict;
use serde_json::{Value, json};
use spandrel_console::plain::Plain;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, Role};
use spandrel_measure::process;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, bytes, digits, median, time};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What `--only` calls it.
pub const NAME: &str = "capture";

/// What the worker calls the kinds of commands, and what tables call them.
const COMMANDS: [(&str, &str); 6] = [
    ("table", "hash table, update"),
    ("tree", "B-tree, insertion"),
    ("copy-4k", "copy of 4 KiB"),
    ("copy-100k", "copy of 100 KB"),
    ("nothing", "nothing"),
    (TEXT, "texts and sorting"),
];
/// A command of much code, for its first execution alone.
const TEXT: &str = "text";
/// Reads of the hash table.
const READ: &str = "read";
/// Commands of a batch.
const BATCHES: [u64; 3] = [1, 16, 100];
/// Of reads, each of which is a call by itself.
const READS: u64 = 100;

const NATIVE: &str = "native";
const EXPLICIT: &str = "explicit";
const TRANSLATED: &str = "translated";
const PAGES: &str = "pages";
const LOCKED: &str = "locked";
const NATIVE_C: &str = "native-c";
const HOOKS: &str = "hooks";

/// Ways, what tables call them, and which is native beside each.
type Ways = [(&'static str, &'static str, &'static str)];
const UNLOGGED: &Ways = &[
    (NATIVE, "native", NATIVE),
    (EXPLICIT, "noted\nby hand", NATIVE),
    (TRANSLATED, "translated", NATIVE),
    (PAGES, "pages\ncompared", NATIVE),
    (NATIVE_C, "native,\nC", NATIVE_C),
    (HOOKS, "compiler's\nhooks, C", NATIVE_C),
];
const LOGGED: &Ways = &[
    (NATIVE, "native", NATIVE),
    (EXPLICIT, "collections", NATIVE),
    (TRANSLATED, "translated", NATIVE),
    (PAGES, "pages\ncompared", NATIVE),
];
const READERS: &Ways = &[
    (NATIVE, "a map", NATIVE),
    (LOCKED, "behind\na lock", LOCKED),
    (TRANSLATED, "plain,\ntranslated", LOCKED),
];

/// What is promised, as multiples of the native time.
const TABLE_MOST: f64 = 1.9;
const TABLE_LOGGED_MOST: f64 = 2.3;
const LOGGED_BATCH: u64 = 16;
const COPY_MOST: f64 = 1.05;
const READ_MOST: f64 = 1.02;
/// Milliseconds of a first execution, and MiB of translated code.
const FIRST_MOST: f64 = 2.0;
const CODE_MOST: f64 = 16.0;

/// Not measured here: the processor time of a request of `redis-server` 7.0.15 under DynamoRIO without a client, as a multiple of the native time, from the survey that the translator was
/// decided on. The Mangosteen paper, whose capture is a client of DynamoRIO, has no figure of DynamoRIO alone.
const DYNAMORIO: [(&str, &str); 2] = [("SET", "1.3 – 2.0×"), ("GET", "1.4×")];

/// How much is done besides: the longest run.
const PATIENCE: Duration = Duration::from_secs(300);

/// One kind of commands in all ways.
pub struct Outcome {
    command: &'static str,
    is_logged: bool,
    series: Vec<Series>,
}

/// The ways that a kind of commands is measured in.
fn ways(command: &str, is_logged: bool) -> Vec<&'static str> {
    let all = match (command, is_logged) {
        (READ, _) => READERS,
        (_, true) => LOGGED,
        _ => UNLOGGED,
    };
    let fits = |way: &&str| match command {
        // It has much code, and nothing that could be compared.
        TEXT => [NATIVE, TRANSLATED].contains(way),
        // The standard library's tree has no place for notes.
        "tree" if !is_logged => *way != EXPLICIT,
        _ => true,
    };
    all.iter().map(|(way, ..)| *way).filter(fits).collect()
}

/// Measures all kinds of commands; with a log, where there is a place in memory and the program with plain states.
pub fn measure(
    programs: &Programs,
    memory: Option<&Path>,
    sizes: &Sizes,
    rounds: Rounds<'_>,
) -> Vec<Outcome> {
    let names = || COMMANDS.iter().map(|(name, _)| *name);
    let mut all: Vec<_> = names().map(|name| (name, false)).collect();
    if programs.plain.is_some() && memory.is_some() {
        all.extend(names().filter(|name| *name != TEXT).chain([READ]).map(|name| (name, true)));
    }
    let outcomes = all.into_iter().map(|(command, is_logged)| {
        let contenders: Vec<Contender> = ways(command, is_logged).into_iter().map(of).collect();
        let log = if is_logged { "with a log" } else { "without a log" };
        let label = format!("capture, {}, {log}", title(command));
        let program = if is_logged { programs.plain.as_deref() } else { Some(&*programs.worker) };
        let series = rounds(&contenders, &label, &mut |way| {
            let program = program.ok_or("the program is missing")?;
            run(program, command, way, memory.filter(|_| is_logged), sizes)
        });
        Outcome { command, is_logged, series }
    });
    outcomes.collect()
}

fn of(way: &str) -> Contender {
    Contender { name: way.into(), role: Role::Ours, ..Contender::system() }
}

fn title(command: &str) -> &'static str {
    let known = COMMANDS.iter().find(|(name, _)| *name == command);
    known.map_or("hash table, read", |(_, title)| title)
}

fn run(
    program: &Path,
    kind: &str,
    way: &Contender,
    memory: Option<&Path>,
    sizes: &Sizes,
) -> Result<Value, String> {
    let directory = memory.map(|memory| Scratch::directory_in(Kind::Bench, memory));
    let directory = directory.transpose().map_err(|why| why.to_string())?;
    let mut command = Command::new(program);
    command.args(["capture", "--command", kind, "--way", &way.name]);
    command.args(["--keys", &sizes.keys.to_string(), "--millis", &sizes.millis.to_string()]);
    if let Some(directory) = &directory {
        command.arg("--directory").arg(directory.path());
    }
    way.prepare(&mut command);
    let said = process::run(&mut command, Some(PATIENCE))?.success()?.output;
    serde_json::from_str(&said).map_err(|why| format!("its output is not JSON: {why}"))
}

impl Outcome {
    fn series(&self, way: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.contender.name == way)
    }

    /// The median of a number.
    fn middle(&self, way: &str, key: &str) -> Option<f64> {
        let series = self.series(way).filter(|series| series.failed.is_none())?;
        median(&series.values(key))
    }

    /// Nanoseconds for a command in batches of a size.
    fn time(&self, way: &str, batch: u64) -> Option<f64> {
        self.middle(way, &format!("ns_{batch}"))
    }

    fn factor(&self, way: &str, native: &str, batch: u64) -> Option<f64> {
        Some(self.time(way, batch)? / self.time(native, batch)?)
    }

    /// What translated commands take at most, as a multiple of the native time.
    fn most(&self, batch: u64) -> Option<f64> {
        match self.command {
            "table" if !self.is_logged => Some(TABLE_MOST),
            "table" if batch == LOGGED_BATCH => Some(TABLE_LOGGED_MOST),
            "copy-4k" | "copy-100k" if !self.is_logged => Some(COPY_MOST),
            READ => Some(READ_MOST),
            _ => None,
        }
    }

    /// What is promised of it.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let is_read = self.command == READ;
        let (target, native) = if is_read { ("D3", LOCKED) } else { ("D8", NATIVE) };
        let batches: &[u64] = if is_read { &[READS] } else { &BATCHES };
        let log = if self.is_logged { ", log" } else { "" };
        let title = title(self.command);
        let judge = |batch: &u64| {
            let (value, most) = (self.factor(TRANSLATED, native, *batch)?, self.most(*batch)?);
            let what = match self.command {
                READ => format!("{title}: a map behind a lock"),
                _ => format!("translated, {title}{log}, {batch}: native"),
            };
            Some(Verdict::new(target, what, value, most, "×"))
        };
        let mut all: Vec<Verdict> = batches.iter().filter_map(judge).collect();
        if let Some(first) = self.middle(TRANSLATED, "first_ns") {
            let what = format!("first execution: {title}");
            all.push(Verdict::new("D8", what, first / 1e6, FIRST_MOST, " ms"));
        }
        if let Some(code) = self.middle(TRANSLATED, "code_bytes") {
            let what = format!("translated code: {title}");
            all.push(Verdict::new("D8", what, code / (1 << 20) as f64, CODE_MOST, " MiB"));
        }
        all
    }

    /// What did not work.
    pub fn failed(&self) -> impl Iterator<Item = String> {
        let failed =
            self.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        failed.map(|(way, why)| format!("capture, {way}, {}: {why}", title(self.command)))
    }

    /// Everything as JSON.
    pub fn data(&self) -> Value {
        let ways = self.series.iter().map(|series| {
            let of = |batch: u64| Summary::of(&series.values(&format!("ns_{batch}")));
            let times = BATCHES.map(|batch| (batch.to_string(), json!(of(batch))));
            json!({
                "way": series.contender.name,
                "ns": serde_json::Map::from_iter(times),
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        json!({
            "command": self.command,
            "log": self.is_logged,
            "ways": ways.collect::<Vec<_>>(),
        })
    }
}

/// The tables.
pub fn tables(outcomes: &[Outcome]) -> Vec<Plain> {
    if outcomes.is_empty() {
        return Vec::new();
    }
    let some = |is_logged: bool| {
        let fits =
            |one: &&Outcome| one.is_logged == is_logged && ![TEXT, READ].contains(&one.command);
        outcomes.iter().filter(fits).collect::<Vec<_>>()
    };
    let all = [
        times("capture without a log,\ncommands of a batch:\ntime of one", UNLOGGED, &some(false)),
        times("capture and log, tmpfs,\ncommands of a batch:\ntime of one", LOGGED, &some(true)),
        reads(outcomes),
        firsts(outcomes),
        Some(others()),
    ];
    all.into_iter().flatten().collect()
}

/// A row for each kind of commands and size of batches, with the translated ones' limit behind.
fn times(title_of: &str, ways: &Ways, outcomes: &[&Outcome]) -> Option<Plain> {
    let mut header = vec![title_of.to_string()];
    header.extend(ways.iter().map(|(_, name, _)| (*name).to_string()));
    header.push("translated,\nat most".into());
    let rows = outcomes.iter().flat_map(|outcome| {
        BATCHES.map(|batch| {
            let mut cells = vec![format!("{}, {batch}", title(outcome.command))];
            cells.extend(ways.iter().map(|(way, _, native)| {
                // A multiple of nothing says nothing.
                let is_native = way == native || outcome.command == "nothing";
                let factor = outcome.factor(way, native, batch).filter(|_| !is_native);
                let taken = outcome.time(way, batch).map(time);
                match (taken, factor) {
                    (Some(taken), Some(factor)) => format!("{taken}\n{}×", digits(factor)),
                    (Some(taken), None) => taken,
                    (None, _) => table::NOTHING.into(),
                }
            }));
            let most = outcome.most(batch);
            cells.push(most.map_or(table::NOTHING.into(), |most| format!("{most:.2}×")));
            (false, cells)
        })
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then_some(Plain { header, rows })
}

fn reads(outcomes: &[Outcome]) -> Option<Plain> {
    let outcome = outcomes.iter().find(|outcome| outcome.command == READ)?;
    let mut header = vec!["reads".to_string()];
    header.extend(READERS.iter().map(|(_, name, _)| (*name).to_string()));
    header.extend(["× behind\na lock", "at most"].map(String::from));
    let mut cells = vec![title(READ).to_string()];
    let taken = |way: &str| outcome.time(way, READS).map_or(table::NOTHING.into(), time);
    cells.extend(READERS.iter().map(|(way, ..)| taken(way)));
    let factor = outcome.factor(TRANSLATED, LOCKED, READS);
    cells.push(factor.map_or(table::NOTHING.into(), |factor| format!("{}×", digits(factor))));
    cells.push(format!("{READ_MOST:.2}×"));
    Some(Plain { header, rows: vec![(false, cells)] })
}

/// First executions: all code of a command is translated then.
fn firsts(outcomes: &[Outcome]) -> Option<Plain> {
    let rows = outcomes.iter().filter_map(|outcome| {
        let of = |key| outcome.middle(TRANSLATED, key);
        let (taken, blocks, code) = (of("first_ns")?, of("first_blocks")?, of("first_bytes")?);
        let cells = vec![
            title(outcome.command).to_string(),
            time(taken),
            digits(blocks),
            time(taken / blocks.max(1.0)),
            bytes(code),
            of("code_bytes").map_or(table::NOTHING.into(), bytes),
        ];
        Some((false, cells))
    });
    let rows: Vec<_> = rows.collect();
    let header = [
        format!("first execution of a command\n(at most {FIRST_MOST} ms; code {CODE_MOST} MiB)"),
        "time".into(),
        "blocks".into(),
        "of one".into(),
        "code".into(),
        "code\nat the end".into(),
    ];
    (!rows.is_empty()).then(|| Plain { header: header.to_vec(), rows })
}

/// What is known of another way.
fn others() -> Plain {
    let header = [
        "not measured here: redis-server 7.0.15,\nall of it under DynamoRIO without a client",
        "× native",
    ];
    let rows = DYNAMORIO.map(|row| (false, <[&str; 2]>::from(row).map(String::from).to_vec()));
    Plain { header: header.map(String::from).to_vec(), rows: rows.to_vec() }
}

/// What is beside the tables.
pub fn notes(outcomes: &[Outcome]) -> Vec<String> {
    if outcomes.is_empty() {
        return Vec::new();
    }
    let notes = [
        "capture: the commands of a batch are one call; without a log the batch ends with the runs of bytes that it has stored, with a log it is durable. \"nothing\" is what a batch takes by itself",
        "capture by the compiler's hooks is beside C code that has none; it has no log here. The standard library's B-tree cannot be noted by hand",
        "DynamoRIO: from the survey that the translator was decided on; the Mangosteen paper has no figure of DynamoRIO without its client",
    ];
    notes.map(String::from).to_vec()
}

/// The program with plain states, beside the worker.
pub fn beside(worker: &Path) -> Option<PathBuf> {
    Some(worker.with_file_name("spandrel-bench-plain")).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(command: &'static str, is_logged: bool, times: &[(&str, f64)]) -> Outcome {
        let series = times.iter().map(|(way, taken)| Series {
            contender: of(way),
            samples: vec![json!({
                "ns_1": 2.0 * taken, "ns_16": taken, "ns_100": taken,
                "first_ns": 3e6, "first_blocks": 300, "first_bytes": 2048, "code_bytes": 4096,
            })],
            failed: None,
        });
        Outcome { command, is_logged, series: series.collect() }
    }

    #[test]
    fn translated_commands_are_held_against_native_ones() {
        let times = [(NATIVE, 100.0), (TRANSLATED, 200.0), (PAGES, 4000.0)];
        let met =
            |outcome: Outcome| outcome.verdicts().iter().map(|one| one.met).collect::<Vec<_>>();
        assert_eq!(met(outcome("table", false, &times)), [false, false, false, false, true]);
        assert_eq!(met(outcome("table", true, &times)), [true, false, true]);
        assert_eq!(met(outcome("tree", true, &times)), [false, true]);
        let reads = outcome(READ, true, &[(LOCKED, 100.0), (TRANSLATED, 101.0)]);
        let verdicts = reads.verdicts();
        assert!(verdicts[0].met && verdicts[0].target == "D3");
    }

    #[test]
    fn tables_have_factors_and_limits() {
        let c = [(NATIVE_C, 50.0), (HOOKS, 150.0)];
        let times = [(NATIVE, 100.0), (TRANSLATED, 170.0), c[0], c[1]];
        let outcomes = [
            outcome("table", false, &times),
            outcome("nothing", false, &times),
            outcome("table", true, &times[..2]),
            outcome(READ, true, &[(LOCKED, 100.0), (TRANSLATED, 101.0)]),
        ];
        let texts: Vec<String> = tables(&outcomes).iter().map(Plain::text).collect();
        assert_eq!(texts.len(), 5);
        for (at, part) in
            [(0, "1.70×"), (0, "3.00×"), (0, "1.90×"), (1, "2.30×"), (2, "1.01×"), (3, "10.0 µs")]
        {
            assert!(texts[at].contains(part), "{part}: {}", texts[at]);
        }
        let widths = texts.iter().flat_map(|text| text.lines()).map(|line| line.chars().count());
        assert!(widths.max() <= Some(100), "{texts:#?}");
        assert!(tables(&[]).is_empty());
    }

    #[test]
    fn each_kind_has_its_ways() {
        assert_eq!(ways("tree", false), [NATIVE, TRANSLATED, PAGES, NATIVE_C, HOOKS]);
        assert_eq!(ways("tree", true), [NATIVE, EXPLICIT, TRANSLATED, PAGES]);
        assert_eq!(ways(TEXT, false), [NATIVE, TRANSLATED]);
        assert_eq!(ways(READ, true), [NATIVE, LOCKED, TRANSLATED]);
    }
}
