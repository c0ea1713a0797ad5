//! A key-value store whose puts are durable when they return: the paper's example (Mangosteen, Listings 2 to 4) as a program of a page.
//!
//!     cargo run --release -p spandrel --example durable_store -- DIRECTORY
//!
//! It reads commands from its standard input, a line each: `put KEY VALUE`, `get KEY`, `delete KEY`, `list`. It may be killed at any time.

use std::io::{BufRead, Write};

use spandrel::durable::collections::{Open as _, SortedMap, Str};
use spandrel::durable::{Durable, Options};

/// Keys and values of up to 60 bytes.
type Word = Str<60>;

struct Store {
    of: SortedMap<Word, Word>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("durable_store DIRECTORY")?;
    let db = Durable::open(directory, Options::new(), |arena| {
        Ok(Store { of: SortedMap::open(arena, "store")? })
    })?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let reply = match (words.next(), words.next(), words.next()) {
            (Some("put"), Some(key), Some(value)) => {
                let (key, value) = (Word::new(key)?, Word::new(value)?);
                db.write(|store| store.of.insert(key, value))??; // durable when it returns
                "ok".to_owned()
            }
            (Some("get"), Some(key), None) => {
                let key = Word::new(key)?;
                let value = db.read(|store| store.of.get(&key));
                value.map_or("none".to_owned(), |value| value.to_string())
            }
            (Some("delete"), Some(key), None) => {
                let key = Word::new(key)?;
                let removed = db.write(|store| store.of.remove(&key))??;
                if removed.is_some() { "ok".to_owned() } else { "none".to_owned() }
            }
            (Some("list"), None, None) => db.read(|store| {
                store
                    .of
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            }),
            _ => "put KEY VALUE, get KEY, delete KEY or list".to_owned(),
        };
        writeln!(out, "{reply}")?;
        out.flush()?;
    }
    db.close()?;
    Ok(())
}
