//! The plain suites: jobs of the worker of which one number counts.

use super::Bench;
use super::report::Section;
use super::table;
use super::target::{self, Limit, Verdict};
use crate::args::Suite;
use serde::Serialize;
use serde_json::Value;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::{Contender, Role};
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{Summary, median};

/// A job and how it is judged.
struct Plan {
    name: &'static str,
    words: Vec<&'static str>,
    /// The number that counts, in the worker's JSON.
    key: &'static str,
    unit: Unit,
    /// Whether the worker can do the work without an allocator.
    has_floor: bool,
    /// Whether the job is measured on cold memory too: one that takes much fresh memory.
    has_cold: bool,
    limits: Vec<Limit>,
}

/// What a case's number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds of CPU time.
    CpuNs,
    /// Nanoseconds per malloc/free pair.
    NsPerPair,
}

/// A job's results.
#[derive(Serialize)]
pub struct Case {
    /// What was done.
    pub name: String,
    /// What the numbers are.
    pub unit: Unit,
    /// One per allocator.
    pub rows: Vec<Row>,
}

/// One allocator's results.
#[derive(Serialize)]
pub struct Row {
    /// Its name.
    pub allocator: String,
    /// What it is in the comparison.
    pub role: Role,
    /// The measured rounds, summed up; absent if there was none.
    pub summary: Option<Summary>,
    /// Ratio of medians to the system's allocator.
    pub to_system: Option<f64>,
    /// Ratio of medians to the fastest that is not Spandrel.
    pub to_best_peer: Option<f64>,
    /// Median of the most memory that was resident, in bytes.
    pub peak_rss: Option<f64>,
    /// Median of resident memory per byte of the object, where the job has one.
    pub rss_per_byte: Option<f64>,
    /// Median of page faults.
    pub faults: Option<f64>,
    /// The same on memory that the machine's host has taken back meanwhile, where that was measured.
    pub cold: Option<Cold>,
    /// What went wrong, if anything did.
    pub failed: Option<String>,
    /// Everything that the worker said.
    pub samples: Vec<Value>,
}

/// One allocator's results on cold memory.
#[derive(Serialize)]
pub struct Cold {
    /// The measured rounds, summed up; absent if there was none.
    pub summary: Option<Summary>,
    /// Ratio of medians to the system's allocator.
    pub to_system: Option<f64>,
    /// Ratio of medians to the faster of the system's and jemalloc.
    pub to_faster: Option<f64>,
}

impl Case {
    /// Adds what was measured on cold memory.
    fn add_cold(&mut self, key: &str, series: &[Series]) {
        let summaries = series
            .iter()
            .map(|series| (series.contender.name.as_str(), Summary::of(&series.values(key))));
        let summaries: Vec<(&str, Option<Summary>)> = summaries.collect();
        let median = |name: &str| {
            let found = summaries.iter().find(|(who, _)| *who == name);
            found.and_then(|(_, summary)| Some(summary.as_ref()?.median))
        };
        let system = median("sys");
        let faster = [system, median("jemalloc")].into_iter().flatten().reduce(f64::min);
        for row in &mut self.rows {
            let Some((_, summary)) = summaries.iter().find(|(who, _)| *who == row.allocator) else {
                continue;
            };
            let to = |base: Option<f64>| Some(summary.as_ref()?.median / base?);
            row.cold =
                Some(Cold { summary: *summary, to_system: to(system), to_faster: to(faster) });
        }
    }

    /// Whether cold memory was measured too.
    pub fn has_cold(&self) -> bool {
        self.rows.iter().any(|row| row.cold.is_some())
    }

    /// The fastest allocator that is not Spandrel: its name and median.
    pub fn best_peer(&self) -> Option<(&str, f64)> {
        let peers = self.rows.iter().filter(|row| row.role == Role::Peer);
        let medians = peers.filter_map(|row| Some((row.allocator.as_str(), row.summary?.median)));
        medians.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// One allocator's results.
    pub fn row(&self, allocator: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.allocator == allocator)
    }

    /// Sums up what was measured.
    pub fn of(name: &str, unit: Unit, key: &str, series: Vec<Series>) -> Self {
        let rows = series.into_iter().map(|series| Row {
            summary: Summary::of(&series.values(key)),
            to_system: None,
            to_best_peer: None,
            peak_rss: median(&series.values("peak_rss")),
            rss_per_byte: median(&series.values("rss_per_byte")),
            faults: median(&series.values("minor_faults")),
            cold: None,
            allocator: series.contender.name,
            role: series.contender.role,
            failed: series.failed,
            samples: series.samples,
        });
        let mut case = Self { name: name.into(), unit, rows: rows.collect() };
        let system = case.row("sys");
        let system = system.and_then(|row| Some(row.summary?.median));
        let best = case.best_peer().map(|(_, median)| median);
        for row in &mut case.rows {
            let to = |base: Option<f64>| Some(row.summary?.median / base?);
            (row.to_system, row.to_best_peer) = (to(system), to(best));
        }
        case
    }
}

/// Rounds on cold memory at most: each takes some seconds of rest.
const COLD_RUNS: usize = 3;
/// What is promised on cold memory, to the faster of the system's allocator and jemalloc.
const COLD_MOST: f64 = 1.1;

/// Measures a plain suite.
pub fn run(bench: &Bench, suite: Suite, progress: &Progress) -> Result<Section, Failure> {
    let (name, about) = suite.about();
    let mut cases = Vec::new();
    let mut verdicts: Vec<Verdict> = Vec::new();
    for plan in plans(suite, bench.quick) {
        let label = if plan.name == name { name.into() } else { format!("{name} {}", plan.name) };
        let mut contenders = bench.contenders.clone();
        if plan.has_floor {
            contenders.insert(0, Contender::floor("the work alone"));
        }
        let series = rounds::in_turns(&contenders, bench.runs, progress, &label, |contender| {
            let mut words = plan.words.clone();
            words.extend((contender.role == Role::Floor).then_some("--floor"));
            rounds::worker(&bench.worker, contender, &words)
        });
        let mut case = Case::of(plan.name, plan.unit, plan.key, series);
        if plan.has_cold {
            let label = format!("{label}, cold");
            let runs = bench.runs.min(COLD_RUNS);
            let series = rounds::cold(&bench.contenders, runs, progress, &label, |contender| {
                rounds::worker(&bench.worker, contender, &plan.words)
            });
            case.add_cold(plan.key, &series);
        }
        verdicts.extend(target::judge(&case, &plan.limits));
        cases.push(case);
    }
    let mut section = Section::new(name, about);
    section.tables = match suite {
        Suite::Realloc => vec![table::matrix(&cases)],
        _ => cases.iter().map(table::detail).collect(),
    };
    for case in &cases {
        let failed =
            case.rows.iter().filter_map(|row| Some((&row.allocator, row.failed.as_ref()?)));
        section.notes.extend(failed.map(|(who, why)| format!("{who}, {}: {why}", case.name)));
    }
    section.cases = cases;
    section.verdicts = verdicts;
    Ok(section)
}

/// The jobs of a suite. Cycles are chosen so that a run takes some tenths of a
/// second; an object of 1 GiB grows once, in a process that has no warm memory.
fn plans(suite: Suite, quick: bool) -> Vec<Plan> {
    let cpu = |name, words: &[&'static str], limits: &[Limit]| Plan {
        name,
        words: words.to_vec(),
        key: "cpu_ns",
        unit: Unit::CpuNs,
        has_floor: false,
        has_cold: false,
        limits: limits.to_vec(),
    };
    let cold = |plan: Plan| Plan { has_cold: true, ..plan };
    let pair = |name, words: &[&'static str], ticks| Plan {
        name,
        words: words.to_vec(),
        key: "ns_per_pair",
        unit: Unit::NsPerPair,
        has_floor: false,
        has_cold: false,
        limits: vec![Limit::Ticks("B2", ticks)],
    };
    let choose = |quick_choice, full| if quick { quick_choice } else { full };
    let doubling = |name, to, cycles, limits: &[Limit]| {
        cpu(name, &["realloc", "--to", to, "--cycles", cycles], limits)
    };
    // Many short cycles: the median one, and beside it the work alone.
    let short = |name, to, cycles, limits: &[Limit]| Plan {
        key: "cycle_cpu_ns",
        has_floor: true,
        ..doubling(name, to, cycles, limits)
    };
    const NO_PEER_FASTER: Limit = Limit::BestPeer("A1", 1.0);
    match suite {
        Suite::Realloc => vec![
            short(
                "128 KiB",
                "128KiB",
                choose("20000", "60000"),
                &[Limit::System("A1", 0.95), NO_PEER_FASTER],
            ),
            short(
                "1 MiB",
                "1MiB",
                choose("2000", "6000"),
                &[Limit::System("A1", 0.95), NO_PEER_FASTER],
            ),
            doubling(
                "32 MiB",
                "32MiB",
                choose("10", "20"),
                &[Limit::System("A1", 0.25), NO_PEER_FASTER, Limit::Memory("A1", 1.02)],
            ),
            cold(doubling(
                "1 GiB",
                "1GiB",
                "1",
                &[
                    Limit::System("A1", 0.45),
                    NO_PEER_FASTER,
                    Limit::Memory("A1", 1.02),
                    Limit::Cold("A1", COLD_MOST),
                ],
            )),
        ],
        Suite::Append => {
            let limits = [Limit::System("A2", 0.30), Limit::Cold("A2", COLD_MOST)];
            vec![cold(cpu("append", &["append"], &limits))]
        }
        Suite::Vec => {
            let limits = [Limit::System("A3", 0.45), Limit::Cold("A3", COLD_MOST)];
            vec![cold(Plan { has_floor: true, ..cpu("vec", &["vec"], &limits) })]
        }
        Suite::Arrow => vec![
            cold(cpu("integers", &["arrow"], &[])),
            cpu("pages", &["arrow", "--pages", "--pushes", "200000"], &[]),
        ],
        Suite::Pair => vec![
            pair("pair", &["pair"], 11.0),
            pair("batch of 1000", &["batch"], 11.0),
            pair("300 KiB", &["pair", "--size", "300KiB", "--pairs", "2000"], 45.0),
            pair(
                "64 of 400 KiB",
                &["batch", "--size", "400KiB", "--batch", "64", "--batches", "4"],
                200.0,
            ),
        ],
        Suite::Small => vec![cpu("small", &["small-realloc"], &[])],
        Suite::Mixed => {
            vec![cpu("mixed", &["mixed", "--operations", choose("400000", "1500000")], &[])]
        }
        _ => Vec::new(),
    }
}
