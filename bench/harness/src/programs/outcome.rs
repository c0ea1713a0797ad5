//! One program on every allocator, and how Spandrel compares.

use crate::report::target::Verdict;
use serde_json::{Value, json};
use spandrel_measure::contender::Role;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, median};

/// The numbers that are compared.
pub const CPU: &str = "cpu_ns";
pub const WALL: &str = "wall_ns";
pub const PEAK: &str = "peak_rss";
pub const DRAINED: &str = "rss_drained";

/// Peers that take at most this much longer than the fastest are compared by
/// their memory: an allocator that is lean because it is slow sets no example.
const NEAR_THE_BEST: f64 = 1.1;
/// Target B3.
const CPU_LIMIT: f64 = 1.0;
const MEMORY_LIMIT: f64 = 1.05;

/// One program's results.
pub struct Outcome {
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub words: Vec<String>,
    /// One per allocator.
    pub series: Vec<Series>,
}

/// A peer's name and its median of some number.
pub type Peer<'a> = (&'a str, f64);

impl Outcome {
    /// The median of a number on one allocator; nothing if it ever failed.
    pub fn median(&self, allocator: &str, key: &str) -> Option<f64> {
        let series = self.series.iter().find(|series| series.contender.name == allocator)?;
        if series.failed.is_some() { None } else { median(&series.values(key)) }
    }

    /// The same, relative to the system's allocator.
    pub fn to_system(&self, allocator: &str, key: &str) -> Option<f64> {
        Some(self.median(allocator, key)? / self.median("sys", key)?)
    }

    fn peers(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        self.series.iter().filter(|series| series.contender.role == Role::Peer).filter_map(
            |series| {
                let name = series.contender.name.as_str();
                Some((name, self.median(name, CPU)?, self.median(name, PEAK)?))
            },
        )
    }

    /// The peer that takes the least CPU time.
    pub fn best_peer(&self) -> Option<Peer<'_>> {
        let peers = self.peers().map(|(name, cpu, _)| (name, cpu));
        peers.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The peer with the lowest peak of memory among the fastest.
    pub fn leanest_peer(&self) -> Option<Peer<'_>> {
        let (_, best) = self.best_peer()?;
        let near = self.peers().filter(|(_, cpu, _)| *cpu <= best * NEAR_THE_BEST);
        near.map(|(name, _, peak)| (name, peak)).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Holds every mode of Spandrel against the peers.
    pub fn judge(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for series in self.series.iter().filter(|series| series.contender.ours()) {
            let ours = &series.contender.name;
            let mut judge = |key, peer: Option<Peer>, what: &str, most| {
                if let (Some(value), Some((peer, base))) = (self.median(ours, key), peer) {
                    let what = format!("{ours}, {}: {what}, {peer}", self.name);
                    verdicts.push(Verdict::new("B3", what, value / base, most, "×"));
                }
            };
            judge(CPU, self.best_peer(), "the best peer", CPU_LIMIT);
            judge(PEAK, self.leanest_peer(), "memory", MEMORY_LIMIT);
        }
        verdicts
    }

    /// Why Spandrel did not do what the system's allocator does, if so: a program
    /// fails on it alone, or comes to another result.
    pub fn wrong(&self) -> Vec<String> {
        let system = self.series.iter().find(|series| series.contender.is_system());
        let result = |series: &Series| series.samples.first()?.get("checksum").cloned();
        let expected = system.and_then(result);
        let system_works = system.is_some_and(|series| series.failed.is_none());
        let mut wrong = Vec::new();
        for series in self.series.iter().filter(|series| series.contender.ours()) {
            let name = &series.contender.name;
            let other = |sample: &Value| sample.get("checksum") != expected.as_ref();
            if series.failed.is_some() && system_works {
                wrong.push(format!("{}: fails on {name} and not on sys", self.name));
            } else if system_works && series.samples.iter().any(other) {
                wrong.push(format!("{}: another result on {name} than on sys", self.name));
            }
        }
        wrong
    }

    /// Everything as JSON.
    pub fn data(&self) -> Value {
        let allocators = self.series.iter().map(|series| {
            let of = |key| Summary::of(&series.values(key));
            json!({
                "allocator": series.contender.name,
                "cpu_ns": of(CPU),
                "wall_ns": of(WALL),
                "peak_rss": of(PEAK),
                "rss_drained": of(DRAINED),
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        json!({
            "program": self.name,
            "arguments": self.words,
            "allocators": allocators.collect::<Vec<_>>(),
            "best_peer": self.best_peer().map(|(name, cpu)| json!({"allocator": name, "cpu_ns": cpu})),
            "leanest_peer": self.leanest_peer().map(|(name, peak)| json!({"allocator": name, "peak_rss": peak})),
        })
    }
}

/// The geometric mean over all programs of what an allocator needs relative to the
/// system's; nothing if it failed in one, since the others would be another choice.
pub fn mean(outcomes: &[Outcome], allocator: &str, key: &str) -> Option<f64> {
    let ratios: Option<Vec<f64>> =
        outcomes.iter().map(|outcome| outcome.to_system(allocator, key)).collect();
    let ratios = ratios.filter(|ratios| !ratios.is_empty())?;
    Some((ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp())
}

/// Whether Spandrel is ahead of every peer over all programs.
pub fn judge_mean(outcomes: &[Outcome]) -> Vec<Verdict> {
    let Some(first) = outcomes.first() else { return Vec::new() };
    let means = |ours: bool| {
        first.series.iter().filter(move |series| series.contender.ours() == ours).filter_map(
            |series| {
                let name = series.contender.name.as_str();
                Some((name, mean(outcomes, name, CPU)?))
            },
        )
    };
    let Some((peer, best)) = means(false).min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Vec::new();
    };
    means(true)
        .map(|(ours, mean)| {
            let what = format!("{ours}, geometric mean: the best peer, {peer}");
            Verdict::new("B3", what, mean / best, CPU_LIMIT, "×")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_measure::contender::Contender;
    use std::path::Path;

    fn series(name: &str, cpu: f64, peak: f64, checksum: u64) -> Series {
        let contender = match name {
            "sys" => Contender::system(),
            "spandrel" => Contender::spandrel("auto", Path::new("/x/libspandrel.so")),
            other => Contender::tuned(other, "x"),
        };
        let sample = json!({CPU: cpu, PEAK: peak, "checksum": checksum});
        Series { contender, samples: vec![sample], failed: None }
    }

    fn outcome(checksum: u64) -> Outcome {
        let series = vec![
            series("sys", 100.0, 10.0, 7),
            series("quick", 50.0, 30.0, 7),
            series("near", 54.0, 20.0, 7),
            series("spandrel", 45.0, 22.0, checksum),
        ];
        Outcome { name: "test", words: Vec::new(), series }
    }

    #[test]
    fn beside_the_best_and_the_leanest_of_the_fast() {
        let outcome = outcome(7);
        assert_eq!(outcome.best_peer(), Some(("quick", 50.0)));
        assert_eq!(outcome.leanest_peer(), Some(("near", 20.0)));
        let verdicts = outcome.judge();
        assert!((verdicts[0].value - 0.9).abs() < 1e-9 && verdicts[0].met);
        assert!((verdicts[1].value - 1.1).abs() < 1e-9 && !verdicts[1].met);
        assert!(outcome.wrong().is_empty());
    }

    #[test]
    fn another_result_is_wrong() {
        assert_eq!(outcome(8).wrong().len(), 1);
        let mut failing = outcome(7);
        failing.series[3].failed = Some("signal".into());
        assert_eq!(failing.wrong().len(), 1);
        failing.series[0].failed = Some("signal".into());
        assert!(failing.wrong().is_empty());
    }

    #[test]
    fn means_are_geometric_and_of_all_programs() {
        let mut outcomes = [outcome(7), outcome(7)];
        outcomes[1].series[1] = series("quick", 200.0, 1.0, 7);
        assert!((mean(&outcomes, "quick", CPU).unwrap() - 1.0).abs() < 1e-9);
        assert!((judge_mean(&outcomes)[0].value - 0.45 / 0.54).abs() < 1e-9);
        outcomes[1].series[3].samples.clear();
        assert_eq!(mean(&outcomes, "spandrel", CPU), None);
    }
}
