//! How long commands take, in batches of several sizes that take turns.

use std::time::{Duration, Instant};

/// Commands of a batch.
pub const BATCHES: [usize; 3] = [1, 16, 100];
/// The largest of them.
const LARGEST: usize = 100;
/// Parts of the time that each size gets, one after the other's: what disturbs one part leaves the median alone.
const SLICES: usize = 9;
/// Commands between two looks at the clock.
const UNLOOKED: usize = 32;
/// Batches of each size before the clock starts: at least, and at most within the time of a slice.
const WARM: [usize; 2] = [3, 20];

/// Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*: the finalizer.
pub const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The same generator: equal seeds give equal numbers.
pub struct Random(u64);

impl Random {
    /// One with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "there is always a next one")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest duration of all.
    pub time: Duration,
    /// Commands of a slice at most.
    pub commands: usize,
}

impl Limits {
    /// Of that number of milliseconds. Commands of a kind that adds keys add a part of `keys` at most in each slice.
    pub fn of(millis: u64, keys: u64, growth: f64) -> Self {
        let grown = (keys as f64 * growth) as usize;
        let commands = if growth > 0.0 { grown.max(2 * LARGEST) } else { usize::MAX };
        Self { time: Duration::from_millis(millis), commands }
    }
}

/// What was measured.
#[derive(Clone, Copy, Default, Debug)]
pub struct Times {
    /// Nanoseconds for a command, for each size of [`BATCHES`]: the median of the slices.
    pub nanoseconds: [f64; BATCHES.len()],
    /// Commands in all.
    pub commands: u64,
    /// Batches in all.
    pub batches: u64,
}

/// Times `batch`, which runs a command for each number that it is called with.
///
/// # Errors
/// Those of `batch`.
pub fn measure(
    limits: Limits,
    mut batch: impl FnMut(&[u64]) -> Result<(), String>,
) -> Result<Times, String> {
    let (mut random, mut numbers, mut times) = (Random::new(7), [0; LARGEST], Times::default());
    let mut one = |size: usize| {
        let numbers = &mut numbers[..size];
        numbers.iter_mut().for_each(|number| *number = random.next());
        batch(numbers)
    };
    let of_slice = limits.time / (SLICES * BATCHES.len()) as u32;
    for size in BATCHES {
        let (begun, [least, most]) = (Instant::now(), WARM);
        (0..most)
            .take_while(|turn| *turn < least || begun.elapsed() < of_slice)
            .try_for_each(|_| one(size))?;
    }
    let mut slices: [Vec<f64>; BATCHES.len()] = Default::default();
    for _ in 0..SLICES {
        for (size, slices) in BATCHES.into_iter().zip(&mut slices) {
            let (mut done, begun) = (0, Instant::now());
            let taken = loop {
                let least = done + UNLOOKED.min(limits.commands);
                while done < least {
                    one(size)?;
                    (done, times.batches) = (done + size, times.batches + 1);
                }
                let taken = begun.elapsed();
                if taken >= of_slice || done >= limits.commands {
                    break taken;
                }
            };
            slices.push(taken.as_nanos() as f64 / done as f64);
            times.commands += done as u64;
        }
    }
    for (slices, nanoseconds) in slices.iter_mut().zip(&mut times.nanoseconds) {
        slices.sort_by(f64::total_cmp);
        *nanoseconds = slices[SLICES / 2];
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_each_size_are_timed_and_limited() {
        let limits = Limits::of(30, 1000, 0.0);
        let mut sizes = [0; LARGEST + 1];
        let times = measure(limits, |numbers| {
            sizes[numbers.len()] += 1;
            Ok(())
        })
        .unwrap();
        assert!(times.nanoseconds.iter().all(|time| *time > 0.0));
        assert_eq!(sizes.iter().filter(|count| **count > 0).count(), BATCHES.len());
        let mut commands = 0;
        let limits = Limits::of(30_000, 100_000, 0.01);
        let times = measure(limits, |numbers| {
            commands += numbers.len();
            Ok(())
        })
        .unwrap();
        assert!(times.commands <= (SLICES * BATCHES.len() * 1200) as u64, "{times:?}");
        assert!(commands as u64 > times.commands);
        assert!(measure(limits, |_| Err("no".into())).is_err());
    }
}
