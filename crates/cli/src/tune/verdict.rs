//! Whether one way is faster than another, from rounds in which they took turns.

use serde::Deserialize;
use spandrel_report::numbers::{median, middle_between};

/// A way has to be this much faster than what it would replace: noise decides nothing.
const WORTH: f64 = 0.99;

/// How one way compares with another: their times round by round.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// The middle of the rounds' ratios.
    #[serde(rename = "time")]
    pub median: f64,
    /// The true one is not more than this, nearly always; with few rounds the largest that was seen.
    #[serde(rename = "at_most")]
    pub most: f64,
}

impl Ratio {
    /// Of the times of one to those of the other; `None`: there are none.
    pub fn of(times: &[f64], others: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = times.iter().zip(others).map(|(time, other)| time / other).collect();
        let largest = ratios.iter().copied().max_by(f64::total_cmp)?;
        let most = middle_between(&ratios).map_or(largest, |(_, most)| most);
        Some(Self { median: median(&ratios)?, most })
    }

    /// Whether it is faster for certain, and by enough.
    pub fn is_better(&self) -> bool {
        self.most < WORTH
    }

    /// In words: how much less or more time it takes.
    pub fn words(&self) -> String {
        match (self.median - 1.0) * 100.0 {
            percent if percent <= -0.5 => format!("{:.0}% less", -percent),
            percent if percent >= 0.5 => format!("{percent:.0}% more"),
            _ => "the same".into(),
        }
    }
}

/// Which of these ways is better than what they are compared with, and best; `None`: none is.
pub fn best<T>(ways: &[(T, Option<Ratio>)]) -> Option<(&T, Ratio)> {
    ways.iter()
        .filter_map(|(way, ratio)| Some((way, ratio.filter(Ratio::is_better)?)))
        .min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_decides_nothing() {
        let base = [100.0, 104.0, 98.0, 101.0, 97.0, 103.0, 99.0];
        let same = [99.0, 101.0, 99.0, 100.0, 98.0, 100.0, 100.0];
        let ratio = Ratio::of(&same, &base).unwrap();
        assert!(!ratio.is_better(), "{ratio:?}");
        assert_eq!(Ratio { median: 1.004, most: 1.1 }.words(), "the same");
    }

    #[test]
    fn what_is_always_faster_is_better() {
        let base = [100.0, 120.0, 98.0, 101.0, 140.0, 103.0, 99.0];
        let faster: Vec<f64> = base.iter().map(|time| time * 0.9).collect();
        let ratio = Ratio::of(&faster, &base).unwrap();
        assert!(ratio.is_better());
        assert_eq!(ratio.words(), "10% less");
        assert_eq!(Ratio::of(&base, &faster).unwrap().words(), "11% more");
    }

    #[test]
    fn one_round_that_was_slow_among_few_is_a_doubt() {
        let ratio = Ratio::of(&[80.0, 80.0, 101.0], &[100.0; 3]).unwrap();
        assert!(!ratio.is_better() && ratio.median == 0.8);
        assert_eq!(Ratio::of(&[], &[]), None);
    }

    #[test]
    fn the_best_of_those_that_are_better() {
        let ratio = |median, most| Some(Ratio { median, most });
        let ways =
            [("a", ratio(0.9, 0.95)), ("b", ratio(0.8, 1.1)), ("c", ratio(0.85, 0.9)), ("d", None)];
        assert_eq!(best(&ways).unwrap().0, &"c");
        assert!(best(&ways[1..2]).is_none());
    }
}
