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
    let (mut seen, mut before) = (Vec::<Vec<Look>>::new(), 0);
    while !done.load(Ordering::Acquire) {
        let known = monitor.most_resized(&mut records).min(OBJECTS);
        let micros = start.elapsed().as_micros();
        let large = |record: &&ObjectRecord| record.live && record.size >= LEAST_BYTES;
        let (mut moved, mut new): (Vec<ObjectRecord>, Vec<Vec<Look>>) = (Vec::new(), Vec::new());
        // Who lies where somebody lay is most likely the same; the others are told apart after that.
        for record in records.iter().take(known).filter(large) {
            let mut last = seen.iter_mut().filter(|looks| ends_at(looks, before));
            match last.find(|looks| has_stayed(looks, record) && goes_on(looks, record)) {
                Some(looks) => looks.push(Look { micros, record: *record }),
                None => moved.push(*record),
            }
        }
        for record in moved {
            let last = seen.iter_mut().filter(|looks| ends_at(looks, before));
            let candidates =
                last.filter(|looks| has_moved(looks, &record) && goes_on(looks, &record));
            match candidates.min_by_key(|looks| steps(looks, &record)) {
                Some(looks) => looks.push(Look { micros, record }),
                None => new.push(vec![Look { micros, record }]),
            }
        }
        seen.append(&mut new);
        before = micros;
        std::thread::sleep(EVERY);
    }
    seen
}

/// A live object is in every look: who was not in the last one is another.
fn ends_at(looks: &[Look], micros: u128) -> bool {
    looks.last().is_some_and(|last| last.micros == micros)
}

fn has_stayed(looks: &[Look], record: &ObjectRecord) -> bool {
    looks.last().is_some_and(|last| last.record.address == record.address)
}

fn has_moved(looks: &[Look], record: &ObjectRecord) -> bool {
    looks.last().is_some_and(|last| record.moves > last.record.moves)
}

/// Reallocations since then.
fn steps(looks: &[Look], record: &ObjectRecord) -> u64 {
    looks.last().map_or(0, |last| record.reallocations.saturating_sub(last.record.reallocations))
}

/// Whether this may have become of the object of these looks: what was asked for since then are
/// sizes between those of then and now, one for each reallocation.
fn goes_on(looks: &[Look], record: &ObjectRecord) -> bool {
    let Some(Look { record: last, .. }) = looks.last() else { return false };
    let (Some(times), Some(bytes)) = (
        record.reallocations.checked_sub(last.reallocations),
        record.requested_bytes.checked_sub(last.requested_bytes),
    ) else {
        return false;
    };
    let sizes = times * last.size as u64..=times * record.size as u64;
    sizes.contains(&bytes) && record.nanos >= last.nanos
}
