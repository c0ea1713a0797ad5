//! The columns of the paper's Table 1 and Fig. 13: what huge pages and the release of memory do to
//! real programs.
//!
//! The paper's programs are Google's, but for Redis: 5 elements are pushed and 5 read, as there, here
//! on many lists. The other two are a python3 job and a server in Rust.

use super::programs::run_python;
use crate::redis::lists;
use crate::suite::Bench;
use serde_json::{Map, Value, json};
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, OWN};
use spandrel_measure::process;
use spandrel_measure::rounds::{self, RUN_MAX, Series};
use spandrel_report::numbers::{bytes, count, median, time};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is run.
pub enum Program {
    RedisLists,
    Python(PathBuf),
    Server,
}

/// A program's results.
pub struct Outcome {
    name: &'static str,
    series: Vec<Series>,
}

impl Program {
    fn name(&self) -> &'static str {
        match self {
            Program::RedisLists => "redis, lists",
            Program::Python(_) => "python3 job",
            Program::Server => "Rust server",
        }
    }

    /// The allocator it comes with, and Spandrel with the release of memory on and off.
    fn contenders(&self, ours: &Contender) -> Vec<Contender> {
        let name = match self {
            Program::RedisLists => OWN,
            _ => "glibc",
        };
        let mut without = ours.clone();
        without.name = "release off".into();
        without.env.push(("SPANDREL_RELEASE_RATE".into(), "0".into()));
        vec![Contender { name: name.into(), ..Contender::system() }, ours.clone(), without]
    }

    fn run(&self, bench: &Bench, contender: &Contender) -> Result<Value, String> {
        match self {
            Program::RedisLists => lists::run(contender, bench.quick),
            Program::Python(interpreter) => run_python(interpreter, contender),
            Program::Server => run_server(&bench.worker, contender),
        }
    }
}

fn run_server(worker: &Path, contender: &Contender) -> Result<Value, String> {
    let mut command = Command::new(worker);
    contender.prepare(command.arg("server"));
    let mut counted = Map::new();
    let ended =
        process::run_counted(&mut command, Some(RUN_MAX), contender, &mut counted)?.success()?;
    let mut said: Map<String, Value> = serde_json::from_str(&ended.output)
        .map_err(|why| format!("its output is not JSON: {why}"))?;
    said.extend(counted);
    Ok(said.into())
}

/// Measures all of them.
pub fn measure(
    bench: &Bench,
    programs: Vec<Program>,
    ours: &Contender,
    progress: &Progress,
) -> Vec<Outcome> {
    // What is looked for here is large; the times above are the careful ones.
    let runs = bench.runs.saturating_sub(1).max(1);
    let of = |program: Program| {
        let contenders = program.contenders(ours);
        let label = format!("{}, huge pages", program.name());
        let series =
            rounds::in_turns(&contenders, runs, progress, &label, |one| program.run(bench, one));
        Outcome { name: program.name(), series }
    };
    programs.into_iter().map(of).collect()
}

/// Table 1, and the share of Fig. 13 in the column of huge pages.
pub fn table(outcomes: &[Outcome]) -> String {
    let header = [
        "huge pages",
        "work per\nCPU time",
        "latency",
        "memory",
        "memory",
        "on huge\npages",
        "IPC, TLB\nmisses",
        "page\nfaults",
        "in\nmalloc",
    ];
    let mut table = table::new(&header.map(String::from));
    for outcome in outcomes {
        let of = |series: &Series, key: &str| median(&series.values(key));
        let first = outcome.series.first();
        table::add(&mut table, false, vec![format!("{}:", outcome.name)]);
        for series in &outcome.series {
            let value = |key: &str| of(series, key);
            let times = |key: &str| {
                let base = first.and_then(|first| of(first, key));
                match (value(key), base) {
                    (Some(value), Some(base)) => format!("{:.2}×", value / base),
                    _ => table::NOTHING.into(),
                }
            };
            // Where the machine does not count, there is nothing to be had.
            let counted = |key: &str| value(key).map(|value| format!("{value:.2}"));
            let counted: Vec<String> =
                ["ipc", "dtlb_mpki"].into_iter().filter_map(counted).collect();
            let text =
                |key: &str, show: fn(f64) -> String| value(key).map_or(table::NOTHING.into(), show);
            let cells = vec![
                format!("  {}", series.contender.name),
                times("requests_per_cpu_second"),
                text("latency_ns", time),
                text("rss", bytes),
                times("rss"),
                text("coverage", |share| format!("{:.0}%", share * 100.0)),
                if counted.is_empty() { "n/a".into() } else { counted.join(", ") },
                text("minor_faults", |faults| count(faults as u64)),
                value("malloc_share")
                    .map_or("n/a".into(), |share| format!("{:.1}%", share * 100.0)),
            ];
            table::add(&mut table, series.contender.ours(), cells);
        }
    }
    table.to_string()
}

/// Everything that was measured, and what went wrong.
pub fn data(outcomes: &[Outcome]) -> Value {
    let of = |outcome: &Outcome| {
        let series = outcome.series.iter().map(|series| {
            json!({
                "allocator": series.contender.name,
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        json!({"program": outcome.name, "allocators": series.collect::<Vec<_>>()})
    };
    outcomes.iter().map(of).collect()
}

/// What the columns are.
pub const ABOUT: &str = "huge pages: memory at the end (python3: the most), the part of it on huge \
     pages, instructions per cycle, misses of the data TLB per thousand instructions; in malloc: the \
     part of the CPU time that the allocator's own code takes, without what the kernel does for it \
     (redis: of the main thread); n/a: not told by this machine, or not to this user \
     (kernel.perf_event_paranoid); release off: nothing is released from partly used huge pages";

/// What went wrong.
pub fn failures(outcomes: &[Outcome]) -> Vec<String> {
    let of = |outcome: &Outcome| -> Vec<String> {
        let failed =
            outcome.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        failed.map(|(who, why)| format!("{}: FAILED on {who}: {why}", outcome.name)).collect()
    };
    outcomes.iter().flat_map(of).collect()
}
