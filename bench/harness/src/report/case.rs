//! A plain case: a job of which one number counts, on every allocator.

use serde::Serialize;
use serde_json::Value;
use spandrel_measure::contender::Role;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, median};

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
    pub fn add_cold(&mut self, key: &str, series: &[Series]) {
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
