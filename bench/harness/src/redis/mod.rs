//! `redis-server` under `redis-benchmark`: on its own jemalloc, on glibc and on
//! Spandrel.
//!
//! The figures that count are the server's CPU time per request, one at a time and in a
//! pipeline, and the rate of requests in a pipeline. One at a time the client is at its
//! limit on a small machine, and a server that takes less time only sleeps and is woken
//! more often.
//!
//! Debian links `redis-server` with the shared libjemalloc by the plain names.
//! Preloading the C library itself puts its `malloc` before jemalloc's in the
//! search for symbols; afterwards jemalloc is asked whether it served anything.

pub mod client;
pub mod lists;
pub mod load;
pub mod server;

use crate::asked::Asked;
use crate::report::Section;
use crate::report::target::Verdict;
use crate::suite::{Bench, Prepared, Suite};
use load::{Load, OPS, Op, PIPELINED, key};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, OWN};
use spandrel_measure::places;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{Summary, bytes, count, median, middle_between, time};

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

/// Ways to run the server, and whether its own jemalloc must then be idle.
pub fn contenders(bench: &Bench) -> Vec<(Contender, bool)> {
    let own = Contender { name: OWN.into(), ..Contender::system() };
    let mut list = vec![(own, false)];
    if let Some(libc) = places::system_library("libc.so.6") {
        let glibc = Contender { name: "glibc".into(), preload: Some(libc), ..Contender::system() };
        list.push((glibc, true));
    }
    // Peers that `--peers` names, and Spandrel in its modes.
    let others = bench
        .contenders
        .iter()
        .filter(|contender| contender.ours() || (bench.peers_named && contender.preload.is_some()));
    list.extend(others.map(|contender| (contender.clone(), true)));
    list
}

/// The suite `redis`.
pub struct Redis;

impl Suite for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn about(&self) -> &'static str {
        "redis-server under redis-benchmark"
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

/// Measures both value sizes.
fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
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
    section
        .notes
        .push("even: the middle of the rounds may lie on either side of the target (95 %)".into());
    section.notes.push(
        "behind a rate: the processor time of all the server's threads in that of the run; the rest \
             it waited, mostly for clients"
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
    rounds::in_turns(&plain, bench.runs, progress, &label, |contender| {
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
                    let at_work = of(series, *op, cpu)
                        .map(|cpu_ns| format!("  {:3.0}%", cpu_ns * value / 1e7))
                        .unwrap_or_default();
                    return format!("{}{at_work}", count(value as u64));
                }
                let ratio = all
                    .first()
                    .and_then(|own| of(own, *op, row.what))
                    .map(|base| format!("  {:.2}×", value / base))
                    .unwrap_or_default();
                format!("{}{ratio}", time(value))
            }));
            let peak = median(&series.values("peak_rss")).map_or(String::new(), bytes);
            cells.push(if number == 0 { peak } else { String::new() });
            table::add(&mut table, series.contender.ours(), cells);
        }
    }
    table.to_string()
}

/// At least as fast as Redis' own jemalloc and as glibc: in the server's time, and in the rate
/// where requests come in a pipeline.
fn judge(load: &Load, all: &[Series]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let (ours, others): (Vec<_>, Vec<_>) = all.iter().partition(|series| series.contender.ours());
    for series in ours {
        let mut add = |op: Op, what: &str, title: &str, ratio: fn(f64, f64) -> f64| {
            let values = |series: &Series| series.values(&key(op, what));
            let of = |series: &Series| median(&values(series));
            let Some(value) = of(series) else { return };
            let ratios = others.iter().filter_map(|other| Some((ratio(value, of(other)?), other)));
            if let Some((worst, other)) = ratios.max_by(|one, two| one.0.total_cmp(&two.0)) {
                let (who, op, size) = (&series.contender.name, op.name(), load.name());
                let about = format!("{who}, {op} {size}{title}: the better other");
                // Round by round: what disturbs one of them disturbs its neighbour as well.
                let pairs: Vec<f64> = values(series)
                    .into_iter()
                    .zip(values(other))
                    .map(|(ours, other)| ratio(ours, other))
                    .collect();
                let mut verdict = Verdict::new("", about, worst, 1.0, "×");
                verdict.between = middle_between(&pairs);
                verdicts.push(verdict);
            }
        };
        for op in OPS {
            add(op, "cpu_ns", "", |ours, other| ours / other);
        }
        for op in PIPELINED {
            add(op, "pipelined_cpu_ns", " in a pipeline", |ours, other| ours / other);
            add(op, "pipelined_rate", " in a pipeline, rate", |ours, other| other / ours);
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
