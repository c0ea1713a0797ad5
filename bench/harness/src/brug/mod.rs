//! Section IV of the Brug paper (CCGrid '24), as far as one process each can show it: its workloads
//! on each allocator by itself and behind Spandrel in every mode, a job with phases, and a program
//! that hardly allocates. `docs/evaluation.md` says what came of it.

mod draw;
mod list;
mod outcome;
mod picture;
pub mod redis;
mod workers;

use crate::asked::Asked;
use crate::options::{Allocators, Drawn, Options};
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use list::{PHASES, Workload};
use outcome::Outcome;
use serde_json::json;
use spandrel_console::Failure;
use spandrel_console::plain::{self, Plain};
use spandrel_console::progress::Progress;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_measure::reserve;
use spandrel_measure::rounds;
use spandrel_report::numbers::{bytes, count, counted};
use std::path::PathBuf;
use tempfile::TempDir;
use workers::Workers;

const NAME: &str = "paper";
const ABOUT: &str = "the Brug paper's evaluation, every mode beside allocators by themselves";

/// The suite `paper`.
pub struct Brug;

impl Suite for Brug {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        ABOUT
    }

    fn options(&self) -> Options {
        Options {
            has_parts: true,
            has_scale: true,
            can_train: true,
            has_markdown: true,
            drawn: Drawn::Alone,
            allocators: Allocators::Own {
                peers: "measures the paper's own allocators, each built into a worker",
                modes: "measures every mode",
                preloads: true,
            },
            ..Options::default()
        }
    }

    fn prepare(&self, asked: &Asked) -> Result<Prepared, Failure> {
        let chosen = find(asked)?;
        Ok(Box::new(move |bench, progress| Ok(run(bench, &chosen, progress))))
    }
}

/// What to run, how much of it, and where it is.
struct Chosen {
    workloads: Vec<Workload>,
    scale: f64,
    workers: Workers,
    /// Whether profiles are to be trained.
    trained: bool,
    /// The folder with YCSB, or why Redis is left out.
    ycsb: Result<PathBuf, String>,
}

/// Finds what the options choose, so that it is refused at once and not after an hour.
fn find(asked: &Asked) -> Result<Chosen, Failure> {
    let only = asked.only.as_deref();
    let usual = if asked.quick { list::SCALE_QUICK } else { list::SCALE };
    let workloads = list::choose(only)?;
    let workers = Workers::find(asked.library.as_deref())?;
    let named = only.map(|names| names.iter().any(|name| name == redis::NAME));
    let ycsb = match named {
        Some(false) => Err(String::new()),
        _ => redis::find(workers.folder()),
    };
    match ycsb {
        Err(why) if named == Some(true) => Err(Failure::refused(format!("--only: redis: {why}"))),
        ycsb => {
            let (scale, trained) = (asked.scale.unwrap_or(usual), asked.trained);
            Ok(Chosen { workloads, scale, workers, trained, ycsb })
        }
    }
}

/// Measures it.
fn run(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Section {
    let mut section = Section::new(NAME, ABOUT);
    let scale = chosen.scale;
    let mut outcomes = Vec::new();
    for workload in &chosen.workloads {
        let (needed, there) = (workload.peak_bytes(scale), reserve::available_bytes());
        if there.is_some_and(|there| needed > there) {
            section.notes.push(format!(
                "{}: left out: at this scale it takes {}, and {} are available; lower --scale",
                workload.name,
                bytes(needed as f64),
                bytes(there.unwrap_or(0) as f64),
            ));
            continue;
        }
        let profile = chosen.trained.then(|| chosen.train(workload, progress));
        let profile = profile.and_then(|trained| {
            trained
                .map_err(|why| section.notes.push(format!("{}: untrained: {why}", workload.name)))
                .ok()
        });
        let outcome = one(bench, chosen, workload, needed, profile.as_ref(), progress);
        let failed =
            outcome.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        section.notes.extend(failed.map(|(who, why)| format!("{who}, {}: {why}", workload.name)));
        section.verdicts.extend(outcome.judge());
        let wrong = outcome.wrong();
        section.broken |= !wrong.is_empty();
        section.notes.extend(wrong);
        outcomes.push(outcome);
    }
    let redis = match &chosen.ycsb {
        Ok(ycsb) => redis::run(bench, ycsb, scale, progress),
        Err(why) if why.is_empty() => Vec::new(),
        Err(why) => {
            section.notes.push(format!("without redis: {why}"));
            Vec::new()
        }
    };
    section.verdicts.extend(redis.iter().filter_map(redis::Outcome::judge));
    section.notes.extend(redis.iter().flat_map(redis::Outcome::failed));
    section.verdicts.extend(outcome::judge_behind(&outcomes));
    let rounds = counted(bench.runs as u64, "round", "rounds");
    let of = format!("scale {scale} of the paper's counts; medians of {rounds}");
    let growth = growth(chosen).map_err(|why| section.notes.push(why)).ok().flatten();
    let mut tables = draw::tables(&outcomes);
    if !redis.is_empty() {
        tables.extend(redis::tables(&redis));
    }
    section.tables = tables.iter().map(Plain::text).collect();
    section.markdown = Some(plain::markdown(&tables, &format!("{of}.")));
    section.plot = Some(picture::of(&outcomes, &redis, growth.as_ref(), &of));
    section.notes.push(format!("{of}; CPU time of whole processes"));
    section.notes.push(
        "sys, jemalloc, mimalloc: the program's global allocator without Spandrel; mmap is left out \
         where there are many small objects, as in the paper"
            .into(),
    );
    section.data = json!({
        "scale": scale,
        "workloads": outcomes.iter().map(Outcome::data).collect::<Vec<_>>(),
        "redis": redis.iter().map(redis::Outcome::data).collect::<Vec<_>>(),
        "growth": growth,
    });
    section
}

/// A profile that goes with the value.
struct Trained {
    profile: PathBuf,
    _directory: Scratch<TempDir>,
}

impl Chosen {
    /// Trains a profile for a workload.
    fn train(&self, workload: &Workload, progress: &Progress) -> Result<Trained, String> {
        progress.stage(&format!("{}, training", workload.name), 1);
        // `tune` puts a file of its own in the place of the profile, so that what is locked is its directory.
        let directory = Scratch::directory(Kind::Profile).map_err(|why| why.to_string())?;
        let profile = directory.path().join("profile");
        self.workers.train(workload, self.scale, &profile)?;
        Ok(Trained { profile, _directory: directory })
    }
}

/// A workload on every allocator in turns, with as much memory in reserve between the runs as it takes.
fn one(
    bench: &Bench,
    chosen: &Chosen,
    workload: &Workload,
    needed: u64,
    profile: Option<&Trained>,
    progress: &Progress,
) -> Outcome {
    let mut contenders = workers::contenders(workload);
    contenders.extend(profile.map(|profile| workers::trained(&profile.profile)));
    let label = format!("{}, {} times", workload.name, count(workload.count(chosen.scale)));
    let series = rounds::holding(needed, &contenders, bench.runs, progress, &label, |contender| {
        chosen.workers.run(contender, workload, chosen.scale)
    });
    Outcome { workload: *workload, count: workload.count(chosen.scale), series }
}

/// How an object of the job with phases grows, if that is among what was chosen.
fn growth(chosen: &Chosen) -> Result<Option<serde_json::Value>, String> {
    let Some(phases) = chosen.workloads.iter().find(|w| w.name == PHASES) else { return Ok(None) };
    let watched = chosen.workers.watch(phases, chosen.scale);
    watched.map(Some).map_err(|why| format!("how an object grows: {why}"))
}
