//! What was learnt, in words and tables.

use super::bands::{Band, Load};
use super::profile::Choice;
use super::record::Record;
use super::verdict::{self, Ratio};
use super::{TIME, Trial, compare};
use spandrel_console::files;
use spandrel_console::terminal::table;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, count, counted, range, time};
use std::ffi::OsString;
use std::path::Path;

/// Everything that there is to tell.
pub struct Learnt<'a> {
    pub runs: usize,
    pub job: &'a [OsString],
    /// The fixed modes, the default first.
    pub modes: &'a [Series],
    pub bands: &'a [Band],
    pub loads: &'a [Load],
    pub trials: &'a [Trial],
    pub choice: &'a Choice,
    /// How it compares with the default; `None`: it is the default.
    pub gain: Option<Ratio>,
}

impl Learnt<'_> {
    /// The modes, and the bands.
    pub fn tables(&self) -> String {
        let bands = bands_table(self.bands, self.loads, self.trials);
        format!("\n{}\n\n{bands}\n", self.modes_table())
    }

    fn modes_table(&self) -> table::Table {
        let header = ["mode", "CPU time", "from – to", "elapsed", "than auto"];
        let mut table = table::new(&header.map(String::from));
        for series in self.modes {
            let of = |key: &str| Summary::of(&series.values(key));
            let text = |summary: Option<Summary>| {
                summary.map_or(table::NOTHING.into(), |summary| time(summary.median))
            };
            let ratio = compare(series, self.modes.first()).map(|ratio| ratio.words());
            let is_default = series.contender.name == "spandrel";
            table::add(
                &mut table,
                is_default,
                vec![
                    name(series),
                    text(of(TIME)),
                    of(TIME).map_or(String::new(), |s| range(s.min, s.max)),
                    text(of("wall_ns")),
                    match (&series.failed, ratio) {
                        (Some(_), _) => "failed".into(),
                        (None, _) if is_default => String::new(),
                        (None, ratio) => ratio.unwrap_or_default(),
                    },
                ],
            );
        }
        table
    }

    /// What the profile says of itself.
    pub fn about(&self) -> Vec<String> {
        let job: Vec<_> = self.job.iter().map(|word| word.to_string_lossy()).collect();
        let job = plain(&job.join(" "));
        let mut lines = vec![
            format!("Learnt by spandrel tune {} from", env!("CARGO_PKG_VERSION")),
            format!("  {job}"),
            format!(
                "in {} of each way to allocate. {}",
                counted(self.runs as u64, "round", "rounds"),
                result(self.choice, self.gain)
            ),
        ];
        for (band, load) in self.bands.iter().zip(self.loads).filter(|(_, load)| load.requests > 0)
        {
            lines.push(format!("  {:<16} {:>16} requests", band.name(), count(load.requests)));
        }
        lines
    }
}

/// What was chosen, and how it compares with the default; `None`: it is the default.
pub fn result(choice: &Choice, gain: Option<Ratio>) -> String {
    match gain {
        None => "Nothing was better than auto for certain.".into(),
        Some(ratio) => format!("{} takes {} CPU time than auto.", choice.mode(), ratio.words()),
    }
}

/// The end of it.
pub fn verdict(result: &str, path: &Path) -> String {
    if files::is_output(path) {
        return table::wrap(result);
    }
    let path = path.display();
    table::wrap(&format!("{result} Written: {path}; spandrel run --profile {path} -- …"))
}

/// What several jobs say together.
pub fn merged(record: &Record, bands: &[Band]) -> String {
    let table = bands_table(bands, &record.loads(bands), &record.trials(bands));
    let modes: Vec<String> =
        record.modes.iter().map(|(name, ratio)| format!("{name} {}", ratio.words())).collect();
    let modes = table::wrap(&format!("CPU time to auto: {}", modes.join(", ")));
    format!("\n{table}\n\n{}\n", modes.trim_start())
}

/// A text in one line of a comment.
pub fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// The allocator that serves each band, the one that had better, and those that were tried.
fn bands_table(bands: &[Band], loads: &[Load], trials: &[Trial]) -> table::Table {
    let header = ["sizes", "requests", "bytes", "auto", "best", "CPU time of the job", "others"];
    let mut table = table::new(&header.map(String::from));
    let whole = |part: fn(&Load) -> u64| loads.iter().map(part).sum::<u64>();
    for (at, (band, load)) in bands.iter().zip(loads).enumerate() {
        let tried: Vec<_> = trials.iter().filter(|trial| trial.band == at).collect();
        let ways: Vec<_> = tried.iter().map(|trial| (trial.allocator, trial.ratio)).collect();
        let best = verdict::best(&ways);
        let others: Vec<String> = tried
            .iter()
            .filter(|trial| best.is_none_or(|(allocator, _)| *allocator != trial.allocator))
            .map(|trial| {
                let words = trial.ratio.map_or("failed".into(), |ratio| ratio.words());
                format!("{} {words}", trial.allocator.name())
            })
            .collect();
        table::add(
            &mut table,
            best.is_some(),
            vec![
                band.name(),
                table::share(load.requests, whole(|load| load.requests)),
                table::share(load.bytes, whole(|load| load.bytes)),
                band.allocator.name().into(),
                match (best, tried.is_empty()) {
                    (Some((allocator, _)), _) => allocator.name().into(),
                    (None, true) => String::new(),
                    (None, false) => band.allocator.name().into(),
                },
                best.map_or(String::new(), |(_, ratio)| ratio.words()),
                others.join(", "),
            ],
        );
    }
    table
}

/// The mode's name.
pub fn name(series: &Series) -> String {
    let name = series.contender.name.as_str();
    name.strip_prefix("spandrel ").unwrap_or("auto").into()
}
