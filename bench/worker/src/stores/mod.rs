//! Key-value stores whose puts are durable when they return, for the suite `durable`: `spandrel-bench-worker store NAME --job …`.

mod durable;
mod lmdb;
mod lsm;
mod pmemobj;

use serde_json::Value;
use spandrel::durable::CaptureSizes;
use spandrel_stores::{InMemory, Open, Opened};
use std::path::Path;

/// What stands behind `store`.
const NAMES: [&str; 6] = ["spandrel", "memory", "leveldb", "rocksdb", "lmdb", "pmemobj"];

/// Durable states whose stores are noted otherwise, behind `spandrel-`.
fn capture(name: &str) -> Option<CaptureSizes> {
    let usual = CaptureSizes::default();
    Some(match name.strip_prefix("spandrel-")? {
        "repeats" => CaptureSizes { has_repeats: true, ..usual },
        "blocks" => CaptureSizes { range_bytes: usize::MAX, ..usual },
        bytes => CaptureSizes { block_bytes: bytes.parse().ok()?, ..usual },
    })
}

/// Opens a store in a directory, with room for this number of bytes of keys and values.
fn open(name: &str, directory: &Path, bytes: u64) -> Opened {
    Ok(match name {
        "memory" => Box::<InMemory>::default(),
        "leveldb" => Box::new(lsm::Lsm::open(&lsm::LEVELDB, directory)?),
        "rocksdb" => Box::new(lsm::Lsm::open(&lsm::ROCKSDB, directory)?),
        "lmdb" => Box::new(lmdb::Lmdb::open(directory, bytes)?),
        "pmemobj" => Box::new(pmemobj::Pmemobj::open(directory, bytes)?),
        _ => {
            let sizes = capture(name).unwrap_or_default();
            Box::new(durable::OnState::open(directory, bytes, sizes)?)
        }
    })
}

/// Runs a job on a store that is named, and returns what it tells as JSON.
///
/// # Errors
/// What is wrong with the words or with the store.
pub fn run(words: &[String]) -> Result<Value, String> {
    let Some((name, rest)) = words.split_first() else {
        return Err(format!("store: which one? One of: {}", NAMES.join(", ")));
    };
    if !NAMES.contains(&name.as_str()) && capture(name).is_none() {
        return Err(format!("store {name}: there are {}", NAMES.join(", ")));
    }
    let open: Open<'_> = &|directory, bytes| {
        if name == "pmemobj" {
            // SAFETY: a job opens its store before it starts threads.
            unsafe { pmemobj::choose_medium(directory)? };
        }
        open(name, directory, bytes)
    };
    spandrel_stores::run(rest, open).map(Value::Object)
}

#[cfg(test)]
mod tests;
