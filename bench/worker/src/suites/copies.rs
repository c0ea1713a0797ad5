//! The paper's Table I: how often concurrently growing objects are copied.
//!
//! The paper gives neither sizes nor a loop. What is done here is inferred: each
//! thread doubles an object from 4 KiB to 4 MiB by `realloc`, fills it after each
//! step, frees it, and does so 30 times ("repeated 30 times"); counted are the
//! thread's changes of address over the 30 repetitions. One thread of glibc then
//! gives exactly the paper's 5 (its threshold for `mmap` rises with each of the
//! first objects), and threads that share one heap, as the paper's text has it,
//! give the paper's tens; threads on an arena each give few.
//!
//! Three things can happen to an object, and they are counted apart: it stays
//! where it is, its pages are moved (`mremap`), its bytes are copied. Where the
//! kernel hides physical frames, the last two cannot be told apart, and only
//! changes of the address are reported.

use super::Report;
use crate::args::Args;
use crate::buffer::{Buffer, Object as _};
use crate::meter::{self, Meter};
use crate::pages::PageMap;
use serde_json::Value;
use std::sync::Barrier;

pub fn run(mut args: Args) -> Result<Report, String> {
    let threads = args.count("threads", 1)?.max(1);
    let from = args.size("from", "4KiB")?.max(1);
    let to = args.size("to", "4MiB")?;
    let step = args.size("step", "0")?;
    let repeats = args.count("repeats", 30)?.max(1);
    let lockstep = args.flag("lockstep");
    let mut report = args.begin()?;

    let growth = Growth {
        from,
        to,
        step,
        repeats,
        lockstep,
        round: Barrier::new(threads),
        frames: PageMap::open(),
    };
    let mut sum = Tally::default();
    let meter = Meter::start();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| growth.run())).collect();
        for thread in threads {
            sum.add(&thread.join().expect("a growing thread does not panic"));
        }
    });
    let cost = meter.stop();

    let per_thread = |count: u64| Value::from(count as f64 / threads as f64);
    let known = |value: Value| if sum.unknown == 0 { value } else { Value::Null };
    cost.record(&mut report);
    report.insert("rss".into(), meter::rss().into());
    report.insert("reallocs_per_thread".into(), per_thread(sum.reallocs));
    report.insert("address_changes_per_thread".into(), per_thread(sum.moves));
    report.insert("copies_per_thread".into(), known(per_thread(sum.copies)));
    report.insert("copied_bytes_per_thread".into(), known(per_thread(sum.copied_bytes)));
    Ok(report)
}

/// What each thread does.
struct Growth {
    from: usize,
    to: usize,
    /// Bytes per step; zero doubles.
    step: usize,
    repeats: usize,
    /// Whether the threads wait for one another before each step.
    lockstep: bool,
    round: Barrier,
    frames: PageMap,
}

/// What happened to the objects.
#[derive(Default)]
struct Tally {
    reallocs: u64,
    moves: u64,
    copies: u64,
    copied_bytes: u64,
    /// Moves of which the kernel does not say what they were.
    unknown: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.reallocs += other.reallocs;
        self.moves += other.moves;
        self.copies += other.copies;
        self.copied_bytes += other.copied_bytes;
        self.unknown += other.unknown;
    }
}

impl Growth {
    fn run(&self) -> Tally {
        let mut tally = Tally::default();
        self.round.wait();
        for _ in 0..self.repeats {
            self.grow_one(&mut tally);
        }
        tally
    }

    fn grow_one(&self, tally: &mut Tally) {
        let mut buffer = Buffer::new(self.from);
        buffer.fill(0, 1);
        while buffer.len() < self.to {
            if self.lockstep {
                self.round.wait();
            }
            let len = buffer.len();
            let next = if self.step == 0 { len * 2 } else { len + self.step };
            // A page inside the object; its first one may be shared with a neighbour.
            let inner = len / 2;
            let before = self.frames.frame(buffer.address() + inner);
            let moved = buffer.resize(next.min(self.to));
            tally.reallocs += 1;
            if moved {
                tally.moves += 1;
                match before.copied_to(self.frames.frame(buffer.address() + inner)) {
                    Some(true) => {
                        tally.copies += 1;
                        tally.copied_bytes += len as u64;
                    }
                    Some(false) => {}
                    None => tally.unknown += 1,
                }
            }
            buffer.check(len, 1);
            buffer.fill(0, 1);
        }
    }
}
