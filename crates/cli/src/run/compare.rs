//! `--compare`: the same job in other ways, so that a report has something to stand beside.

use super::Policy;
use serde_json::json;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::modes;
use spandrel_measure::process;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::Way;
use spandrel_report::numbers::Summary;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The system's own allocator, without the library.
const SYSTEM: &str = "sys";

/// Variables that choose allocators: what an inherited one says is true of the run's own way alone.
const POLICY: &[&str] = &["SPANDREL_MODE", "SPANDREL_PROFILE", "BRUG_ALLOC", "SPANDREL_EXPERIMENT"];
/// Variables that change how the library works in any mode.
const SETTINGS: &[&str] = &[
    "SPANDREL_TUNER",
    "SPANDREL_LIMIT",
    "SPANDREL_RELEASE_RATE",
    "SPANDREL_GUARD",
    "SPANDREL_BACKGROUND",
];

/// Ways to run the job again, the run's own first.
pub struct Comparison {
    ways: Vec<Contender>,
    rounds: usize,
}

impl Comparison {
    /// Checks the list of ways; `None`: it is empty.
    pub fn new(
        asked: &[String],
        rounds: u32,
        policy: &Policy,
        library: &Path,
    ) -> Result<Option<Self>, Failure> {
        if asked.is_empty() {
            return Ok(None);
        }
        let mut own = Contender::spandrel(&policy.name(), library);
        own.env = in_force(POLICY);
        if let Some((name, value)) = &policy.variable {
            own.env = vec![((*name).into(), value.clone())];
        }
        own.env.extend(in_force(SETTINGS));
        let mut ways = vec![own];
        for text in asked.iter().flat_map(|list| modes::split(list)) {
            let text = text.as_str();
            let way = if text == SYSTEM {
                Contender::system()
            } else {
                let mode = modes::check("--compare", text)?;
                modes::check_built_in(&mode, text, library)?;
                let mut way = Contender::spandrel(text, library);
                way.env.extend(in_force(SETTINGS));
                way
            };
            if ways.iter().any(|known| known.name == way.name) {
                return Err(Failure::refused(format!(
                    "--compare: '{text}' is compared already; name each way once, other than the \
                     run's own"
                )));
            }
            ways.push(way);
        }
        Ok(Some(Self { ways, rounds: rounds as usize }))
    }

    /// Runs the job in all ways, in turns. Its output is not shown.
    pub fn run(&self, program: &Path, words: &[OsString]) -> Vec<Way> {
        let progress = Progress::new();
        let series = rounds::turns(&self.ways, self.rounds, &progress, "comparing", |way| {
            let mut command = Command::new(program);
            if let Some((name, words)) = words.split_first() {
                command.arg0(name).args(words);
            }
            way.prepare(&mut command);
            let ended = process::run_unheard(&mut command)?.success()?;
            Ok(json!({
                "cpu_ns": ended.cpu_ns,
                "wall_ns": ended.wall_ns,
                "peak_bytes": ended.peak_bytes,
                "faults": ended.faults,
            }))
        });
        progress.finish();
        series.into_iter().enumerate().map(|(at, series)| way(at, series)).collect()
    }
}

/// Those of these variables that the user's environment has, which the run itself inherits.
fn in_force(names: &[&str]) -> Vec<(String, OsString)> {
    let named = |name: &&str| std::env::var_os(name).map(|value| ((*name).to_owned(), value));
    names.iter().filter_map(named).collect()
}

fn way(at: usize, series: Series) -> Way {
    let of = |key: &str| Summary::of(&series.values(key)).filter(|_| series.failed.is_none());
    let name = match series.contender.name.strip_prefix("spandrel") {
        _ if series.contender.is_system() => "sys (without Spandrel)".into(),
        Some("") => "auto".into(),
        Some(mode) => mode.trim_start().to_owned(),
        None => series.contender.name.clone(),
    };
    Way {
        name,
        is_the_run: at == 0,
        cpu_ns: of("cpu_ns"),
        wall_ns: of("wall_ns"),
        peak_bytes: of("peak_bytes"),
        faults: of("faults"),
        failed: series.failed,
    }
}
