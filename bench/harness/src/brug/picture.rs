//! The figures as one picture: Table III first, a row of panels for each three workloads, and how an
//! object grows.

use super::draw::names;
use super::outcome::{CPU, Outcome};
use super::redis;
use crate::report::picture::{Part, Picture};
use serde_json::Value;
use spandrel_sim::{Chart, DotPanel, DotRow, Dots, Line, Marks};

/// Panels beside each other.
const PANELS: usize = 3;

/// Everything that there is to draw; `of` says how it was measured.
pub fn of(
    outcomes: &[Outcome],
    redis: &[redis::Outcome],
    growth: Option<&Value>,
    of: &str,
) -> Picture {
    let mut parts = Vec::new();
    if !outcomes.is_empty() {
        parts.push(Part::Dots(summary(outcomes, of)));
    }
    parts.extend(outcomes.chunks(PANELS).map(|part| Part::Dots(figures(part, outcomes))));
    parts.extend(redis::dots(redis).map(Part::Dots));
    parts.extend(growth.and_then(chart).map(Part::Chart));
    Picture(parts)
}

/// Best, `auto` and worst, relative to the system's allocator.
fn summary(outcomes: &[Outcome], of: &str) -> Dots {
    let marks = |name: &str, value: &dyn Fn(&Outcome) -> Option<f64>| Marks {
        name: name.into(),
        values: outcomes
            .iter()
            .map(|outcome| Some(value(outcome)? / outcome.median("sys", CPU)?))
            .collect(),
    };
    let panel = DotPanel {
        title: "Time of the whole run: less is better".into(),
        x: "CPU time, times that of glibc by itself".into(),
        marks: vec![
            marks("the best fixed mode", &|outcome| outcome.best().map(|(_, value)| value)),
            marks("auto", &Outcome::auto),
            marks("the worst fixed mode", &|outcome| outcome.worst().map(|(_, value)| value)),
        ],
        x_least: 1.0,
        has_powers: false,
        digits: 2,
    };
    let row = |outcome: &Outcome| DotRow { name: outcome.workload.name.into(), stands_out: false };
    Dots {
        title: "The best, the worst, and auto".into(),
        subtitle: of.into(),
        rows: outcomes.iter().map(row).collect(),
        panels: vec![panel],
    }
}

/// Some workloads on all allocators.
fn figures(part: &[Outcome], all: &[Outcome]) -> Dots {
    let names = names(all);
    let panel = |outcome: &Outcome| {
        let value = |(name, _): &(String, bool)| outcome.median(name, CPU).map(|ns| ns / 1e6);
        let figure = outcome.workload.figure;
        DotPanel {
            title: format!("{} {figure}", outcome.workload.name).trim_end().into(),
            x: "CPU time (ms)".into(),
            marks: vec![Marks { name: "median".into(), values: names.iter().map(value).collect() }],
            x_least: 0.0,
            has_powers: false,
            digits: 0,
        }
    };
    let row = |(name, ours): &(String, bool)| DotRow {
        name: if name == "sys" { "glibc".into() } else { name.clone() },
        stands_out: *ours,
    };
    let titles: Vec<&str> = part.iter().map(|outcome| outcome.workload.name).collect();
    Dots {
        title: titles.join(", "),
        subtitle: "Time of the whole run: less is better".into(),
        rows: names.iter().map(row).collect(),
        panels: part.iter().map(panel).collect(),
    }
}

/// Fig. 1: the size of an object, and what its reallocations have taken so far.
fn chart(growth: &Value) -> Option<Chart> {
    let looks = growth.get("growth")?.as_array()?;
    let number = |look: &Value, at: usize| look.get(at)?.as_f64();
    let start = number(looks.first()?, 0)?;
    let line = |name: &str, at: usize, unit: f64| Line {
        name: name.into(),
        points: looks
            .iter()
            .filter_map(|look| Some(((number(look, 0)? - start) / 1e3, number(look, at)? / unit)))
            .collect(),
        area: false,
    };
    let panel = |y: &str, line: Line| spandrel_sim::Panel {
        title: String::new(),
        y: y.into(),
        lines: vec![line],
        y_least: 0.0,
    };
    Some(Chart {
        title: "How an object grows (Fig. 1)".into(),
        subtitle: "the most resized object of the job with phases, as the object monitor sees it"
            .into(),
        x: "time since it was first seen (ms)".into(),
        axis: spandrel_sim::Axis::Number,
        panels: vec![
            panel("size (MiB)", line("size", 1, f64::from(1 << 20))),
            panel("time (µs)", line("time of its reallocations so far", 4, 1e3)),
        ],
    })
}
