//! What a suite is, and what it is given.

use crate::asked::Asked;
use crate::options::Options;
use crate::report::Section;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::Contender;
use spandrel_measure::rounds::{self, Series};
use std::path::PathBuf;

/// A suite of measurements.
pub trait Suite: Sync {
    /// The name that users type.
    fn name(&self) -> &'static str;

    /// What it measures: a line of the help.
    fn about(&self) -> &'static str;

    /// Which options it honours beside those of all suites, and what it does without them.
    fn options(&self) -> Options {
        Options::default()
    }

    /// Finds what the options choose. What is not there is refused here, before anything is measured.
    fn prepare(&self, asked: &Asked) -> Result<Prepared, Failure>;
}

/// A suite that has found all that it needs: measures, and returns its section of the report.
pub type Prepared = Box<dyn Fn(&Bench, &Progress) -> Result<Section, Failure>>;

/// What every suite is given.
#[derive(Debug)]
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
    pub fn measure(&self, progress: &Progress, label: &str, words: &[&str]) -> Vec<Series> {
        self.measure_on(&self.contenders, progress, label, words)
    }

    /// The same on chosen contenders.
    pub fn measure_on(
        &self,
        contenders: &[Contender],
        progress: &Progress,
        label: &str,
        words: &[&str],
    ) -> Vec<Series> {
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
