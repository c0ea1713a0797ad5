//! An ordered store with LevelDB's interface: keys and values of any length, batches, iteration both ways. What was written is durable when the
//! call returns, and threads read beside each other.
//!
//!     cargo run --release -p spandrel --example ordered_store -- DIRECTORY
//!
//! It reads commands from its standard input, a line each: `put KEY VALUE`, `get KEY`, `delete KEY`, `rename KEY KEY`, `scan KEY COUNT`, `rscan KEY
//! COUNT`. It may be killed at any time. With `--bench fillseq,fillrandom,overwrite,fill100K,readseq,readreverse,readrandom --num N --value_size BYTES --threads T` it
//! measures as LevelDB's db_bench does, each write with `sync`.

use std::io::{BufRead, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{Arena, Client, Durable, Options};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Changes that become durable together.
#[derive(Default)]
struct Batch(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl Batch {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((key.to_vec(), Some(value.to_vec())));
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.push((key.to_vec(), None));
    }
}

/// What is durable.
struct State {
    map: SortedBytes,
    arena: Arc<Arena>,
}

/// The store. A thread with many calls takes a [`Durable::client`] once.
struct Store(Durable<State>);

impl Store {
    fn open(directory: &Path, options: Options) -> Outcome<Self> {
        Ok(Self(Durable::open(directory, options, |arena| {
            Ok(State { map: SortedBytes::open(arena, "store")?, arena: Arc::clone(arena) })
        })?))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.write(|state| state.map.insert(key, value))??;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome<bool> {
        Ok(self.0.write(|state| state.map.remove(key))??)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.read(|state| state.map.get(key).map(<[u8]>::to_vec))
    }

    /// All of a batch, or nothing of it, also where the heap has no room for a part.
    fn write(&self, batch: &Batch) -> Outcome<()> {
        self.0.write(|State { map, arena }| {
            arena.transaction(|| {
                batch.0.iter().try_for_each(|(key, value)| match value {
                    Some(value) => map.insert(key, value).map(drop),
                    None => map.remove(key).map(drop),
                })
            })
        })??;
        Ok(())
    }

    /// Calls `each` for the keys from `key` on, or back from it, until it returns false. Writes wait meanwhile.
    fn scan(&self, key: &[u8], is_forward: bool, mut each: impl FnMut(&[u8], &[u8]) -> bool) {
        self.0.read(|State { map, .. }| {
            let from = Bound::Included(key);
            if is_forward {
                map.range((from, Bound::Unbounded)).all(|(key, value)| each(key, value))
            } else {
                map.range((Bound::Unbounded, from)).rev().all(|(key, value)| each(key, value))
            }
        });
    }
}

fn answer(store: &Store, line: &str) -> Outcome<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let scan = |from: &str, count: &str, is_forward| -> Outcome<String> {
        let (mut found, count) = (Vec::new(), count.parse()?);
        store.scan(from.as_bytes(), is_forward, |key, value| {
            let [key, value] = [key, value].map(String::from_utf8_lossy);
            found.extend((found.len() < count).then(|| format!("{key}={value}")));
            found.len() < count
        });
        Ok(found.join(" "))
    };
    Ok(match words[..] {
        ["put", key, value] => store.put(key.as_bytes(), value.as_bytes()).map(|()| "ok".into())?,
        ["get", key] => store
            .get(key.as_bytes())
            .map_or("none".into(), |value| String::from_utf8_lossy(&value).into_owned()),
        ["delete", key] => if store.delete(key.as_bytes())? { "ok" } else { "none" }.into(),
        // Moves a value to another key.
        ["rename", from, to] => match store.get(from.as_bytes()) {
            Some(value) => {
                let mut batch = Batch::default();
                batch.delete(from.as_bytes());
                batch.put(to.as_bytes(), &value);
                store.write(&batch).map(|()| "ok".into())?
            }
            None => "none".into(),
        },
        ["scan", from, count] => scan(from, count, true)?,
        ["rscan", from, count] => scan(from, count, false)?,
        _ => {
            "put KEY VALUE, get KEY, delete KEY, rename FROM TO, scan KEY COUNT or rscan KEY COUNT"
                .into()
        }
    })
}

/// What is measured.
struct Bench {
    num: u64,
    value_size: usize,
    threads: u64,
}

/// A key of db_bench: 16 digits.
fn key_of(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Numbers that look drawn, and are the same in each run.
fn drawn(seed: u64, step: u64) -> u64 {
    let mixed = (seed << 40 ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

impl Bench {
    /// Runs `count` operations in each thread, and prints a line as db_bench does.
    fn run(
        &self,
        store: &Store,
        name: &str,
        count: u64,
        operation: impl Fn(&mut Client<'_, State>, u64, u64) -> usize + Sync,
    ) {
        let (bytes, before, begin) = (AtomicU64::new(0), store.0.figures(), Instant::now());
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let (bytes, operation) = (&bytes, &operation);
                scope.spawn(move || {
                    let mut client = store.0.client();
                    let sum =
                        (0..count).map(|step| operation(&mut client, thread, step)).sum::<usize>();
                    bytes.fetch_add(sum as u64, Ordering::Relaxed);
                });
            }
        });
        let (took, after) = (begin.elapsed().as_secs_f64(), store.0.figures());
        let rate = bytes.into_inner() as f64 / 1048576.0 / took;
        print!("{name:12} : {:11.3} micros/op; {rate:6.1} MB/s", took * 1e6 / count as f64);
        let logged = after.bytes - before.bytes;
        if logged > 0 {
            print!("; {} bytes logged/op", logged / (count * self.threads));
        }
        println!();
    }

    fn all(&self, store: &Store, names: &str) -> Outcome<()> {
        let (num, threads) = (self.num, self.threads);
        let share = num / threads;
        let value = vec![b'v'; self.value_size.max(100_000)];
        let value = &value[..];
        let put = |client: &mut Client<'_, State>, number, len| {
            let key = key_of(number);
            client
                .write(|state| state.map.insert(&key, &value[..len]))
                .expect("the log")
                .expect("the heap");
            key.len() + len
        };
        let each = |client: &mut Client<'_, State>, is_forward: bool| {
            let sum = |(key, value): (&[u8], &[u8])| key.len() + value.len();
            client.read(|State { map, .. }| {
                let all = map.iter().take(num as usize);
                if is_forward {
                    all.map(sum).sum()
                } else {
                    map.iter().rev().take(num as usize).map(sum).sum()
                }
            })
        };
        for name in names.split(',') {
            match name {
                "fillseq" | "fillrandom" | "fill100K" => {
                    store.0.write(|state| state.map.clear())??;
                }
                _ => {}
            }
            let size = self.value_size;
            match name {
                "fillseq" => self.run(store, name, share, |client, thread, step| {
                    put(client, thread * share + step, size)
                }),
                "fillrandom" | "overwrite" => {
                    self.run(store, name, share, |client, thread, step| {
                        put(
                            client,
                            drawn(thread + 100 * u64::from(name == "overwrite"), step) % num,
                            size,
                        )
                    })
                }
                "fill100K" => {
                    self.run(store, name, (share / 1000).max(1), |client, thread, step| {
                        put(client, drawn(thread, step) % num, 100_000)
                    })
                }
                "readrandom" => self.run(store, name, share, |client, thread, step| {
                    let key = key_of(drawn(thread + 1000, step) % num);
                    client.read(|state| {
                        state.map.get(&key).map_or(0, |value| key.len() + value.len())
                    })
                }),
                "readseq" | "readreverse" => {
                    let begin = Instant::now();
                    let mut client = store.0.client();
                    let bytes: usize = each(&mut client, name == "readseq");
                    let (took, count) =
                        (begin.elapsed().as_secs_f64(), store.0.read(|state| state.map.len()));
                    let rate = bytes as f64 / 1048576.0 / took;
                    println!(
                        "{name:12} : {:11.3} micros/op; {rate:6.1} MB/s",
                        took * 1e6 / count.max(1) as f64
                    );
                }
                other => return Err(format!("no such benchmark: {other}").into()),
            }
        }
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("ordered_store DIRECTORY [--bench NAMES ...]")?;
    let (mut names, mut bench) = (None, Bench { num: 100_000, value_size: 100, threads: 1 });
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match &flag[..] {
            "--bench" => names = Some(value),
            "--num" => bench.num = value.parse()?,
            "--value_size" => bench.value_size = value.parse()?,
            "--threads" => bench.threads = value.parse()?,
            _ => return Err(format!("{flag} is no option").into()),
        }
    }
    let options = if names.is_some() { Options::new().log_size(1 << 30) } else { Options::new() };
    let store = Store::open(directory.as_ref(), options)?;
    if let Some(names) = names {
        bench.all(&store, &names)?;
    } else {
        let mut out = std::io::stdout().lock();
        for line in std::io::stdin().lock().lines() {
            writeln!(out, "{}", answer(&store, &line?)?)?;
            out.flush()?;
        }
    }
    store.0.close()?;
    Ok(())
}
