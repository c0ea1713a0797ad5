//! Key-value stores whose puts are durable when they return, for the suite `durable`: `spandrel-bench-worker store NAME --job …`.

mod durable;
mod lmdb;
mod lsm;

use serde_json::Value;
use spandrel::durable::CaptureSizes;
use spandrel_stores::{InMemory, Open};

/// What stands behind `store`.
const NAMES: [&str; 5] = ["spandrel", "memory", "leveldb", "rocksdb", "lmdb"];

/// Durable states whose stores are noted otherwise, behind `spandrel-`.
fn capture(name: &str) -> Option<CaptureSizes> {
    let usual = CaptureSizes::default();
    Some(match name.strip_prefix("spandrel-")? {
        "repeats" => CaptureSizes { has_repeats: true, ..usual },
        "blocks" => CaptureSizes { range_bytes: usize::MAX, ..usual },
        bytes => CaptureSizes { block_bytes: bytes.parse().ok()?, ..usual },
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
    let sizes = capture(name);
    let open: Open<'_> = match name.as_str() {
        "spandrel" => &|directory, bytes| {
            Ok(Box::new(durable::OnState::open(directory, bytes, CaptureSizes::default())?))
        },
        "memory" => &|_, _| Ok(Box::<InMemory>::default()),
        "leveldb" => &|directory, _| Ok(Box::new(lsm::Lsm::open(&lsm::LEVELDB, directory)?)),
        "rocksdb" => &|directory, _| Ok(Box::new(lsm::Lsm::open(&lsm::ROCKSDB, directory)?)),
        "lmdb" => &|directory, bytes| Ok(Box::new(lmdb::Lmdb::open(directory, bytes)?)),
        _ if sizes.is_some() => &|directory, bytes| {
            let sizes = sizes.unwrap_or_default();
            Ok(Box::new(durable::OnState::open(directory, bytes, sizes)?))
        },
        _ => return Err(format!("store {name}: there are {}", NAMES.join(", "))),
    };
    spandrel_stores::run(rest, open).map(Value::Object)
}
