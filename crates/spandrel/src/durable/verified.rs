//! A program whose commands are verified from the outside (`spandrel durable verify -- PROGRAM`): what comparisons find is written to files.
//!
//! The first addresses that were changed and not noted are watched from then on: the instructions that store there in batches that miss something again are named.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::prelude::v1::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_durable::verdicts::{Finding, Findings, STORES, VARIABLE};
use spandrel_os::modules::Module;

use super::watchpoints::Watchpoints;
use super::{Arena, Counts};

/// Whether the program's states are verified, however they are opened.
pub(super) fn is_asked() -> bool {
    directory().is_some()
}

fn directory() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Writes what is found about a state. The thread that runs a batch uses it.
pub(super) struct Verified {
    findings: Findings,
    /// A line for each instruction.
    stores: File,
    identity: u64,
    watched: RefCell<Watched>,
}

#[derive(Default)]
struct Watched {
    points: Watchpoints,
    /// Bytes that were missed before the batch.
    missed: u64,
    named: BTreeSet<usize>,
}

impl Verified {
    /// Of a state that is open. `None`: nothing is compared, or the outside does not ask; or its directory is not there any more.
    pub fn new(arena: &Arena) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = directory()?.join(name);
        let stores = File::create_new(path.with_extension(STORES)).ok()?;
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let findings = Findings::new(&path).ok()?;
        let (identity, watched) = (arena.uuid()[0], RefCell::default());
        let this = Self { findings, stores, identity, watched };
        this.write(arena, Counts::default());
        Some(this)
    }

    /// A batch has ended.
    pub fn write(&self, arena: &Arena, counts: Counts) {
        let Counts { batches, commands, .. } = counts;
        // SAFETY: the calling thread has run the batch, or no other has the state.
        let Some((verdict, places)) = (unsafe { arena.medium().notes().verdict() }) else { return };
        let identity = self.identity;
        self.findings.write(Finding { identity, batches, commands, verdict, places });
        let Ok(mut watched) = self.watched.try_borrow_mut() else { return };
        let Watched { points, missed, named } = &mut *watched;
        let stores = points.take();
        if std::mem::replace(missed, verdict.missed) < verdict.missed {
            stores.into_iter().filter(|at| named.insert(*at)).for_each(|at| self.name(at));
        }
        let at: Vec<_> =
            places.iter().filter(|place| place.bytes > 0).map(|place| place.at).collect();
        if !at.is_empty() {
            points.watch(&at);
        }
    }

    /// Writes the line of an instruction: the offset behind it, and the module's file. What is translated has no file, and is noted.
    fn name(&self, at: usize) {
        let Some(base) = Module::around(at).map(|module| module.addresses().start) else { return };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if let Some(file) = maps.lines().find_map(|line| file_of(line, at)) {
            let _ = writeln!(&self.stores, "{:x}\t{file}", at - base);
        }
    }
}

/// The file of a mapping, if that has the address.
fn file_of(line: &str, at: usize) -> Option<&str> {
    let (from, rest) = line.split_once('-')?;
    let (to, rest) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let has_it = (number(from)?..number(to)?).contains(&at);
    rest.find('/').filter(|_| has_it).and_then(|path| rest.get(path..))
}
