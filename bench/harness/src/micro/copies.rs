//! The paper's Table I: copies per thread of concurrently growing objects.

use crate::asked::Asked;
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::contender::Contender;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{counted, digits, median};

const THREADS: [u64; 4] = [1, 2, 4, 8];
/// Brug (CCGrid '24), Table I.
const PAPER: [f64; 4] = [5.0, 13.5, 49.75, 61.75];

/// The suite `copies`.
pub struct Copies;

impl Suite for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn about(&self) -> &'static str {
        "copies per thread (Brug, Table I)"
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let mut section = Section::new(
        "copies",
        "per thread, 30 objects doubled from 4 KiB to 4 MiB at once (Brug, Table I)",
    );
    // The paper's threads share one heap; glibc gives them arenas unless a tunable forbids it.
    let mut contenders = bench.contenders.clone();
    contenders.insert(1, Contender::tuned("sys, one heap", "glibc.malloc.arena_max=1"));
    let columns: Vec<Vec<Series>> = THREADS
        .iter()
        .map(|&threads| {
            let label = format!("copies, {}", counted(threads, "thread", "threads"));
            let threads = threads.to_string();
            bench.measure_on(&contenders, progress, &label, &["copies", "--threads", &threads])
        })
        .collect();

    for (title, key) in [
        ("moved or copied", "address_changes_per_thread"),
        ("copied", "copies_per_thread"),
        ("MiB copied", "copied_bytes_per_thread"),
    ] {
        section.tables.push(draw(title, key, &contenders, &columns));
    }
    let unknown = columns
        .iter()
        .flatten()
        .any(|series| !series.samples.is_empty() && series.values("copies_per_thread").is_empty());
    if unknown {
        section.notes.push(
            "the kernel shows page frames to root only: moves of pages and copies are not told apart"
                .into(),
        );
    }
    section.data = data(&contenders, &columns);
    Ok(section)
}

fn draw(title: &str, key: &str, contenders: &[Contender], columns: &[Vec<Series>]) -> String {
    let mut header = vec![title.to_string()];
    header.extend(THREADS.map(|threads| counted(threads, "thread", "threads")));
    let mut table = table::new(&header);
    if key == "address_changes_per_thread" {
        let mut cells = vec!["the paper (glibc 2.31)".to_string()];
        cells.extend(PAPER.iter().map(|copies| copies.to_string()));
        table::add(&mut table, false, cells);
    }
    for (at, contender) in contenders.iter().enumerate() {
        let mut cells = vec![contender.name.clone()];
        cells.extend(columns.iter().map(|column| {
            let unit = if key.contains("bytes") { (1 << 20) as f64 } else { 1.0 };
            let series = &column[at];
            let value = median(&series.values(key)).map(|value| digits(value / unit));
            value.or_else(|| series.failed.clone()).unwrap_or_else(|| "?".into())
        }));
        table::add(&mut table, contender.ours(), cells);
    }
    table.to_string()
}

fn data(contenders: &[Contender], columns: &[Vec<Series>]) -> Value {
    let rows = contenders.iter().enumerate().map(|(at, contender)| {
        let cells = columns.iter().zip(THREADS).map(|(column, threads)| {
            let (samples, failed) = (&column[at].samples, &column[at].failed);
            json!({"threads": threads.to_string(), "samples": samples, "failed": failed})
        });
        json!({"allocator": contender.name, "cells": cells.collect::<Vec<_>>()})
    });
    rows.collect::<Vec<_>>().into()
}
