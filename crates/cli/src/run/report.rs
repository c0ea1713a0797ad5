//! `--report`: what a run's processes said of themselves, as a file for programs to read.

use crate::failure::Failure;
use crate::stats::{Gathering, Stats};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::NamedTempFile;

/// Version of the file's form.
const FORMAT: u32 = 1;

/// A report that is to be written. It lies beside its place until it is whole.
pub struct Report {
    path: PathBuf,
    file: NamedTempFile,
    since: Instant,
}

impl Report {
    /// Checks that there will be a place for it, before the program is started.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        if path.extension().is_none_or(|end| end != "json") {
            return Err(Failure::refused(format!(
                "--report: '{}': reports are written as JSON; give it a name that ends in .json",
                path.display()
            )));
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // As any file that is made: the kernel takes off what the user does not want.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let file = tempfile::Builder::new()
            .prefix(".spandrel-report-")
            .permissions(permissions)
            .tempfile_in(directory);
        let file = file.map_err(|why| refuse(path, why))?;
        Ok(Self { path: path.to_owned(), file, since: Instant::now() })
    }

    /// Writes it: each process that said something, by its number, and their sum.
    pub fn write(
        mut self,
        command: &[OsString],
        exit_code: u8,
        gathering: &Gathering,
    ) -> Result<(), Failure> {
        let elapsed_ms = self.since.elapsed().as_millis() as u64;
        let (mut processes, unreadable) = gathering.read();
        processes.sort_by_key(|process| process.pid);
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let report = json!({
            "format": FORMAT,
            "command": words,
            "exit_code": exit_code,
            "elapsed_ms": elapsed_ms,
            "sum": Stats::sum(&processes),
            "processes": processes,
            "unreadable": unreadable,
        });
        let written = serde_json::to_writer_pretty(&mut self.file, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|why| refuse(&self.path, why))?;
        self.file.persist(&self.path).map_err(|why| refuse(&self.path, why.error))?;
        Ok(())
    }
}

fn refuse(path: &Path, why: std::io::Error) -> Failure {
    Failure::refused(format!(
        "--report: '{}' cannot be written: {why}; name a file in a directory of yours",
        path.display()
    ))
}
