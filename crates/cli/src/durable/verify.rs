//! `spandrel durable verify -- PROGRAM`: whether a program's commands note all that they change.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use spandrel_console::{Failure, say};
use spandrel_durable::oracle::Verdict;
use spandrel_durable::verdicts::{Finding, STORES, VARIABLE};
use spandrel_report::numbers::{counted, whole};

use crate::run::{Companions, lookup, spawn_and_wait, symbols};

/// Runs the program: its exit code, or 1 if something was not noted.
pub fn program(words: &[OsString]) -> Result<u8, Failure> {
    let Some((name, words)) = words.split_first() else {
        return Err(Failure::refused("which program? spandrel durable verify -- PROGRAM ARGS…"));
    };
    let place = tempfile::tempdir()
        .map_err(|why| Failure::refused(format!("a directory for what is found: {why}")))?;
    let mut command = Command::new(lookup::find(name)?);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    command.args(words).env(VARIABLE, place.path());
    let ended = spawn_and_wait(command, Companions::default())?;
    let findings = findings(place.path());
    let stores = stores(place.path());
    // Before a signal ends the command.
    drop(place);
    let name = name.to_string_lossy();
    if findings.is_empty() {
        return Err(Failure::refused(format!(
            "{name}: it has opened no durable state whose commands can be translated; states of `spandrel::durable::Plain` are, and those of C programs that say so"
        )));
    }
    let mut is_missed = false;
    for finding in &findings {
        is_missed |= finding.verdict.missed > finding.verdict.met;
        describe(&name, finding)?;
    }
    for store in stores.iter().filter(|_| is_missed) {
        say::out(store)?;
    }
    if is_missed {
        say::out(
            "what changes the state is a command, in its own thread, and no system call that was begun before it; where that cannot be, the stores of the state are found in another way (Stores::Pages in Rust, SPANDREL_DURABLE_STORES_PAGES in C)",
        )?;
    }
    if !is_missed {
        ended.pass_on();
    }
    Ok(if is_missed { 1 } else { ended.code })
}

fn findings(place: &Path) -> Vec<Finding> {
    let mut paths: Vec<_> = std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_none())
        .collect();
    paths.sort();
    let read =
        |path: &std::path::PathBuf| Finding::read(&CString::new(path.as_os_str().as_bytes()).ok()?);
    paths.iter().filter_map(read).collect()
}

/// The instructions that have stored what was missed, as far as the processor's watchpoints have told.
fn stores(place: &Path) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let paths = entries.filter(|path| path.extension().is_some_and(|end| end == STORES));
    let lines = paths.filter_map(|path| std::fs::read_to_string(path).ok());
    let line = |line: &str| {
        let (offset, file) = line.split_once('\t')?;
        // The instruction lies before it.
        let offset = u64::from_str_radix(offset, 16).ok()?.checked_sub(1)?;
        let function = symbols::function_at(file, offset).unwrap_or_else(|| "?".to_owned());
        Some(format!(
            "  stored by an instruction that ends at {file}+{:#x}, in {function}",
            offset + 1
        ))
    };
    lines.flat_map(|text| text.lines().filter_map(line).collect::<Vec<_>>()).collect()
}

fn describe(name: &str, finding: &Finding) -> Result<(), Failure> {
    let Finding { batches, commands, verdict, .. } = *finding;
    let Verdict { changed, missed, met } = verdict;
    let done = format!(
        "{name}: a state: {} in {} have changed {}",
        counted(commands, "command", "commands"),
        counted(batches, "batch", "batches"),
        whole(changed),
    );
    if missed == 0 {
        return say::out(format!("{done}, and all of it was noted"));
    }
    if met > 0 {
        say::out(format!(
            "{done}; {} of it by other threads that commands have begun, woken or awaited: a comparison at the end of a batch notes such changes",
            whole(met)
        ))?;
    }
    if met == missed {
        return Ok(());
    }
    say::out(format!("{done}, and {} of it were not noted:", whole(missed - met)))?;
    for place in finding.places.iter().filter(|place| place.bytes > 0) {
        say::out(format!("  {} at {:#x}", whole(place.bytes as u64), place.at))?;
    }
    Ok(())
}
