//! `--report`: what is known of a run when it has ended, as a page for people or as JSON for programs.

use super::Policy;
use super::symbols;
use crate::stats::{Gathering, Stats};
use spandrel_console::Failure;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_measure::machine::Machine;
use spandrel_report::{Run, Sample, Way, page};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;

/// How a report is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Html,
    Json,
}

impl Form {
    fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        [("html", Self::Html), ("json", Self::Json)]
            .into_iter()
            .find(|(name, _)| extension.eq_ignore_ascii_case(name))
            .map(|(_, form)| form)
    }
}

/// A report that is to be written. It lies beside its place until it is whole.
pub struct Report {
    path: PathBuf,
    form: Form,
    file: Scratch<NamedTempFile>,
}

/// What a report contains, once the run has ended.
pub struct Contents<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// How it was to allocate.
    pub policy: &'a Policy,
    /// Its exit code.
    pub exit_code: u8,
    /// What its processes left behind.
    pub gathering: &'a Gathering,
    /// What was seen of their memory.
    pub samples: Vec<Sample>,
    /// The same job in other ways.
    pub compared: Vec<Way>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// Checks that there will be a place for it, before the program is started.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let Some(form) = Form::of(path) else {
            return Err(Failure::refused(format!(
                "--report: '{}': reports are written as HTML or as JSON; give it a name that ends \
                 in .html or .json",
                path.display()
            )));
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = Scratch::file_in(Kind::Report, directory);
        let file = file.map_err(|why| refuse(path, why))?;
        Ok(Self { path: path.to_owned(), form, file })
    }

    /// Writes it.
    pub fn write(mut self, of: Contents<'_>) -> Result<(), Failure> {
        let (mut processes, unreadable) = of.gathering.read();
        processes.sort_by_key(|process| process.pid);
        symbols::name(&mut processes);
        let command = of.command.iter().map(|word| word.to_string_lossy().into_owned());
        let mode = of.policy.name();
        let elapsed_ms = of.elapsed.as_micros() as f64 / 1e3;
        let run = Run {
            machine: Machine::this().kind(),
            sum: Stats::sum(&processes),
            processes,
            unreadable,
            samples: of.samples,
            compared: of.compared,
            ..Run::new(command.collect(), mode, of.exit_code, elapsed_ms)
        };
        let text = match self.form {
            Form::Html => page(&run),
            Form::Json => {
                serde_json::to_string_pretty(&run).map_err(|why| refuse(&self.path, why.into()))?
            }
        };
        let written = self.file.write_all(text.as_bytes());
        written.and_then(|()| self.file.write_all(b"\n")).map_err(|why| refuse(&self.path, why))?;
        self.file.persist(&self.path).map_err(|why| refuse(&self.path, why))?;
        Ok(())
    }
}

fn refuse(path: &Path, why: std::io::Error) -> Failure {
    Failure::refused(format!(
        "--report: '{}' cannot be written: {why}; name a file in a directory of yours",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_the_form() {
        let form = |name: &str| Form::of(Path::new(name));
        assert_eq!((form("a.html"), form("a.b.HTML")), (Some(Form::Html), Some(Form::Html)));
        assert_eq!((form("a.json"), form("a.htm"), form("html")), (Some(Form::Json), None, None));
    }
}
