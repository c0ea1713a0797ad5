//! An ordered store with LevelDB's interface: keys and values of any length, batches, iteration both ways. What was written is durable when the
//! call returns, and threads read beside each other.
//!
//!     cargo run --release -p spandrel --example ordered_store -- DIRECTORY
//!
//! It reads commands from its standard input, a line each: `put KEY VALUE`, `get KEY`, `delete KEY`, `rename KEY KEY`, `scan KEY COUNT`, `rscan KEY
//! COUNT`, `list`, `snapshot`, `release SNAPSHOT`; `get`, `scan` and `rscan` take the number of a snapshot as their last word. It may be killed at any time.
//!
//! With `--benchmarks` it measures as LevelDB's db_bench does, whose spelling of options it takes, each write with `sync`:
//!
//!     ordered_store --db=DIRECTORY --benchmarks=fillseq,fillrandom,overwrite,readrandom,readseq,readreverse --num=1000000 --value_size=100 --reads=100000 --threads=1
//!
//! Also fillsync, fill100K, readmissing, readhot, seekrandom, deleteseq, deleterandom. A directory may also be the first word, and `--bench` stand for `--benchmarks`.

mod bench;
mod iterator;
mod store;

use std::io::{BufRead, Write};

use spandrel::durable::Options;

use bench::Bench;
use iterator::Iter;
use store::{Batch, Outcome, Store};

fn answer(store: &Store, line: &str) -> Outcome<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let number = |words: &[&str]| words.first().map(|word| word.parse::<u64>()).transpose();
    let scan = |from: &str, count: &str, is_forward: bool, snapshot: &[&str]| -> Outcome<String> {
        let (mut found, count) = (Vec::new(), count.parse()?);
        let mut iter = match number(snapshot)? {
            Some(snapshot) => Iter::of(store, snapshot),
            None => Iter::new(store)?,
        };
        iter.seek(from.as_bytes())?;
        // Back from a key that is not there: from the one before it.
        match iter.key() {
            None if !is_forward => iter.seek_to_last()?,
            Some(key) if !is_forward && key != from.as_bytes() => iter.prev()?,
            _ => {}
        }
        while let (Some(key), Some(value)) = (iter.key(), iter.value())
            && found.len() < count
        {
            let [key, value] = [key, value].map(String::from_utf8_lossy);
            found.push(format!("{key}={value}"));
            if is_forward { iter.next()? } else { iter.prev()? }
        }
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
        ["list"] => {
            let (mut keys, mut iter) = (Vec::new(), Iter::new(store)?);
            iter.seek_to_first()?;
            while iter.valid() {
                keys.push(String::from_utf8_lossy(iter.key().unwrap_or_default()).into_owned());
                iter.next()?;
            }
            keys.join(" ")
        }
        ["snapshot"] => store.snapshot()?.to_string(),
        ["release", snapshot] => store.release(snapshot.parse()?).map(|()| "ok".into())?,
        _ => {
            "put KEY VALUE, get KEY [SNAPSHOT], delete KEY, rename FROM TO, scan KEY COUNT [SNAPSHOT], rscan KEY COUNT [SNAPSHOT], list, snapshot or release SNAPSHOT".into()
        }
    })
}

fn number<N: std::str::FromStr>(flag: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{flag} {value}: that is no number; give one"))
}

fn main() -> Outcome<()> {
    let (mut directory, mut names) = (None, None);
    let mut bench = Bench { num: 100_000, reads: None, value_size: 100, threads: 1 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") && directory.is_none() {
            directory = Some(argument);
            continue;
        }
        // As db_bench has it, or in two words.
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (argument, arguments.next()),
        };
        let value = value.ok_or_else(|| format!("{flag} needs a value"))?;
        match &flag[..] {
            "--db" => directory = Some(value),
            "--benchmarks" | "--bench" => names = Some(value),
            "--num" => bench.num = number(&flag, &value)?,
            "--reads" => bench.reads = Some(number(&flag, &value)?),
            "--value_size" => bench.value_size = number(&flag, &value)?,
            "--threads" => bench.threads = number(&flag, &value)?,
            _ => return Err(format!("{flag} is no option").into()),
        }
    }
    let directory = directory.ok_or("ordered_store DIRECTORY [--benchmarks=NAMES ...]")?;
    if bench.num == 0 || bench.threads == 0 || bench.threads > bench.num {
        return Err("--num and --threads are at least 1, and each thread has a key".into());
    }
    let directory = std::path::Path::new(&directory);
    let options = if names.is_some() { Options::new().log_size(1 << 30) } else { Options::new() };
    let store = Store::open(directory, options)?;
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
