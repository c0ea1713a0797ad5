//! The allocation benchmarks of section 13.1 and of the field: small objects, several threads, for a given time.
//!
//! The paper counts rounds; a time is the same for allocators that differ by a factor of a hundred. One word of each object is
//! written, as a program would.

use super::queue::Queue;
use super::{Allocator, Program, run_on};
use crate::args::Args;
use crate::meter::{self, Meter};
use crate::random::Random;
use crate::suites::Report;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

/// Bytes of an object (the paper: the smallest common size).
const BYTES: usize = 64;

/// A loop of several threads that ends when its time is over.
struct Timed<F> {
    threads: usize,
    millis: usize,
    body: F,
}

/// What a thread does until it is to stop: its number, and how many pairs of allocation and free it did.
trait Body {
    fn run<A: Allocator>(
        &self,
        allocator: &A,
        threads: usize,
        number: usize,
        stop: &AtomicBool,
    ) -> u64;
}

impl<F: Body + Sync> Program for Timed<F> {
    fn run<A: Allocator>(&self, allocator: &A, mut report: Report) -> Result<Report, String> {
        let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        let meter = Meter::start();
        std::thread::scope(|scope| {
            for number in 0..self.threads {
                let (stop, operations) = (&stop, &operations);
                scope.spawn(move || {
                    let done = self.body.run(allocator, self.threads, number, stop);
                    operations.fetch_add(done, Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(self.millis as u64));
            stop.store(true, Relaxed);
        });
        meter.stop().record(&mut report);
        report.insert("operations".into(), operations.into_inner().into());
        Ok(report)
    }
}

fn timed(args: Args, body: impl Body + Sync + 'static) -> Result<Report, String> {
    run_on(args, |args| {
        let threads = args.count("threads", 1)?.clamp(1, 256);
        let millis = args.count("millis", 1000)?;
        Ok(Box::new(Timed { threads, millis, body }))
    })
}

#[inline]
fn make(allocator: &impl Allocator, bytes: usize) -> NonNull<u8> {
    let object = allocator.alloc(bytes);
    // SAFETY: an object of a word at least.
    unsafe { object.cast::<u64>().write_volatile(bytes as u64) };
    object
}

/// A server: each thread replaces one of its thousand objects at random; after ten thousand rounds of a thousand another
/// thread goes on with them.
pub fn larson(args: Args) -> Result<Report, String> {
    struct Larson;
    const OBJECTS: usize = 1000;
    const ROUNDS: usize = 10_000;
    impl Body for Larson {
        fn run<A: Allocator>(
            &self,
            allocator: &A,
            _: usize,
            number: usize,
            stop: &AtomicBool,
        ) -> u64 {
            let mut objects: Vec<_> =
                (0..OBJECTS).map(|_| make(allocator, BYTES).as_ptr() as usize).collect();
            let mut done = 0;
            let mut generation = 0;
            while !stop.load(Relaxed) {
                generation += 1;
                // An address is one thread's at a time, and only a thread more is what a generation costs.
                let successor = |mut objects: Vec<usize>| {
                    let mut random = Random::new((number as u64) << 32 | generation);
                    let mut rounds = 0;
                    while rounds < ROUNDS && !stop.load(Relaxed) {
                        for _ in 0..OBJECTS {
                            let place = &mut objects[random.below(OBJECTS)];
                            if let Some(object) = NonNull::new(*place as *mut u8) {
                                // SAFETY: it was allocated, and is nobody else's.
                                unsafe { allocator.free(object) };
                            }
                            *place = make(allocator, BYTES).as_ptr() as usize;
                        }
                        rounds += 1;
                    }
                    (objects, rounds)
                };
                let (back, rounds) = std::thread::scope(|scope| {
                    scope.spawn(move || successor(objects)).join().unwrap_or_default()
                });
                (objects, done) = (back, done + (rounds * OBJECTS) as u64);
            }
            for object in objects.into_iter().filter_map(|at| NonNull::new(at as *mut u8)) {
                // SAFETY: as above.
                unsafe { allocator.free(object) };
            }
            done
        }
    }
    timed(args, Larson)
}

/// All threads together allocate a hundred thousand objects in each round, and then free them.
pub fn threadtest(args: Args) -> Result<Report, String> {
    struct ThreadTest;
    impl Body for ThreadTest {
        fn run<A: Allocator>(
            &self,
            allocator: &A,
            threads: usize,
            _: usize,
            stop: &AtomicBool,
        ) -> u64 {
            let count = 100_000 / threads;
            let mut objects = Vec::with_capacity(count);
            let mut done = 0;
            while !stop.load(Relaxed) {
                objects.extend((0..count).map(|_| make(allocator, BYTES)));
                for object in objects.drain(..) {
                    // SAFETY: allocated above.
                    unsafe { allocator.free(object) };
                }
                done += count as u64;
            }
            done
        }
    }
    timed(args, ThreadTest)
}

/// Pairs of threads: what one allocates the other frees.
pub fn prodcon(args: Args) -> Result<Report, String> {
    struct ProdCon(Vec<Queue>);
    impl Body for ProdCon {
        fn run<A: Allocator>(
            &self,
            allocator: &A,
            _: usize,
            number: usize,
            stop: &AtomicBool,
        ) -> u64 {
            let queue = &self.0[number / 2];
            let mut done = 0;
            if number.is_multiple_of(2) {
                // SAFETY: of two threads with a queue the first puts.
                let put = |object| unsafe { queue.put(object) };
                while !stop.load(Relaxed) {
                    put(make(allocator, BYTES).as_ptr());
                }
                put(std::ptr::null_mut());
            } else {
                // SAFETY: the second takes.
                while let Some(object) = unsafe { queue.take() } {
                    // SAFETY: the producer's, who has given it away.
                    unsafe { allocator.free(object) };
                    done += 1;
                }
            }
            done
        }
    }
    let queues = (0..128).map(|_| Queue::new()).collect();
    run_on(args, |args| {
        let threads = args.count("threads", 2)?;
        if threads == 0 || threads % 2 != 0 || threads > 256 {
            return Err(format!("--threads {threads}: threads come in pairs here, 256 at most"));
        }
        let millis = args.count("millis", 1000)?;
        Ok(Box::new(Timed { threads, millis, body: ProdCon(queues) }))
    })
}

/// Runs of objects of one size each, small sizes more often, freed partly in the order of allocation and partly in the
/// other; some live on through the next pass (after MicroQuill's benchmark of that name).
pub fn sh6bench(args: Args) -> Result<Report, String> {
    struct Sh6;
    const RUNS: usize = 1000;
    const RUN: usize = 32;
    impl Body for Sh6 {
        fn run<A: Allocator>(
            &self,
            allocator: &A,
            _: usize,
            number: usize,
            stop: &AtomicBool,
        ) -> u64 {
            let mut random = Random::new(number as u64 + 1);
            let mut objects = Vec::with_capacity(RUNS * RUN);
            let mut kept = Vec::with_capacity(RUNS * RUN / 16 + RUN);
            let mut done = 0;
            // SAFETY: each was allocated, and is freed once.
            let free = |object| unsafe { allocator.free(object) };
            while !stop.load(Relaxed) {
                for _ in 0..RUNS {
                    let bytes = 1 + random.below(1000).min(random.below(1000));
                    objects.extend((0..RUN).map(|_| make(allocator, bytes.max(8))));
                }
                kept.drain(..).rev().for_each(free);
                for (run, objects) in objects.chunks(RUN).enumerate() {
                    match run % 8 {
                        0 => objects.iter().enumerate().for_each(|(number, object)| {
                            match number % 2 {
                                0 => kept.push(*object),
                                _ => free(*object),
                            }
                        }),
                        2 | 4 | 6 => objects.iter().rev().copied().for_each(free),
                        _ => objects.iter().copied().for_each(free),
                    }
                }
                objects.clear();
                done += (RUNS * RUN) as u64;
            }
            kept.into_iter().for_each(free);
            done
        }
    }
    timed(args, Sh6)
}

/// An allocation and a free at once: the median over many short blocks.
pub fn pair(args: Args) -> Result<Report, String> {
    struct Pair {
        pairs: usize,
    }
    const BLOCKS: usize = 201;
    impl Program for Pair {
        fn run<A: Allocator>(&self, allocator: &A, mut report: Report) -> Result<Report, String> {
            let block = || {
                for _ in 0..self.pairs {
                    // SAFETY: allocated in the same line.
                    unsafe { allocator.free(std::hint::black_box(allocator.alloc(BYTES))) };
                }
            };
            block();
            let meter = Meter::start();
            let mut times: Vec<u64> = (0..BLOCKS)
                .map(|_| {
                    let before = meter::wall_ns();
                    block();
                    meter::wall_ns() - before
                })
                .collect();
            meter.stop().record(&mut report);
            times.sort_unstable();
            report.insert(
                "ns_per_pair".into(),
                (times[BLOCKS / 2] as f64 / self.pairs as f64).into(),
            );
            Ok(report)
        }
    }
    run_on(args, |args| Ok(Box::new(Pair { pairs: args.count("pairs", 5000)?.max(1) })))
}
