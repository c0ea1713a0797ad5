//! What requests cost: sums of a window, and estimates that forget.

/// Requests of one kind, one range of sizes and one allocator, as a window has seen them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tally {
    /// How many there were.
    pub count: u32,
    /// Nanoseconds that they took together.
    pub nanos: u64,
    /// Squares of the nanoseconds of each, added up.
    pub squares: u64,
}

impl Tally {
    /// No requests.
    pub const NONE: Self = Tally { count: 0, nanos: 0, squares: 0 };
}

/// What one request costs, as far as is known.
///
/// Mean and variance of what was seen lately: what is older counts for less, so that the estimate
/// follows a program from phase to phase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Requests that it stands on, those that are old in part.
    weight: f32,
    mean: f32,
    variance: f32,
}

/// Of what was known before a window so much counts after it.
const KEPT: f32 = 0.75;
/// An estimate never stands on more than this: a thousand requests are enough to tell costs apart by a
/// few percent, and more would be slow to forget.
const MOST_WEIGHT: f32 = 4096.0;
/// Requests from which on there is something to compare.
const LEAST_WEIGHT: f32 = 64.0;

impl Estimate {
    /// Nothing is known.
    const NONE: Self = Estimate { weight: 0.0, mean: 0.0, variance: 0.0 };

    /// Learns what a window has seen.
    pub fn learn(&mut self, seen: Tally) {
        if seen.count == 0 {
            return;
        }
        let count = seen.count as f32;
        let mean = seen.nanos as f32 / count;
        let variance = (seen.squares as f32 / count - mean * mean).max(0.0);
        let old = self.weight * KEPT;
        let all = old + count;
        let (part, gap) = (count / all, mean - self.mean);
        // Of two groups together: what varies within each, and between them.
        self.variance =
            self.variance * (1.0 - part) + variance * part + gap * gap * part * (1.0 - part);
        self.mean += gap * part;
        self.weight = all.min(MOST_WEIGHT);
    }

    /// Nanoseconds of a request; `None`: too few were seen.
    pub fn nanos(&self) -> Option<f32> {
        (self.weight >= LEAST_WEIGHT).then_some(self.mean)
    }

    /// The square of the mean's standard error.
    fn error_squared(&self) -> f32 {
        // What was seen once may be slower another time although all of it was alike: windows differ
        // by some percent with what else runs.
        let drift = 0.02 * self.mean;
        self.variance / self.weight.max(1.0) + drift * drift
    }
}

/// What objects of a range of sizes cost with one allocator: to be made and to be given back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pair {
    /// To make one.
    pub made: Estimate,
    /// To give one back. Objects may live for ever: then it is not known, and counts as the making.
    pub freed: Estimate,
}

impl Pair {
    /// Nothing is known.
    pub const NONE: Self = Pair { made: Estimate::NONE, freed: Estimate::NONE };

    /// Nanoseconds of both; `None`: too few were seen.
    pub fn nanos(&self) -> Option<f32> {
        let made = self.made.nanos()?;
        Some(made + self.freed.nanos().unwrap_or(made))
    }

    /// Whether this one costs less than another by a part of that, for certain: by more than twice the
    /// standard error of the difference.
    pub fn beats(&self, other: &Pair, by: f32) -> bool {
        let (Some(ours), Some(theirs)) = (self.nanos(), other.nanos()) else { return false };
        let gap = theirs * (1.0 - by) - ours;
        let error = |pair: &Pair| {
            let made = pair.made.error_squared();
            made + if pair.freed.nanos().is_some() { pair.freed.error_squared() } else { made }
        };
        gap > 0.0 && gap * gap > 4.0 * (error(self) + error(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(count: u32, each: u64) -> Tally {
        Tally { count, nanos: u64::from(count) * each, squares: u64::from(count) * each * each }
    }

    #[test]
    fn an_estimate_is_the_mean_and_follows_what_changes() {
        let mut cost = Estimate::NONE;
        cost.learn(tally(63, 100));
        assert_eq!(cost.nanos(), None, "too few");
        cost.learn(tally(1000, 100));
        assert!((cost.nanos().unwrap() - 100.0).abs() < 0.1);
        for _ in 0..8 {
            cost.learn(tally(1000, 300));
        }
        assert!((cost.nanos().unwrap() - 300.0).abs() < 20.0, "{cost:?}");
        assert!(cost.weight <= MOST_WEIGHT);
    }

    #[test]
    fn variance_is_that_of_all_that_was_seen() {
        let mut cost = Estimate::NONE;
        // 50 and 150 in turns.
        cost.learn(Tally { count: 1000, nanos: 100_000, squares: 500 * (2500 + 22_500) });
        assert!((cost.variance - 2500.0).abs() < 10.0, "{cost:?}");
        let (mut one, mut other) = (Estimate::NONE, Estimate::NONE);
        one.learn(tally(500, 50));
        other.learn(tally(1, 50));
        one.learn(tally(500, 150));
        assert!(one.variance > 2000.0, "{one:?}");
    }

    #[test]
    fn what_is_the_same_within_chance_beats_nobody() {
        let pair = |each: u64| {
            let mut pair = Pair::NONE;
            pair.made.learn(tally(1000, each));
            pair.freed.learn(tally(1000, each));
            pair
        };
        assert!(!pair(100).beats(&pair(100), 0.0));
        assert!(!pair(98).beats(&pair(100), 0.0), "windows differ by that");
        assert!(pair(80).beats(&pair(100), 0.1));
        assert!(!pair(95).beats(&pair(100), 0.1), "less than the part");
        assert!(!pair(1).beats(&Pair::NONE, 0.0), "of the other nothing is known");
        let noisy = |each: u64| {
            let mut pair = pair(each);
            pair.made.variance = 1e9;
            pair
        };
        assert!(!noisy(50).beats(&noisy(100), 0.1), "too uncertain");
    }

    #[test]
    fn who_is_never_freed_costs_that_much_twice() {
        let mut pair = Pair::NONE;
        pair.made.learn(tally(1000, 40));
        assert!((pair.nanos().unwrap() - 80.0).abs() < 0.1);
    }
}
