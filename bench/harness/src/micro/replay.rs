//! Requests of a recording, or of the synthetic driver, made on every allocator.
//!
//! The worker shall not allocate for its own: it is given a file of fixed-size steps, which it maps.
//!
//! ```text
//! header   "SPNDSTEP", objects that live at once, steps (8 bytes each)
//! step     object (4 bytes), kind (1: 1 allocate, 2 free, 3 resize), flags (1: zeroed), log2 of the
//!          alignment (1), 0 (1), size (8)
//! ```

use crate::asked::Asked;
use crate::report::case::{Case, Unit};
use crate::report::{Report, Section, tables};
use crate::suite::Bench;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_measure::places;
use spandrel_measure::{peers, rounds};
use spandrel_report::numbers::{bytes, counted};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;
use tempfile::NamedTempFile;

const MAGIC: &[u8; 8] = b"SPNDSTEP";
/// Rounds in which contenders take turns, unless `runs` is given.
const RUNS: u32 = 5;

/// A file of steps.
pub struct Script {
    file: Scratch<NamedTempFile>,
    out: BufWriter<File>,
    steps: u64,
    objects: u64,
    live: Vec<u64>,
    live_bytes: u64,
    peak_bytes: u64,
}

impl Script {
    /// A file without steps.
    pub fn new() -> Result<Self, Failure> {
        let failed = |why: std::io::Error| Failure::new(format!("a temporary file: {why}"));
        let file = Scratch::file(Kind::Steps).map_err(failed)?;
        let mut out = BufWriter::new(file.reopen().map_err(failed)?);
        out.write_all(&[0; 24]).map_err(failed)?;
        let live = Vec::new();
        Ok(Self { file, out, steps: 0, objects: 0, live, live_bytes: 0, peak_bytes: 0 })
    }

    /// Makes an object.
    pub fn allocate(
        &mut self,
        id: u32,
        size: u64,
        align_log2: u8,
        zeroed: bool,
    ) -> Result<(), Failure> {
        self.note(id, size);
        self.step(id, [1, u8::from(zeroed), align_log2, 0], size)
    }

    /// Gives one back.
    pub fn free(&mut self, id: u32) -> Result<(), Failure> {
        self.note(id, 0);
        self.step(id, [2, 0, 0, 0], 0)
    }

    /// Gives one another size.
    pub fn resize(&mut self, id: u32, size: u64) -> Result<(), Failure> {
        self.note(id, size);
        self.step(id, [3, 0, 0, 0], size)
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps == 0
    }

    fn note(&mut self, id: u32, size: u64) {
        let id = id as usize;
        if id >= self.live.len() {
            self.live.resize(id + 1, 0);
            self.objects = self.live.len() as u64;
        }
        let old = std::mem::replace(&mut self.live[id], size);
        self.live_bytes = self.live_bytes - old + size;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    fn step(&mut self, id: u32, kind: [u8; 4], size: u64) -> Result<(), Failure> {
        let mut step = [0; 16];
        step[..4].copy_from_slice(&id.to_ne_bytes());
        step[4..8].copy_from_slice(&kind);
        step[8..].copy_from_slice(&size.to_ne_bytes());
        self.steps += 1;
        self.out.write_all(&step).map_err(|why| Failure::new(format!("a temporary file: {why}")))
    }

    fn finish(mut self) -> std::io::Result<Scratch<NamedTempFile>> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(MAGIC)?;
        self.out.write_all(&self.objects.to_ne_bytes())?;
        self.out.write_all(&self.steps.to_ne_bytes())?;
        self.out.flush()?;
        Ok(self.file)
    }
}

/// What measures, found before a script is written.
pub struct Ready {
    bench: Bench,
    notes: Vec<String>,
    json: Option<PathBuf>,
}

/// Finds the worker, and every allocator that is installed and chosen.
pub fn prepare(asked: &Asked) -> Result<Ready, Failure> {
    let worker = places::worker()?;
    let (contenders, notes) = peers::find(&asked.wanted())?;
    let runs = asked.runs.unwrap_or(RUNS) as usize;
    let bench =
        Bench { worker, contenders, peers_named: asked.peers.is_some(), runs, quick: asked.quick };
    Ok(Ready { bench, notes, json: asked.json.clone() })
}

/// Makes the requests on these allocators, and prints what they took.
pub fn measure(ready: Ready, script: Script, about: &str) -> Result<u8, Failure> {
    let Ready { bench, notes, json } = ready;
    let runs = bench.runs;
    let mut report = Report::new(&bench, notes);
    report.save(json.as_deref())?;
    report.print_head()?;
    let (steps, peak) = (script.steps, script.peak_bytes);
    let file = script.finish().map_err(|why| Failure::new(format!("a temporary file: {why}")))?;
    let path = file.path().to_string_lossy().into_owned();
    let progress = Progress::new();
    let series = rounds::in_turns(&bench.contenders, runs, &progress, "replay", |contender| {
        rounds::worker(&bench.worker, contender, &["replay", "--steps", &path])
    });
    progress.finish();
    let case = Case::of("replay", Unit::CpuNs, "cpu_ns", series);
    let about = format!(
        "{about}: {}, at most {} live, by one thread",
        counted(steps, "step", "steps"),
        bytes(peak as f64)
    );
    let mut section = Section::new("replay", &about);
    section.tables.push(tables::detail(&case));
    let failed = case.rows.iter().filter_map(|row| Some((&row.allocator, row.failed.as_ref()?)));
    section.notes.extend(failed.map(|(who, why)| format!("{who}: {why}")));
    section.cases.push(case);
    report.add(section);
    report.save(json.as_deref())?;
    report.print_last()?;
    report.end(json.as_deref())?;
    Ok(u8::from(report.is_broken()))
}
