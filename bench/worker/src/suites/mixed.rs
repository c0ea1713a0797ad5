//! Random allocation, growth, shrinking and freeing of 16 B to 1 MiB by several
//! threads; a share of the objects is freed by another thread than it came from.
//! Throughput with every object's contents checked.

use super::Report;
use crate::args::Args;
use crate::buffer::{Buffer, Object as _};
use crate::meter::{self, Meter};
use crate::random::Random;
use std::sync::{Barrier, Mutex};

/// Objects that a thread holds at most.
const HELD: usize = 512;
/// Places where threads leave objects for one another.
const SHARED: usize = 64;

pub fn run(mut args: Args) -> Result<Report, String> {
    let threads = args.count("threads", 2)?.max(1);
    let operations = args.count("operations", 400_000)?;
    let low = args.size("low", "16B")?.max(1);
    let high = args.size("high", "1MiB")?.max(low);
    let seed = args.count("seed", 1)? as u64;
    let mut report = args.begin()?;

    let shared: [Mutex<Option<Object>>; SHARED] = std::array::from_fn(|_| Mutex::new(None));
    let start = Barrier::new(threads + 1);
    let meter = std::thread::scope(|scope| {
        for thread in 0..threads {
            let (start, shared) = (&start, &shared);
            scope.spawn(move || {
                start.wait();
                work(Random::new(seed + thread as u64), operations / threads, low, high, shared);
            });
        }
        let meter = Meter::start();
        start.wait();
        meter
    });
    let cost = meter.stop();

    cost.record(&mut report);
    report.insert("rss".into(), meter::rss().into());
    report.insert(
        "operations_per_cpu_second".into(),
        (operations as f64 * 1e9 / cost.cpu_ns as f64).into(),
    );
    Ok(report)
}

/// An object filled with one byte value. Only the ends of large objects are
/// filled: the suite is about the allocator, not about `memset`.
struct Object {
    buffer: Buffer,
    byte: u8,
}

const EDGE: usize = 64;

impl Object {
    fn new(len: usize, byte: u8) -> Self {
        let mut object = Self { buffer: Buffer::new(len), byte };
        object.mark();
        object
    }

    fn mark(&mut self) {
        self.buffer.fill_edges(EDGE, self.byte);
    }

    fn resize(&mut self, len: usize) {
        let kept = self.buffer.len().min(len).min(EDGE);
        self.buffer.resize(len);
        self.buffer.check(kept, self.byte);
        self.mark();
    }
}

fn work(
    mut random: Random,
    operations: usize,
    low: usize,
    high: usize,
    shared: &[Mutex<Option<Object>>; SHARED],
) {
    let mut held: [Option<Object>; HELD] = std::array::from_fn(|_| None);
    for _ in 0..operations {
        let slot = &mut held[random.below(HELD)];
        let size = random.size(low, high);
        match (slot.as_mut(), random.below(8)) {
            (None, _) => *slot = Some(Object::new(size, size as u8)),
            (Some(object), 0..=2) => object.resize(size),
            (Some(_), 3) => {
                let mut place = shared[random.below(SHARED)].lock().expect("no holder panics");
                std::mem::swap(&mut *place, slot);
            }
            (Some(object), _) => {
                object.buffer.check(object.buffer.len().min(EDGE), object.byte);
                *slot = None;
            }
        }
    }
}
