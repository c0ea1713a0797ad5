//! What it costs a program to be loaded with an allocator: `true` from start to
//! end, hundreds of times, and the memory of a program that does nothing.

use crate::asked::Asked;
use crate::report::Section;
use crate::report::target::Verdict;
use crate::suite::{Bench, Prepared, Suite};
use serde_json::json;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::contender::Contender;
use spandrel_measure::process;
use spandrel_measure::rounds;
use spandrel_report::numbers::{Summary, bytes, median, time};
use std::process::Command;

/// Starts per round; their median is the round's figure.
const STARTS: usize = 40;
/// What loading Spandrel may cost.
const LIMIT_MS: f64 = 1.0;
const LIMIT_MIB: f64 = 4.0;

/// The suite `startup`.
pub struct Startup;

impl Suite for Startup {
    fn name(&self) -> &'static str {
        "startup"
    }

    fn about(&self) -> &'static str {
        "what loading the library costs"
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let mut section =
        Section::new("startup", "the program `true`, and a program that does nothing");
    let all = rounds::in_turns(&bench.contenders, bench.runs, progress, "startup", |contender| {
        let mut wall = Vec::with_capacity(STARTS);
        let mut cpu = Vec::with_capacity(STARTS);
        for _ in 0..STARTS {
            let (elapsed, used) = start_true(contender)?;
            wall.push(elapsed);
            cpu.push(used);
        }
        let idle = rounds::worker(&bench.worker, contender, &["true"])?;
        Ok(json!({
            "wall_ns": median(&wall),
            "cpu_ns": median(&cpu),
            "rss": idle.get("peak_rss"),
        }))
    });

    let header = ["allocator", "CPU time", "elapsed", "more than sys", "memory", "more than sys"];
    let mut table = table::new(&header.map(String::from));
    let system = |key: &str| {
        let series = all.iter().find(|series| series.contender.is_system())?;
        median(&series.values(key))
    };
    let (system_cpu, system_rss) =
        (system("cpu_ns").unwrap_or_default(), system("rss").unwrap_or_default());
    for series in &all {
        let cell = |key: &str, text: fn(f64) -> String| {
            median(&series.values(key)).map_or("?".to_string(), text)
        };
        let more = |key: &str, base: f64| median(&series.values(key)).map(|value| value - base);
        let cpu = more("cpu_ns", system_cpu);
        let rss = more("rss", system_rss);
        let name = &series.contender.name;
        table::add(
            &mut table,
            series.contender.ours(),
            vec![
                name.clone(),
                cell("cpu_ns", time),
                cell("wall_ns", time),
                cpu.map_or("?".into(), |cpu| format!("{:+.2} ms", cpu / 1e6)),
                cell("rss", bytes),
                rss.map_or("?".into(), |rss| format!("{:+.2} MiB", rss / (1 << 20) as f64)),
            ],
        );
        if series.contender.ours() {
            let mut judge = |what: &str, value: Option<f64>, most: f64, unit: &str| {
                if let Some(value) = value {
                    let what = format!("{name}: {what}");
                    section.verdicts.push(Verdict::new("", what, value, most, unit));
                }
            };
            judge("CPU time more than sys", cpu.map(|cpu| cpu / 1e6), LIMIT_MS, " ms");
            judge("memory more than sys", rss.map(|rss| rss / (1 << 20) as f64), LIMIT_MIB, " MiB");
        }
    }
    section.tables.push(table.to_string());
    section.data = all
        .iter()
        .map(|series| {
            json!({
                "allocator": series.contender.name,
                "cpu_ns": Summary::of(&series.values("cpu_ns")),
                "wall_ns": Summary::of(&series.values("wall_ns")),
                "rss": Summary::of(&series.values("rss")),
                "failed": series.failed,
            })
        })
        .collect::<Vec<_>>()
        .into();
    Ok(section)
}

/// Runs `true` once: elapsed time and CPU time in nanoseconds.
fn start_true(contender: &Contender) -> Result<(f64, f64), String> {
    let mut command = Command::new("true");
    contender.prepare(&mut command);
    let ended = process::run(&mut command, None)?.success()?;
    Ok((ended.wall_ns, ended.cpu_ns))
}
