//! How large the heap is to be, over time.

use crate::error::Error;
use crate::sizes::Sizes;
use crate::table::Table;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use spandrel_pages::HEAP_PAGE_BYTES;

/// A target never changes faster than over this time, so that rates stay finite.
const STEP_S: f64 = 0.001;
/// The longest simulated time: thirty years.
const SECONDS_MAX: f64 = 1e8;
const ROWS_MAX: usize = 100_000;
/// A heap is filled in this part of a run.
const FILLING: f64 = 0.02;

/// The usual courses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// Always the same.
    Steady,
    /// It fluctuates, drops once, and fluctuates again (Fig. 11).
    Drop {
        /// What is left after it.
        to: f64,
        /// By which part the target fluctuates at most.
        fluctuation: f64,
    },
    /// Rises from a part of its peak and falls at once, again and again (Fig. 10).
    SawTooth {
        /// The part that stays.
        from: f64,
        /// How often.
        teeth: u32,
    },
}

impl Shape {
    /// [`Shape::Drop`] to a third.
    pub const DROP: Self = Self::Drop { to: 1.0 / 3.0, fluctuation: 0.08 };
    /// [`Shape::SawTooth`] of six teeth.
    pub const SAW_TOOTH: Self = Self::SawTooth { from: 0.4, teeth: 6 };

    /// Parts of the run and of the peak.
    fn points(self, seed: u64) -> Vec<(f64, f64)> {
        let mut points = vec![(0.0, 0.0)];
        match self {
            Self::Steady => points.extend([(FILLING, 1.0), (1.0, 1.0)]),
            Self::Drop { to, fluctuation } => {
                const POINTS: u32 = 50;
                const AT: f64 = 0.35;
                let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
                // The fluctuation goes down only, so that the peak is what was asked for.
                let mut level = |of: f64| of * (1.0 - fluctuation * random.random_range(0.0..1.0));
                points.push((FILLING, level(1.0)));
                for n in 2..=POINTS {
                    let at = f64::from(n) / f64::from(POINTS);
                    if at > AT && at - 1.0 / f64::from(POINTS) <= AT {
                        points.extend([(AT, 1.0), (AT + 0.01, level(to))]);
                    }
                    if !(AT..=AT + 0.01).contains(&at) {
                        points.push((at, level(if at < AT { 1.0 } else { to })));
                    }
                }
            }
            Self::SawTooth { from, teeth } => {
                let width = (1.0 - FILLING) / f64::from(teeth.max(1));
                points.push((FILLING, from));
                for n in 0..teeth.max(1) {
                    let end = FILLING + f64::from(n + 1) * width;
                    points.extend([(end - width * 0.02, 1.0), (end, from)]);
                }
            }
        }
        points
    }
}

/// A course of the heap's size: straight lines between points.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Seconds and pages; seconds rise.
    points: Vec<(f64, f64)>,
    settled_s: f64,
}

impl Target {
    /// Straight lines between points of seconds and pages; before the first the size is that of the
    /// first. Two points at the same time make a step.
    ///
    /// # Errors
    /// There are none, or time goes backwards.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, Error> {
        let mut steps: Vec<(f64, f64)> = Vec::with_capacity(points.len() + 2);
        let mut given_s = 0.0;
        for (seconds, pages) in points {
            if !(0.0..=SECONDS_MAX).contains(&seconds) || !(0.0..=u32::MAX.into()).contains(&pages)
            {
                return Err(Error::new("a point of the target that is no time or size"));
            }
            if seconds < given_s {
                return Err(Error::new("time goes backwards in the target"));
            }
            given_s = seconds;
            if steps.is_empty() {
                // What is there at the beginning has to be allocated first.
                steps.push((0.0, 0.0));
                if pages > 0.0 {
                    steps.push((STEP_S, pages));
                }
                if seconds < STEP_S {
                    continue;
                }
            }
            let earliest = steps.last().map_or(0.0, |last| last.0 + STEP_S);
            steps.push((seconds.max(earliest), pages));
        }
        if steps.iter().all(|point| point.1 < 1.0) {
            return Err(Error::new("a target of nothing; say how large the heap is to be"));
        }
        if steps.last().is_none_or(|last| last.0 <= STEP_S) {
            return Err(Error::new("a target of no duration; say how the heap is to go on"));
        }
        let settled_s = steps.get(1).map_or(0.0, |point| point.0);
        Ok(Self { points: steps, settled_s })
    }

    /// A usual course up to a peak, as long as about `operations` operations take.
    ///
    /// # Errors
    /// So few operations do not even fill the heap.
    pub fn of(
        shape: Shape,
        sizes: &Sizes,
        peak_pages: f64,
        operations: u64,
        seed: u64,
    ) -> Result<Self, Error> {
        let parts = shape.points(seed);
        let pairs = || parts.iter().zip(parts.iter().skip(1));
        let mean: f64 = pairs().map(|(a, b)| (b.0 - a.0) * (a.1 + b.1) / 2.0).sum();
        let changes: f64 = pairs().map(|(a, b)| (b.1 - a.1).abs()).sum();
        // Each change of the target takes spans that are made or freed for it alone; the rest of
        // the operations are those by which the heap is renewed while it keeps its size.
        let changing = changes * peak_pages / sizes.mean_live_pages();
        let renewing = operations as f64 - changing;
        if renewing < changing / 10.0 {
            return Err(Error::new(format!(
                "too few operations ({operations}): filling the heap and changing its size alone \
                 takes {:.0}; ask for at least {:.0}, or for a smaller heap",
                changing.ceil(),
                (changing * 1.1).ceil()
            )));
        }
        let seconds = renewing / (2.0 * peak_pages / sizes.page_seconds() * mean);
        if seconds > SECONDS_MAX {
            return Err(Error::new(format!(
                "{operations} operations on a heap as small as this take {:.0} simulated days, as \
                 spans live so long (lifetime_s); ask for fewer, or for a larger heap",
                seconds / 86_400.0
            )));
        }
        let mut target =
            Self::new(parts.iter().map(|p| (p.0 * seconds, p.1 * peak_pages)).collect())?;
        target.settled_s = FILLING * seconds;
        Ok(target)
    }

    /// Reads columns `seconds` and `bytes`.
    ///
    /// # Errors
    /// The first line that cannot be understood.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let table = Table::parse(text, &["seconds", "bytes"], ROWS_MAX)?;
        table.require(&["seconds", "bytes"])?;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for row in table.rows() {
            let seconds = table.number(row, "seconds", 0.0, SECONDS_MAX)?.unwrap_or(0.0);
            let bytes = table.bytes(row, "bytes")?.unwrap_or(0);
            let pages = bytes as f64 / HEAP_PAGE_BYTES as f64;
            if points.last().is_some_and(|last| seconds < last.0) {
                return Err(Error::at(row.line, "time goes backwards; seconds are to rise"));
            }
            if pages > u32::MAX.into() {
                return Err(Error::at(row.line, "more than 32TiB, which no slice holds"));
            }
            points.push((seconds, pages));
        }
        // What is wrong with all of it is seen at its end.
        let last = table.rows().last().map_or(1, |row| row.line);
        Self::new(points).map_err(|error| Error::at(last, error.message))
    }

    /// Where its straight lines meet: seconds and pages.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// When it ends.
    pub fn end_s(&self) -> f64 {
        self.points.last().map_or(0.0, |p| p.0)
    }

    /// When the heap has been filled for the first time: what comes before is not counted.
    pub fn settled_s(&self) -> f64 {
        self.settled_s
    }

    /// Its highest point, in pages.
    pub fn peak(&self) -> f64 {
        self.points.iter().map(|p| p.1).fold(0.0, f64::max)
    }

    /// About how many operations it takes.
    pub fn operations(&self, sizes: &Sizes) -> f64 {
        let pairs = || self.points.iter().zip(self.points.iter().skip(1));
        let area: f64 = pairs().map(|(a, b)| (b.0 - a.0) * (a.1 + b.1) / 2.0).sum();
        let changes: f64 = pairs().map(|(a, b)| (b.1 - a.1).abs()).sum();
        2.0 * area / sizes.page_seconds() + changes / sizes.mean_live_pages()
    }

    /// Pages at a time, where `hint` is a point at or before it.
    pub(crate) fn at(&self, seconds: f64, hint: &mut usize) -> f64 {
        while self.points.get(*hint + 1).is_some_and(|next| next.0 <= seconds) {
            *hint += 1;
        }
        match (self.points.get(*hint), self.points.get(*hint + 1)) {
            (Some(a), Some(b)) => {
                a.1 + (b.1 - a.1) * ((seconds - a.0) / (b.0 - a.0)).clamp(0.0, 1.0)
            }
            (Some(a), None) => a.1,
            _ => 0.0,
        }
    }

    /// The next point after a time.
    pub(crate) fn next_point(&self, hint: usize) -> f64 {
        self.points.get(hint + 1).map_or(f64::INFINITY, |p| p.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_points() {
        let target = Target::parse("seconds,bytes\n0,0\n10,1MiB\n10,512KiB\n20,512KiB\n").unwrap();
        let mut hint = 0;
        assert_eq!(target.at(5.0, &mut hint), 64.0);
        assert_eq!(target.at(10.5, &mut hint), 64.0);
        assert_eq!(target.at(99.0, &mut hint), 64.0);
        assert_eq!((target.end_s(), target.peak(), target.settled_s()), (20.0, 128.0, 10.0));
    }

    #[test]
    fn a_heap_that_is_there_at_once_is_filled_at_once() {
        let target = Target::parse("seconds,bytes\n5,1MiB\n10,1MiB").unwrap();
        assert_eq!(target.points()[..2], [(0.0, 0.0), (STEP_S, 128.0)]);
        assert_eq!(target.settled_s(), STEP_S);
    }

    #[test]
    fn usual_courses_take_as_many_operations_as_were_asked_for() {
        let sizes = Sizes::built_in();
        for shape in [Shape::Steady, Shape::DROP, Shape::SAW_TOOTH] {
            let target = Target::of(shape, &sizes, 1e6, 5_000_000, 7).unwrap();
            assert!((target.operations(&sizes) / 5e6 - 1.0).abs() < 0.01, "{shape:?}");
            assert!((target.peak() / 1e6 - 1.0).abs() < 1e-9, "{shape:?}");
            assert!(target.points().windows(2).all(|w| w[0].0 < w[1].0), "{shape:?}");
            let refused = Target::of(shape, &sizes, 1e6, 1000, 7).unwrap_err();
            assert!(refused.message.contains("too few"), "{refused}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, line) in [
            ("seconds,bytes\n1,1MiB\n0,1MiB", Some(3)),
            ("seconds,bytes\n1,1XiB", Some(2)),
            ("seconds,bytes\n1,64TiB", Some(2)),
            ("seconds\n1", Some(1)),
            ("seconds,bytes\n0,0\n1,0", Some(3)),
            ("seconds,bytes\n0,1GiB\n\n", Some(2)),
        ] {
            assert_eq!(Target::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
