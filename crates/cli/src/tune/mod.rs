//! `spandrel tune`: which allocator serves a job best, learnt by running it.
//!
//! Whole runs are compared, so that everything counts that an allocator causes: its own time, page
//! faults, what it does to caches. Ways to allocate take turns; a way replaces another only if it is
//! faster round by round, and what was put together from several is measured once more as a whole.

mod bands;
mod experiment;
mod merge;
mod profile;
mod record;
mod show;
mod verdict;

use crate::args::TuneArgs;
use crate::run;
use crate::stats::{Gathering, Stats};
use bands::{Band, Load};
use profile::Choice;
use record::{Record, Sizes};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::{files, say};
use spandrel_measure::contender::Contender;
use spandrel_measure::machine::Machine;
use spandrel_measure::process;
use spandrel_measure::rounds::{self, Series};
use spandrel_measure::{modes, places};
use spandrel_pages::AllocatorId;
use spandrel_policy::Available;
use spandrel_report::numbers::Summary;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use verdict::Ratio;

/// What is measured against, and kept unless something is better.
const DEFAULT: &str = "auto";
/// What is compared: time of all processors.
const TIME: &str = "cpu_ns";

/// The program that is tuned for.
struct Job {
    path: PathBuf,
    words: Vec<OsString>,
}

/// One band served by another allocator than by default, all else being as it is.
struct Trial {
    /// Which band, by its place.
    band: usize,
    allocator: AllocatorId,
    /// Its time to that of the same bands by default.
    ratio: Option<Ratio>,
}

/// Learns, writes the profile, shows what was learnt; 0.
pub fn run(args: &TuneArgs) -> Result<u8, Failure> {
    if !args.merge.is_empty() {
        return merge::run(&args.merge, &args.out);
    }
    files::check(&[("--out", Some(&args.out))], &[])?;
    let library = places::library(args.lib.as_deref())?;
    let job = Job { path: run::loadable(&args.command)?, words: args.command.clone() };
    let experiment = experiment::label(Path::new(&job.words[0]))?;
    let available = modes::built_in(&library);
    let progress = Progress::new();
    let stats = job.counted(&library, &progress)?;
    let bands = bands::of_auto();
    let loads: Vec<Load> = bands.iter().map(|band| band.load(&stats.requests)).collect();

    let fixed = fixed_modes(available);
    let mut trials = trials(&bands, &loads, available);
    let mut ways: Vec<Contender> =
        fixed.iter().map(|mode| Contender::spandrel(mode, &library)).collect();
    let by_default = ways.len();
    ways.push(Contender::spandrel(&bands::mode(&bands), &library));
    ways.extend(trials.iter().map(|trial| {
        Contender::spandrel(&bands::mode(&with(&bands, trial.band, trial.allocator)), &library)
    }));
    let runs = args.runs as usize;
    let series = job.measure(&ways, runs, "learning", &progress);
    let (of_modes, of_bands) = series.split_at(by_default);
    if let Some(why) = of_modes.first().and_then(|series| series.failed.as_ref()) {
        return Err(Failure::new(format!("the job failed on Spandrel: {why}")));
    }
    for (trial, series) in trials.iter_mut().zip(of_bands.iter().skip(1)) {
        trial.ratio = compare(series, of_bands.first());
    }
    let put_together = put_together(&bands, &trials);
    let candidates = candidates(&fixed, of_modes, put_together);
    let (choice, gain) = job.validate(&candidates, runs, &library, &progress);
    progress.finish();

    let learnt = show::Learnt {
        runs,
        job: &args.command,
        modes: of_modes,
        bands: &bands,
        loads: &loads,
        trials: &trials,
        choice: &choice,
        gain,
    };
    let mut record = record(of_modes, &bands, &loads, &trials);
    record.experiments.extend(experiment);
    profile::write(&args.out, &(choice.text(&learnt.about()) + &record.text()))?;
    say::out(learnt.tables())?;
    say::out(show::verdict(&show::result(&choice, gain), &args.out))?;
    Ok(0)
}

/// What was measured, for the profile.
fn record(of_modes: &[Series], bands: &[Band], loads: &[Load], trials: &[Trial]) -> Record {
    let default = of_modes.first();
    let cpu_ns = default.and_then(|series| Summary::of(&series.values(TIME)));
    let modes = of_modes
        .iter()
        .skip(1)
        .filter_map(|series| Some((show::name(series), compare(series, default)?)));
    let sizes = bands.iter().zip(loads).enumerate().filter(|(_, (_, load))| load.requests > 0);
    let sizes = sizes.map(|(at, (band, load))| {
        let tried = trials.iter().filter(|trial| trial.band == at);
        let tried = tried.filter_map(|trial| Some((trial.allocator.name().into(), trial.ratio?)));
        let Load { requests, bytes } = *load;
        (band.name(), Sizes { requests, bytes, tried: tried.collect() })
    });
    Record {
        machines: vec![Machine::this().kind()],
        experiments: Vec::new(),
        cpu_ms: cpu_ns.map_or(0.0, |time| time.median / 1e6),
        modes: modes.collect(),
        sizes: sizes.collect(),
    }
}

/// The modes of one policy for all, `auto` first.
fn fixed_modes(available: Available) -> Vec<&'static str> {
    // Everything page-mapped is no sensible choice: an object takes a page at least.
    let only = AllocatorId::ALL
        .into_iter()
        .filter(|id| available.has(*id) && *id != AllocatorId::Mmap && id.named() == *id);
    [DEFAULT].into_iter().chain(only.map(AllocatorId::name)).collect()
}

/// What may be tried where it matters.
fn trials(bands: &[Band], loads: &[Load], available: Available) -> Vec<Trial> {
    let whole = loads.iter().fold(Load::default(), |sum, load| Load {
        requests: sum.requests + load.requests,
        bytes: sum.bytes + load.bytes,
    });
    let hot = bands.iter().zip(loads).enumerate().filter(|(_, (_, load))| load.matters(whole));
    hot.flat_map(|(at, (band, _))| {
        let others = band.others(available).into_iter();
        others.map(move |allocator| Trial { band: at, allocator, ratio: None })
    })
    .collect()
}

/// The bands with another allocator for one of them.
fn with(bands: &[Band], at: usize, allocator: AllocatorId) -> Vec<Band> {
    let mut bands = bands.to_vec();
    if let Some(band) = bands.get_mut(at) {
        band.allocator = allocator;
    }
    bands
}

/// The best of each band in one; `None`: the default is the best of each.
fn put_together(bands: &[Band], trials: &[Trial]) -> Option<Choice> {
    let mut together = bands.to_vec();
    for (at, band) in together.iter_mut().enumerate() {
        let ways: Vec<_> = trials
            .iter()
            .filter(|trial| trial.band == at)
            .map(|trial| (trial.allocator, trial.ratio))
            .collect();
        if let Some((allocator, _)) = verdict::best(&ways) {
            band.allocator = *allocator;
        }
    }
    (together != bands).then_some(Choice::Bands(together))
}

/// What is measured once more: the default, the mode that was better and best, what was put together.
fn candidates(fixed: &[&str], series: &[Series], put_together: Option<Choice>) -> Vec<Choice> {
    let ways: Vec<_> = fixed
        .iter()
        .zip(series)
        .skip(1)
        .map(|(mode, way)| (*mode, compare(way, series.first())))
        .collect();
    let mode = verdict::best(&ways).map(|(mode, _)| Choice::Mode((*mode).into()));
    [Some(Choice::Mode(DEFAULT.into())), mode, put_together].into_iter().flatten().collect()
}

/// How one way's rounds compare with another's; `None`: one of them failed.
fn compare(way: &Series, other: Option<&Series>) -> Option<Ratio> {
    let other = other.filter(|other| other.failed.is_none() && way.failed.is_none())?;
    Ratio::of(&way.values(TIME), &other.values(TIME))
}

impl Job {
    /// One run, whatever it prints.
    fn once(&self, way: &Contender) -> Result<Value, String> {
        let mut command = Command::new(&self.path);
        if let Some((name, words)) = self.words.split_first() {
            command.arg0(name).args(words);
        }
        way.prepare(&mut command);
        let ended = process::run_unheard(&mut command)?.success()?;
        Ok(json!({TIME: ended.cpu_ns, "wall_ns": ended.wall_ns}))
    }

    /// A run that tells what is asked for.
    fn counted(&self, library: &Path, progress: &Progress) -> Result<Stats, Failure> {
        let gathering = Gathering::new()?;
        let mut way = Contender::spandrel(DEFAULT, library);
        let pattern = gathering.pattern().to_string_lossy().into_owned();
        way.env.push(("SPANDREL_STATS".into(), pattern.into()));
        progress.stage("counting", 1);
        self.once(&way).map_err(|why| {
            let name = self.path.display();
            Failure::new(format!("'{name}' failed: {why}; a job to learn from has to succeed"))
        })?;
        progress.step();
        let (all, _) = gathering.read();
        let stats = Stats::sum(&all);
        if stats.requests.iter().all(|row| row.count() == 0) {
            let name = self.path.display();
            return Err(Failure::new(format!(
                "'{name}' told nothing of its requests: it made none, or its processes end by _exit"
            )));
        }
        Ok(stats)
    }

    fn measure(
        &self,
        ways: &[Contender],
        runs: usize,
        label: &str,
        progress: &Progress,
    ) -> Vec<Series> {
        rounds::turns(ways, runs, progress, label, |way| self.once(way))
    }

    /// Of the candidates the best that is better than the first, or the first; and how it compares.
    fn validate(
        &self,
        candidates: &[Choice],
        runs: usize,
        library: &Path,
        progress: &Progress,
    ) -> (Choice, Option<Ratio>) {
        let first = || candidates.first().cloned().unwrap_or(Choice::Mode(DEFAULT.into()));
        if candidates.len() < 2 {
            return (first(), None);
        }
        let ways: Vec<Contender> =
            candidates.iter().map(|choice| Contender::spandrel(&choice.mode(), library)).collect();
        let series = self.measure(&ways, runs, "once more", progress);
        let ways: Vec<_> = candidates
            .iter()
            .zip(&series)
            .skip(1)
            .map(|(choice, way)| (choice, compare(way, series.first())))
            .collect();
        match verdict::best(&ways) {
            Some((choice, ratio)) => ((*choice).clone(), Some(ratio)),
            None => (first(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(median: f64) -> Option<Ratio> {
        Some(Ratio { median, most: median })
    }

    #[test]
    fn only_hot_bands_are_tried() {
        let bands = bands::of_auto();
        let mut loads = vec![Load::default(); bands.len()];
        loads[1] = Load { requests: 1_000_000, bytes: 1 << 30 };
        loads[2] = Load { requests: 10, bytes: 1 << 20 };
        let trials = trials(&bands, &loads, Available::BASE.with(AllocatorId::Jemalloc));
        let tried: Vec<_> = trials.iter().map(|trial| (trial.band, trial.allocator)).collect();
        assert_eq!(tried, [(1, AllocatorId::Sys), (1, AllocatorId::Jemalloc)]);
    }

    #[test]
    fn the_best_of_each_band_is_put_together() {
        let bands = bands::of_auto();
        let trial = |band, allocator, ratio| Trial { band, allocator, ratio };
        let trials = [
            trial(0, AllocatorId::Sys, ratio(1.2)),
            trial(1, AllocatorId::Sys, ratio(0.9)),
            trial(1, AllocatorId::Jemalloc, ratio(0.8)),
            trial(2, AllocatorId::Sys, None),
        ];
        let Some(Choice::Bands(together)) = put_together(&bands, &trials) else { panic!() };
        assert_eq!(
            bands::mode(&together),
            "template=0-256B:native,256B-4KiB:jemalloc,4KiB-128KiB:native,128KiB-:mmap"
        );
        assert_eq!(put_together(&bands, &trials[..1]), None);
    }

    #[test]
    fn fixed_modes_are_the_default_and_each_allocator_alone() {
        assert_eq!(fixed_modes(Available::BASE)[0], "auto");
        let all = AllocatorId::ALL.into_iter().fold(Available::BASE, Available::with);
        let modes = fixed_modes(all);
        assert!(modes.contains(&"jemalloc") && !modes.contains(&"mmap"), "{modes:?}");
        for mode in modes {
            assert!(modes::check("", mode).is_ok());
        }
    }
}
