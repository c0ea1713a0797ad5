//! `spandrel stat`: where the memory of a running program is.
//!
//! The library keeps its figures in its own memory; they are read from outside,
//! so that a program neither answers nor waits.

mod groups;
mod process;

use crate::args::StatArgs;
use crate::stats::native;
use process::Reading;
pub use process::Window;
use serde_json::{Map, Value, json};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_console::terminal::Stream;
use spandrel_console::terminal::table::{share, wrap};
use spandrel_measure::smaps::{self, Memory, Resident};
use spandrel_pages::live::Stage;
use spandrel_pages::{AllocatorId, Figure};
use spandrel_report::numbers::bytes;
use std::ops::Range;
use std::time::Duration;

/// Shows a process once, or again and again.
pub fn run(asked: &StatArgs) -> Result<u8, Failure> {
    match (&asked.compare_groups, asked.pid) {
        (Some(directory), _) => groups::run(directory, asked.json),
        (None, Some(pid)) => watch(pid, asked),
        (None, None) => Err(Failure::refused("which process? spandrel stat PID")),
    }
}

fn watch(pid: i32, asked: &StatArgs) -> Result<u8, Failure> {
    let mut seen = false;
    loop {
        let look = match Look::at(pid) {
            Ok(look) => look,
            // It was there: it has ended, which is what was waited for.
            Err(_) if seen && has_ended(pid) => return Ok(0),
            Err(failure) => return Err(failure),
        };
        seen = true;
        if asked.json {
            say::out(look.as_json(pid))?;
        } else {
            say::out(look.as_text(pid).trim_end())?;
        }
        match asked.every {
            Some(seconds) => std::thread::sleep(Duration::from_secs_f64(seconds)),
            None => return Ok(0),
        }
    }
}

/// Whether a process is gone, or has no memory any more.
fn has_ended(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/maps")).map_or(true, |maps| maps.is_empty())
}

/// Allocators that have slices of their own, in the order in which they are shown.
const WITH_SLICES: [AllocatorId; 6] = [
    AllocatorId::Native,
    AllocatorId::Mmap,
    AllocatorId::Jemalloc,
    AllocatorId::Mimalloc,
    AllocatorId::Tcmalloc,
    AllocatorId::Guarded,
];

/// What was seen of a process.
struct Look {
    reading: Reading,
    all: Memory,
    heap: Memory,
    tables: Memory,
    /// Of each that has addresses of its own.
    allocators: Vec<(AllocatorId, Memory)>,
}

impl Look {
    fn at(pid: i32) -> Result<Self, Failure> {
        let mut reading = Reading::of(pid)?;
        let of = |allocator: AllocatorId| -> Vec<Range<u64>> {
            let its = reading.slices.iter().filter(|(owner, _)| *owner == allocator);
            its.map(|(_, range)| range.clone()).collect()
        };
        let slices = WITH_SLICES.map(of);
        let own = [&reading.heap, &reading.tables, &reading.records].map(|range| [range.clone()]);
        let parts: [&[Range<u64>]; 9] = std::array::from_fn(|part| match part {
            0..3 => own[part].as_slice(),
            _ => slices[part - 3].as_slice(),
        });
        let Resident { all, parts } = Resident::of(pid, &parts)
            .map_err(|why| process::forbidden(pid, &reading.program, why))?;
        let [heap, tables, records, others @ ..] = parts;
        // The library measures these when it is asked itself.
        let mut set = |figure: Figure, value| reading.figures[figure as usize] = value;
        set(Figure::Resident, heap.resident);
        set(Figure::Tables, tables.resident);
        set(Figure::PageHeap, records.resident);
        if !smaps::has_huge_pages(pid) {
            set(Figure::Covered, 0);
        }
        let value = |figure: Figure| reading.figures[figure as usize];
        let free = [Figure::InCaches, Figure::InTransfer, Figure::InSpans].map(value);
        let live = value(Figure::Live).saturating_sub(free.iter().sum());
        if live > value(Figure::PeakLive) {
            reading.figures[Figure::PeakLive as usize] = live;
            reading.figures[Figure::PeakResident as usize] = heap.resident + tables.resident;
        }
        let allocators = WITH_SLICES.into_iter().zip(others).zip(&slices);
        let allocators =
            allocators.filter(|(_, ranges)| !ranges.is_empty()).map(|(memory, _)| memory).collect();
        Ok(Self { reading, all, heap, tables, allocators })
    }

    /// Anonymous memory that is no allocator's with addresses of its own: glibc's, stacks, the program's own
    /// mappings.
    fn others(&self) -> u64 {
        let known: u64 = self.allocators.iter().map(|(_, memory)| memory.anonymous).sum();
        self.all.anonymous.saturating_sub(known)
    }

    fn as_text(&self, pid: i32) -> String {
        let Self { reading, all, heap, .. } = self;
        let mut text = format!(
            "{} (pid {pid}): {} resident, {} of its anonymous memory on huge pages\n",
            reading.program,
            bytes(all.resident as f64),
            share(all.huge, all.anonymous),
        );
        let mut say = |line: String| {
            text.push_str(wrap(&line).trim_end());
            text.push('\n');
        };
        say(self.who_serves());
        if !reading.heap.is_empty() {
            say(format!(
                "the native heap: {} resident, {} of it on huge pages, {} swapped out",
                bytes(heap.resident as f64),
                share(heap.huge, heap.anonymous),
                bytes(heap.swapped as f64),
            ));
        }
        text.push_str(&native::lines(
            Stream::Out,
            &|figure| reading.figures[figure as usize],
            None,
        ));
        text
    }

    /// The mode, the allocators that serve in it, and what cannot be shown.
    fn who_serves(&self) -> String {
        let mode = &self.reading.mode;
        let others = bytes(self.others() as f64);
        match self.reading.stage {
            Stage::Loaded => {
                "Spandrel is loaded, and the program has not asked it for anything yet".into()
            }
            Stage::Young => format!(
                "mode {mode}, young: glibc serves until the program has asked for 256 KiB in all or has a \
                 second thread, and our own allocators have not started. Its heap is among {others} of \
                 anonymous memory, and cannot be told from the rest from outside"
            ),
            Stage::Serving => {
                let each: Vec<String> = self
                    .allocators
                    .iter()
                    .map(|(allocator, memory)| {
                        format!("{} {}", allocator.name(), bytes(memory.resident as f64))
                    })
                    .collect();
                let each = if each.is_empty() {
                    "no allocator but glibc has begun".into()
                } else {
                    format!("resident, by allocator: {}", each.join(", "))
                };
                let native = match self.reading.heap.is_empty() {
                    true => {
                        ". The native allocator has not started; what is live of others' memory only \
                         they know, and `spandrel run --stats` counts what they are asked for"
                    }
                    false => "",
                };
                format!(
                    "mode {mode}; {each}; {others} of anonymous memory are glibc's, of stacks and of other \
                     mappings{native}"
                )
            }
        }
    }

    fn as_json(&self, pid: i32) -> Value {
        let reading = &self.reading;
        let figures: Map<String, Value> = Figure::ALL
            .iter()
            .map(|figure| (figure.name().to_owned(), reading.figures[*figure as usize].into()))
            .collect();
        let allocators: Map<String, Value> = self
            .allocators
            .iter()
            .map(|(allocator, memory)| (allocator.name().to_owned(), json!(memory)))
            .collect();
        json!({
            "format": 1,
            "pid": pid,
            "program": reading.program,
            "mode": reading.mode,
            "stage": reading.stage.name(),
            "process": self.all,
            "heap": self.heap,
            "tables": self.tables,
            "allocators": allocators,
            "others_anonymous_bytes": self.others(),
            "native": if reading.heap.is_empty() { Value::Null } else { figures.into() },
        })
    }
}
