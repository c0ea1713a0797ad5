//! What a note and a drain cost, and how many bytes each block size logs: the figures behind the constants of this crate.
//!
//! `cargo run --release --example figures -p spandrel-capture [note KIND COUNT]`: with arguments one loop runs alone, so that a counter of
//! instructions can compare two counts.

use std::hint::black_box;
use std::time::Instant;

use spandrel_capture::hooks::functions::write8;
use spandrel_capture::{Capture, Captured, CompilerHooks, Extent, RANGE_BYTES, Regions, Sizes};

/// Bytes of a run's head in a redo log.
const HEAD_BYTES: usize = 16;
const BASE: usize = 1 << 40;

/// Numbers without a pattern (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn new(block_bytes: usize) -> Captured {
    Captured::new(Sizes { block_bytes, ..Sizes::default() }).expect("memory")
}

/// The median of rounds, in nanoseconds for each of `count`.
fn median(count: usize, mut round: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..61).map(|_| round()).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2] / count as f64
}

fn timed(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64
}

fn forget(captured: &mut Captured) {
    assert_eq!(
        captured.drain(|at, bytes| {
            black_box((at, bytes));
        }),
        Extent::Blocks
    );
}

/// Addresses of a kind of note.
fn addresses(kind: &str, count: usize) -> Vec<usize> {
    let mut random = Random(9);
    let mut sparse = || BASE + random.below(1 << 27) as usize * 8;
    match kind {
        "same" => vec![BASE; count],
        "two" => (0..count).map(|number| BASE + number % 2 * 4096).collect(),
        "hit" => {
            let few: Vec<_> = (0..400).map(|_| sparse()).collect();
            (0..count).map(|number| few[number * 7 % 400]).collect()
        }
        "next" => (0..count).map(|number| BASE + number * 32).collect(),
        "sparse" => (0..count).map(|_| sparse()).collect(),
        _ => panic!("same, two, hit, next or sparse"),
    }
}

fn notes() {
    println!("note, 8 bytes, ns each");
    for (kind, text, count) in [
        ("same", "the block that was noted last", 100_000),
        ("two", "two blocks in turn", 100_000),
        ("hit", "one of 400 blocks", 100_000),
        ("next", "a new block beside the last one", 4000),
        ("sparse", "a new block anywhere", 4000),
    ] {
        let (mut captured, all) = (new(32), addresses(kind, count));
        let ns = median(count, || {
            let ns = timed(|| all.iter().for_each(|at| captured.note(black_box(*at), 8)));
            forget(&mut captured);
            ns
        });
        println!("  {text:<34} {ns:>7.2}");
    }
}

fn drains() {
    println!("\nbatch of blocks, 8192 slots, ns each block    note    drain");
    for blocks in [4, 16, 64, 400, 2000] {
        for (kind, text) in [("next", "neighbours"), ("sparse", "sparse")] {
            let (mut captured, all) = (new(32), addresses(kind, blocks));
            let mut round = |part: usize| {
                let note = timed(|| all.iter().for_each(|at| captured.note(black_box(*at), 8)));
                let drain = timed(|| forget(&mut captured));
                [note, drain][part]
            };
            let note = median(blocks, || round(0));
            let drain = median(blocks, || round(1));
            println!("  {blocks:>5} {text:<34} {note:>7.1}  {drain:>7.1}");
        }
    }
}

/// A large write as blocks or as a range, and its part of the drain: places that are written once, and places that are written in turn.
fn ranges() {
    println!("\na write of N bytes, ns each (from {RANGE_BYTES} bytes on: ranges)");
    println!("         40 places once   40 places 10 times   4 places 100 times");
    for bytes in [64, 128, 256, 384, RANGE_BYTES - 1, RANGE_BYTES, 1024, 4096, 65536] {
        print!("  {bytes:>6}");
        for (places, times) in [(40, 1), (40, 10), (4, 100)] {
            let (mut captured, all) = (new(32), addresses("sparse", places));
            let ns = median(places * times, || {
                timed(|| {
                    for at in all.iter().cycle().take(places * times) {
                        captured.note(black_box(*at), bytes);
                    }
                    forget(&mut captured);
                })
            });
            print!(" {ns:>17.1}");
        }
        println!();
    }
}

/// What a store of 8 bytes pays for its hook.
fn hooks() {
    println!("\nhook of a store of 8 bytes, ns each");
    let regions = Regions::of(BASE as *const u8, 1 << 30).expect("whole pages");
    let mut hooks = CompilerHooks::new(Sizes::default(), &regions).expect("memory");
    let local = [0_u64; 64];
    let transient = |number: usize| (&raw const local[number % 64]).cast();
    let same = |_: usize| BASE as *const _;
    let few = |number: usize| (BASE + number % 40 * 4096) as *const _;
    for (text, has_batch, address) in [
        ("no batch is open", false, &same as &dyn Fn(usize) -> _),
        ("transient", true, &transient),
        ("the block that was noted last", true, &same),
        ("one of 40 blocks", true, &few),
    ] {
        let all: Vec<_> = (0..100_000).map(address).collect();
        let ns = median(all.len(), || {
            if has_batch {
                hooks.begin();
            }
            let ns = timed(|| all.iter().for_each(|at| write8(black_box(*at))));
            hooks.end(&mut |at, bytes| {
                black_box((at, bytes));
            });
            ns
        });
        println!("  {text:<34} {ns:>7.2}");
    }
}

/// Updates of a hash table as a store makes them: a bucket's pointer, an entry of 56 bytes at its beginning, a value, two counters.
fn sweep() {
    println!(
        "\nbatch of 32 updates of a hash table: bytes written, and logged for each block size"
    );
    println!("  value  written       16       32       64      128");
    for value in [8, 32, 100, 400, 1000] {
        print!("  {value:>5}");
        for (number, block_bytes) in [16, 32, 64, 128].into_iter().enumerate() {
            let (mut captured, mut random) = (new(block_bytes), Random(5));
            let (mut written, mut logged) = (0, 0);
            const BATCHES: usize = 1000;
            for _ in 0..BATCHES {
                for _ in 0..32 {
                    let entry = BASE + (1 << 30) + random.below(1 << 20) as usize * 64;
                    let bucket = BASE + random.below(1 << 20) as usize * 8;
                    let text = BASE + (1 << 32) + random.below(1 << 20) as usize * 1024;
                    let mut note = |at, bytes| {
                        captured.note(at, bytes);
                        written += bytes;
                    };
                    note(bucket, 8);
                    [0, 8, 16, 24].into_iter().for_each(|field| note(entry + field, 8));
                    note(text, value + 16);
                    note(BASE - 64, 8);
                    note(BASE - 56, 8);
                }
                let extent = captured.drain(|_, bytes| logged += bytes + HEAD_BYTES);
                assert_eq!(extent, Extent::Blocks);
            }
            if number == 0 {
                print!(" {:>8}", written / BATCHES);
            }
            print!(" {:>8}", logged / BATCHES);
        }
        println!();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, _, kind, count] = arguments.as_slice() {
        let mut captured = new(32);
        let all = addresses(kind, 4000);
        let turns: usize = count.parse().expect("a count");
        for _ in 0..turns {
            all.iter().for_each(|at| captured.note(black_box(*at), 8));
        }
        return;
    }
    notes();
    drains();
    ranges();
    hooks();
    sweep();
}
