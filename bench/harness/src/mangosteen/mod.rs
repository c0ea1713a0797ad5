//! Section 6 of the Mangosteen paper (ATC '24) on durable states, beside durable stores of others.
//!
//! A store that the worker or a program of the peers opens has a thread for each client. Clients of the servers send requests over a Unix socket; the
//! paper's send them over a network.

mod capture;
mod draw;
mod floor;
mod list;
mod picture;
mod servers;
mod stores;

use crate::asked::Asked;
use crate::makalu::disk;
use crate::options::{Allocators, Drawn, Options};
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use draw::{DISK, Outcome, TMPFS};
use list::Sizes;
use serde_json::json;
use spandrel_console::Failure;
use spandrel_console::plain::{self, Plain};
use spandrel_console::progress::Progress;
use spandrel_measure::rounds;
use spandrel_report::numbers::{count, counted};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stores::Programs;

const NAME: &str = "durable";
const ABOUT: &str = "durable states beside durable stores: the Mangosteen paper's evaluation";
/// What files in memory take at most at a scale of 1.
const BYTES: f64 = (16u64 << 30) as f64;
/// Held in memory between runs: the stores' own files lie there.
const RESERVE: u64 = 64 << 20;

/// The suite `durable`.
pub struct Mangosteen;

impl Suite for Mangosteen {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        ABOUT
    }

    fn options(&self) -> Options {
        Options {
            has_parts: true,
            has_scale: true,
            has_markdown: true,
            drawn: Drawn::Alone,
            allocators: Allocators::Own {
                peers: "measures durable states beside LevelDB, RocksDB, LMDB, libpmemobj, redb and fjall",
                modes: "measures durable states, which have no modes",
                // The worker is linked with them.
                preloads: false,
            },
            runs: 3,
            is_in_all: false,
            ..Options::default()
        }
    }

    fn prepare(&self, asked: &Asked) -> Result<Prepared, Failure> {
        let parts = list::choose(asked.only.as_deref())?;
        let usual = if asked.quick { list::SCALE_QUICK } else { list::SCALE };
        let scale = asked.scale.unwrap_or(usual);
        Ok(Box::new(move |bench, progress| Ok(run(bench, &parts, scale, progress))))
    }
}

/// Where files may lie, and sentences about the places that there are not.
fn media(scale: f64) -> (Vec<(&'static str, PathBuf)>, Vec<String>) {
    let memory = PathBuf::from(disk::MEMORY);
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    match disk::lack(&memory, (BYTES * scale) as u64) {
        None => found.push((TMPFS, memory)),
        Some(why) => notes.push(format!("{TMPFS}: {why}")),
    }
    match disk::find() {
        Some(place) => found.push((DISK, place)),
        None => notes.push("no directory on an ordinary file system: TMPDIR names one".into()),
    }
    (found, notes)
}

/// Measures it.
fn run(bench: &Bench, parts: &[&str], scale: f64, progress: &Progress) -> Section {
    let mut section = Section::new(NAME, ABOUT);
    let sizes = Sizes::at(scale);
    let programs = Programs::find(&bench.worker);
    let (all, missing) = programs.stores();
    let (media, lacks) = media(scale);
    let mut outcomes = Vec::new();
    for case in list::cases(parts, &sizes) {
        for (medium, place) in &media {
            let some = Programs::of(&case, &all);
            let label = format!("{}, {medium}", case.name);
            let patience = Duration::from_secs(sizes.patience);
            let place: &Path = place;
            let series = rounds::holding(RESERVE, &some, bench.runs, progress, &label, |store| {
                programs.run(store, &case, place, patience)
            });
            outcomes.push(Outcome { case: case.clone(), medium, series });
        }
    }
    let (mut on_servers, mut unserved) = (Vec::new(), Vec::new());
    if parts.contains(&servers::NAME) {
        let (programs, missing) = servers::Programs::find();
        unserved = missing;
        on_servers = programs.map_or(Vec::new(), |programs| {
            programs.measure(&media, &sizes, &|some, label, one| {
                rounds::holding(RESERVE, some, bench.runs, progress, label, one)
            })
        });
    }
    let mut captures = Vec::new();
    if parts.contains(&capture::NAME) {
        let memory = media.iter().find(|(medium, _)| *medium == TMPFS);
        let memory = memory.map(|(_, place)| place.as_path());
        captures = capture::measure(&programs, memory, &sizes, &|some, label, one| {
            rounds::holding(RESERVE, some, bench.runs, progress, label, one)
        });
    }
    let mut tables = draw::tables(&outcomes, &all);
    tables.extend(capture::tables(&captures));
    tables.extend(servers::tables(&on_servers));
    section.tables = tables.iter().map(Plain::text).collect();
    section.verdicts = outcomes.iter().flat_map(Outcome::verdicts).collect();
    section.verdicts.extend(on_servers.iter().flat_map(servers::Outcome::verdicts));
    section.verdicts.extend(captures.iter().flat_map(capture::Outcome::verdicts));
    section.notes = outcomes.iter().flat_map(Outcome::failed).collect();
    section.notes.extend(captures.iter().flat_map(capture::Outcome::failed));
    section.notes.extend(on_servers.iter().flat_map(servers::Outcome::failed));
    section.broken = outcomes.iter().any(Outcome::is_broken)
        || on_servers.iter().any(servers::Outcome::is_broken)
        || captures.iter().any(|outcome| outcome.failed().next().is_some());
    let floor = media.iter().find(|(medium, _)| *medium == DISK);
    let floor = floor.and_then(|(_, place)| floor::Floor::of(place));
    section.notes.extend(floor.map(|floor| floor.words()));
    section.notes.extend(lacks.into_iter().chain(missing).chain(unserved));
    let of = format!(
        "{} records (the paper: 13 million), runs of {} ms at most; medians of {}",
        count(sizes.keys),
        sizes.millis,
        counted(bench.runs as u64, "round", "rounds")
    );
    section.plot = picture::of(&outcomes, &on_servers, &of);
    section.markdown = Some(plain::markdown(&tables, &format!("{of}.")));
    section.notes.push(of);
    section.notes.push(
        "memory: a map behind a lock, which nothing survives; the others' puts are synchronous"
            .into(),
    );
    if all.iter().any(|store| store.name == stores::PLAIN) {
        section.notes.push(
            "plain: the map that memory has, in a state of ordinary types whose commands are translated"
                .into(),
        );
    }
    section.notes.extend(capture::notes(&captures));
    if all.iter().any(|store| store.name == stores::PMEMOBJ) {
        section.notes.push(
            "pmemobj: a tree of this suite's on libpmemobj, behind a lock; on tmpfs with \
             PMEM_IS_PMEM_FORCE=1, so that it flushes lines as on persistent memory, and elsewhere \
             with its own msync"
                .into(),
        );
    }
    section.data = json!({
        "scale": scale,
        "sizes": sizes,
        "floor": floor,
        "outcomes": outcomes.iter().map(Outcome::data).collect::<Vec<_>>(),
        "captures": captures.iter().map(capture::Outcome::data).collect::<Vec<_>>(),
        "servers": on_servers.iter().map(servers::Outcome::data).collect::<Vec<_>>(),
    });
    section
}
