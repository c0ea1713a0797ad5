//! One workload on every allocator: the best and the worst fixed mode beside `auto`, and what it
//! costs an allocator to stand behind Spandrel.

use super::list::{HARDLY, PHASES, Workload};
use super::workers::{AUTO, TRAINED, both_ways, is_fixed};
use crate::report::target::Verdict;
use serde_json::{Value, json};
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, median, middle_between};

/// The number that is compared: CPU time of the whole process.
pub const CPU: &str = "cpu_ns";
pub const PEAK: &str = "peak_rss";

/// Target P1: `auto` to the best fixed mode; on the job with phases it is to be ahead of all.
const AUTO_LIMIT: f64 = 1.02;
const PHASES_LIMIT: f64 = 1.0;
/// The same with a trained profile.
const TRAINED_LIMIT: f64 = 1.01;
/// Target P2: a program that hardly allocates, to the same mode that only passes on.
const HARDLY_LIMIT: f64 = 1.01;
/// Target P3: the paper found that it costs glibc 3.5 % to stand behind Brug; verdicts have two digits.
const BEHIND_LIMIT: f64 = 1.04;

/// One workload's results.
pub struct Outcome {
    /// What was done.
    pub workload: Workload,
    /// How often.
    pub count: u64,
    /// One per allocator.
    pub series: Vec<Series>,
}

/// A mode's name and its median.
pub type Of<'a> = (&'a str, f64);

impl Outcome {
    /// What was measured of one allocator.
    pub fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.contender.name == name)
    }

    /// The median of a number; nothing if it ever failed.
    pub fn median(&self, name: &str, key: &str) -> Option<f64> {
        let series = self.of(name)?;
        if series.failed.is_some() { None } else { median(&series.values(key)) }
    }

    /// The same, relative to the system's allocator by itself.
    pub fn to_system(&self, name: &str, key: &str) -> Option<f64> {
        Some(self.median(name, key)? / self.median("sys", key)?)
    }

    fn fixed(&self) -> impl Iterator<Item = Of<'_>> {
        self.series.iter().filter(|series| is_fixed(&series.contender)).filter_map(|series| {
            let name = series.contender.name.as_str();
            Some((name, self.median(name, CPU)?))
        })
    }

    /// The fixed mode that takes the least CPU time.
    pub fn best(&self) -> Option<Of<'_>> {
        self.fixed().min_by(|one, two| one.1.total_cmp(&two.1))
    }

    /// The one that takes the most.
    pub fn worst(&self) -> Option<Of<'_>> {
        self.fixed().max_by(|one, two| one.1.total_cmp(&two.1))
    }

    /// `auto`.
    pub fn auto(&self) -> Option<f64> {
        self.median(AUTO, CPU)
    }

    /// Holds `auto` against the best fixed mode.
    pub fn judge(&self) -> Vec<Verdict> {
        let name = self.workload.name;
        let best = self.best().map(|(best, _)| best.to_string());
        let limit = if name == PHASES { PHASES_LIMIT } else { AUTO_LIMIT };
        let mut verdicts: Vec<Verdict> = best
            .as_deref()
            .and_then(|best| self.verdict("P1", AUTO, best, limit, "the best fixed mode, "))
            .into_iter()
            .collect();
        verdicts.extend(best.as_deref().and_then(|best| {
            self.verdict("P1", TRAINED, best, TRAINED_LIMIT, "the best fixed mode, ")
        }));
        if name == HARDLY {
            verdicts.extend(self.verdict("P2", AUTO, "spandrel sys", HARDLY_LIMIT, ""));
        }
        verdicts
    }

    fn verdict(
        &self,
        target: &str,
        who: &str,
        base: &str,
        most: f64,
        about: &str,
    ) -> Option<Verdict> {
        let ratio = self.median(who, CPU)? / self.median(base, CPU)?;
        let [name, short] = [who, base].map(|name| name.strip_prefix("spandrel ").unwrap_or(name));
        let name = if who == AUTO { "auto" } else { name };
        let what = format!("{name}, {}: {about}{short}", self.workload.name);
        let mut verdict = Verdict::new(target, what, ratio, most, "×");
        // Round by round: what disturbs one of them disturbs its neighbour as well.
        let values = |name: &str| self.of(name).map(|series| series.values(CPU));
        let pairs: Vec<f64> =
            values(who)?.into_iter().zip(values(base)?).map(|(one, two)| one / two).collect();
        verdict.between = middle_between(&pairs);
        Some(verdict)
    }

    /// What went wrong on an allocator and not on the system's: it failed, or came to another
    /// result.
    pub fn wrong(&self) -> Vec<String> {
        let checksum = |sample: &Value| sample.get("checksum").cloned();
        let system = self.of("sys").filter(|system| system.failed.is_none());
        let Some(expected) = system.and_then(|system| checksum(system.samples.first()?)) else {
            return vec![format!(
                "{}: it does not work on the system's allocator",
                self.workload.name
            )];
        };
        let mut wrong = Vec::new();
        for series in &self.series {
            let other = |sample: &Value| checksum(sample).as_ref() != Some(&expected);
            if series.samples.iter().any(other) {
                let who = &series.contender.name;
                wrong.push(format!("{}: another result on {who} than on sys", self.workload.name));
            } else if series.failed.is_some() && series.contender.ours() {
                let who = &series.contender.name;
                wrong.push(format!("{}: fails on {who} and not on sys", self.workload.name));
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
                "wall_ns": of("wall_ns"),
                "work_ns": of("work_ns"),
                "peak_rss": of(PEAK),
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        let mode = |of: Option<Of>| of.map(|(mode, cpu)| json!({"mode": mode, "cpu_ns": cpu}));
        json!({
            "workload": self.workload.name,
            "figure": self.workload.figure,
            "count": self.count,
            "best": mode(self.best()),
            "auto": self.auto(),
            "worst": mode(self.worst()),
            "allocators": allocators.collect::<Vec<_>>(),
        })
    }
}

/// The geometric mean over all workloads of what an allocator takes behind Spandrel to what it takes
/// by itself.
pub fn behind(outcomes: &[Outcome], direct: &str, behind: &str) -> Option<f64> {
    let ratio = |outcome: &Outcome| {
        Some((outcome.median(behind, CPU)? / outcome.median(direct, CPU)?).ln())
    };
    let ratios: Vec<f64> = outcomes.iter().filter_map(ratio).collect();
    (!ratios.is_empty()).then(|| (ratios.iter().sum::<f64>() / ratios.len() as f64).exp())
}

/// Whether standing behind Spandrel costs no more than it cost behind Brug.
pub fn judge_behind(outcomes: &[Outcome]) -> Vec<Verdict> {
    let verdict = |(direct, name): (&str, String)| {
        let ratio = behind(outcomes, direct, &name)?;
        let what = format!("{direct} behind Spandrel: {direct} by itself");
        Some(Verdict::new("P3", what, ratio, BEHIND_LIMIT, "×"))
    };
    both_ways().filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{list, workers};
    use super::*;

    /// Rows of name and CPU time; the others take 100.
    fn outcome(workload: &str, times: &[(&str, f64)], checksum: &str) -> Outcome {
        let workload = list::choose(Some(&[workload.to_string()])).unwrap()[0];
        let series = workers::contenders(&workload).into_iter().map(|contender| {
            let time = times.iter().find(|(name, _)| *name == contender.name);
            let sum = if contender.name == AUTO { checksum } else { "a" };
            let sample = json!({CPU: time.map_or(100.0, |(_, time)| *time), "checksum": sum});
            Series { contender, samples: vec![sample], failed: None }
        });
        Outcome { workload, count: 1, series: series.collect() }
    }

    const TIMES: &[(&str, f64)] = &[
        ("spandrel native", 80.0),
        ("spandrel jemalloc", 130.0),
        ("spandrel", 81.0),
        ("mimalloc", 1.0),
    ];

    #[test]
    fn best_and_worst_are_fixed_modes() {
        let outcome = outcome("hashmap", TIMES, "a");
        assert_eq!(outcome.best(), Some(("spandrel native", 80.0)));
        assert_eq!(outcome.worst(), Some(("spandrel jemalloc", 130.0)));
        assert_eq!(outcome.auto(), Some(81.0));
        assert!(outcome.wrong().is_empty());
    }

    #[test]
    fn within_two_hundredths_but_ahead_on_phases() {
        let verdicts = outcome("hashmap", TIMES, "a").judge();
        assert!(verdicts.len() == 1 && verdicts[0].met && verdicts[0].target == "P1");
        assert!(!outcome("phases", TIMES, "a").judge()[0].met);
        let mut trained = outcome("hashmap", TIMES, "a");
        let contender = workers::trained("x".as_ref());
        let sample = json!({CPU: 82.0, "checksum": "a"});
        trained.series.push(Series { contender, samples: vec![sample], failed: None });
        let verdicts = trained.judge();
        assert!(verdicts.len() == 2 && !verdicts[1].met, "2 of 80 are more than a hundredth");
        let slow = outcome("hashmap", &[("spandrel", 103.0)], "a");
        assert!(!slow.judge()[0].met);
        let hardly = outcome("hardly", &[("spandrel", 101.6)], "a").judge();
        assert!(hardly[0].met && hardly[1].target == "P2" && !hardly[1].met);
    }

    #[test]
    fn another_result_is_wrong() {
        assert_eq!(outcome("hashmap", TIMES, "b").wrong().len(), 1);
        let mut failing = outcome("hashmap", TIMES, "a");
        let auto = failing.series.iter_mut().find(|series| series.contender.name == AUTO);
        auto.unwrap().failed = Some("signal".into());
        assert_eq!(failing.wrong().len(), 1);
        assert_eq!(failing.auto(), None);
        assert!(failing.judge().is_empty());
    }

    #[test]
    fn what_it_costs_to_stand_behind() {
        let times = [("spandrel sys", 104.0), ("spandrel mimalloc", 99.0)];
        let outcomes = [outcome("hashmap", &times, "a"), outcome("hashmap", &times, "a")];
        let verdicts = judge_behind(&outcomes);
        assert_eq!(verdicts.iter().map(|v| v.met).collect::<Vec<_>>(), [true, true, true]);
        assert!((verdicts[0].value - 1.04).abs() < 1e-9);
    }
}
