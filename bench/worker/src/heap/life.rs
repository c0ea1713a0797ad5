//! What a heap waits for as it fills, and when it is opened and closed.

use super::file;
use crate::args::Args;
use crate::meter::{self, Meter};
use crate::suites::Report;
use spandrel_pheap::{Choice, Error, Heap, Options};
use std::ptr::NonNull;

fn text(why: Error) -> String {
    why.to_string()
}

/// Does something with a heap that is gone afterwards.
fn with_heap<R>(
    directory: &str,
    bytes: usize,
    work: impl FnOnce(&str, Heap) -> Result<R, String>,
) -> Result<R, String> {
    let path = file(directory, "heap");
    let heap = Options::new().size(bytes).medium(Choice::Mapped).create(&path);
    let done = heap.map_err(text).and_then(|heap| work(&path, heap));
    let _ = std::fs::remove_file(&path);
    done.map_err(|why| format!("{path}: {why}"))
}

/// What is waited for when a block is taken that was free, and when a thread's cache is filled from one that has room.
pub fn blocks(mut args: Args) -> Result<Report, String> {
    let directory = args.text("directory", "/dev/shm").to_string();
    let count = args.count("objects", 100_000)?;
    let report = args.begin()?;
    with_heap(&directory, 64 << 20, |_, heap| {
        let mut report = report;
        let meter = Meter::start();
        let before = heap.counters();
        let mut objects: Vec<NonNull<u8>> = Vec::with_capacity(count);
        for _ in 0..count {
            objects.push(heap.alloc(64).map_err(text)?);
        }
        let filled = heap.counters();
        // Every other one, so that no block is without objects.
        for object in objects.iter().step_by(2) {
            // SAFETY: allocated above, and nobody uses it.
            unsafe { heap.free(*object) }.map_err(text)?;
        }
        let freed = heap.counters();
        for _ in 0..count / 4 {
            heap.alloc(64).map_err(text)?;
        }
        let refilled = heap.counters();
        meter.stop().record(&mut report);
        let fresh = (filled.fresh_blocks - before.fresh_blocks).max(1) as f64;
        let mut add = |name: &str, value: serde_json::Value| report.insert(name.into(), value);
        add("fresh_blocks", fresh.into());
        add("flushes_per_fresh_block", ((filled.flushes - before.flushes) as f64 / fresh).into());
        add("fences_per_fresh_block", ((filled.fences - before.fences) as f64 / fresh).into());
        add("refills", (refilled.refills - freed.refills).into());
        add("flushes_of_refills", (refilled.flushes - freed.flushes).into());
        add("fences_of_refills", (refilled.fences - freed.fences).into());
        Ok(report)
    })
}

/// Opening, and closing after all of it was touched and after nothing was.
pub fn open(mut args: Args) -> Result<Report, String> {
    let directory = args.text("directory", "/dev/shm").to_string();
    let bytes = args.count("mib", 1024)?.max(1) << 20;
    let report = args.begin()?;
    with_heap(&directory, bytes, |path, heap| {
        let mut report = report;
        heap.close().map_err(text)?;
        let open = || {
            let before = meter::wall_ns();
            let (heap, _) = Options::new().medium(Choice::Mapped).open(path).map_err(text)?;
            Ok::<_, String>((heap, meter::wall_ns() - before))
        };
        let close = |heap: Heap| {
            let before = meter::wall_ns();
            heap.close().map_err(text)?;
            Ok::<_, String>(meter::wall_ns() - before)
        };
        let meter = Meter::start();
        let (heap, open_ns) = open()?;
        let close_unused_ns = close(heap)?;
        let (heap, _) = open()?;
        for at in (0..heap.bytes()).step_by(4096) {
            // SAFETY: within the heap.
            unsafe { std::hint::black_box(heap.base().as_ptr().add(at).read_volatile()) };
        }
        let close_ns = close(heap)?;
        meter.stop().record(&mut report);
        report.insert("open_ns".into(), open_ns.into());
        report.insert("close_unused_ns".into(), close_unused_ns.into());
        report.insert("close_ns".into(), close_ns.into());
        Ok(report)
    })
}
