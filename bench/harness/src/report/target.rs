//! What the project promises, held against what was measured.

use super::case::Case;
use serde::Serialize;
use spandrel_measure::contender::Role;
use spandrel_report::numbers::median;

/// A promise about a case; the word names it in `docs/targets.md`.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// At most this many times the system's allocator.
    System(&'static str, f64),
    /// At most this many times the fastest peer.
    BestPeer(&'static str, f64),
    /// At most this many times the faster of the system's allocator and jemalloc, on cold memory.
    Cold(&'static str, f64),
    /// At most this much resident memory per byte of the object.
    Memory(&'static str, f64),
    /// At most this many ticks of the processor's time-stamp counter for a pair.
    Ticks(&'static str, f64),
}

/// A promise, kept or not.
#[derive(Serialize)]
pub struct Verdict {
    /// Its name.
    pub target: String,
    /// The allocator that was measured, at what, against what.
    pub what: String,
    /// What was measured.
    pub value: f64,
    /// What was promised.
    pub at_most: f64,
    /// The unit, as it stands behind the numbers.
    pub unit: String,
    /// Whether the promise was kept, to the last digit shown.
    pub met: bool,
    /// What the work takes without any allocator, where that is known.
    pub floor: Option<f64>,
    /// Between what the value lies, as far as the rounds tell.
    pub between: Option<(f64, f64)>,
}

impl Verdict {
    /// Compares as shown: with two digits behind the point.
    pub fn new(target: &str, what: String, value: f64, at_most: f64, unit: &str) -> Self {
        let shown = |number: f64| (number * 100.0).round();
        let met = shown(value) <= shown(at_most);
        Self {
            target: target.into(),
            what,
            value,
            at_most,
            unit: unit.into(),
            met,
            floor: None,
            between: None,
        }
    }

    /// As a line.
    pub fn line(&self) -> String {
        let met = match self.floor {
            _ if self.met => "ok".to_string(),
            Some(floor) if floor > self.at_most => {
                format!("missed; the work alone is {floor:.2}{}", self.unit)
            }
            _ => match self.between {
                Some((low, high)) if low <= self.at_most => {
                    format!("even: {low:.2} to {high:.2}{}", self.unit)
                }
                _ => "missed".to_string(),
            },
        };
        format!(
            "  {:<3} {:<50} {:>6.2}{} (at most {:.2}{})  {met}",
            self.target, self.what, self.value, self.unit, self.at_most, self.unit
        )
    }
}

/// Holds every row of Spandrel against the limits.
pub fn judge(case: &Case, limits: &[Limit]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let best = case.best_peer().map_or("", |(name, _)| name);
    for row in case.rows.iter().filter(|row| row.role == Role::Ours) {
        for limit in limits {
            let (target, against, value, at_most, unit) = match *limit {
                Limit::System(target, most) => {
                    (target, "sys".to_string(), row.to_system, most, "×")
                }
                Limit::BestPeer(target, most) => {
                    (target, format!("the best peer, {best}"), row.to_best_peer, most, "×")
                }
                Limit::Cold(target, most) => {
                    let ratio = row.cold.as_ref().and_then(|cold| cold.to_faster);
                    (target, "cold, sys or jemalloc".to_string(), ratio, most, "×")
                }
                Limit::Memory(target, most) => {
                    (target, "memory per byte".to_string(), row.rss_per_byte, most, "×")
                }
                Limit::Ticks(target, most) => {
                    let ticks = row.samples.iter().filter_map(|s| s["tsc_per_pair"].as_f64());
                    let ticks = median(&ticks.collect::<Vec<_>>());
                    (target, "ticks of the processor".to_string(), ticks, most, "")
                }
            };
            if let Some(value) = value {
                let what = format!("{}, {}: {against}", row.allocator, case.name);
                let mut verdict = Verdict::new(target, what, value, at_most, unit);
                if matches!(limit, Limit::System(..)) {
                    let floor = case.rows.iter().find(|row| row.role == Role::Floor);
                    verdict.floor = floor.and_then(|row| row.to_system);
                }
                verdicts.push(verdict);
            }
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_as_shown() {
        let met = |value, most| Verdict::new("A1", String::new(), value, most, "×").met;
        assert!(met(0.95, 0.95));
        assert!(met(0.954, 0.95));
        assert!(!met(0.956, 0.95));
    }

    #[test]
    fn what_may_be_noise_is_not_called_missed() {
        let mut verdict = Verdict::new("", String::new(), 1.03, 1.0, "×");
        assert!(verdict.line().ends_with("missed"));
        verdict.between = Some((1.01, 1.06));
        assert!(verdict.line().ends_with("missed"));
        verdict.between = Some((0.98, 1.06));
        assert!(verdict.line().ends_with("even: 0.98 to 1.06×"));
        assert!(!verdict.met);
    }
}
