//! Section 13 of the Makalu paper (OOPSLA '16) on the recoverable heap: what objects cost beside
//! other allocators, what is waited for, what recovery takes, and three applications.

mod apps;
mod disk;
mod draw;
mod list;
mod outcome;
mod picture;
mod recovery;
mod small;
mod waits;
mod who;
mod worker;

use super::Bench;
use super::plain::{self, Plain};
use super::progress::Progress;
use super::report::Section;
use super::target::Verdict;
use crate::args::{BenchArgs, Suite};
use crate::failure::Failure;
use list::Sizes;
use outcome::Outcome;
use serde_json::json;
use spandrel_report::numbers::counted;

/// Rounds, unless told otherwise.
pub const RUNS: usize = 5;

/// What to run, and how much of it.
pub struct Chosen {
    names: Vec<&'static str>,
    sizes: Sizes,
    scale: f64,
}

/// Finds what was asked for, so that it is refused at once and not after an hour.
pub fn find(args: &BenchArgs) -> Result<Chosen, Failure> {
    let is_asked = args.suite == Suite::Heap;
    let names = list::choose(args.only.as_deref().filter(|_| is_asked))?;
    let usual = if args.quick { list::SCALE_QUICK } else { list::SCALE };
    let scale = args.scale.filter(|_| is_asked).unwrap_or(usual);
    Ok(Chosen { names, sizes: Sizes::at(scale), scale })
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
pub fn run(bench: &Bench, chosen: &Chosen, progress: &Progress) -> Section {
    let (name, about) = Suite::Heap.about();
    let mut section = Section::new(name, about);
    let (who, missing) = who::find(bench, chosen);
    let parts = [
        small::run(bench, chosen, &who, progress),
        waits::blocks(bench, chosen, progress),
        recovery::run(bench, chosen, progress),
        waits::times(bench, chosen, progress),
        apps::run(bench, chosen, &who, progress),
    ];
    let of = format!(
        "scale {} of the paper's; medians of {}",
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
}
