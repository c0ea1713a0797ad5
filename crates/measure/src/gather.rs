//! The statistics that the library writes when a process ends, collected from the processes of a run.

use spandrel_console::Failure;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_report::Stats;
use std::ffi::OsString;
use tempfile::TempDir;

/// A directory for one run's statistics; gone with the value.
pub struct Gathering(Scratch<TempDir>);

impl Gathering {
    /// An empty directory.
    pub fn new() -> Result<Self, Failure> {
        let directory = Scratch::directory(Kind::Stats);
        directory
            .map(Self)
            .map_err(|why| Failure::new(format!("no place for the statistics: {why}")))
    }

    /// What `SPANDREL_STATS` must be: one file per process.
    pub fn pattern(&self) -> OsString {
        self.0.path().join("%p.json").into()
    }

    /// Everything that was written, and how many files could not be read.
    pub fn read(&self) -> (Vec<Stats>, usize) {
        let files = std::fs::read_dir(self.0.path()).into_iter().flatten().flatten();
        let (mut all, mut bad) = (Vec::new(), 0);
        for file in files.filter(|file| file.path().extension().is_some_and(|end| end == "json")) {
            match std::fs::read_to_string(file.path())
                .ok()
                .and_then(|text| Stats::parse(&text).ok())
            {
                Some(stats) => all.push(stats),
                None => bad += 1,
            }
        }
        (all, bad)
    }
}
