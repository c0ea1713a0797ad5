//! Fig. 1: how one object of a program grows, as the object monitor sees it.
//!
//! A second thread looks while the program runs; of all objects that were resized, the one whose
//! sizes add up to most is told of.

use spandrel::{Monitor, ObjectRecord};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks.
const EVERY: Duration = Duration::from_micros(500);
/// Objects that are asked for in a look: there are many small ones that grow.
const OBJECTS: usize = 4096;
/// Objects below this are not followed.
const LEAST_BYTES: usize = 128 << 10;

/// A look at an object.
struct Look {
    micros: u128,
    record: ObjectRecord,
}

/// Runs a workload; what it said, and JSON of how its largest growing object grew.
pub fn watch(words: &[String]) -> Result<String, String> {
    let done = AtomicBool::new(false);
    let (said, looks) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| looks(&spandrel::monitor(), &done));
        let said = paper_workloads::run(words);
        done.store(true, Ordering::Release);
        (said, watcher.join())
    });
    let (said, looks) = (said?, looks.map_err(|_| "the watcher ended early".to_string())?);
    let largest = looks
        .into_iter()
        .max_by_key(|looks| looks.last().map_or(0, |last| last.record.requested_bytes))
        .ok_or("no object grew beyond 128 KiB: give it more to do")?;
    let points: Vec<String> = largest
        .iter()
        .map(|look| {
            let ObjectRecord { size, reallocations, moves, nanos, .. } = look.record;
            format!("[{},{size},{reallocations},{moves},{nanos}]", look.micros)
        })
        .collect();
    Ok(format!("{{\"run\":{said},\"growth\":[{}]}}", points.join(",")))
}

/// All that was seen, a list for each object.
fn looks(monitor: &Monitor, done: &AtomicBool) -> Vec<Vec<Look>> {
    let start = Instant::now();
    let mut records = vec![ObjectRecord::EMPTY; OBJECTS];
    let mut seen: Vec<Vec<Look>> = Vec::new();
    while !done.load(Ordering::Acquire) {
        let known = monitor.most_resized(&mut records).min(OBJECTS);
        let micros = start.elapsed().as_micros();
        for record in records.iter().take(known) {
            if record.live && record.size >= LEAST_BYTES {
                let look = Look { micros, record: *record };
                match seen.iter_mut().rev().find(|looks| is_of(looks, record)) {
                    Some(looks) => looks.push(look),
                    None => seen.push(vec![look]),
                }
            }
        }
        std::thread::sleep(EVERY);
    }
    seen
}

/// Whether this object may be the one of these looks: its counts have gone on from theirs, and it
/// lies where it lay, or has moved since.
fn is_of(looks: &[Look], record: &ObjectRecord) -> bool {
    looks.last().is_some_and(|last| {
        let last = &last.record;
        let goes_on = last.reallocations <= record.reallocations
            && last.requested_bytes <= record.requested_bytes
            && last.size <= record.size;
        goes_on && ((record.address == last.address) != (record.moves > last.moves))
    })
}
