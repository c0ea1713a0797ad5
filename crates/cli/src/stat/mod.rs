//! `spandrel stat`: where the memory of a running program is.
//!
//! The library keeps its figures in its own memory; they are read from outside,
//! so that a program neither answers nor waits.

mod groups;
mod process;
pub mod smaps;

use crate::args::StatArgs;
use crate::bench::table::share;
use crate::failure::Failure;
use crate::say;
use crate::stats::native;
use process::Reading;
pub use process::Window;
use serde_json::{Map, Value, json};
use smaps::Resident;
use spandrel_pages::Figure;
use spandrel_report::numbers::bytes;
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
        let (reading, resident) = match look(pid) {
            Ok(found) => found,
            // It was there: it has ended, which is what was waited for.
            Err(_) if seen && has_ended(pid) => return Ok(0),
            Err(failure) => return Err(failure),
        };
        seen = true;
        if asked.json {
            say::out(as_json(pid, &reading, &resident))?;
        } else {
            say::out(as_text(pid, &reading, &resident).trim_end())?;
        }
        match asked.every {
            Some(seconds) => std::thread::sleep(Duration::from_secs_f64(seconds)),
            None => return Ok(0),
        }
    }
}

fn look(pid: i32) -> Result<(Reading, Resident), Failure> {
    let mut reading = Reading::of(pid)?;
    let resident = Resident::of(pid, &reading.tables, &reading.heap)?;
    // The library measures these when it is asked itself.
    reading.figures[Figure::Resident as usize] = resident.heap.resident;
    reading.figures[Figure::Tables as usize] = resident.tables.resident;
    if !smaps::has_huge_pages(pid) {
        reading.figures[Figure::Covered as usize] = 0;
    }
    Ok((reading, resident))
}

/// Whether a process is gone, or has no memory any more.
fn has_ended(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/maps")).map_or(true, |maps| maps.is_empty())
}

fn as_text(pid: i32, reading: &Reading, resident: &Resident) -> String {
    let (all, heap) = (&resident.all, &resident.heap);
    let mut text = format!(
        "{} (pid {pid}): {} resident, {} of its anonymous memory on huge pages\n",
        reading.program,
        bytes(all.resident as f64),
        share(all.huge, all.anonymous),
    );
    if reading.heap.is_empty() {
        text.push_str(" the native allocator has not started\n");
        return text;
    }
    text.push_str(&format!(
        " the native heap: {} resident, {} of it on huge pages, {} swapped out\n",
        bytes(heap.resident as f64),
        share(heap.huge, heap.anonymous),
        bytes(heap.swapped as f64),
    ));
    text.push_str(&native::lines(&|figure| reading.figures[figure as usize], None));
    text
}

fn as_json(pid: i32, reading: &Reading, resident: &Resident) -> Value {
    let figures: Map<String, Value> = Figure::ALL
        .iter()
        .map(|figure| (figure.name().to_owned(), reading.figures[*figure as usize].into()))
        .collect();
    json!({
        "format": 1,
        "pid": pid,
        "program": reading.program,
        "process": resident.all,
        "heap": resident.heap,
        "tables": resident.tables,
        "native": if reading.heap.is_empty() { Value::Null } else { figures.into() },
    })
}
