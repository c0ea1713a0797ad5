//! `spandrel durable verify DIRECTORY`: the files of a state compared with each other, and its heap checked.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{refused, size};
use crate::heap::is_damage;
use crate::progress::Progress;
use spandrel_console::{Failure, say};
use spandrel_durable::Error;
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::verify::{Verified, verify as compared};
use spandrel_pheap::{Error as HeapError, Finding, Kind, check};
use spandrel_report::numbers::counted;

/// Findings of the heap that are printed.
const MOST_FINDINGS: u64 = 16;

/// Verifies a state that no process has open.
pub fn verify(directory: &Path) -> Result<u8, Failure> {
    let progress = Progress::share("verifying", size(&directory.join("log")));
    let mut see = progress.watcher();
    let mut open = || {
        let paths = Paths::new(directory.as_os_str().as_bytes())?;
        let lock = Directory::read(paths.directory.as_c())?;
        Ok((lock, compared(&paths, &mut see)?))
    };
    let opened = open().map_err(|why| match why {
        // What is looked for, and no wrong use.
        Error::DamagedLog
        | Error::DamagedState
        | Error::CutState
        | Error::StaleLog
        | Error::MissingLog => Failure::new(format!("{}: {why}", directory.display())),
        Error::Heap(damage) if is_damage(&damage) => {
            Failure::new(format!("{}: {why}", directory.display()))
        }
        // It was one: its log is there.
        Error::Heap(HeapError::NotAHeap | HeapError::Unfinished)
            if directory.join("log").exists() =>
        {
            Failure::new(format!("{}: {why}", directory.display()))
        }
        why => refused(directory, why),
    });
    drop(progress);
    let (_lock, Verified { found, compared, memory }) = opened?;
    let damaged = |what: String| Failure::new(format!("{}: {what}", directory.display()));
    if let Some(first) = compared.first {
        return Err(damaged(format!(
            "the state differs from what its batches have stored, in {}, the first at {first:#x} of the file; restore a copy of both files",
            counted(compared.differing, "byte", "bytes"),
        )));
    }
    let mut told = 0;
    let survey = check(&memory, &[], &mut |finding: &Finding| {
        if finding.kind != Kind::Lost && told < MOST_FINDINGS {
            told += 1;
            say::err(format!("{}: {finding}", directory.display()));
        }
    });
    let survey = survey.map_err(|why| match is_damage(&why) {
        true => damaged(why.reason().to_string()),
        false => refused(directory, why.into()),
    })?;
    if survey.damaged > 0 {
        let places = counted(survey.damaged, "place", "places");
        let with = if found.pending > 0 { " with all batches" } else { "" };
        return Err(damaged(format!(
            "the state{with} is damaged in {places}; restore a copy of both files"
        )));
    }
    let mut words = match found.pending {
        0 => "the log has no batch that the state lacks".to_owned(),
        pending => format!(
            "{} of the log continue the state, and each is whole",
            counted(pending, "batch", "batches")
        ),
    };
    if compared.batches > 0 {
        words += &format!(
            "; the state has what {} that the log still holds have stored",
            counted(compared.batches, "batch", "batches")
        );
    }
    words += match found.pending {
        0 => "; the heap of the state is sound",
        _ => "; with all batches the heap of the state is sound",
    };
    say::out(format!("{}: {words}", directory.display()))?;
    Ok(0)
}
