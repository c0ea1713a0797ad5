//! The allocation programs that every allocator is judged by: CPU and elapsed time, and
//! memory at the peak and after everything was freed. `docs/programs.md` says what each
//! stresses.

mod build;
mod draw;
mod list;
mod outcome;

use crate::asked::Asked;
use crate::options::Options;
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use list::Program;
use outcome::Outcome;
use serde_json::Value;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::process;
use spandrel_measure::rounds::{self, RUN_MAX};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "programs";
const ABOUT: &str = "the programs that allocators are judged by";

/// The suite `programs`.
pub struct Programs;

impl Suite for Programs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        ABOUT
    }

    fn options(&self) -> Options {
        Options { has_parts: true, ..Options::default() }
    }

    fn prepare(&self, asked: &Asked) -> Result<Prepared, Failure> {
        let chosen = find(asked)?;
        Ok(Box::new(move |bench, progress| Ok(run(bench, &chosen, progress))))
    }
}

/// The programs to run and where they are.
struct Chosen {
    programs: Vec<Program>,
    folder: PathBuf,
}

/// Finds what the options choose, so that it is refused at once and not after an hour.
fn find(asked: &Asked) -> Result<Chosen, Failure> {
    let programs = list::choose(asked.only.as_deref())?;
    let folder = build::folder(&programs)?;
    Ok(Chosen { programs, folder })
}

/// Measures them.
fn run(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Section {
    let mut section = Section::new(NAME, ABOUT);
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    let mut outcomes = Vec::new();
    for program in &chosen.programs {
        let words = program.words(bench.quick, processors);
        let path = chosen.folder.join(program.file);
        let series =
            rounds::in_turns(&bench.contenders, bench.runs, progress, program.name, |contender| {
                one(&path, &words, contender)
            });
        outcomes.push(Outcome { name: program.name, words, series });
    }
    section.tables = draw::matrices(&outcomes);
    section.tables.extend(outcomes.iter().flat_map(draw::phases));
    section.tables.push(draw::beside_the_best(&outcomes));
    section.tables.push(draw::means(&outcomes));
    section.verdicts.extend(outcomes.iter().flat_map(Outcome::judge));
    section.verdicts.extend(outcome::judge_mean(&outcomes));
    for outcome in &outcomes {
        let failed =
            outcome.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        section.notes.extend(failed.map(|(who, why)| format!("{who}, {}: {why}", outcome.name)));
        let wrong = outcome.wrong();
        section.broken |= !wrong.is_empty();
        section.notes.extend(wrong);
    }
    section.notes.push(
        "leanest: the least peak memory among peers within 10% of the best time; drained: resident \
         when everything was freed"
            .into(),
    );
    section.data = outcomes.iter().map(Outcome::data).collect::<Vec<_>>().into();
    section
}

/// One run of a program: what it said, and its time as seen from outside.
fn one(path: &Path, words: &[String], contender: &Contender) -> Result<Value, String> {
    let mut command = Command::new(path);
    contender.prepare(command.args(words));
    let ended = process::run(&mut command, Some(RUN_MAX))?.success()?;
    let mut said: Value = serde_json::from_str(&ended.output)
        .map_err(|why| format!("its output is not JSON: {why}"))?;
    let members = said.as_object_mut().ok_or("its output is not an object")?;
    members.insert("cpu_ns".into(), ended.cpu_ns.into());
    members.insert("wall_ns".into(), ended.wall_ns.into());
    Ok(said)
}
