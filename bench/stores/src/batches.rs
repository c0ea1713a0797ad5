//! Jobs of redb's own benchmark that are no requests of one key.

use crate::Session;
use crate::job::Args;
use crate::keys::{self, Key, Request, Values, key};
use crate::load::{Done, load};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Keys of a batch.
const BATCH: usize = 1000;
/// Batches that are drawn before; a longer run repeats them.
const DRAWN: usize = 32;
/// Pairs of a range.
const PAIRS: usize = 10;

/// All keys, by batches.
pub fn bulk(args: &Args, session: &mut dyn Session) -> Result<Done, String> {
    let mut done = Done::new();
    load(args, session)?;
    done.operations = u64::from(args.keys);
    done.ended = Instant::now();
    Ok(done)
}

/// Batches of keys that are there; each key counts.
pub fn puts(
    args: &Args,
    session: &mut dyn Session,
    requests: &[Request],
    stop: &AtomicBool,
) -> Result<Done, String> {
    let mut values = Values::new(args.value);
    let batches: Vec<Vec<(Key, Vec<u8>)>> = requests
        .chunks(BATCH)
        .take(DRAWN)
        .map(|some| {
            let record = |of: &Request| (key(of.key()), values.of(of.key()).to_vec());
            some.iter().map(record).collect()
        })
        .collect();
    let mut done = Done::new();
    // One at least: the time goes on while batches are made.
    for batch in batches.iter().cycle() {
        let begun = Instant::now();
        session.load(batch)?;
        done.latencies.saturating_record(begun.elapsed().as_nanos() as u64);
        done.operations += batch.len() as u64;
        if stop.load(Relaxed) {
            break;
        }
    }
    done.ended = Instant::now();
    Ok(done)
}

/// Ranges from keys that are drawn on; each range counts.
pub fn ranges(
    args: &Args,
    session: &mut dyn Session,
    requests: &[Request],
    stop: &AtomicBool,
) -> Result<Done, String> {
    let expected = Values::new(args.value);
    let mut done = Done::new();
    for request in requests.iter().cycle().take_while(|_| !stop.load(Relaxed)) {
        let (mut next, mut wrong) = (request.key(), 0);
        let begun = Instant::now();
        session.range(&key(next), PAIRS, &mut |key, value| {
            wrong += usize::from(keys::number(key) != Some(next) || !expected.is_of(next, value));
            next += 1;
        })?;
        done.latencies.saturating_record(begun.elapsed().as_nanos() as u64);
        let seen = next - request.key();
        if wrong > 0 || seen != (u64::from(args.keys) - request.key()).min(PAIRS as u64) {
            return Err(format!("from key {} on {seen} pairs, {wrong} wrong", request.key()));
        }
        done.operations += 1;
    }
    done.ended = Instant::now();
    Ok(done)
}

/// Every other key, at once; each key counts.
pub fn removals(args: &Args, session: &mut dyn Session) -> Result<Done, String> {
    let keys: Vec<Key> = (0..u64::from(args.keys)).step_by(2).map(key).collect();
    let mut done = Done::new();
    session.remove(&keys)?;
    done.operations = keys.len() as u64;
    done.ended = Instant::now();
    let mut left = 0;
    session.scan(false, &mut |_, _| left += 1)?;
    let expected = u64::from(args.keys) - done.operations;
    if left == expected { Ok(done) } else { Err(format!("{left} keys are left, not {expected}")) }
}
