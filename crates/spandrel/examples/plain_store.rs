//! A key-value store of ordinary types: `durable_store` with the standard library's map and strings.
//!
//!     cargo run --release -p spandrel --example plain_store -- DIRECTORY
//!     cargo run --release -p spandrel --example plain_store -- DIRECTORY --measure KEYS [pages]
//!
//! It reads commands from its standard input, a line each: `put KEY VALUE`, `get KEY`, `delete KEY`, `list`. It may be killed at any time. `--measure` puts that
//! number of keys into the map, then replaces values of random ones, and says what a write costs: with translated commands, or with pages that are compared.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::Instant;

use spandrel::durable::{Allocator, Options, Plain, Stores, fix_addresses};

#[global_allocator]
static ALLOC: Allocator = Allocator::new();

type Store = BTreeMap<String, String>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fix_addresses()?; // first of all: it may start the program again
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("plain_store DIRECTORY [--measure KEYS [pages]]")?;
    let is_measured = arguments.next().as_deref() == Some("--measure");
    let (keys, stores) = (arguments.next(), arguments.next());
    let stores = if stores.is_some() { Stores::Pages } else { Stores::Translated };
    let db = Plain::open(directory, Options::new().stores(stores), Store::new)?;
    if let (true, Some(keys)) = (is_measured, keys) {
        return measure(&db, keys.parse()?);
    }
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = match words[..] {
            ["put", key, value] => {
                db.write(|store| store.insert(key.into(), value.into()))?; // durable when it returns
                "ok".to_owned()
            }
            ["get", key] => db.read(|store| store.get(key).cloned()).unwrap_or("none".into()),
            ["delete", key] => {
                let removed = db.write(|store| store.remove(key))?;
                removed.map_or("none", |_| "ok").to_owned()
            }
            ["list"] => db.read(|store| {
                let pairs = store.iter().map(|(key, value)| format!("{key}={value}"));
                pairs.collect::<Vec<_>>().join(" ")
            }),
            _ => "put KEY VALUE, get KEY, delete KEY or list".to_owned(),
        };
        writeln!(out, "{reply}")?;
        out.flush()?;
    }
    db.close()?;
    Ok(())
}

/// Says what a write costs in a map of that number of keys.
fn measure(db: &Plain<Store>, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    let key = |number: u64| format!("{number:016}");
    for from in (0..keys).step_by(10_000) {
        let part = from..keys.min(from + 10_000);
        db.write(|store| store.extend(part.clone().map(|number| (key(number), "x".repeat(100)))))?;
    }
    let (mut client, mut number) = (db.client(), 1u64);
    for batch in [1, 16, 100] {
        let (rounds, before, start) = (2000, db.figures(), Instant::now());
        for _ in 0..rounds {
            // The commands of a batch as one, so that the figure has no other threads in it.
            let numbers: Vec<u64> = std::iter::repeat_with(|| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                number >> 32
            })
            .take(batch as usize)
            .collect();
            client.write(|store| {
                for number in &numbers {
                    if let Some(value) = store.get_mut(&key(number % keys.max(1))) {
                        value.replace_range(.., &format!("{number:0100}"));
                    }
                }
            })?;
        }
        let micros = start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds * batch);
        let bytes = (db.figures().bytes - before.bytes) as f64 / f64::from(rounds * batch);
        println!(
            "{keys} keys, {batch} in a batch: {micros:.1} us and {bytes:.0} B logged for a write"
        );
    }
    Ok(())
}
