//! An ordered store with LevelDB's interface: keys and values of any length, batches, iteration both ways. What was written is durable when the
//! call returns, and threads read beside each other.
//!
//!     cargo run --release -p spandrel --example ordered_store -- DIRECTORY
//!
//! It reads commands from its standard input, a line each: `put KEY VALUE`, `get KEY`, `delete KEY`, `rename KEY KEY`, `scan KEY COUNT`, `rscan KEY
//! COUNT`, `snapshot`, `release SNAPSHOT`; `get`, `scan` and `rscan` take the number of a snapshot as their last word. It may be killed at any time. With `--bench fillseq,fillrandom,overwrite,fill100K,readseq,readreverse,readrandom --num N --value_size BYTES --threads T` it
//! measures as LevelDB's db_bench does, each write with `sync`.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{Arena, Client, Durable, Options};
use spandrel::heap;

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

/// What is durable, and the snapshots of this process.
struct State {
    map: SortedBytes,
    arena: Arc<Arena>,
    /// In the order in which they were taken.
    snapshots: Vec<Snapshot>,
}

/// The store as it was. A change saves the old value of its key for the last snapshot. So a key was at a snapshot what this one or the first
/// one behind it has saved, and else what it is now.
///
/// Of a key only the first value counts that was saved: it is right also where the command that saved it is undone, and runs again.
struct Snapshot {
    number: u64,
    /// `None`: the key was not there.
    saved: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl State {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, heap::Error> {
        self.save(key);
        self.map.insert(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, heap::Error> {
        self.save(key);
        self.map.remove(key)
    }

    fn clear(&mut self) -> Result<(), heap::Error> {
        if let Some(Snapshot { saved, .. }) = self.snapshots.last_mut() {
            for (key, value) in &self.map {
                saved.entry(key.to_vec()).or_insert_with(|| Some(value.to_vec()));
            }
        }
        self.map.clear()
    }

    fn save(&mut self, key: &[u8]) {
        if let Some(Snapshot { saved, .. }) = self.snapshots.last_mut()
            && !saved.contains_key(key)
        {
            saved.insert(key.to_vec(), self.map.get(key).map(<[u8]>::to_vec));
        }
    }

    /// Takes a snapshot away, if it is there. The one before it keeps what it needs.
    fn release(&mut self, number: u64) {
        let Some(at) = self.snapshots.iter().position(|snapshot| snapshot.number == number) else {
            return;
        };
        let Snapshot { saved, .. } = self.snapshots.remove(at);
        if let Some(before) = at.checked_sub(1).and_then(|before| self.snapshots.get_mut(before)) {
            for (key, value) in saved {
                before.saved.entry(key).or_insert(value);
            }
        }
    }

    /// The snapshots from one on. `None`: it was released, or is of another process.
    fn since(&self, snapshot: Option<u64>) -> Option<&[Snapshot]> {
        let Some(number) = snapshot else { return Some(&[]) };
        let at = self.snapshots.iter().position(|snapshot| snapshot.number == number)?;
        self.snapshots.get(at..)
    }

    fn get<'s>(&'s self, snapshots: &'s [Snapshot], key: &[u8]) -> Option<&'s [u8]> {
        let saved = snapshots.iter().find_map(|snapshot| snapshot.saved.get(key));
        saved.map_or_else(|| self.map.get(key), |value| value.as_deref())
    }

    /// Calls `each` for the keys of a range at the first of these snapshots, until it returns false.
    fn scan(
        &self,
        snapshots: &[Snapshot],
        range: (Bound<&[u8]>, Bound<&[u8]>),
        is_forward: bool,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
        // Ways through the map and what each snapshot has saved, with the next key of each.
        let now: Keys<'_> = Box::new(self.map.range(range).map(|(key, _)| key));
        let saved = snapshots.iter().map(|snapshot| -> Keys<'_> {
            Box::new(snapshot.saved.range::<[u8], _>(range).map(|(key, _)| &key[..]))
        });
        fn step<'s>(keys: &mut Keys<'s>, is_forward: bool) -> Option<&'s [u8]> {
            if is_forward { keys.next() } else { keys.next_back() }
        }
        let mut ways: Vec<_> = std::iter::once(now).chain(saved).map(|keys| (None, keys)).collect();
        ways.iter_mut().for_each(|(next, keys)| *next = step(keys, is_forward));
        loop {
            let keys = ways.iter().filter_map(|(next, _)| *next);
            let Some(key) = (if is_forward { keys.min() } else { keys.max() }) else { return };
            if self.get(snapshots, key).is_some_and(|value| !each(key, value)) {
                return;
            }
            for (next, keys) in ways.iter_mut().filter(|(next, _)| *next == Some(key)) {
                *next = step(keys, is_forward);
            }
        }
    }
}

type Keys<'s> = Box<dyn DoubleEndedIterator<Item = &'s [u8]> + 's>;

/// The store. A thread with many calls takes a [`Durable::client`] once.
struct Store {
    db: Durable<State>,
    /// The number of the last snapshot.
    last: AtomicU64,
}

impl Store {
    fn open(directory: &Path, options: Options) -> Outcome<Self> {
        let db = Durable::open(directory, options, |arena| {
            let map = SortedBytes::open(arena, "store")?;
            Ok(State { map, arena: Arc::clone(arena), snapshots: Vec::new() })
        })?;
        Ok(Self { db, last: AtomicU64::new(0) })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.db.write(|state| state.put(key, value))??;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome<bool> {
        Ok(self.db.write(|state| state.delete(key))??)
    }

    /// The value of a key: now, or at a snapshot.
    fn get(&self, snapshot: Option<u64>, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        self.db.read(|state| {
            let snapshots = state.since(snapshot).ok_or_else(|| missing(snapshot))?;
            Ok(state.get(snapshots, key).map(<[u8]>::to_vec))
        })
    }

    /// Takes a snapshot, which sees nothing of later writes, and has a number. It holds in memory what they replace until it is released.
    fn snapshot(&self) -> Outcome<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.db.write(|state| {
            // If the batch runs again: what it saved then may be of writes that come later now.
            state.release(number);
            state.snapshots.push(Snapshot { number, saved: BTreeMap::new() });
        })?;
        Ok(number)
    }

    /// Releases a snapshot.
    fn release(&self, number: u64) -> Outcome<()> {
        self.db.write(|state| state.release(number))?;
        Ok(())
    }

    /// All of a batch, or nothing of it, also where the heap has no room for a part.
    fn write(&self, batch: &Batch) -> Outcome<()> {
        self.db.write(|state| {
            let arena = Arc::clone(&state.arena);
            arena.transaction(|| {
                batch.0.iter().try_for_each(|(key, value)| match value {
                    Some(value) => state.put(key, value).map(drop),
                    None => state.delete(key).map(drop),
                })
            })
        })??;
        Ok(())
    }

    /// Calls `each` for the keys from `key` on, or back from it, until it returns false: as they are, or as they were at a snapshot. Writes wait
    /// meanwhile; with a snapshot a program may go on behind the last key by another call.
    fn scan(
        &self,
        snapshot: Option<u64>,
        key: &[u8],
        is_forward: bool,
        each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Outcome<()> {
        self.db.read(|state| {
            let snapshots = state.since(snapshot).ok_or_else(|| missing(snapshot))?;
            let from = Bound::Included(key);
            let range =
                if is_forward { (from, Bound::Unbounded) } else { (Bound::Unbounded, from) };
            state.scan(snapshots, range, is_forward, each);
            Ok(())
        })
    }
}

fn missing(snapshot: Option<u64>) -> String {
    format!(
        "there is no snapshot {}; it was released, or is of another process",
        snapshot.unwrap_or_default()
    )
}

fn answer(store: &Store, line: &str) -> Outcome<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let number = |words: &[&str]| words.first().map(|word| word.parse::<u64>()).transpose();
    let scan = |from: &str, count: &str, is_forward, snapshot: &[&str]| -> Outcome<String> {
        let (mut found, count) = (Vec::new(), count.parse()?);
        store.scan(number(snapshot)?, from.as_bytes(), is_forward, |key, value| {
            let [key, value] = [key, value].map(String::from_utf8_lossy);
            found.extend((found.len() < count).then(|| format!("{key}={value}")));
            found.len() < count
        })?;
        Ok(found.join(" "))
    };
    Ok(match words[..] {
        ["put", key, value] => store.put(key.as_bytes(), value.as_bytes()).map(|()| "ok".into())?,
        ["get", key, ref snapshot @ ..] if snapshot.len() < 2 => store
            .get(number(snapshot)?, key.as_bytes())?
            .map_or("none".into(), |value| String::from_utf8_lossy(&value).into_owned()),
        ["delete", key] => if store.delete(key.as_bytes())? { "ok" } else { "none" }.into(),
        // Moves a value to another key.
        ["rename", from, to] => match store.get(None, from.as_bytes())? {
            Some(value) => {
                let mut batch = Batch::default();
                batch.delete(from.as_bytes());
                batch.put(to.as_bytes(), &value);
                store.write(&batch).map(|()| "ok".into())?
            }
            None => "none".into(),
        },
        ["scan", from, count, ref snapshot @ ..] if snapshot.len() < 2 => {
            scan(from, count, true, snapshot)?
        }
        ["rscan", from, count, ref snapshot @ ..] if snapshot.len() < 2 => {
            scan(from, count, false, snapshot)?
        }
        ["snapshot"] => store.snapshot()?.to_string(),
        ["release", snapshot] => store.release(snapshot.parse()?).map(|()| "ok".into())?,
        _ => {
            "put KEY VALUE, get KEY [SNAPSHOT], delete KEY, rename FROM TO, scan KEY COUNT [SNAPSHOT], rscan KEY COUNT [SNAPSHOT], snapshot or release SNAPSHOT".into()
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
        let (bytes, before, begin) = (AtomicU64::new(0), store.db.figures(), Instant::now());
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let (bytes, operation) = (&bytes, &operation);
                scope.spawn(move || {
                    let mut client = store.db.client();
                    let sum =
                        (0..count).map(|step| operation(&mut client, thread, step)).sum::<usize>();
                    bytes.fetch_add(sum as u64, Ordering::Relaxed);
                });
            }
        });
        let (took, after) = (begin.elapsed().as_secs_f64(), store.db.figures());
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
                .write(|state| state.put(&key, &value[..len]))
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
                    store.db.write(|state| state.clear())??;
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
                    let mut client = store.db.client();
                    let bytes: usize = each(&mut client, name == "readseq");
                    let (took, count) =
                        (begin.elapsed().as_secs_f64(), store.db.read(|state| state.map.len()));
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

fn number<N: std::str::FromStr>(flag: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{flag} {value}: that is no number; give one"))
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("ordered_store DIRECTORY [--bench NAMES ...]")?;
    let (mut names, mut bench) = (None, Bench { num: 100_000, value_size: 100, threads: 1 });
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match &flag[..] {
            "--bench" => names = Some(value),
            "--num" => bench.num = number(&flag, &value)?,
            "--value_size" => bench.value_size = number(&flag, &value)?,
            "--threads" => bench.threads = number(&flag, &value)?,
            _ => return Err(format!("{flag} is no option").into()),
        }
    }
    if bench.num == 0 || bench.threads == 0 || bench.threads > bench.num {
        return Err("--num and --threads are at least 1, and each thread has a key".into());
    }
    let options = if names.is_some() { Options::new().log_size(1 << 30) } else { Options::new() };
    let store = Store::open(directory.as_ref(), options)?;
    if let Some(names) = names {
        bench.all(&store, &names)?;
    } else {
        let mut out = std::io::stdout().lock();
        for line in std::io::stdin().lock().lines() {
            // A command that fails does not end the others.
            let said = answer(&store, &line?).unwrap_or_else(|why| format!("error: {why}"));
            writeln!(out, "{said}")?;
            out.flush()?;
        }
    }
    store.db.close()?;
    Ok(())
}
