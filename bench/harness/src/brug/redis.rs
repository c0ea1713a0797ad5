//! Fig. 13: `redis-server` under YCSB, nine inserts to each read of what was inserted lately. YCSB is
//! its own core with a binding that `bench/brug/ycsb` holds.

use crate::redis::{contenders, server::Server};
use crate::report::target::Verdict;
use crate::suite::Bench;
use serde_json::{Value, json};
use spandrel_console::plain::Plain;
use spandrel_console::progress::Progress;
use spandrel_console::shutdown::output;
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, OWN};
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{Summary, count, median, middle_between, time};
use spandrel_sim::{DotPanel, DotRow, Dots, Marks};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `--only` calls it.
pub const NAME: &str = "redis";

/// Fields of a record; YCSB's own number, and the Mangosteen paper's.
const FIELDS: u64 = 10;
/// Records that are there before the first is read.
const LOADED: u64 = 1000;
/// Clients at a time.
const CLIENTS: &str = "8";
/// The modes beside the default: the paper's C library, and every object page-mapped.
const MODES: [&str; 2] = ["switch", "mmap"];
/// Google's allocator, which the paper has here: that of today, or the one that distributions package.
const TCMALLOC: [&str; 2] = ["tcmalloc", "gperftools"];

/// A size of values.
struct Size {
    name: &'static str,
    field_bytes: u64,
    /// Operations at scale 1.
    operations: u64,
}

const SIZES: [Size; 3] = [
    Size { name: "100 B", field_bytes: 10, operations: 300_000 },
    Size { name: "4 KiB", field_bytes: 410, operations: 200_000 },
    Size { name: "40 KiB", field_bytes: 4096, operations: 50_000 },
];

/// One size on every allocator.
pub struct Outcome {
    name: &'static str,
    operations: u64,
    series: Vec<Series>,
}

/// The folder with YCSB, or what is missing.
pub fn find(workers: &Path) -> Result<PathBuf, String> {
    let folder = workers.join("ycsb");
    if !folder.is_dir() {
        return Err(
            "YCSB is not built: run 'make -C bench/peers ycsb' (it needs mvn and a JDK of \
                    17 or later)"
                .into(),
        );
    }
    for (program, word) in [("java", "-version"), ("redis-server", "--version")] {
        let mut command = Command::new(program);
        let output = output(command.arg(word));
        output.map_err(|why| format!("{program} cannot be started: {why}"))?;
    }
    Ok(folder)
}

/// Measures all sizes.
pub fn run(bench: &Bench, ycsb: &Path, scale: f64, progress: &Progress) -> Vec<Outcome> {
    let mut list = contenders(bench);
    let library = bench.contenders.iter().filter(|c| c.ours()).find_map(|c| c.preload.clone());
    if let Some(library) = library {
        list.extend(MODES.map(|mode| (Contender::spandrel(mode, &library), true)));
    }
    let named = |name: &&str| bench.contenders.iter().find(|known| known.name == **name);
    if let Some(tcmalloc) = TCMALLOC.iter().find_map(named)
        && !list.iter().any(|(known, _)| known.name == tcmalloc.name)
    {
        list.push((tcmalloc.clone(), true));
    }
    let plain: Vec<Contender> = list.iter().map(|(contender, _)| contender.clone()).collect();
    let sizes = SIZES.iter().map(|size| {
        let operations = ((size.operations as f64 * scale).round() as u64).max(1);
        let label = format!("redis, {}, {} operations", size.name, count(operations));
        let series = rounds::in_turns(&plain, bench.runs, progress, &label, |contender| {
            let replaced = list.iter().any(|(known, idle)| known.name == contender.name && *idle);
            one(ycsb, contender, replaced, size, operations)
        });
        Outcome { name: size.name, operations, series }
    });
    sizes.collect()
}

/// One run on a fresh server.
fn one(
    ycsb: &Path,
    contender: &Contender,
    replaced: bool,
    size: &Size,
    operations: u64,
) -> Result<Value, String> {
    let server = Server::start(contender)?;
    client(ycsb, server.socket(), "-load", LOADED, &workload(size))?;
    let before = server.cpu_ns()?;
    let said = client(ycsb, server.socket(), "-t", operations, &workload(size))?;
    let cpu = server.cpu_ns()?.saturating_sub(before);
    let rate = rate(&said).ok_or_else(|| format!("YCSB said no throughput: {}", said.trim()))?;
    let peak = server.peak_rss();
    if replaced && server.is_on_jemalloc()? {
        return Err("this redis-server cannot be put on another allocator".into());
    }
    server.stop()?;
    Ok(json!({"rate": rate, "cpu_ns": cpu as f64 / operations as f64, "peak_rss": peak}))
}

/// Nine inserts to each read of what was inserted lately.
fn workload(size: &Size) -> Vec<(&'static str, String)> {
    vec![
        ("recordcount", LOADED.to_string()),
        ("insertproportion", "0.9".into()),
        ("readproportion", "0.1".into()),
        ("updateproportion", "0".into()),
        ("requestdistribution", "latest".into()),
        ("fieldlength", size.field_bytes.to_string()),
    ]
}

/// What YCSB says of its run: a phase (`-load`, `-t`) of a workload with these properties, on the server at a socket.
pub fn client(
    ycsb: &Path,
    socket: &Path,
    phase: &str,
    operations: u64,
    workload: &[(&str, String)],
) -> Result<String, String> {
    let mut command = Command::new("java");
    command.arg("-cp").arg(ycsb.join("*")).args(["site.ycsb.Client", phase, "-threads", CLIENTS]);
    command.args(["-db", "spandrel.RedisBinding"]);
    for (name, value) in [
        ("workload", "site.ycsb.workloads.CoreWorkload".to_string()),
        ("operationcount", operations.to_string()),
        ("scanproportion", "0".into()),
        ("fieldcount", FIELDS.to_string()),
        ("redis.socket", socket.display().to_string()),
    ] {
        command.arg("-p").arg(format!("{name}={value}"));
    }
    for (name, value) in workload {
        command.arg("-p").arg(format!("{name}={value}"));
    }
    // The client stays on the system's allocator.
    Contender::system().prepare(&mut command);
    let output = output(&mut command);
    let output = output.map_err(|why| format!("java cannot be started: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = said.lines().find(|line| line.contains("Return=") && !line.contains("Return=OK"));
    match wrong {
        Some(line) => Err(format!("YCSB: {line}")),
        None if output.status.success() => Ok(said),
        None => Err(format!("YCSB ended with {}", output.status)),
    }
}

/// Operations per second.
pub fn rate(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("[OVERALL], Throughput(ops/sec), "));
    line?.trim().parse().ok()
}

impl Outcome {
    fn median(&self, name: &str, key: &str) -> Option<f64> {
        let series = self.series.iter().find(|series| series.contender.name == name)?;
        median(&series.values(key))
    }

    fn to_own(&self, name: &str, key: &str) -> Option<f64> {
        Some(self.median(name, key)? / self.median(OWN, key)?)
    }

    /// What failed.
    pub fn failed(&self) -> impl Iterator<Item = String> {
        let failed =
            self.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        failed.map(|(who, why)| format!("{who}, redis {}: {why}", self.name))
    }

    /// Everything as JSON.
    pub fn data(&self) -> Value {
        let allocators = self.series.iter().map(|series| {
            let of = |key| Summary::of(&series.values(key));
            let name = &series.contender.name;
            json!({"allocator": name, "rate": of("rate"), "cpu_ns": of("cpu_ns"),
                   "peak_rss": of("peak_rss"), "failed": series.failed})
        });
        json!({"values": self.name, "operations": self.operations,
               "allocators": allocators.collect::<Vec<_>>()})
    }

    /// Target P4: the default is no slower than Redis' own jemalloc, in the server's time.
    pub fn judge(&self) -> Option<Verdict> {
        let ratio = self.to_own("spandrel", "cpu_ns")?;
        let what = format!("auto, redis {}: its own jemalloc", self.name);
        let mut verdict = Verdict::new("P4", what, ratio, 1.0, "×");
        let values = |name: &str| {
            let series = self.series.iter().find(|series| series.contender.name == name);
            series.map(|series| series.values("cpu_ns"))
        };
        let pairs = values("spandrel")?.into_iter().zip(values(OWN)?);
        verdict.between = middle_between(&pairs.map(|(one, two)| one / two).collect::<Vec<_>>());
        Some(verdict)
    }
}

/// Rate and the server's time, relative to Redis' own jemalloc.
pub fn tables(outcomes: &[Outcome]) -> Vec<Plain> {
    let one = |title: &str, key: &str, text: fn(f64) -> String| {
        let mut header = vec![title.to_string()];
        header.extend(outcomes.iter().map(|outcome| format!("{} values", outcome.name)));
        let series = outcomes.first().map_or(&[][..], |outcome| &outcome.series);
        let rows = series.iter().map(|series| {
            let name = &series.contender.name;
            let cell = |outcome: &Outcome| match name.as_str() {
                OWN => outcome.median(OWN, key).map(text),
                _ => outcome.to_own(name, key).map(|ratio| format!("{ratio:.2}")),
            };
            let cells = outcomes.iter().map(|o| cell(o).unwrap_or(table::NOTHING.into()));
            (series.contender.ours(), std::iter::once(name.clone()).chain(cells).collect())
        });
        Plain { header, rows: rows.collect() }
    };
    vec![
        one("Fig. 13: rate, × own jemalloc", "rate", |rate| format!("{}/s", count(rate as u64))),
        one("server's CPU, × own jemalloc", "cpu_ns", time),
    ]
}

/// The same as a picture.
pub fn dots(outcomes: &[Outcome]) -> Option<Dots> {
    let series = &outcomes.first()?.series;
    let panel = |outcome: &Outcome| {
        let marks = |name: &str, key: &str| Marks {
            name: name.into(),
            values: series.iter().map(|s| outcome.to_own(&s.contender.name, key)).collect(),
        };
        DotPanel {
            title: format!("{} values", outcome.name),
            x: "times own jemalloc".into(),
            marks: vec![marks("rate", "rate"), marks("server's CPU time", "cpu_ns")],
            x_least: 1.0,
            has_powers: false,
            digits: 2,
        }
    };
    let row =
        |s: &Series| DotRow { name: s.contender.name.clone(), stands_out: s.contender.ours() };
    Some(Dots {
        title: "Redis under YCSB (Fig. 13)".into(),
        subtitle: "90 % inserts, 10 % reads; a higher rate and less time are better".into(),
        rows: series.iter().map(row).collect(),
        panels: outcomes.iter().map(panel).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found() {
        let said = "[OVERALL], RunTime(ms), 900\n[OVERALL], Throughput(ops/sec), 3333.25\n";
        assert_eq!(rate(said), Some(3333.25));
        assert_eq!(rate("[OVERALL], RunTime(ms), 900"), None);
    }

    #[test]
    fn without_ycsb_it_is_said_how_to_have_it() {
        let why = find(Path::new("/no/such/folder")).unwrap_err();
        assert!(why.contains("make -C bench/peers ycsb"), "{why}");
    }
}
