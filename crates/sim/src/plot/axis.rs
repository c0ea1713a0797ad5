//! What a horizontal axis shows: numbers as they are, or sizes by powers of two.

use super::number;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use spandrel_pages::{GIB, KIB, MIB, TIB};
use std::ops::Range;

/// This many marks of sizes have room beside each other.
const MARKS: usize = 13;

/// How a horizontal axis shows what it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Axis {
    /// From zero, evenly.
    Number,
    /// Bytes: each power of two is as far from the next, and has its unit.
    Bytes,
}

impl Axis {
    /// Where a value is.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Number => value,
            Self::Bytes => value.max(1.0).log2(),
        }
    }

    /// What stands at a mark.
    pub(super) fn label(self, place: f64) -> String {
        if self == Self::Number {
            return number(&place);
        }
        let bytes = place.exp2();
        let units = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
        let unit = units.into_iter().find(|(unit, _)| bytes >= *unit as f64);
        let (unit, name) = unit.unwrap_or((1, "B"));
        format!("{} {name}", number(&(bytes / unit as f64)))
    }

    /// From the first to the last of these values, with marks.
    pub(super) fn across(self, values: impl Iterator<Item = f64>) -> Across {
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for value in values.map(|value| self.place(value)) {
            (least, most) = (least.min(value), most.max(value));
        }
        if self == Self::Number {
            let most = if most > 0.0 { most } else { 1.0 };
            return Across { range: (0.0..most).into(), marks: None };
        }
        let from = if least <= most { least.floor() } else { 0.0 };
        let to = most.ceil().max(from + 1.0);
        let octaves = (to - from) as usize;
        let step = (octaves / MARKS + 1).next_power_of_two();
        // Whole steps from one byte: 16 B, 64 B, 256 B, and not 8, 32, 128.
        let marks = (from as usize..=to as usize).filter(|log2| log2.is_multiple_of(step));
        Across { range: (from..to).into(), marks: Some(marks.map(|log2| log2 as f64).collect()) }
    }
}

/// The places along an axis.
pub(super) struct Across {
    range: RangedCoordf64,
    /// Where there are marks, unless anywhere.
    marks: Option<Vec<f64>>,
}

impl Ranged for Across {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        self.marks.clone().unwrap_or_else(|| self.range.key_points(hint))
    }

    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let labels = [0.0, 4.0, 9.0, 10.0, 16.0, 21.0, 34.0, 42.0].map(|at| Axis::Bytes.label(at));
        let wanted = ["1 B", "16 B", "512 B", "1 KiB", "64 KiB", "2 MiB", "16 GiB", "4 TiB"];
        assert_eq!(labels, wanted);
        assert_eq!(Axis::Number.label(12_000.0), "12,000");
    }

    #[test]
    fn marks_are_powers_of_two_that_have_room() {
        for (least, most, marks) in [
            (8192.0, 131_072.0, &[13.0, 14.0, 15.0, 16.0, 17.0][..]),
            (9.0, 200_000.0, &[4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]),
            (4096.0, 4096.0, &[12.0, 13.0]),
            (0.0, 0.0, &[0.0, 1.0]),
        ] {
            let across = Axis::Bytes.across([least, most].into_iter());
            assert_eq!(across.marks.as_deref(), Some(marks), "{least} to {most}");
            assert!(across.range().start <= Axis::Bytes.place(least));
            assert!(across.range().end >= Axis::Bytes.place(most));
        }
        let widest = Axis::Bytes.across([0.0, 1e18].into_iter()).marks.unwrap();
        assert!(widest.len() <= MARKS + 1, "{widest:?}");
        assert_eq!(Axis::Bytes.across(std::iter::empty()).range(), 0.0..1.0);
        assert_eq!(Axis::Number.across([2.0, 7.5].into_iter()).range(), 0.0..7.5);
    }
}
