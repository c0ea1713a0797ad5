//! Huge pages and memory over the life of a heap: filled, mostly freed, left
//! alone, asked to give back, filled again with larger objects, left alone again.

mod plot;

use crate::asked::Asked;
use crate::options::{Drawn, Options};
use crate::report::Section;
use crate::report::picture::{Part, Picture};
use crate::report::target::Verdict;
use crate::suite::{Bench, Prepared, Suite};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{Summary, median, time};

/// What the worker calls the stages.
const FRESH: &str = "fresh";
const STAGES: [&str; 6] = [FRESH, "freed", "idle", "released", "refilled", "settled"];

/// Target B1. Coverage is promised from below; what is not covered, from above.
const RESIDENT: [(&str, &str, f64); 3] = [
    ("idle", "memory to live after ten idle seconds", 1.5),
    ("released", "memory to live when asked to give back", 1.3),
    ("refilled", "memory to live after refilling", 1.1),
];
const UNCOVERED: [(&str, &str, f64); 3] = [
    (FRESH, "not on huge pages, fresh heap", 0.02),
    ("refilled", "not on huge pages, after refilling", 0.05),
    ("settled", "not on huge pages, left alone since", 0.05),
];
const ACCESS: f64 = 1.05;
const AGAIN: [(&str, &str); 2] = [
    ("refilled", "access after refilling to fresh"),
    ("settled", "access to fresh, left alone since"),
];

/// The suite `hugepages`.
pub struct Temeraire;

impl Suite for Temeraire {
    fn name(&self) -> &'static str {
        "hugepages"
    }

    fn about(&self) -> &'static str {
        "huge pages and memory over the life of a heap"
    }

    fn options(&self) -> Options {
        Options { drawn: Drawn::InAll, ..Options::default() }
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

/// Measures it.
fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let (bytes, settled_s) = if bench.quick { ("256 MiB", 5) } else { ("1 GiB", 20) };
    let about = format!(
        "{bytes} of 16 B to 8 KiB, 70% freed, 10 s idle, released, refilled with 64 B to 32 KiB, \
         {settled_s} s idle"
    );
    let mut section = Section::new("hugepages", &about);
    let words: &[&str] = match bench.quick {
        true => {
            &["hugepages", "--bytes", "256MiB", "--accesses", "3000000", "--settle-seconds", "5"]
        }
        false => &["hugepages"],
    };
    let all = rounds::in_turns(&bench.contenders, bench.runs, progress, "hugepages", |contender| {
        rounds::worker(&bench.worker, contender, words).map(flatten)
    });
    section.tables.push(draw(&all));
    let rounds = match bench.runs {
        1 => "one round".to_string(),
        runs => format!("medians of {runs} rounds"),
    };
    section.plot = Some(Picture(vec![Part::Dots(plot::dots(&all, &format!("{about}; {rounds}")))]));
    for series in all.iter().filter(|series| series.contender.ours()) {
        section.verdicts.extend(judge(series));
    }
    let failed = all.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
    section.notes.extend(failed.map(|(who, why)| format!("{who}: {why}")));
    section.notes.push(
        "memory: resident bytes per live byte; coverage: the part of it on huge pages; time: to \
         follow an address to the next object"
            .into(),
    );
    section.data = all
        .iter()
        .map(|series| json!({"allocator": series.contender.name, "samples": series.samples}))
        .collect::<Vec<_>>()
        .into();
    Ok(section)
}

/// `{"fresh": {"coverage": …}}` as `{"fresh.coverage": …}`.
fn flatten(sample: Value) -> Value {
    let mut flat = serde_json::Map::new();
    for (stage, value) in sample.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(inner) => {
                flat.extend(inner.iter().map(|(key, v)| (format!("{stage}.{key}"), v.clone())));
            }
            None => {
                flat.insert(stage.clone(), value.clone());
            }
        }
    }
    Value::Object(flat)
}

fn value(series: &Series, stage: &str, key: &str) -> Option<f64> {
    median(&series.values(&format!("{stage}.{key}")))
}

fn draw(all: &[Series]) -> String {
    let header = [
        "memory, coverage, time",
        "fresh",
        "70% freed",
        "10 s idle",
        "released",
        "refilled",
        "left alone",
        "CPU",
    ];
    let mut table = table::new(&header.map(String::from));
    for series in all {
        let mut cells = vec![series.contender.name.clone()];
        for stage in STAGES {
            let part = |key: &str, text: fn(f64) -> String| value(series, stage, key).map(text);
            let parts = [
                part("resident_to_live", |ratio| format!("{ratio:.2}")),
                part("coverage", |covered| format!("{:.0}%", covered * 100.0)),
                part("access_ns", |ns| format!("{ns:.0} ns")),
            ];
            let text = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
            cells.push(if text.is_empty() { table::NOTHING.into() } else { text });
        }
        let cpu = STAGES.map(|stage| value(series, stage, "cpu_ns").unwrap_or(0.0));
        cells.push(time(cpu.iter().sum()));
        table::add(&mut table, series.contender.ours(), cells);
    }
    table.to_string()
}

fn judge(series: &Series) -> Vec<Verdict> {
    let name = &series.contender.name;
    let verdict =
        |what: &str, value, most| Verdict::new("B1", format!("{name}: {what}"), value, most, "");
    let mut verdicts = Vec::new();
    for (stage, what, most) in UNCOVERED {
        let covered = value(series, stage, "coverage");
        verdicts.extend(covered.map(|covered| verdict(what, 1.0 - covered, most)));
    }
    for (stage, what, most) in RESIDENT {
        let ratio = value(series, stage, "resident_to_live");
        verdicts.extend(ratio.map(|ratio| verdict(what, ratio, most)));
    }
    for (stage, what) in AGAIN {
        // Both times are one process's: its neighbours disturb them alike.
        let times = [stage, FRESH].map(|stage| series.values(&format!("{stage}.access_ns")));
        let ratios: Vec<f64> =
            times[0].iter().zip(&times[1]).map(|(last, first)| last / first).collect();
        let summary = Summary::of(&ratios);
        verdicts.extend(summary.map(|summary| verdict(what, summary.median, ACCESS)));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_become_names() {
        let flat = flatten(json!({"fresh": {"coverage": 0.5}, "rss": 7}));
        assert_eq!(flat, json!({"fresh.coverage": 0.5, "rss": 7}));
    }
}
