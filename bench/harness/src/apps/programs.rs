//! The programs, and how each is run once.

use crate::redis;
use crate::suite::Bench;
use redis::load::Load;
use serde_json::{Map, Value, json};
use spandrel_measure::contender::{Contender, OWN};
use spandrel_measure::{process, rounds};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const JOB: &str = include_str!("job.py");
/// A job that takes longer hangs.
pub const JOB_MAX: Duration = Duration::from_secs(120);

/// What can be run.
pub enum Program {
    /// `redis-server` under `redis-benchmark`, with small and large values.
    Redis,
    /// A python3 job that grows large buffers; the interpreter, if there is one.
    Python(Option<PathBuf>),
    /// A Rust program that appends: its name and the worker's words.
    Worker(&'static str, &'static [&'static str]),
}

/// All programs, in the order in which they are run.
pub fn all(_: &Bench) -> Vec<Program> {
    vec![
        Program::Redis,
        Program::Python(interpreter()),
        Program::Worker("Rust Vec<u64>", &["vec", "--pushes", "100000000"]),
        Program::Worker("Arrow buffer", &["arrow", "--pushes", "100000000"]),
    ]
}

/// The real interpreter: `python3` may be a script that chooses one.
pub fn interpreter() -> Option<PathBuf> {
    let mut command = Command::new("python3");
    let ended =
        process::run(command.args(["-c", "import sys; print(sys.executable)"]), Some(JOB_MAX));
    let path = PathBuf::from(ended.ok()?.success().ok()?.output.trim());
    path.exists().then_some(path)
}

impl Program {
    /// What tables call it.
    pub fn name(&self) -> &'static str {
        match self {
            Program::Redis => "redis-server",
            Program::Python(_) => "python3 job",
            Program::Worker(name, _) => name,
        }
    }

    /// What has to be installed first, if anything.
    pub fn missing(&self) -> Option<&'static str> {
        let exists = |name: &str| {
            let version = process::run(Command::new(name).arg("--version"), Some(JOB_MAX));
            version.is_ok_and(|ended| ended.status.success())
        };
        match self {
            Program::Redis if !(exists("redis-server") && exists("redis-benchmark")) => {
                Some("redis-server or redis-benchmark is not installed")
            }
            Program::Python(None) => Some("python3 is not installed"),
            _ => None,
        }
    }

    /// What it is run on: first what it comes with, last Spandrel.
    pub fn contenders(&self, bench: &Bench, ours: &Contender) -> Vec<Contender> {
        let mut list: Vec<Contender> = match self {
            Program::Redis => {
                redis::contenders(bench).into_iter().map(|(contender, _)| contender).collect()
            }
            _ => vec![Contender { name: "glibc".into(), ..Contender::system() }],
        };
        list.retain(|contender| contender.name == OWN || contender.name == "glibc");
        list.push(ours.clone());
        list
    }

    /// One run: CPU time, elapsed time, peak memory, and a digest of the output
    /// where there is one.
    pub fn run(&self, bench: &Bench, contender: &Contender) -> Result<Value, String> {
        match self {
            Program::Redis => run_redis(contender),
            Program::Python(None) => Err("there is no python3".into()),
            Program::Python(Some(interpreter)) => run_python(interpreter, contender),
            Program::Worker(_, words) => rounds::worker(&bench.worker, contender, words),
        }
    }
}

/// Both loads, each on a fresh server: times added up, the larger peak.
fn run_redis(contender: &Contender) -> Result<Value, String> {
    let mut sum = json!({"cpu_ns": 0.0, "wall_ns": 0.0, "peak_rss": 0.0});
    for load in Load::both(true) {
        let replaced = contender.name != OWN;
        let result = load.run(contender, replaced, false)?;
        let number = |value: &Value, key: &str| value[key].as_f64().unwrap_or(0.0);
        for key in ["cpu_ns", "wall_ns"] {
            sum[key] = (number(&sum, key) + number(&result, key)).into();
        }
        sum["peak_rss"] = number(&sum, "peak_rss").max(number(&result, "peak_rss")).into();
    }
    Ok(sum)
}

/// The job: what it says of itself, its times, and what the machine counted.
pub fn run_python(interpreter: &Path, contender: &Contender) -> Result<Value, String> {
    let mut command = Command::new(interpreter);
    // No files of the user's decide what is measured.
    contender.prepare(command.args(["-I", "-c", JOB]));
    let mut result = Map::new();
    let ended =
        process::run_counted(&mut command, Some(JOB_MAX), contender, &mut result)?.success()?;
    let said: Map<String, Value> = serde_json::from_str(ended.output.trim())
        .map_err(|why| format!("its output is not JSON: {why}"))?;
    result.extend(said);
    result.insert("cpu_ns".into(), ended.cpu_ns.into());
    result.insert("wall_ns".into(), ended.wall_ns.into());
    result.insert("requests_per_cpu_second".into(), (1e9 / ended.cpu_ns).into());
    Ok(result.into())
}
