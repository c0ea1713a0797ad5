//! `redis-server` under `redis-benchmark`: on its own jemalloc, on glibc and on
//! Spandrel.
//!
//! The figure that counts is the server's CPU time per request, one at a time and in a
//! pipeline. The rate tells the same where the server works all the time; else the
//! client is at its limit, and a server that takes less time only sleeps and is woken
//! more often.
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
const ROWS: [Row; 4] = [
    Row { what: "cpu_ns", rate_of: None, title: "CPU per request" },
    Row { what: "pipelined_cpu_ns", rate_of: None, title: "8 in a pipeline" },
    Row { what: "rate", rate_of: Some("cpu_ns"), title: "requests/s" },
    Row { what: "pipelined_rate", rate_of: Some("pipelined_cpu_ns"), title: "8 in a pipeline" },
];

struct Row {
    what: &'static str,
    /// Of a rate, the time that each request takes the server.
    rate_of: Option<&'static str>,
    title: &'static str,
}

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
    section.notes.push(
        "behind a rate: how much of the time the server was at work; the rest it waited for clients"
            .into(),
    );
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
    let of = |series: &Series, op: Op, what: &str| median(&series.values(&key(op, what)));
    for (number, row) in ROWS.iter().enumerate() {
        table::add(&mut table, false, vec![format!("{}:", row.title)]);
        for series in all {
            let mut cells = vec![format!("  {}", series.contender.name)];
            cells.extend(OPS.iter().map(|op| {
                let Some(value) = of(series, *op, row.what) else { return table::NOTHING.into() };
                if let Some(cpu) = row.rate_of {
                    let at_work = of(series, *op, cpu).unwrap_or_default() * value / 1e9;
                    return format!("{}  {:3.0}%", count(value as u64), at_work * 100.0);
                }
                let base = all.first().and_then(|own| of(own, *op, row.what));
                format!("{}  {:.2}×", time(value), value / base.unwrap_or(value))
            }));
            let peak = median(&series.values("peak_rss")).map_or(String::new(), bytes);
            cells.push(if number == 0 { peak } else { String::new() });
            table::add(&mut table, series.contender.ours(), cells);
        }
    }
    table.to_string()
}

/// No more of the server's time than on Redis' own jemalloc and on glibc.
fn judge(load: &Load, all: &[Series]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let (ours, others): (Vec<_>, Vec<_>) = all.iter().partition(|series| series.contender.ours());
    for series in ours {
        let mut add = |op: Op, what: &str, how: &str| {
            let of = |series: &Series| median(&series.values(&key(op, what)));
            let least = others.iter().filter_map(|other| of(other)).min_by(f64::total_cmp);
            if let (Some(value), Some(least)) = (of(series), least) {
                let (who, op, values) = (&series.contender.name, op.name(), load.name());
                let about = format!("{who}, {op} {values}{how}: the better other");
                verdicts.push(Verdict::new("", about, value / least, 1.0, "×"));
            }
        };
        for op in OPS {
            add(op, "cpu_ns", "");
        }
        for op in PIPELINED {
            add(op, "pipelined_cpu_ns", " in a pipeline");
        }
    }
    verdicts
}

fn report(series: &Series) -> Value {
    let mut value = json!({"allocator": series.contender.name, "failed": series.failed});
    for op in OPS {
        for Row { what, .. } in ROWS {
            value[key(op, what)] = json!(Summary::of(&series.values(&key(op, what))));
        }
    }
    value["peak_rss"] = json!(Summary::of(&series.values("peak_rss")));
    value
}
