//! The course of a heap as a picture: what is resident, what is not used of it, and what lies on
//! huge pages.

use super::axis::Axis;
use super::lines::{Chart, Line, Panel};
use crate::run::Outcome;
use crate::summary::Sample;
use spandrel_pages::{GIB, HEAP_PAGE_BYTES, MIB};

/// What policies made of the same operations.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// Whose operations, where there are several.
    pub title: &'a str,
    /// An outcome for each policy.
    pub outcomes: &'a [Outcome],
    /// From when on shares of live memory are shown.
    pub settled_s: f64,
}

/// Live and resident memory over time, and below what is not used of it and what of it lies on huge
/// pages. Of several courses, one below the other, what is not used is left out: each begins with next to
/// nothing, so that shares of it say little.
pub fn timeline(title: &str, subtitle: &str, courses: &[Course<'_>]) -> Chart {
    Chart {
        title: title.into(),
        subtitle: subtitle.into(),
        x: "simulated time (s)".into(),
        axis: Axis::Number,
        panels: courses.iter().flat_map(|course| panels(course, courses.len() > 1)).collect(),
    }
}

fn panels(course: &Course<'_>, brief: bool) -> Vec<Panel> {
    let outcomes = course.outcomes;
    let labels = Outcome::labels(outcomes);
    let line = |at: usize, value: &dyn Fn(&Sample) -> Option<f64>| Line {
        name: labels[at].clone(),
        points: (outcomes[at].samples.iter())
            .filter_map(|sample| Some((sample.seconds, value(sample)?)))
            .collect(),
        area: false,
    };
    let lines = |value: &dyn Fn(&Sample) -> Option<f64>| -> Vec<Line> {
        (0..outcomes.len()).map(|at| line(at, value)).collect()
    };
    let highest = outcomes.iter().map(|o| o.summary.resident_peak).max().unwrap_or(0);
    let (unit, bytes) = match f64::from(highest) * HEAP_PAGE_BYTES as f64 {
        peak if peak < GIB as f64 => ("MiB", MIB),
        _ => ("GiB", GIB),
    };
    let size = |pages: u32| Some(f64::from(pages) * HEAP_PAGE_BYTES as f64 / bytes as f64);
    // There is no share of nothing.
    let share = |part: u32, s: &Sample| {
        let settled = s.seconds >= course.settled_s && s.live > 0;
        settled.then(|| 100.0 * f64::from(part) / f64::from(s.live))
    };

    let mut memory = Vec::new();
    if !outcomes.is_empty() {
        memory.push(Line { name: "live".into(), area: true, ..line(0, &|s| size(s.live)) });
    }
    memory.extend(lines(&|s| size(s.resident)));
    let overhead = lines(&|s| share(s.resident.saturating_sub(s.live), s));
    let coverage = lines(&|s| share(s.covered, s));
    let broken = coverage.iter().any(|line| line.points.iter().any(|point| point.1 < 99.95));

    let panel =
        |y: &str, lines, y_least| Panel { title: course.title.into(), y: y.into(), lines, y_least };
    let mut panels = vec![panel(&format!("resident ({unit})"), memory, 0.0)];
    if !brief {
        panels.push(panel("backed, not live (% of live)", overhead, 1.0));
    }
    if broken {
        panels.push(panel("live on huge pages (%)", coverage, 100.0));
    }
    panels
}
