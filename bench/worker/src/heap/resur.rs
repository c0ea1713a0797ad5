//! The benchmark Resur of section 13.2: lists of objects of up to half a page on 512 roots, every other object kept, and then a crash;
//! and what recovery takes.

use crate::args::Args;
use crate::meter::{self, Meter};
use crate::random::Random;
use crate::suites::Report;
use serde_json::Value;
use spandrel_pheap::{Choice, Error, Options, PPtr, ROOT_COUNT, RootType, Trace, Tracer};
use std::io::Write;

/// An object that is kept: what lies behind the pointer is anything.
#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    next: PPtr<Node>,
}

// SAFETY: its one pointer is named, and any bytes are a value.
unsafe impl Trace for Node {
    const LAYOUT: u64 = 0x5265_7375_725f_6e31;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.next.trace(tracer);
    }
}

fn text(why: Error) -> String {
    why.to_string()
}

/// Fills a heap and crashes, or recovers one.
pub fn resur(mut args: Args) -> Result<Report, String> {
    let what = args.text("do", "fill").to_string();
    let path = args.text("path", "").to_string();
    if path.is_empty() {
        return Err("--path: name the heap's file".into());
    }
    match what.as_str() {
        "fill" => {
            let bytes = args.count("mib", 200)? << 20;
            fill(&path, bytes, args.begin()?)
        }
        "recover" => {
            let how = args.text("how", "typed").to_string();
            recover(&path, &how, args.begin()?)
        }
        _ => Err(format!("--do {what}: there are fill and recover")),
    }
}

fn fill(path: &str, bytes: usize, mut report: Report) -> Result<Report, String> {
    let options = Options::new().medium(Choice::Mapped);
    let heap = options.create(path).map_err(|why| format!("{path}: {why}"))?;
    let mut random = Random::new(1);
    let (mut made, mut objects, mut chains) = (0, 0u64, [0u64; ROOT_COUNT]);
    let meter = Meter::start();
    while made < bytes {
        let size = 16 + random.below(2048 - 15);
        let object = heap.alloc(size).map_err(text)?;
        (made, objects) = (made + size, objects + 1);
        if random.below(2) == 0 {
            let root = random.below(ROOT_COUNT);
            let next = PPtr::from_raw(heap.root_word(root).map_err(text)?);
            // SAFETY: an object that is large enough, and nobody else's.
            unsafe { object.cast().write(Node { next }) };
            heap.set_root(root, Some(object)).map_err(text)?;
            chains[root] += 1;
        } else {
            // SAFETY: nobody uses it.
            unsafe { heap.free(object) }.map_err(text)?;
        }
    }
    let cost = meter.stop();
    cost.record(&mut report);
    report.insert("online_ns".into(), cost.wall_ns.into());
    report.insert("objects".into(), objects.into());
    report.insert("chain".into(), chains.into_iter().max().unwrap_or(0).into());
    report.insert("suite".into(), "heap-resur".into());
    report.insert("peak_rss".into(), meter::peak_rss().into());
    println!("{}", Value::Object(report));
    let _ = std::io::stdout().flush();
    // As the paper has it: what was not durable is lost, and nobody closes anything.
    std::process::abort();
}

fn recover(path: &str, how: &str, mut report: Report) -> Result<Report, String> {
    let types: Vec<RootType<'_>> = match how {
        "typed" => (0..ROOT_COUNT).map(RootType::numbered::<Node>).collect(),
        "conservative" => Vec::new(),
        _ => return Err(format!("--how {how}: there are typed and conservative")),
    };
    let meter = Meter::start();
    let before = meter::wall_ns();
    let options = Options::new().medium(Choice::Mapped).offline();
    let (mut heap, opened) = options.open(path).map_err(|why| format!("{path}: {why}"))?;
    let open_ns = meter::wall_ns() - before;
    if opened.was_clean {
        return Err(format!("{path}: it was closed: there is nothing to recover"));
    }
    let before = meter::wall_ns();
    let collected = heap.collect(&types).map_err(text)?;
    let collect_ns = meter::wall_ns() - before;
    meter.stop().record(&mut report);
    // To be recovered again.
    heap.abandon();
    report.insert("open_ns".into(), open_ns.into());
    report.insert("collect_ns".into(), collect_ns.into());
    report.insert("live".into(), collected.live.into());
    report.insert("live_bytes".into(), collected.live_bytes.into());
    Ok(report)
}
