//! A run of the benchmarks: suites one after the other, each in the report as soon as it is measured.

use crate::asked::Asked;
use crate::options::{self, is_drawn};
use crate::report::{Report, Section};
use crate::suite::Bench;
use spandrel_console::progress::Progress;
use spandrel_console::{Failure, files};
use spandrel_measure::{peers, places};
use std::path::Path;

/// Measured rounds with `--quick`.
const RUNS_QUICK: usize = 3;

/// Measures what the options choose and prints it. The exit code tells whether it could be
/// measured and programs worked, not how fast they were.
pub fn run(asked: &Asked) -> Result<u8, Failure> {
    options::check(asked)?;
    let worker = places::worker()?;
    let (contenders, mut notes) = peers::find(&asked.wanted())?;
    let quick = asked.quick;
    let of_suite = asked.suite.map_or(options::Options::default(), |suite| suite.options());
    let usual = if quick { RUNS_QUICK } else { of_suite.runs };
    let runs = asked.runs.map_or(usual, |runs| runs as usize);
    let peers_named = asked.peers.is_some();
    let bench = Bench { worker, contenders, peers_named, runs, quick };
    let mut all = Vec::new();
    for suite in asked.suites() {
        match suite.prepare(asked) {
            Ok(prepared) => all.push((suite, prepared)),
            Err(failure) if asked.suite.is_none() => {
                notes.push(format!("without {}: {}", suite.name(), failure.message));
            }
            Err(failure) => return Err(failure),
        }
    }
    let mut report = Report::new(&bench, notes);
    // Better refused now than after an hour.
    report.save(asked.json.as_deref())?;
    report.print_head()?;
    for (suite, measure) in &all {
        let progress = Progress::new();
        let mut section = measure(&bench, &progress)?;
        progress.finish();
        if !asked.targets {
            section.verdicts.clear();
        }
        let out = asked.out.as_ref().filter(|_| is_drawn(asked, *suite));
        let drawn = out.map_or(Ok(()), |path| draw(path, &mut section));
        let written = match (&asked.markdown, &section.markdown) {
            (Some(path), Some(text)) => files::write(path, text),
            _ => Ok(()),
        };
        report.add(section);
        // Written first: it is there also when no reader takes what is printed.
        report.save(asked.json.as_deref())?;
        report.print_last()?;
        drawn?;
        written?;
    }
    report.end(asked.json.as_deref())?;
    Ok(u8::from(report.is_broken()))
}

/// Writes a section's picture, if it has one, and says where.
fn draw(path: &Path, section: &mut Section) -> Result<(), Failure> {
    let Some(plot) = &section.plot else { return Ok(()) };
    let svg =
        plot.svg().map_err(|why| Failure::new(format!("--out: {}: {why}", path.display())))?;
    files::write(path, &svg)?;
    section.notes.push(format!("plot: {}", path.display()));
    Ok(())
}
