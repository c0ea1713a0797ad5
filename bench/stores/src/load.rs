//! Runs a job: threads in a closed loop.

use crate::job::{Args, Job};
use crate::keys::{self, Request, Spread, Values, key};
use crate::{Report, Session, Store, batches};
use hdrhistogram::Histogram;
use serde_json::Value;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Records that are loaded at a time.
const LOADED_AT_ONCE: usize = 1000;
/// The latency of one request in this number is measured: reading the clock takes as long as a short request.
const TIMED: usize = 8;
/// Requests are drawn before; a longer run repeats them.
const DRAWN_MOST: usize = 1 << 20;
/// Keys of a fill that are looked at afterwards.
const LOOKED_AT: u64 = 1000;

/// What a thread did.
pub struct Done {
    pub operations: u64,
    pub bytes: u64,
    pub latencies: Histogram<u64>,
    /// From its first request to the end of its last.
    begun: Instant,
    pub ended: Instant,
}

impl Done {
    pub fn new() -> Self {
        let now = Instant::now();
        Self { operations: 0, bytes: 0, latencies: histogram(), begun: now, ended: now }
    }
}

/// Runs a job on a fresh store.
pub fn run(args: &Args, store: Box<dyn Store>) -> Result<Report, String> {
    let fills = matches!(args.job, Job::FillSeq | Job::FillRandom);
    if !fills && args.job != Job::Bulk {
        load_all(args, &*store)?;
    }
    let mut before = Report::new();
    store.record(&mut before);
    let barrier = Barrier::new(args.threads + 1);
    let stop = AtomicBool::new(false);
    let mut cpu = Duration::ZERO;
    let all: Vec<Result<Done, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|thread| {
                let (store, barrier, stop) = (&*store, &barrier, &stop);
                scope.spawn(move || {
                    let requests = requests(args, thread);
                    let session = store.session();
                    barrier.wait();
                    let mut session = session?;
                    match args.job {
                        Job::ReadSeq | Job::ReadReverse => scans(args, &mut *session, stop),
                        Job::Bulk => batches::bulk(args, &mut *session),
                        Job::Batches => batches::puts(args, &mut *session, &requests, stop),
                        Job::Ranges => batches::ranges(args, &mut *session, &requests, stop),
                        Job::Removals => batches::removals(args, &mut *session),
                        _ => closed_loop(args, &mut *session, &requests, stop, fills),
                    }
                })
            })
            .collect();
        cpu = cpu_time();
        barrier.wait();
        let begun = Instant::now();
        let is_over = || threads.iter().all(|thread| thread.is_finished());
        let end = begun + Duration::from_millis(args.millis);
        while Instant::now() < end && !is_over() {
            std::thread::sleep(Duration::from_millis(1).min(end - begun));
        }
        stop.store(true, Relaxed);
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread has panicked".into())));
        joined.collect()
    });
    let cpu = cpu_time().saturating_sub(cpu);
    let all = all.into_iter().collect::<Result<Vec<Done>, String>>()?;
    let begun = all.iter().map(|done| done.begun).min();
    let ended = all.iter().map(|done| done.ended).max();
    let wall = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
    let mut report = Report::new();
    let (mut operations, mut bytes, mut latencies) = (0, 0, histogram());
    for done in all {
        operations += done.operations;
        bytes += done.bytes;
        latencies.add(&done.latencies).map_err(|why| why.to_string())?;
    }
    if operations == 0 || wall.is_zero() {
        return Err("no request has ended within the time".into());
    }
    if fills || args.job == Job::Bulk {
        look(args, &*store, operations)?;
    }
    report.insert("operations".into(), operations.into());
    report.insert("bytes".into(), bytes.into());
    report.insert("wall_ns".into(), (wall.as_nanos() as u64).into());
    report.insert("cpu_ns".into(), (cpu.as_nanos() as u64).into());
    report.insert("rate".into(), (operations as f64 / wall.as_secs_f64()).into());
    for (name, part) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
        report.insert(name.into(), latencies.value_at_quantile(part).into());
    }
    let mut counted = Report::new();
    store.record(&mut counted);
    // What the load has counted is not the run's.
    for (name, value) in &mut counted {
        if let (Some(after), Some(before)) =
            (value.as_u64(), before.get(name).and_then(Value::as_u64))
        {
            *value = after.saturating_sub(before).into();
        }
    }
    report.append(&mut counted);
    store.close()?;
    Ok(report)
}

fn histogram() -> Histogram<u64> {
    // Up to 2^40 ns, with three digits.
    Histogram::new_with_bounds(1, 1 << 40, 3).expect("the bounds are a histogram's")
}

/// Each key's value, in the store's fastest way.
pub fn load_all(args: &Args, store: &dyn Store) -> Result<(), String> {
    load(args, &mut *store.session()?)
}

/// The same, by one thread's use of a store.
pub fn load(args: &Args, session: &mut dyn Session) -> Result<(), String> {
    let mut values = Values::new(args.value);
    let numbers: Vec<u64> = (0..u64::from(args.keys)).collect();
    // Fewer large ones, so that a batch stays small.
    let at_once = (LOADED_AT_ONCE * 100 / args.value.max(100)).max(1);
    numbers.chunks(at_once).try_for_each(|part| {
        let records: Vec<_> =
            part.iter().map(|number| (key(*number), values.of(*number).to_vec())).collect();
        session.load(&records)
    })
}

fn requests(args: &Args, thread: usize) -> Vec<Request> {
    let (spread, updates) = match args.job {
        Job::FillSeq => (Spread::Rising, 100),
        Job::FillRandom | Job::Overwrite => (args.spread, 100),
        _ => (args.spread, args.updates),
    };
    let of_thread = (args.keys as usize).div_ceil(args.threads).max(1);
    let count = if matches!(args.job, Job::Mixed | Job::Overwrite | Job::Batches | Job::Ranges) {
        DRAWN_MOST / args.threads
    } else {
        of_thread
    };
    keys::requests(spread, (thread, args.threads), args.keys, count.max(1), updates)
}

/// Requests one after the other, until the time or, for a fill, the requests are over.
fn closed_loop(
    args: &Args,
    session: &mut dyn Session,
    requests: &[Request],
    stop: &AtomicBool,
    fills: bool,
) -> Result<Done, String> {
    let (mut values, expected) = (Values::new(args.value), Values::new(args.value));
    let mut done = Done::new();
    let rounds = if fills { 1 } else { usize::MAX };
    for (turn, request) in
        requests.iter().cycle().take(requests.len().saturating_mul(rounds)).enumerate()
    {
        if stop.load(Relaxed) {
            break;
        }
        let (number, key) = (request.key(), key(request.key()));
        let begun = (turn % TIMED == 0).then(Instant::now);
        if request.is_update() {
            session.put(&key, values.of(number))?;
        } else {
            let mut is_right = false;
            let found = session.get(&key, &mut |value| is_right = expected.is_of(number, value))?;
            if !found || !is_right {
                return Err(format!(
                    "key {number}: {}",
                    if found { "a wrong value" } else { "lost" }
                ));
            }
        }
        if let Some(begun) = begun {
            done.latencies.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        done.operations += 1;
        done.bytes += (keys::KEY_BYTES + args.value) as u64;
    }
    done.ended = Instant::now();
    Ok(done)
}

/// All pairs, as often as there is time for.
fn scans(args: &Args, session: &mut dyn Session, stop: &AtomicBool) -> Result<Done, String> {
    let expected = Values::new(args.value);
    let mut done = Done::new();
    let falling = args.job == Job::ReadReverse;
    while !stop.load(Relaxed) {
        let begun = Instant::now();
        let (mut seen, mut wrong, mut last) = (0u64, 0u64, None);
        session.scan(falling, &mut |key, value| {
            let number = keys::number(key);
            let is_next = match (last, number) {
                (Some(last), Some(number)) if falling => number < last,
                (Some(last), Some(number)) => number > last,
                _ => true,
            };
            let is_right = is_next && number.is_some_and(|number| expected.is_of(number, value));
            wrong += u64::from(!is_right);
            (seen, last) = (seen + 1, number);
        })?;
        if wrong > 0 || seen != u64::from(args.keys) {
            return Err(format!("{seen} of {} pairs were seen, {wrong} wrong", args.keys));
        }
        done.latencies.saturating_record(begun.elapsed().as_nanos() as u64 / seen.max(1));
        done.operations += seen;
        done.bytes += seen * (keys::KEY_BYTES + args.value) as u64;
    }
    done.ended = Instant::now();
    Ok(done)
}

/// Whether what was put is there, by a sample of the keys.
pub fn look(args: &Args, store: &dyn Store, put: u64) -> Result<(), String> {
    let (mut session, expected) = (store.session()?, Values::new(args.value));
    let all = u64::from(args.keys);
    let step = (all / LOOKED_AT).max(1);
    let mut there = 0;
    for number in (0..all).step_by(step as usize) {
        let mut is_right = false;
        let found =
            session.get(&key(number), &mut |value| is_right = expected.is_of(number, value))?;
        if found && !is_right {
            return Err(format!("key {number}: a wrong value"));
        }
        there += u64::from(found);
    }
    // Keys that are drawn at random are drawn twice or never, and time may end the fill; of a full store every key is there.
    let is_full = args.job != Job::FillRandom && put >= all;
    // Of a store that was given few keys before its time was over the sample may have none.
    let has_many = put >= 20 * step;
    if there == 0 && has_many || is_full && there < all.div_ceil(step) {
        return Err(format!(
            "of {} keys that were looked for {there} are there",
            all.div_ceil(step)
        ));
    }
    Ok(())
}

/// Processor time of the process.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InMemory;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    fn on_memory(line: &str) -> Result<Report, String> {
        let line = format!("--directory /nowhere --keys 500 --millis 20 {line}");
        crate::run(&words(&line), &|_, _| Ok(Box::<InMemory>::default()))
    }

    #[test]
    fn every_job_does_something_on_a_map() {
        for job in ["fillseq", "fillrandom", "overwrite", "readseq", "readreverse"] {
            let report = on_memory(&format!("--job {job} --threads 2")).expect(job);
            assert!(report["operations"].as_u64() > Some(0) && report["rate"].as_f64() > Some(0.0));
        }
        for job in ["bulk", "batches", "ranges", "removals"] {
            let report = on_memory(&format!("--job {job}")).expect(job);
            assert!(report["operations"].as_u64() >= Some(250), "{job}: {report:?}");
        }
        let report = on_memory("--job mixed --updates 10 --spread zipf --threads 3").unwrap();
        assert!(report["p99_ns"].as_u64() >= report["p50_ns"].as_u64());
        assert_eq!(on_memory("--job fillseq").unwrap()["operations"].as_u64(), Some(500));
    }

    /// Forgets every third key, or what a value was.
    struct Bad(InMemory, bool);

    impl Store for Bad {
        fn session(&self) -> Result<Box<dyn Session + '_>, String> {
            Ok(Box::new(self))
        }
    }

    impl Session for &Bad {
        fn put(&mut self, key: &crate::Key, value: &[u8]) -> Result<(), String> {
            let is_third = keys::number(key).is_some_and(|number| number % 3 == 0);
            match (is_third, self.1) {
                (true, true) => Ok(()),
                (true, false) => (&self.0).put(key, &value[1..]),
                _ => (&self.0).put(key, value),
            }
        }

        fn load(&mut self, records: &[(crate::Key, Vec<u8>)]) -> Result<(), String> {
            records.iter().try_for_each(|(key, value)| self.put(key, value))
        }

        fn get(&mut self, key: &crate::Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
            (&self.0).get(key, see)
        }

        fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
            (&self.0).scan(falling, see)
        }

        fn range(
            &mut self,
            from: &crate::Key,
            most: usize,
            see: &mut dyn FnMut(&[u8], &[u8]),
        ) -> Result<(), String> {
            (&self.0).range(from, most, see)
        }

        fn remove(&mut self, keys: &[crate::Key]) -> Result<(), String> {
            (&self.0).remove(keys)
        }
    }

    #[test]
    fn a_store_that_loses_bytes_is_found_out() {
        for forgets in [true, false] {
            for job in ["fillseq", "readseq", "mixed --updates 1", "bulk", "ranges"] {
                let line = format!("--directory /nowhere --keys 500 --millis 20 --job {job}");
                let open = |_: &std::path::Path, _| {
                    Ok(Box::new(Bad(InMemory::default(), forgets)) as Box<dyn Store>)
                };
                assert!(crate::run(&words(&line), &open).is_err(), "{job}, {forgets}");
            }
        }
    }
}
