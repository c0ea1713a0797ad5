//! One job on all contenders.

use super::who;
use crate::report::target::Verdict;
use serde_json::{Value, json};
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, counted, median, middle_between};

/// One job's results.
pub struct Outcome {
    /// The part that it belongs to.
    pub name: &'static str,
    /// What tells it from others of the part, as tables have it: `2 threads`, `1024 MiB`.
    pub of: String,
    /// The number that tells it from others: threads, or MiB.
    pub number: u64,
    /// The arguments of the worker.
    pub words: Vec<String>,
    /// One per allocator.
    pub series: Vec<Series>,
}

/// How tables call a number of threads.
pub fn threads(number: u64) -> String {
    counted(number, "thread", "threads")
}

impl Outcome {
    /// What was measured of a contender.
    pub fn series_of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.contender.name == name)
    }

    /// The recoverable heap's.
    pub fn heap(&self) -> Option<&Series> {
        self.series_of(who::HEAP)
    }

    /// jemalloc's, in whatever build.
    pub fn jemalloc(&self) -> Option<&Series> {
        self.series.iter().find(|series| who::is_jemalloc(&series.contender))
    }

    /// What it is, with what tells it from others.
    pub fn title(&self) -> String {
        let of = &self.of;
        if of.is_empty() { self.name.into() } else { format!("{}, {of}", self.name) }
    }

    /// Holds the heap against another contender, round by round: what disturbs one disturbs its neighbour
    /// as well.
    pub fn judge(&self, target: &str, base: &Series, key: &str, most: f64) -> Option<Verdict> {
        let ours = self.heap()?;
        let ratio = middle(ours, key)? / middle(base, key)?;
        let what = format!("{}, {}: {}", who::HEAP, self.title(), base.contender.name);
        let mut verdict = Verdict::new(target, what, ratio, most, "×");
        let pairs = ours.values(key).into_iter().zip(base.values(key));
        verdict.between = middle_between(&pairs.map(|(one, two)| one / two).collect::<Vec<_>>());
        Some(verdict)
    }

    /// What did not work.
    pub fn failed(&self) -> impl Iterator<Item = String> {
        let failed =
            self.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        failed.map(|(who, why)| format!("{who}, {}: {why}", self.title()))
    }

    /// What does not work on the heap, though it does on the system's allocator.
    pub fn broken(&self) -> Option<String> {
        let fails = |series: Option<&Series>| series.is_some_and(|series| series.failed.is_some());
        let sys = self.series_of("sys");
        let is_ours = fails(self.heap()) && !fails(sys);
        let others = if sys.is_some() { " and not on sys" } else { "" };
        is_ours.then(|| format!("{}: fails on {}{others}", self.title(), who::HEAP))
    }

    /// Everything as JSON.
    pub fn data(&self) -> Value {
        let allocators = self.series.iter().map(|series| {
            let of = |key| Summary::of(&series.values(key));
            json!({
                "allocator": series.contender.name,
                "wall_ns": of("wall_ns"),
                "cpu_ns": of("cpu_ns"),
                "peak_rss": of("peak_rss"),
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        json!({
            "name": self.name,
            "of": self.of,
            "words": self.words,
            "allocators": allocators.collect::<Vec<_>>(),
        })
    }
}

/// The median of a number; nothing if it ever failed.
pub fn middle(series: &Series, key: &str) -> Option<f64> {
    if series.failed.is_some() { None } else { median(&series.values(key)) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use spandrel_measure::contender::Contender;

    /// A contender's rounds.
    pub fn series(name: &str, samples: Vec<Value>) -> Series {
        let contender = match name {
            who::HEAP => who::heap(),
            _ => Contender { name: name.into(), ..Contender::system() },
        };
        Series { contender, samples, failed: None }
    }

    /// A job of some rounds on some.
    pub fn outcome(name: &'static str, number: u64, series: Vec<Series>) -> Outcome {
        Outcome { name, of: threads(number), number, words: Vec::new(), series }
    }

    #[test]
    fn rounds_pair_up() {
        let rounds = |times: [f64; 6]| times.map(|ns| json!({"ns": ns})).to_vec();
        let all = vec![
            series("jemalloc-5.3.1", rounds([10.0, 20.0, 10.0, 10.0, 10.0, 10.0])),
            series("spandrel", rounds([9.0, 18.0, 11.0, 11.0, 10.5, 10.5])),
        ];
        let outcome = outcome("larson", 2, all);
        let verdict = outcome.judge("C1", outcome.jemalloc().unwrap(), "ns", 1.0).unwrap();
        assert!(verdict.what.contains("larson, 2 threads: jemalloc-5.3.1"));
        assert!(!verdict.met && (verdict.value - 1.075).abs() < 1e-9);
        assert_eq!(verdict.between, Some((0.9, 1.1)));
        assert!(verdict.line().contains("even"));
        assert!(outcome.broken().is_none() && outcome.failed().count() == 0);
    }

    #[test]
    fn what_fails_on_the_heap_alone_is_its_fault() {
        let mut outcome =
            outcome("larson", 1, vec![series("sys", vec![json!({})]), series("spandrel", vec![])]);
        outcome.series[1].failed = Some("signal".into());
        assert!(outcome.broken().unwrap().contains("larson, 1 thread"));
        outcome.series[0].failed = Some("signal".into());
        assert!(outcome.broken().is_none());
        assert_eq!(outcome.failed().count(), 2);
    }
}
