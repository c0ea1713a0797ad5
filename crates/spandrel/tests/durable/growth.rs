//! A log on a disk that is filled soon becomes longer, beside the commands.

use std::path::Path;
use std::time::{Duration, Instant};

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{Durable, Options};

/// The state is long enough for a log of four times the usual length.
const KEYS: u64 = 1200;
const VALUE_BYTES: usize = 64 << 10;
const USUAL_BYTES: u64 = 64 << 20;

fn open(path: &Path, options: Options) -> Durable<SortedBytes> {
    Durable::open(path, options.limit(1 << 30), |arena| SortedBytes::open(arena, "map")).unwrap()
}

/// One value of each key, in a round of that number.
fn write(db: &Durable<SortedBytes>, round: u8) {
    for first in (0..KEYS).step_by(16) {
        db.write(|map| {
            for key in first..KEYS.min(first + 16) {
                map.insert(&key.to_be_bytes(), &vec![round; VALUE_BYTES]).unwrap();
            }
        })
        .unwrap();
    }
}

fn log_bytes(path: &Path) -> u64 {
    std::fs::metadata(path.join("log")).unwrap().len() / (1 << 20) * (1 << 20)
}

fn holds(db: &Durable<SortedBytes>, round: u8) {
    db.read(|map| {
        for key in 0..KEYS {
            let value = map.get(&key.to_be_bytes()).unwrap();
            assert!(value.len() == VALUE_BYTES && value.iter().all(|byte| *byte == round));
        }
    });
}

#[test]
fn a_log_that_is_filled_soon_becomes_longer() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let db = open(&path, Options::new());
    if !db.medium().contains("write") {
        // The directory lies in memory: nothing waits for a disk.
        return;
    }
    let begin = Instant::now();
    let mut round = 0u8;
    while log_bytes(&path) == USUAL_BYTES {
        assert!(begin.elapsed() < Duration::from_secs(90), "{round} rounds");
        round = round.wrapping_add(1);
        write(&db, round);
    }
    assert!(round > 0 && log_bytes(&path) >= 2 * USUAL_BYTES, "{}", log_bytes(&path));
    // It goes on in the longer one.
    write(&db, 77);
    let copy = place.path().join("copy");
    db.copy(&copy).unwrap();
    holds(&db, 77);
    db.close().unwrap();
    // One after the other: the copy lies at the same addresses.
    for path in [path, copy] {
        super::verified(&path);
        holds(&open(&path, Options::new()), 77);
    }
}

#[test]
fn a_log_whose_length_was_said_stays() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let db = open(&path, Options::new().log_size(32 << 20));
    (1..=4).for_each(|round| write(&db, round));
    assert_eq!(log_bytes(&path), 32 << 20);
    holds(&db, 4);
}
