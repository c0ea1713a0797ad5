//! The synthetic driver's requests made on real allocators.

use super::asked::size_option;
use super::{SimArgs, failed};
use spandrel_console::Failure;
use spandrel_harness::Asked;
use spandrel_harness::replay::{Ready, Script, measure, prepare};
use spandrel_measure::reserve;
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_report::numbers::bytes;
use spandrel_sim::{Driver, Event, Operation, Operations};
use std::ops::Range;

/// Measured rounds, unless told otherwise.
const RUNS: u32 = 3;
/// Modes of Spandrel, unless told otherwise.
const MODES: &str = "auto;native";

/// Objects by number, of which a span has several that live and die together.
#[derive(Default)]
struct Numbers {
    spans: Vec<Range<u32>>,
    /// Ranges that are free again, by their lengths.
    free: std::collections::HashMap<u32, Vec<u32>>,
    next: u32,
}

impl Numbers {
    fn born(&mut self, span: u32, objects: u32) -> Range<u32> {
        let first = self.free.get_mut(&objects).and_then(Vec::pop).unwrap_or_else(|| {
            self.next += objects;
            self.next - objects
        });
        let at = span as usize;
        if at >= self.spans.len() {
            self.spans.resize(at + 1, 0..0);
        }
        self.spans[at] = first..first + objects;
        first..first + objects
    }

    fn died(&mut self, span: u32) -> Range<u32> {
        let objects = self.spans.get_mut(span as usize).map(|range| std::mem::replace(range, 0..0));
        let objects = objects.unwrap_or(0..0);
        self.free.entry(objects.end - objects.start).or_default().push(objects.start);
        objects
    }
}

/// Finds the allocators, and whether there is memory for `peak_bytes`.
pub fn find(args: &SimArgs, peak_bytes: f64) -> Result<Ready, Failure> {
    let named = std::env::var_os("SPANDREL_LIB").filter(|path| !path.is_empty());
    let ready = prepare(&Asked {
        runs: Some(args.runs.unwrap_or(RUNS)),
        json: args.json.clone(),
        peers: args.peers.clone(),
        modes: args.modes.clone().unwrap_or_else(|| MODES.into()),
        library: args.lib.clone().or_else(|| named.map(Into::into)),
        ..Asked::default()
    })?;
    check_memory(size_option(args), peak_bytes)?;
    Ok(ready)
}

/// Makes the requests.
pub fn run(ready: Ready, mut driver: Driver, about: &str) -> Result<u8, Failure> {
    let mut script = Script::new()?;
    let (mut numbers, mut batch) = (Numbers::default(), Vec::<Event>::new());
    loop {
        driver.fill(&mut batch).map_err(failed)?;
        if batch.is_empty() {
            break;
        }
        for event in &batch {
            match event.operation {
                Operation::New { id, pages, align, objects } => {
                    let span = u64::from(pages) * HEAP_PAGE_BYTES as u64;
                    let size = span / u64::from(objects.max(1));
                    let log2 = if align > 1 {
                        (u64::from(align) * HEAP_PAGE_BYTES as u64).ilog2() as u8
                    } else {
                        0
                    };
                    for id in numbers.born(id, objects.max(1)) {
                        script.allocate(id, size, log2, false)?;
                    }
                }
                Operation::Delete { id } => {
                    for id in numbers.died(id) {
                        script.free(id)?;
                    }
                }
                _ => {}
            }
        }
    }
    measure(ready, script, about)
}

fn check_memory(option: &str, peak_bytes: f64) -> Result<(), Failure> {
    // No allocator takes more than twice what lives.
    match reserve::available_bytes() {
        Some(available) if 2.0 * peak_bytes > available as f64 => Err(Failure::refused(format!(
            "{option}: {} would really be allocated, and this machine has {} left; take a smaller heap",
            bytes(peak_bytes),
            bytes(available as f64)
        ))),
        _ => Ok(()),
    }
}
