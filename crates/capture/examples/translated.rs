//! What translation costs: updates of a hash table in batches, native and translated, the median of rounds; and code that runs for the first time.
//!
//! `cargo run --release --example translated -p spandrel-capture`

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Instant;

use spandrel_capture::translate::{Sink, Translator};
use spandrel_capture::{Captured, Sizes};

const KEYS: u64 = 1_000_000;
const ROUNDS: usize = 15;
const UPDATES: u64 = 200_000;

struct Noted(RefCell<Captured>);

impl Sink for Noted {
    fn note(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().note(at as usize, bytes);
    }
}

struct Table {
    map: HashMap<u64, [u64; 4]>,
    number: u64,
}

impl Table {
    fn update(&mut self, count: u64) {
        for _ in 0..count {
            self.number =
                self.number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let key = (self.number >> 33) % KEYS;
            let value = self.map.entry(key).or_default();
            value[(key % 4) as usize] += 1;
        }
    }
}

/// Nanoseconds for each update.
fn timed(batch: u64, mut work: impl FnMut()) -> f64 {
    let begun = Instant::now();
    (0..UPDATES / batch).for_each(|_| work());
    begun.elapsed().as_nanos() as f64 / UPDATES as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let mut table = Table { map: HashMap::new(), number: 1 };
    table.update(20 * KEYS);
    // All of the table, which is one object.
    let at = table.map.values().map(|value| value as *const _ as usize);
    let (from, to) = at.fold((usize::MAX, 0), |(from, to), at| (from.min(at), to.max(at)));
    let captured = Captured::new(Sizes::default()).expect("memory");
    let window = (from, to - from + 64);
    let mut translator =
        Translator::new(window, &[], Noted(RefCell::new(captured))).expect("memory");
    for batch in [1, 16, 100] {
        let (mut native, mut translated, mut runs) = (vec![], vec![], 0u64);
        for _ in 0..ROUNDS {
            native.push(timed(batch, || table.update(batch)));
            translated.push(timed(batch, || {
                translator.call(|| table.update(batch));
                let _ = translator.sink().0.borrow_mut().drain(|_, _| runs += 1);
            }));
        }
        let (native, translated) = (median(native), median(translated));
        let runs = runs as f64 / (UPDATES as f64 * ROUNDS as f64);
        println!(
            "batches of {batch}: native {native:.0} ns, translated {translated:.0} ns, {:.2}x, {runs:.2} runs an update",
            translated / native
        );
    }
    println!("{:?}", translator.figures());
    let before = translator.figures();
    let begun = Instant::now();
    let text = translator.call(|| format!("{:>20.3e} {:?} {:#x}", 1.5, [Some("text")], 77));
    let (micros, after) = (begun.elapsed().as_micros(), translator.figures());
    println!(
        "the first run of code in {} blocks took {micros} us: {text}",
        after.blocks - before.blocks
    );
}
