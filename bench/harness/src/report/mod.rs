//! What was measured: printed as it comes, and written as JSON.

pub mod case;
pub mod picture;
pub mod tables;
pub mod target;

use crate::suite::Bench;
use case::Case;
use picture::Picture;
use serde::Serialize;
use serde_json::Value;
use spandrel_console::Failure;
use spandrel_console::files;
use spandrel_console::say;
use spandrel_console::terminal::table::wrap;
use spandrel_measure::machine::Machine;
use spandrel_report::numbers::counted;
use std::path::Path;
use target::Verdict;

/// One suite's results.
#[derive(Serialize)]
pub struct Section {
    /// The suite.
    pub suite: String,
    /// What it measures.
    pub about: String,
    /// Plain cases, if it has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// Whatever else was measured.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Promises kept and missed.
    pub verdicts: Vec<Verdict>,
    /// What is printed above the verdicts.
    #[serde(skip)]
    pub tables: Vec<String>,
    /// The same as a picture, if it has one.
    #[serde(skip)]
    pub plot: Option<Picture>,
    /// The tables as Markdown, if a document has them.
    #[serde(skip)]
    pub markdown: Option<String>,
    /// Sentences that are printed below.
    pub notes: Vec<String>,
    /// Whether a program did something else on Spandrel than on the system's
    /// allocator.
    pub broken: bool,
}

impl Section {
    /// An empty section.
    pub fn new(suite: &str, about: &str) -> Self {
        Self {
            suite: suite.into(),
            about: about.into(),
            cases: Vec::new(),
            data: Value::Null,
            verdicts: Vec::new(),
            tables: Vec::new(),
            plot: None,
            markdown: None,
            notes: Vec::new(),
            broken: false,
        }
    }

    /// Prints it on standard output.
    pub fn print(&self) -> Result<(), Failure> {
        let title = wrap(&format!("{}: {}", self.suite, self.about));
        say::out(format_args!("\n{}", title.trim_start()))?;
        if !self.tables.is_empty() {
            say::out(self.tables.join("\n\n"))?;
        }
        if !self.verdicts.is_empty() || !self.notes.is_empty() {
            say::out("")?;
        }
        if !self.verdicts.is_empty() {
            say::out(wrap("targets of the project (docs/targets.md):"))?;
        }
        for verdict in &self.verdicts {
            say::out(verdict.line())?;
        }
        for note in &self.notes {
            say::out(wrap(note))?;
        }
        Ok(())
    }
}

/// All results, and on what machine.
#[derive(Serialize)]
pub struct Report {
    format: u32,
    version: &'static str,
    machine: Machine,
    runs: usize,
    quick: bool,
    notes: Vec<String>,
    suites: Vec<Section>,
}

impl Report {
    /// An empty report.
    pub fn new(bench: &Bench, notes: Vec<String>) -> Self {
        Self {
            format: 1,
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            runs: bench.runs,
            quick: bench.quick,
            notes,
            suites: Vec::new(),
        }
    }

    /// Prints the machine and what is missing.
    pub fn print_head(&self) -> Result<(), Failure> {
        let Machine { cpu, cores, memory_kib, kernel, transparent_hugepages } = &self.machine;
        let machine = format!(
            "{cpu}, {}, {} GiB, Linux {kernel}, huge pages: {transparent_hugepages}",
            counted(*cores as u64, "core", "cores"),
            memory_kib >> 20
        );
        say::out(wrap(&machine).trim_start())?;
        let rounds = counted(self.runs as u64, "round", "rounds");
        say::out(format_args!("medians of {rounds} after one that does not count"))?;
        for note in &self.notes {
            say::out(wrap(note).trim_start())?;
        }
        Ok(())
    }

    /// Keeps a section.
    pub fn add(&mut self, section: Section) {
        self.suites.push(section);
    }

    /// Prints the section that came last.
    pub fn print_last(&self) -> Result<(), Failure> {
        self.suites.last().map_or(Ok(()), Section::print)
    }

    /// Whether any program went wrong on Spandrel.
    pub fn is_broken(&self) -> bool {
        self.suites.iter().any(|section| section.broken)
    }

    /// Writes what there is so far as JSON; not to standard output, which takes it once.
    pub fn save(&self, path: Option<&Path>) -> Result<(), Failure> {
        path.filter(|path| !files::is_output(path)).map_or(Ok(()), |path| self.write(path))
    }

    /// Writes all of it to standard output, if that is where it goes.
    pub fn end(&self, path: Option<&Path>) -> Result<(), Failure> {
        path.filter(|path| files::is_output(path)).map_or(Ok(()), |path| self.write(path))
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(Failure::new)?;
        files::write(path, &(text + "\n"))
    }
}
