//! Programs of a distribution as users run them: servers under load, interpreters, data systems, programs of the desktop; their CPU
//! time, peak memory, and memory after a rest, on the usual allocators and on Spandrel.
//!
//! Each runs in a folder of its own, with all its processes below a worker that counts what they use ([`tree`]). Allocators take
//! turns. In the last round all of them rest at the same time.

mod draw;
mod list;
mod running;
mod tree;

use crate::asked::Asked;
use crate::options::{Allocators, Options};
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use list::Program;
use running::{Place, Running};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::process;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::Summary;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// The rest of a program, and a shorter one.
const REST: Duration = Duration::from_secs(60);
const QUICK_REST: Duration = Duration::from_secs(15);
/// Peers that a program is measured on: the first of each line that is there.
const PEERS: [&[&str]; 2] = [&["jemalloc-5.3.1", "jemalloc"], &["mimalloc2", "mimalloc"]];

const NAME: &str = "world";
const ABOUT: &str = "servers, interpreters, data systems and desktop programs";

/// The suite `world`.
pub struct World;

impl Suite for World {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        ABOUT
    }

    fn options(&self) -> Options {
        Options {
            has_parts: true,
            has_markdown: true,
            allocators: Allocators::Usual,
            runs: 3,
            is_in_all: false,
            ..Options::default()
        }
    }

    fn prepare(&self, asked: &Asked) -> Result<Prepared, Failure> {
        let chosen = find(asked)?;
        Ok(Box::new(move |bench, progress| run(bench, &chosen, progress)))
    }
}

/// The programs to run, and the interpreter of Python.
struct Chosen {
    programs: Vec<&'static Program>,
    python: String,
}

/// Names the interpreter of Python.
const PYTHON: &str = "SPANDREL_PYTHON";

/// Finds what the options choose.
fn find(asked: &Asked) -> Result<Chosen, Failure> {
    Ok(Chosen { programs: programs(asked)?, python: python()? })
}

fn python() -> Result<String, Failure> {
    let Some(named) = std::env::var(PYTHON).ok().filter(|named| !named.is_empty()) else {
        return Ok("python3".into());
    };
    let done = process::run(Command::new(&named).args(["-I", "-c", ""]), None);
    match done.and_then(process::Ended::success) {
        Ok(_) => Ok(named),
        Err(why) => Err(Failure::refused(format!(
            "{PYTHON}: '{named}' is no interpreter of Python: {why}; name one, or leave the variable out"
        ))),
    }
}

fn programs(asked: &Asked) -> Result<Vec<&'static Program>, Failure> {
    let Some(names) = &asked.only else { return Ok(list::ALL.iter().collect()) };
    let of_name = |name: &String| {
        let matches = |program: &&Program| program.name.eq_ignore_ascii_case(name);
        list::ALL.iter().find(matches).ok_or_else(|| {
            let all: Vec<&str> = list::ALL.iter().map(|program| program.name).collect();
            Failure::refused(format!("--only: no program '{name}'; there are: {}", all.join(", ")))
        })
    };
    names.iter().map(of_name).collect()
}

/// One program's results.
struct Outcome {
    program: &'static Program,
    series: Vec<Series>,
}

impl Outcome {
    /// Whether all that ran printed the same; `None` where fewer than two ran.
    fn is_same(&self) -> Option<bool> {
        let samples = self.series.iter().flat_map(|series| &series.samples);
        let mut outputs = samples.filter_map(|sample| sample.get("output"));
        let first = outputs.next()?;
        let mut others = outputs.peekable();
        others.peek()?;
        Some(others.all(|output| output == first))
    }

    /// Whether it does something else on Spandrel than on the system's allocator.
    fn is_broken(&self) -> bool {
        let has_failed = |is_it: fn(&Contender) -> bool| {
            self.series.iter().any(|series| is_it(&series.contender) && series.failed.is_some())
        };
        let is_same = self.is_same() != Some(false);
        !is_same || has_failed(Contender::ours) && !has_failed(Contender::is_system)
    }

    fn data(&self) -> Value {
        let of = |series: &Series, key: &str| Summary::of(&series.values(key));
        let series = self.series.iter().map(|series| {
            json!({
                "allocator": series.contender.name,
                "cpu_ns": of(series, "cpu_ns"),
                "wall_ns": of(series, "wall_ns"),
                "peak_rss": of(series, "peak_rss"),
                "rested_rss": of(series, "rested_rss"),
                "failed": series.failed,
                "samples": series.samples,
            })
        });
        json!({
            "program": self.program.name,
            "allocators": series.collect::<Vec<_>>(),
            "same_output": self.is_same(),
        })
    }
}

/// Measures them.
fn run(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Result<Section, Failure> {
    let mut section = Section::new(NAME, ABOUT);
    let place = Place { worker: bench.worker.clone(), python: chosen.python.clone() };
    let contenders = contenders(bench);
    let mut outcomes = Vec::new();
    for program in &chosen.programs {
        match missing(program, &place) {
            Some(what) => section.notes.push(format!("{}: left out, {what}", program.name)),
            None => outcomes.push(measure(bench, program, &contenders, &place, progress)),
        }
    }
    if outcomes.is_empty() {
        return Err(Failure::refused(section.notes.join("; ")));
    }
    let rest = if bench.quick { QUICK_REST } else { REST };
    section.tables.push(draw::table(&outcomes).to_string());
    section.tables.push(draw::means(&outcomes).to_string());
    section.markdown = Some(draw::markdown(&outcomes, rest));
    section.notes.push(draw::about(rest));
    for outcome in &outcomes {
        let failed =
            outcome.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        let name = outcome.program.name;
        section.notes.extend(failed.map(|(on, why)| format!("{name} on {on}: {why}")));
        if outcome.is_same() == Some(false) {
            section.notes.push(format!("{name}: the output is not the same on all allocators"));
        }
        section.broken |= outcome.is_broken();
    }
    section.data = outcomes.iter().map(Outcome::data).collect::<Vec<_>>().into();
    Ok(section)
}

/// What the programs are measured on: the system's allocator, peers, Spandrel.
fn contenders(bench: &Bench) -> Vec<Contender> {
    let by_name = |name: &&str| bench.contenders.iter().find(|one| one.name == **name);
    let is_usual = |one: &Contender| {
        let mut usual = PEERS.iter().filter_map(|names| names.iter().find_map(by_name));
        bench.peers_named || usual.any(|peer| peer.name == one.name)
    };
    let is_in = |one: &&Contender| one.is_system() || one.ours() || is_usual(one);
    bench.contenders.iter().filter(is_in).cloned().collect()
}

/// What has to be installed first, if anything.
fn missing(program: &Program, place: &Place) -> Option<String> {
    let command = program.needs.iter().find(|(command, _)| !running::is_installed(command));
    if let Some((command, package)) = command {
        return Some(format!("{command} is not installed ({package})"));
    }
    let has = |module: &str| {
        let mut command = Command::new(&place.python);
        command.args(["-I", "-c", &format!("import {module}")]);
        process::run(&mut command, None).is_ok_and(|ended| ended.status.success())
    };
    let module = program.modules.iter().find(|module| !has(module))?;
    Some(format!(
        "{} has no module {module} ('scripts/setup world', or name an interpreter in SPANDREL_PYTHON)",
        place.python
    ))
}

/// All rounds of a program. The first one does not count; in the last one all rest at the same time.
fn measure(
    bench: &Bench,
    program: &'static Program,
    contenders: &[Contender],
    place: &Place,
    progress: &Progress,
) -> Outcome {
    let new = |contender: &Contender| Series {
        contender: contender.clone(),
        samples: Vec::with_capacity(bench.runs),
        failed: None,
    };
    let mut series: Vec<Series> = contenders.iter().map(new).collect();
    progress.stage(program.name, contenders.len() * (1 + bench.runs));
    let rest = if bench.quick { QUICK_REST } else { REST };
    for round in 0..=bench.runs {
        let is_last = round == bench.runs && Running::rests(program);
        let mut resting = Vec::new();
        for one in &mut series {
            progress.note(&one.contender.name);
            if one.failed.is_none() {
                match Running::start(program, &one.contender, place) {
                    Ok(running) if is_last => resting.push((one, running)),
                    Ok(running) => keep(one, running.end(None), round > 0),
                    Err(why) => one.failed = Some(why),
                }
            }
            progress.step();
        }
        if !resting.is_empty() {
            progress.note("rest");
            sleep(rest);
        }
        // All are looked at before the first one ends: the shares of files that they have in common grow with each end.
        let rested: Vec<_> = resting.iter_mut().map(|(_, running)| running.look()).collect();
        for ((one, running), rested) in resting.into_iter().zip(rested) {
            keep(one, rested.and_then(|state| running.end(Some(state))), true);
        }
    }
    Outcome { program, series }
}

fn keep(series: &mut Series, sample: Result<Value, String>, does_count: bool) {
    match sample {
        Ok(sample) if does_count => series.samples.push(sample),
        Ok(_) => {}
        Err(why) => series.failed = Some(why),
    }
}
