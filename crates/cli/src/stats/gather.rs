//! Collects the files that the processes of a run leave behind.

use super::{Stats, table};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_report::numbers::counted;
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

    /// Shows the sum on standard error.
    pub fn print(&self, exit_code: u8) {
        let (all, bad) = self.read();
        if bad > 0 {
            let files = counted(bad as u64, "file", "files");
            say::err(format_args!("spandrel: {files} of statistics could not be read"));
        }
        if all.is_empty() {
            let killed =
                if exit_code > 128 { ": a process ended by a signal writes none" } else { "" };
            say::err(format_args!("spandrel: no statistics were written{killed}"));
            return;
        }
        say::err(table::draw(&Stats::sum(&all), all.len()).trim_end());
    }
}
