//! What LevelDB's db_bench measures, of this store.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spandrel::durable::Client;

use crate::store::{Outcome, State, Store};

/// What is measured.
pub struct Bench {
    /// Keys.
    pub num: u64,
    /// Operations of a benchmark that reads; `None`: as many as there are keys.
    pub reads: Option<u64>,
    /// Bytes of a value.
    pub value_size: usize,
    /// Threads, which share the operations.
    pub threads: u64,
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

    /// Runs benchmarks by their names, with commas between. Those that fill begin with an empty store.
    pub fn all(&self, store: &Store, names: &str) -> Outcome<()> {
        let (num, threads) = (self.num, self.threads);
        let (share, reads) = (num / threads, self.reads.unwrap_or(num));
        let read_share = (reads / threads).max(1);
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
                let most = reads as usize;
                match is_forward {
                    true => map.iter().take(most).map(sum).sum(),
                    false => map.iter().rev().take(most).map(sum).sum(),
                }
            })
        };
        for name in names.split(',') {
            match name {
                "fillseq" | "fillrandom" | "fillsync" | "fill100K" => {
                    store.db.write(|state| state.clear())??;
                }
                _ => {}
            }
            let size = self.value_size;
            match name {
                "fillseq" => self.run(store, name, share, |client, thread, step| {
                    put(client, thread * share + step, size)
                }),
                "fillrandom" | "fillsync" | "overwrite" => {
                    // As in db_bench, whose other writes wait for no disk.
                    let share = if name == "fillsync" { (share / 1000).max(1) } else { share };
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
                "readrandom" | "readhot" | "readmissing" => {
                    // A hundredth of the keys; keys that no benchmark writes.
                    let range = if name == "readhot" { num.div_ceil(100) } else { num };
                    let len = if name == "readmissing" { 15 } else { 16 };
                    self.run(store, name, read_share, |client, thread, step| {
                        let key = key_of(drawn(thread + 1000, step) % range);
                        let key = &key[..len];
                        client.read(|state| {
                            state.map.get(key).map_or(0, |value| key.len() + value.len())
                        })
                    });
                }
                "seekrandom" => self.run(store, name, read_share, |client, thread, step| {
                    let key = key_of(drawn(thread + 2000, step) % num);
                    client.read(|state| {
                        let from = (Bound::Included(&key[..]), Bound::Unbounded);
                        let found = state.map.range(from).next();
                        found.map_or(0, |(key, value)| key.len() + value.len())
                    })
                }),
                "deleteseq" | "deleterandom" => {
                    self.run(store, name, share, |client, thread, step| {
                        let number = match name {
                            "deleteseq" => thread * share + step,
                            _ => drawn(thread, step) % num,
                        };
                        let key = key_of(number);
                        let deleted = client.write(|state| state.delete(&key));
                        deleted.expect("the log").expect("the heap");
                        key.len()
                    });
                }
                "readseq" | "readreverse" => {
                    let begin = Instant::now();
                    let mut client = store.db.client();
                    let bytes: usize = each(&mut client, name == "readseq");
                    let took = begin.elapsed().as_secs_f64();
                    let count = reads.min(store.db.read(|state| state.map.len()) as u64);
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
