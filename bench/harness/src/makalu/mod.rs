//! Section 13 of the Makalu paper (OOPSLA '16) on the recoverable heap: what objects cost beside
//! other allocators, what is waited for, what recovery takes, and three applications.

mod apps;
pub mod disk;
mod draw;
mod list;
mod outcome;
mod picture;
mod recovery;
mod small;
mod waits;
mod who;
mod worker;

use crate::asked::Asked;
use crate::options::{Allocators, Drawn, Options};
use crate::report::Section;
use crate::report::target::Verdict;
use crate::suite::{Bench, Prepared, Suite};
use list::Sizes;
use outcome::Outcome;
use serde_json::json;
use spandrel_console::Failure;
use spandrel_console::plain::{self, Plain};
use spandrel_console::progress::Progress;
use spandrel_console::shutdown::Scratch;
use spandrel_report::numbers::counted;
use std::path::Path;
use tempfile::TempDir;

/// What a heap or a pool of small objects takes in memory at most.
const LEAST_BYTES: u64 = 256 << 20;

const NAME: &str = "heap";
const ABOUT: &str = "the recoverable heap: the Makalu paper's evaluation";

/// The suite `heap`.
pub struct Makalu;

impl Suite for Makalu {
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
                peers: "measures the recoverable heap beside sys, jemalloc, mimalloc and libpmemobj",
                modes: "measures the recoverable heap, which has no modes",
                // The worker is linked with the recoverable heap.
                preloads: false,
            },
            ..Options::default()
        }
    }

    fn prepare(&self, asked: &Asked) -> Result<Prepared, Failure> {
        let chosen = find(asked)?;
        Ok(Box::new(move |bench, progress| Ok(run(bench, &chosen, progress))))
    }
}

/// What to run, and how much of it.
struct Chosen {
    names: Vec<&'static str>,
    sizes: Sizes,
    scale: f64,
    /// Where files in memory lie, or why there can be none.
    memory: Result<Scratch<TempDir>, String>,
}

/// Finds what the options choose, so that it is refused at once and not after an hour.
fn find(asked: &Asked) -> Result<Chosen, Failure> {
    let names = list::choose(asked.only.as_deref())?;
    let usual = if asked.quick { list::SCALE_QUICK } else { list::SCALE };
    let scale = asked.scale.unwrap_or(usual);
    let memory = disk::directory_in(Path::new(disk::MEMORY));
    Ok(Chosen { names, sizes: Sizes::at(scale), scale, memory })
}

/// What a part of the suite has come to.
#[derive(Default)]
struct Part {
    outcomes: Vec<Outcome>,
    tables: Vec<Plain>,
    verdicts: Vec<Verdict>,
    notes: Vec<String>,
    /// What the heap did otherwise than it should.
    wrong: Vec<String>,
}

/// Measures it.
fn run(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Section {
    let mut section = Section::new(NAME, ABOUT);
    let lack = match &chosen.memory {
        Ok(directory) => disk::lack(directory.path(), LEAST_BYTES),
        Err(why) => Some(format!("left out: files in memory are needed: {why}")),
    };
    if let Some(why) = lack {
        section.notes.push(why);
        return section;
    }
    let (who, missing) = who::find(bench, chosen);
    let parts = [
        small::run(bench, chosen, &who, progress),
        waits::blocks(bench, chosen, progress),
        recovery::run(bench, chosen, progress),
        waits::times(bench, chosen, progress),
        apps::run(bench, chosen, &who, progress),
    ];
    // Sizes come in steps; the first has the paper's.
    let sizes = if chosen.scale >= 1.0 { "sizes as there" } else { "sizes in steps" };
    let of = format!(
        "times {} of the paper's, {sizes}; medians of {}",
        chosen.scale,
        counted(bench.runs as u64, "round", "rounds")
    );
    section.plot = picture::of(&parts[0].outcomes, &of);
    let (mut tables, mut outcomes) = (Vec::new(), Vec::new());
    for part in parts {
        section.notes.extend(part.outcomes.iter().flat_map(Outcome::failed));
        section.broken |= !part.wrong.is_empty();
        section.notes.extend(part.wrong);
        section.notes.extend(part.notes);
        section.verdicts.extend(part.verdicts);
        tables.extend(part.tables);
        outcomes.extend(part.outcomes);
    }
    section.tables = tables.iter().map(Plain::text).collect();
    section.markdown = Some(plain::markdown(&tables, &format!("{of}.")));
    section.notes.extend(missing);
    section.notes.push(format!("{of}; × is a ratio of times, in Fig. 7 of rates"));
    if who.iter().any(who::is_pmemobj) {
        section.notes.push(
            "pmemobj: with PMEM_IS_PMEM_FORCE=1, so that it flushes lines as on persistent memory \
             and does not call msync; its files and the heap's are in /dev/shm"
                .into(),
        );
    }
    section.data = json!({
        "scale": chosen.scale,
        "sizes": chosen.sizes,
        "outcomes": outcomes.iter().map(Outcome::data).collect::<Vec<_>>(),
    });
    section
}

impl Chosen {
    /// Whether something is to be measured.
    fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Where files in memory lie.
    fn memory(&self) -> &Path {
        self.memory.as_ref().map_or(Path::new(disk::MEMORY), |directory| directory.path())
    }

    /// The arguments of the worker: a suite, numbers, and where its files lie.
    fn words(&self, suite: &str, given: &[(&str, u64)]) -> Vec<String> {
        let mut words = list::words(suite, given);
        words.extend(["--directory".into(), self.memory().display().to_string()]);
        words
    }
}
