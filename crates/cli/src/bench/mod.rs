//! `spandrel bench`: what this machine's allocators cost, side by side.
//!
//! A suite is a list of cases; a case runs the worker once per allocator and
//! round, allocators taking turns, so that a disturbance of the machine hits them
//! alike. Only ratios of medians are compared.

mod apps;
mod cases;
mod copies;
mod dispatch;
mod fig2;
mod heap;
mod hugepages;
mod options;
mod paper;
mod picture;
mod programs;
mod redis;
pub mod replay;
mod report;
mod startup;
pub mod table;
mod target;
mod world;

use crate::args::{BenchArgs, Suite};
use report::{Report, Section};
use spandrel_console::Failure;
use spandrel_console::files;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::peers::{self, Wanted};
use spandrel_measure::{places, rounds};
use std::path::{Path, PathBuf};

/// What every suite is given.
pub struct Bench {
    /// The program to measure.
    pub worker: PathBuf,
    /// The allocators to compare; the first is the system's.
    pub contenders: Vec<Contender>,
    /// Whether the user chose the peers.
    pub peers_named: bool,
    /// Measured rounds.
    pub runs: usize,
    /// Whether to do less.
    pub quick: bool,
}

impl Bench {
    /// Measures one job of the worker on every contender.
    pub fn measure(&self, progress: &Progress, label: &str, words: &[&str]) -> Vec<rounds::Series> {
        self.measure_on(&self.contenders, progress, label, words)
    }

    /// The same on chosen contenders.
    pub fn measure_on(
        &self,
        contenders: &[Contender],
        progress: &Progress,
        label: &str,
        words: &[&str],
    ) -> Vec<rounds::Series> {
        rounds::in_turns(contenders, self.runs, progress, label, |contender| {
            rounds::worker(&self.worker, contender, words)
        })
    }

    /// The contender that ratios are taken against.
    pub fn system(&self) -> Result<&Contender, Failure> {
        self.contenders
            .iter()
            .find(|contender| contender.is_system())
            .ok_or_else(|| Failure::new("the system's allocator is missing from the comparison"))
    }
}

/// The allocators that these options choose.
fn wanted(args: &BenchArgs) -> Wanted<'_> {
    Wanted {
        peers: args.peers.as_deref(),
        // The worker is linked with the recoverable heap.
        modes: (args.suite != Suite::Heap).then_some(args.modes.as_str()),
        library: args.lib.as_deref(),
        // Real programs are put on peers by name only, and other suites say themselves what they lack.
        names_missing: !matches!(
            args.suite,
            Suite::Apps | Suite::World | Suite::Paper | Suite::Heap
        ),
    }
}

/// Runs what was asked for and prints it. The exit code tells whether it could be
/// measured and programs worked, not how fast they were.
pub fn run(args: &BenchArgs) -> Result<u8, Failure> {
    options::check(args)?;
    let worker = places::worker()?;
    let (contenders, mut notes) = peers::find(&wanted(args))?;
    let quick = args.quick;
    let usual = if quick || matches!(args.suite, Suite::Apps | Suite::World) { 3 } else { 7 };
    let runs = args.runs.map_or(usual, |runs| runs as usize);
    let peers_named = args.peers.is_some();
    let bench = Bench { worker, contenders, peers_named, runs, quick };
    let mut suites = suites(args.suite);
    let mut chosen = None;
    if suites.contains(&Suite::Programs) {
        match programs::find(args) {
            Ok(found) => chosen = Some(found),
            Err(failure) if args.suite == Suite::All => {
                notes.push(format!("without programs: {}", failure.message));
                suites.retain(|suite| *suite != Suite::Programs);
            }
            Err(failure) => return Err(failure),
        }
    }
    let mut of_paper = None;
    if suites.contains(&Suite::Paper) {
        match paper::find(args) {
            Ok(found) => of_paper = Some(found),
            Err(failure) if args.suite == Suite::All => {
                notes.push(format!("without paper: {}", failure.message));
                suites.retain(|suite| *suite != Suite::Paper);
            }
            Err(failure) => return Err(failure),
        }
    }
    let of_world = match args.suite {
        Suite::World => Some(world::find(args)?),
        _ => None,
    };
    let of_heap = match suites.contains(&Suite::Heap) {
        true => Some(heap::find(args)?),
        false => None,
    };
    let mut report = Report::new(&bench, notes);
    // Better refused now than after an hour.
    report.save(args.json.as_deref())?;
    report.print_head()?;
    for suite in suites {
        let progress = Progress::new();
        let mut section = match suite {
            Suite::Copies => copies::run(&bench, &progress)?,
            Suite::Fig2 => fig2::run(&bench, &progress)?,
            Suite::Startup => startup::run(&bench, &progress)?,
            Suite::Dispatch => dispatch::run(&bench, &progress)?,
            Suite::Hugepages => hugepages::run(&bench, &progress)?,
            Suite::Redis => redis::run(&bench, &progress)?,
            Suite::Apps => apps::run(&bench, &progress)?,
            Suite::Programs => match &chosen {
                Some(chosen) => programs::run(&bench, chosen, &progress),
                None => continue,
            },
            Suite::Paper => match &of_paper {
                Some(chosen) => paper::run(&bench, chosen, &progress),
                None => continue,
            },
            Suite::World => match &of_world {
                Some(chosen) => world::run(&bench, chosen, &progress)?,
                None => continue,
            },
            Suite::Heap => match &of_heap {
                Some(chosen) => heap::run(&bench, chosen, &progress),
                None => continue,
            },
            plain => cases::run(&bench, plain, &progress)?,
        };
        progress.finish();
        if !args.targets {
            section.verdicts.clear();
        }
        let out = args.out.as_ref().filter(|_| options::is_drawn(args.suite, suite));
        let drawn = out.map_or(Ok(()), |path| draw(path, &mut section));
        let written = match (&args.markdown, &section.markdown) {
            (Some(path), Some(text)) => files::write(path, text),
            _ => Ok(()),
        };
        report.add(section);
        // Written first: it is there also when no reader takes what is printed.
        report.save(args.json.as_deref())?;
        report.print_last()?;
        drawn?;
        written?;
    }
    report.end(args.json.as_deref())?;
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

/// The suites that a word stands for.
fn suites(asked: Suite) -> Vec<Suite> {
    match asked {
        Suite::All => vec![
            Suite::Realloc,
            Suite::Append,
            Suite::Vec,
            Suite::Arrow,
            Suite::Copies,
            Suite::Fig2,
            Suite::Pair,
            Suite::Small,
            Suite::Mixed,
            Suite::Startup,
            Suite::Dispatch,
            Suite::Hugepages,
            Suite::Redis,
            Suite::Programs,
            Suite::Paper,
            Suite::Heap,
        ],
        one => vec![one],
    }
}
