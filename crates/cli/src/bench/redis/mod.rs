//! `redis-server` under `redis-benchmark`: on its own jemalloc, on glibc and on
//! Spandrel.
//!
//! The figures that count are the server's CPU time per request, and the rate of
//! requests in a pipeline. Without one the client is at its limit on a small machine,
//! and a server that takes less time only sleeps and is woken more often.
//!
//! Debian links `redis-server` with the shared libjemalloc by the plain names.
//! Preloading the C library itself puts its `malloc` before jemalloc's in the
//! search for symbols; afterwards jemalloc is asked whether it served anything.

mod client;
pub mod load;
mod server;

use super::Bench;
use super::contender::Contender;
use super::measure::{self, Series};
use super::numbers::{Summary, bytes, count, median, time};
use super::progress::Progress;
use super::report::Section;
use super::table;
use super::target::Verdict;
use crate::failure::Failure;
use crate::places;
use load::{Load, OPS, Op, PIPELINED, key};
use serde_json::{Value, json};

/// What is measured of each command, and what tables call it.
const ROWS: [(&str, &str); 3] =
    [("cpu_ns", "CPU per request"), ("rate", "requests/s"), ("pipelined_rate", "8 in a pipeline")];

/// What tables call the server as it comes.
pub const OWN: &str = "own jemalloc";

/// Ways to run the server, and whether its own jemalloc must then be idle.
pub fn contenders(bench: &Bench) -> Vec<(Contender, bool)> {
    let own = Contender { name: OWN.into(), ..Contender::system() };
    let mut list = vec![(own, false)];
    if let Some(libc) = places::system_library("libc.so.6") {
        let glibc = Contender { name: "glibc".into(), preload: Some(libc), ..Contender::system() };
        list.push((glibc, true));
    }
    // Peers that were asked for by name, and Spandrel in its modes.
    let others = bench
        .contenders
        .iter()
        .filter(|contender| contender.ours() || (bench.peers_named && contender.preload.is_some()));
    list.extend(others.map(|contender| (contender.clone(), true)));
    list
}

/// Measures both value sizes.
pub fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let mut section = Section::new("redis", "redis-server under redis-benchmark");
    let mut data = Vec::new();
    for load in Load::both(bench.quick) {
        let all = measure_load(bench, &load, progress);
        section.tables.push(draw(&load, &all));
        section.verdicts.extend(judge(&load, &all));
        let failed =
            all.iter().filter_map(|series| Some((&series.contender.name, series.failed.as_ref()?)));
        section.notes.extend(failed.map(|(who, why)| format!("{who}, {}: {why}", load.name())));
        data.push(json!({"value_bytes": load.value, "allocators": all.iter().map(report).collect::<Vec<_>>()}));
    }
    section.data = data.into();
    Ok(section)
}

/// The load on every contender in turns.
pub fn measure_load(bench: &Bench, load: &Load, progress: &Progress) -> Vec<Series> {
    let list = contenders(bench);
    let plain: Vec<Contender> = list.iter().map(|(contender, _)| contender.clone()).collect();
    let label = format!("redis, {}", load.name());
    measure::in_turns(&plain, bench.runs, progress, &label, |contender| {
        let replaced = list.iter().any(|(known, idle)| known.name == contender.name && *idle);
        load.run(contender, replaced, true)
    })
}

fn draw(load: &Load, all: &[Series]) -> String {
    let mut header = vec![load.name()];
    header.extend(OPS.iter().map(|op| op.name().to_string()));
    header.push("peak memory".into());
    let mut table = table::new(&header);
    let base = |op: Op, what: &str| all.first().and_then(|own| median(&own.values(&key(op, what))));
    for (what, title) in ROWS {
        table::add(&mut table, false, vec![format!("{title}:")]);
        for series in all {
            let mut cells = vec![format!("  {}", series.contender.name)];
            cells.extend(OPS.iter().map(|op| {
                let value = median(&series.values(&key(*op, what)));
                match (value, base(*op, what)) {
                    (Some(value), Some(base)) => {
                        let shown =
                            if what == "cpu_ns" { time(value) } else { count(value as u64) };
                        format!("{shown}  {:.2}×", value / base)
                    }
                    _ => table::NOTHING.into(),
                }
            }));
            let peak = median(&series.values("peak_rss")).map_or(String::new(), bytes);
            cells.push(if what == "cpu_ns" { peak } else { String::new() });
            table::add(&mut table, series.contender.ours(), cells);
        }
    }
    table.to_string()
}

/// At least as fast as Redis' own jemalloc and as glibc, in time and in the rate.
fn judge(load: &Load, all: &[Series]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let (ours, others): (Vec<_>, Vec<_>) = all.iter().partition(|series| series.contender.ours());
    let name = load.name();
    for series in ours {
        let mut add = |op: Op, what: &str, title: &str, ratio: fn(f64, f64) -> f64| {
            let of = |series: &Series| median(&series.values(&key(op, what)));
            let Some(value) = of(series) else { return };
            let ratios = others.iter().filter_map(|other| Some(ratio(value, of(other)?)));
            if let Some(worst) = ratios.max_by(f64::total_cmp) {
                let about = format!(
                    "{}, {} {name}{title}: the better other",
                    series.contender.name,
                    op.name()
                );
                verdicts.push(Verdict::new("", about, worst, 1.0, "×"));
            }
        };
        for op in OPS {
            add(op, "cpu_ns", "", |ours, other| ours / other);
        }
        for op in PIPELINED {
            add(op, "pipelined_rate", " in a pipeline", |ours, other| other / ours);
        }
    }
    verdicts
}

fn report(series: &Series) -> Value {
    let mut value = json!({"allocator": series.contender.name, "failed": series.failed});
    for op in OPS {
        for (what, _) in ROWS {
            value[key(op, what)] = json!(Summary::of(&series.values(&key(op, what))));
        }
    }
    value["peak_rss"] = json!(Summary::of(&series.values("peak_rss")));
    value
}
