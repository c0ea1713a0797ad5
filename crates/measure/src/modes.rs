//! Modes and profiles are the policy's to understand; here they are only checked
//! before a program starts, so that a typing error is an answer, not a surprise.

use crate::contender::STATIC;
use crate::machine::Machine;
use spandrel_console::shutdown::output;
use spandrel_console::{Failure, files};
use spandrel_pages::AllocatorId;
use spandrel_policy::{Available, Mode, parse_mode, profile};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks a mode's name, which `option` gave.
pub fn check(option: &str, text: &str) -> Result<Mode, Failure> {
    parse_mode(text).map_err(|error| Failure::refused(format!("{option}: {error}")))
}

/// Splits a list of modes at commas and semicolons. The modes `template=…` and `switch…` have commas themselves: what
/// follows one of them and is neither a mode nor [`STATIC`] is a part of it. Semicolons always separate.
pub fn split(text: &str) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for group in text.split(';') {
        let first = list.len();
        for part in group.split(',') {
            let before = list.get_mut(first..).and_then(|group| group.last_mut());
            let before =
                before.filter(|mode| mode.starts_with("template=") || mode.starts_with("switch"));
            match before {
                Some(mode) if part.trim() != STATIC && parse_mode(part.trim()).is_err() => {
                    mode.push(',');
                    mode.push_str(part);
                }
                _ => list.push(part.trim().to_string()),
            }
        }
    }
    list
}

/// A profile that the library understands.
#[derive(Debug)]
pub struct Checked {
    /// What it names.
    pub mode: Mode,
    /// Where it is.
    pub absolute: PathBuf,
    /// Whether it was learnt on other machines: the program is in `auto` and begins to learn with it.
    pub is_prior: bool,
}

impl Checked {
    /// The mode that a program is in with it.
    pub fn in_force(&self) -> Mode {
        if self.is_prior { Mode::Auto } else { self.mode }
    }
}

/// Checks a profile.
pub fn check_profile(path: &Path) -> Result<Checked, Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("--profile: {}: {why}", path.display()))
    };
    let refuse = |why: &dyn std::fmt::Display| {
        refuse(&format!("{why}; name a profile (docs/modes.md has the format)"))
    };
    let absolute = std::fs::canonicalize(path).map_err(|why| refuse(&why))?;
    let bytes = files::read(&absolute, profile::MAX_BYTES).map_err(|why| refuse(&why))?;
    let profile = profile::parse(&bytes).map_err(|error| refuse(&error))?;
    let machine = Machine::this();
    let is_of = profile.is_of(&machine.cpu, &machine.transparent_hugepages);
    Ok(Checked { mode: profile.mode, absolute, is_prior: !is_of && profile.mode != Mode::Auto })
}

/// Refuses a mode that needs an allocator which this library does not contain.
/// The library is asked itself; one that does not answer is left to say so when
/// the program runs.
pub fn check_built_in(mode: &Mode, text: &str, library: &Path) -> Result<(), Failure> {
    if mode.check(text, Available::BASE).is_ok() {
        return Ok(());
    }
    let Some(available) = ask(library) else {
        return Ok(());
    };
    mode.check(text, available).map_err(Failure::refused)
}

/// The allocators that a library contains, as far as it says.
pub fn built_in(library: &Path) -> Available {
    ask(library).unwrap_or(Available::BASE)
}

/// Loads the library into this very command and reads what it says of itself.
fn ask(library: &Path) -> Option<Available> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("--version")
        .env("LD_PRELOAD", library)
        .env("SPANDREL_VERBOSE", "1")
        .env_remove("SPANDREL_MODE")
        .env_remove("SPANDREL_PROFILE")
        .env_remove("SPANDREL_STATS")
        .env_remove("BRUG_ALLOC")
        .env_remove("SPANDREL_TRACE");
    let output = output(&mut command).ok()?;
    read_allocators(&String::from_utf8_lossy(&output.stderr))
}

/// Reads "…: mode M, allocators sys jemalloc mmap".
fn read_allocators(said: &str) -> Option<Available> {
    let line = said.lines().find(|line| line.starts_with("spandrel: "))?;
    let (_, names) = line.split_once("allocators ")?;
    Some(
        names
            .split_whitespace()
            .filter_map(AllocatorId::parse)
            .fold(Available::BASE, Available::with),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_with_and_without_commas() {
        assert_eq!(split("auto"), ["auto"]);
        assert_eq!(split("auto, static,sys"), ["auto", "static", "sys"]);
        assert_eq!(
            split("switch=sys,point=64KiB,auto;template=0-4KiB:sys,4KiB-:mmap"),
            ["switch=sys,point=64KiB", "auto", "template=0-4KiB:sys,4KiB-:mmap"]
        );
        // A typing error is a mode of its own, which is refused by its name.
        assert_eq!(split("sys,natvie"), ["sys", "natvie"]);
    }

    #[test]
    fn good_and_bad_modes() {
        assert!(check("--mode", "auto").is_ok());
        assert!(check("--mode", "switch=sys,point=64KiB").is_ok());
        let failure = check("--mode", "fastest").unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("fastest"));
    }

    #[test]
    fn a_bad_profile_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.toml");
        std::fs::write(&path, "version = 1\nmode = \"auto\"\n").unwrap();
        assert!(check_profile(&path).is_ok());
        std::fs::write(&path, "version = 1\nmode = \"none\"\n").unwrap();
        let failure = check_profile(&path).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("line 2"), "{}", failure.message);
        assert_eq!(check_profile(&directory.path().join("none")).unwrap_err().code, 2);
    }

    #[test]
    fn the_library_names_its_allocators() {
        let said =
            "spandrel: 0.1.0 loaded into x (pid 1): mode auto, allocators sys jemalloc mmap\n";
        let available = read_allocators(said).unwrap();
        assert!(available.has(AllocatorId::Jemalloc) && !available.has(AllocatorId::Tcmalloc));
        assert_eq!(read_allocators("nothing"), None);
    }
}
