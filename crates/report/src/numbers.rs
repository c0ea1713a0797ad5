//! Medians and how people read numbers.

use serde::Serialize;

/// What is kept of a series of measurements.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Lower quartile.
    pub low: f64,
    /// Upper quartile.
    pub high: f64,
}

impl Summary {
    /// `None` for an empty series.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: quantile(&sorted, 0.5)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            low: quantile(&sorted, 0.25)?,
            high: quantile(&sorted, 0.75)?,
        })
    }

    /// Half of the distance between the quartiles, relative to the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median }
    }
}

/// The value below which a share of the sorted series lies, interpolated.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * (sorted.len().checked_sub(1)?) as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    Some(below + (above - below) * place.fract())
}

/// The median; `None` for an empty series.
pub fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|summary| summary.median)
}

/// Where the middle of the population lies that a series was taken from, with a probability of at
/// least 95 % (the order statistics of the sign test); `None` for fewer than six values.
pub fn middle_between(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Of n values fewer than k lie below the middle with the probability `tail`.
    let n = sorted.len();
    let mut chance = 0.5_f64.powi(i32::try_from(n).ok()?);
    let (mut k, mut tail) = (0, chance);
    while tail <= 0.025 && k < n / 2 {
        k += 1;
        chance *= (n - k + 1) as f64 / k as f64;
        tail += chance;
    }
    Some((*sorted.get(k.checked_sub(1)?)?, *sorted.get(n - k)?))
}

/// Nanoseconds with three digits and a unit.
pub fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// From a time to another; the unit once if it is the same.
pub fn range(from: f64, to: f64) -> String {
    let (from, to) = (time(from), time(to));
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((value, unit)), Some((_, same))) if unit == same => format!("{value} – {to}"),
        _ => format!("{from} – {to}"),
    }
}

/// Bytes with three digits and a unit.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{} {}", digits(value), UNITS[unit]) }
}

/// A power of two, without digits behind the point.
pub fn whole(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// A count with thousands separated.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of things: `1 thread`, `1,000 threads`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A number as an axis shows it: no more digits than it needs.
pub fn plain(value: &f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text.split_once('.') {
        None => text.parse().map_or_else(|_| text.to_owned(), count),
        Some(_) => text.to_owned(),
    }
}

/// Three significant digits, or all that stand before the point.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_middle_lies() {
        let series = |n: u32| (1..=n).rev().map(f64::from).collect::<Vec<_>>();
        // As tables of the sign test have it.
        assert_eq!(middle_between(&series(5)), None);
        assert_eq!(middle_between(&series(6)), Some((1.0, 6.0)));
        assert_eq!(middle_between(&series(9)), Some((2.0, 8.0)));
        assert_eq!(middle_between(&series(15)), Some((4.0, 12.0)));
        assert_eq!(middle_between(&series(100)), Some((40.0, 61.0)));
        assert_eq!(middle_between(&[]), None);
        assert!(middle_between(&series(3000)).is_some());
    }

    #[test]
    fn medians() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert_eq!((summary.min, summary.max), (1.0, 100.0));
        assert_eq!((summary.low, summary.high), (2.0, 4.0));
        assert!((summary.spread() - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn units() {
        assert_eq!(time(12.0), "12.0 ns");
        assert_eq!(time(1_500.0), "1.50 µs");
        assert_eq!(time(660_989_524.0), "661 ms");
        assert_eq!(time(2.5e9), "2.50 s");
        assert_eq!(range(77.1e6, 92.6e6), "77.1 – 92.6 ms");
        assert_eq!(range(977e6, 1.2e9), "977 ms – 1.20 s");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(4096.0), "4.00 KiB");
        assert_eq!(bytes(1023.0 * 1024.0), "1.00 MiB");
        assert_eq!([whole(64), whole(4096), whole(2 << 30)], ["64 B", "4 KiB", "2 GiB"]);
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        let processes = |number| counted(number, "process", "processes");
        assert_eq!([0, 1, 2000].map(processes), ["0 processes", "1 process", "2,000 processes"]);
        assert_eq!(digits(9.999), "10.0");
        assert_eq!(
            [0.0, 0.25, 10.0, 12345.0, -3.5].map(|n| plain(&n)),
            ["0", "0.25", "10", "12,345", "-3.5"]
        );
    }
}
