//! The thread that brings the log into the state's file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spandrel_durable::control::{Control, FAULT};
use spandrel_durable::live::{Now, Publisher};
use spandrel_durable::replica::Replica;
use spandrel_durable::store::Files;
use spandrel_pmem::Failed;
use spandrel_redolog::Shape;

use super::copies::{Copies, Request};
use super::growth::Growth;
use super::scrub::Scrub;

/// A file that has what the log has is synced after this time without a batch.
const IDLE: Duration = Duration::from_millis(100);
/// How long the thread sleeps where writers go on. If each record woke it, each batch would take a system call more, and a processor from the program.
/// It is short beside the time in which a writer fills a log.
const NAP_MS: u32 = 1;
/// Records between two pieces of a copy, where the log fills: a piece takes as long as that number of records.
const TURNS: u32 = 64;
/// Bytes of records that are brought into the file before the thread looks at anything else: at positions to which the writers store, and at the clock.
const RUN_BYTES: u64 = 256 << 10;
/// Bytes of the log whose memory is free for others at a time.
const PASSED_BYTES: u64 = 1 << 20;
/// How long the thread sleeps at most.
const SLEEP_MS: u32 = 1000;
/// Figures for other processes are not written more often than this.
const FIGURES: Duration = Duration::from_secs(1);

/// Makes another piece of a copy, of a file that has all records that were read; the copy, if there is more of it to make.
fn piece(replica: &Replica<'_, Files>, making: Option<Request>) -> Option<Request> {
    let mut request = making?;
    if request.is_given_up() {
        return None;
    }
    let is_more = replica.copy(&mut request.copy);
    request.tell(replica.bytes());
    if is_more || request.least.is_none_or(|least| replica.at() < least) {
        return Some(request);
    }
    // The thread that has asked syncs it: commands may wait for this one. It may have ended.
    let _ = request.reply.send(replica.whole(request.copy));
    None
}

/// Follows the ring until the front end has ended. The writer of figures is returned for the next thread.
pub(super) fn follow(
    files: &'static Files,
    control: &Control,
    mut replica: Replica<'_, Files>,
    shape: Shape,
    (copies, growth, mut scrub): (&Copies, &Growth, Option<Scrub>),
    publisher: Publisher,
) -> Publisher {
    publish(&publisher, (files, control), &replica, shape, false);
    let mut making: Option<Request> = None;
    let followed = catch_unwind(AssertUnwindSafe(|| {
        let with = (copies, growth, &mut scrub, &mut making);
        follow_on(files, control, &mut replica, shape, with, &publisher)
    }));
    match followed {
        Ok(Ok(())) => publish(&publisher, (files, control), &replica, shape, true),
        Ok(Err(why)) => control.fail(why.0),
        // The front end must not wait. What the state's file has of the records after its last sync is for the next opening to find out, which begins at the tie.
        Err(_) => control.fail(FAULT),
    }
    if control.failure().is_some() {
        publish(&publisher, (files, control), &replica, shape, false);
    }
    // After the reason is known: threads that wait for a copy ask for it.
    drop(making);
    copies.end();
    if control.failure().is_some() {
        copies.close();
    }
    publisher
}

fn publish(
    publisher: &Publisher,
    (files, control): (&Files, &Control),
    replica: &Replica<'_, Files>,
    shape: Shape,
    is_closed: bool,
) {
    let (state_bytes, log_bytes, syncs) = (replica.bytes(), shape.capacity, files.syncs());
    publisher.publish(control, Now { state_bytes, log_bytes, syncs, is_closed });
}

fn follow_on(
    files: &Files,
    control: &Control,
    replica: &mut Replica<'_, Files>,
    shape: Shape,
    (copies, growth, scrub, making): (&Copies, &Growth, &mut Option<Scrub>, &mut Option<Request>),
    publisher: &Publisher,
) -> Result<(), Failed> {
    let lengthen = |bytes| files.lengthen(bytes);
    let (tail, _) = control.bells();
    let (mut settled, mut passed) = (replica.at(), replica.at());
    // Before the head moves, behind which the front end may write.
    let pass = |passed: &mut u64, to: u64, is_over: bool| {
        let free = files.ring().pass(shape, *passed, to, is_over);
        *passed = to;
        free
    };
    // Records that are not known to be in the file.
    let mut gathered = 0;
    let tell = |gathered: &mut u64, replica: &Replica<'_, Files>| {
        if replica.in_file() == replica.at() {
            control.note_in_file(replica.in_file(), std::mem::take(gathered));
        }
    };
    // `is_over`: the front end gets all room that there is.
    let settle =
        |settled: &mut u64, passed: &mut u64, replica: &mut Replica<'_, Files>, is_over| {
            *settled = replica.settle(false)?;
            control.release(*settled, pass(passed, *settled, is_over));
            Ok::<_, Failed>(())
        };
    let mut quiet_since = Instant::now();
    let mut turn = 0u32;
    // What the figures tell of, and whether memory was given back since the last record.
    let now = || (control.tail(), control.head(), control.applied());
    let (mut shown, mut shown_at, mut has_rested) = (now(), Instant::now(), true);
    loop {
        let (seen, seen_asks) = (tail.seen(), control.asks().seen());
        #[cfg(test)]
        tests::panic_if_wanted();
        let is_closing = control.is_closing();
        if now() != shown && shown_at.elapsed() >= FIGURES {
            (shown, shown_at) = (now(), Instant::now());
            publish(publisher, (files, control), replica, shape, false);
        }
        // Also where there is always another record.
        copies.accept(Instant::now());
        *making = making.take().or_else(|| copies.next());
        if let Some(request) = making {
            request.least.get_or_insert_with(|| control.tail());
        }
        if let Some(scrub) = scrub
            && (making.is_none() || turn.is_multiple_of(TURNS))
            && scrub.is_due()
        {
            scrub.step(files, replica)?;
            tell(&mut gathered, replica);
        }
        let (from, end) = (replica.at(), control.tail());
        if from < end {
            let is_alone = making.is_none();
            loop {
                replica.step(&lengthen, making.as_mut().map(|request| &mut request.copy))?;
                gathered += 1;
                let is_more = replica.at() < end && replica.at() - from < RUN_BYTES;
                if !(is_more && is_alone) || control.is_applied_awaited() {
                    break;
                }
            }
            has_rested = false;
            if control.is_applied_awaited() {
                replica.flush()?;
            }
            tell(&mut gathered, replica);
            quiet_since = Instant::now();
            if replica.at() - passed >= PASSED_BYTES {
                pass(&mut passed, replica.at(), false);
            }
            let is_due = replica.at() - settled > shape.capacity / 2;
            if is_due {
                growth.note_half(shape.capacity, replica.bytes());
            }
            let is_asked = control.take_asked();
            if is_due || is_asked {
                settle(&mut settled, &mut passed, replica, is_asked)?;
                tell(&mut gathered, replica);
            }
            // The log comes first where it fills; the copy goes on all the same.
            turn = turn.wrapping_add(1);
            let is_short = control.tail() - replica.at() < shape.capacity / 4;
            if making.is_some() && (is_short || turn.is_multiple_of(TURNS)) {
                replica.flush()?;
                *making = piece(replica, making.take());
            }
            continue;
        }
        if control.is_applied_awaited() || making.is_some() {
            replica.flush()?;
            tell(&mut gathered, replica);
        }
        if making.is_some() {
            // Writers wait for room in the log, and not for the copy.
            if control.free() != replica.at() && control.take_asked() {
                settle(&mut settled, &mut passed, replica, true)?;
            }
            *making = piece(replica, making.take());
            continue;
        }
        if is_closing {
            let settled = replica.settle(true)?;
            control.release(settled, settled);
            tell(&mut gathered, replica);
            return Ok(());
        }
        // Also where all is settled, and memory was kept until more follows.
        let is_behind = control.free() != replica.at();
        let is_quiet = quiet_since.elapsed() >= idle(shape.capacity);
        if is_behind && (control.take_asked() || is_quiet) {
            settle(&mut settled, &mut passed, replica, true)?;
            tell(&mut gathered, replica);
            continue;
        }
        if is_behind || !is_quiet {
            control.asks().wait(seen_asks, NAP_MS);
            continue;
        }
        if !has_rested {
            replica.rest();
            files.ring().forget(shape, passed, passed);
            control.release(passed, passed);
            has_rested = true;
            // As the files are at rest.
            (shown, shown_at) = (now(), Instant::now());
            publish(publisher, (files, control), replica, shape, false);
        }
        let idle_ms = scrub.as_ref().map_or(SLEEP_MS, Scrub::idle_ms).min(SLEEP_MS);
        if idle_ms > 0 {
            tail.wait(seen, idle_ms);
        }
    }
}

#[cfg(not(test))]
fn idle(_: u64) -> Duration {
    IDLE
}

#[cfg(test)]
use tests::idle;

#[cfg(test)]
mod tests {
    use std::prelude::v1::*;
    use std::sync::atomic::{AtomicBool, Ordering::*};
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use super::IDLE;
    use crate::durable::collections::{HashMap, Open as _, SortedBytes};
    use crate::durable::{Durable, Error, Options};

    /// The thread of the next state that looks panics: there is one test that has it so.
    static IS_WANTED: AtomicBool = AtomicBool::new(false);
    /// One test runs at a time: another one's thread would look.
    static ONE: Mutex<()> = Mutex::new(());

    pub(super) fn panic_if_wanted() {
        assert!(!IS_WANTED.swap(false, Relaxed), "on purpose");
    }

    /// Of a log of this length the thread never finds that commands have paused.
    const BUSY_BYTES: u64 = 24 << 20;

    pub(super) fn idle(capacity: u64) -> Duration {
        if capacity == BUSY_BYTES { Duration::from_secs(3600) } else { IDLE }
    }

    /// Not an error of the disk, and not a reason to wait for ever.
    #[test]
    fn a_fault_of_the_thread_of_the_log_has_words_of_its_own_and_loses_nothing() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        for place in ["/tmp", "/dev/shm"] {
            let place = tempfile::tempdir_in(place).unwrap();
            let open = || {
                let options = Options::new().log_size(64 << 10).limit(1 << 28);
                let init = |arena: &_| HashMap::<u64, u64>::open(arena, "map");
                Durable::open(place.path().join("state"), options, init).unwrap()
            };
            let db = open();
            db.write(|map| map.insert(1, 1)).unwrap().unwrap();
            IS_WANTED.store(true, Relaxed);
            let begun = Instant::now();
            // One record wakes the thread. More of them could fill the log before it runs.
            db.write(|map| map.insert(1, 1)).unwrap().unwrap();
            while IS_WANTED.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
            // Until the log is full nothing is refused.
            let refused = (2..10_000).find_map(|key| {
                let written = db.write(|map| map.insert(key, key));
                written.map_err(|why| (key, why)).err()
            });
            let (key, why) = refused.expect("a log that is full");
            assert_eq!(why, Error::Fault);
            assert!(
                why.to_string().contains("every command that has returned is durable"),
                "{why}"
            );
            assert_eq!(why.errno(), libc::EUCLEAN);
            // Reads go on, and see what is durable.
            assert_eq!(db.read(|map| (map.get(&(key - 1)), map.get(&key))), (Some(key - 1), None));
            assert_eq!(db.write(|map| map.insert(key, 0)), Err(Error::Fault));
            let copied = db.copy(place.path().join("copy")).unwrap_err();
            assert_eq!(copied.why, Error::Fault);
            assert_eq!(db.close(), Err(Error::Fault));
            let db = open();
            assert!(db.report().replayed > 0);
            assert!(db.read(|map| (2..key).all(|key| map.get(&key) == Some(key))));
            assert_eq!(db.read(|map| map.get(&key)), None);
            db.write(|map| map.insert(key, key)).unwrap().unwrap();
            db.close().unwrap();
        }
    }

    const VALUE_BYTES: usize = 5000;

    fn open_values(path: &std::path::Path, log: u64) -> Durable<SortedBytes> {
        let options = Options::new().log_size(log).limit(1 << 28);
        Durable::open(path, options, |arena| SortedBytes::open(arena, "map")).unwrap()
    }

    fn put(db: &Durable<SortedBytes>, key: u64) {
        let value = [key as u8; VALUE_BYTES];
        db.write(|map| map.insert(&key.to_be_bytes(), &value)).unwrap().unwrap();
    }

    fn holds(db: &Durable<SortedBytes>, keys: u64) -> bool {
        let has = |map: &SortedBytes, key: u64| {
            map.get(&key.to_be_bytes()).is_some_and(|value| value[..] == [key as u8; VALUE_BYTES])
        };
        db.read(|map| map.len() == keys as usize && (0..keys).all(|key| has(map, key)))
    }

    /// The log's memory is free by pieces, and the file needs records from within a piece on.
    #[test]
    fn commands_are_undone_where_the_thread_of_a_long_log_has_ended() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let path = place.path().join("state");
        let db = open_values(&path, BUSY_BYTES);
        let mut keys = 0;
        // Until more than half of the log was brought into the file.
        while keys * VALUE_BYTES as u64 * 3 < BUSY_BYTES * 2 {
            put(&db, keys);
            keys += 1;
        }
        IS_WANTED.store(true, Relaxed);
        while IS_WANTED.load(Relaxed) {
            put(&db, keys);
            keys += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..2 {
            let undone = db.try_write(|map| {
                map.insert(&0u64.to_be_bytes(), b"other").unwrap();
                map.insert(&u64::MAX.to_be_bytes(), b"other").unwrap();
                Err::<(), _>("on purpose")
            });
            assert_eq!(undone, Ok(Err("on purpose")));
            assert!(holds(&db, keys), "{keys}");
            put(&db, keys);
            keys += 1;
        }
        assert_eq!(db.close(), Err(Error::Fault));
        assert!(holds(&open_values(&path, BUSY_BYTES), keys));
    }

    /// A batch that needs all of the log gets it, also where all before it was settled, and a piece of memory was kept.
    #[test]
    fn a_batch_as_long_as_the_log_does_not_wait_for_a_pause() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = move || {
            let place = tempfile::tempdir_in("/tmp").unwrap();
            let db = open_values(&place.path().join("state"), BUSY_BYTES);
            let value = vec![7; BUSY_BYTES as usize - (128 << 10)];
            for _ in 0..5 {
                // A record of two pages each: the last one is the first behind the half, with which all is settled.
                for key in 0..BUSY_BYTES / 2 / 8192 + 1 {
                    put(&db, key);
                }
                std::thread::sleep(Duration::from_millis(200));
                db.write(|map| map.insert(b"long", &value)).unwrap().unwrap();
            }
            sender.send(()).unwrap();
        };
        let thread = std::thread::spawn(work);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(120)), Ok(()));
        thread.join().unwrap();
    }
}
