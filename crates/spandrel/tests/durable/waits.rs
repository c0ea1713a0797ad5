//! A batch is one durable wait: the kernel's calls of the threads that write are counted, and held against the figures.
//!
//! On a disk a batch is one write past the page cache, and a record that goes over the log's end is two. In memory that outlives the process it is none.

use std::path::Path;
use std::sync::Mutex;

use spandrel::durable::{Counts, Durable};
use spandrel_faults::{Calls, supervise};

use super::{Accounts, init, places, small};

/// Calls that write or sync.
const WAITS: [&str; 9] = [
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
];
/// A call that the library never makes: what comes between two of it is counted.
const MARK: &str = "truncate";

fn mark() {
    // SAFETY: a path that no file has.
    unsafe { libc::truncate(c"/nonexistent/mark".as_ptr(), 0) };
}

fn thread() -> u32 {
    // SAFETY: always safe.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// What was seen between the marks.
struct Seen {
    counts: Counts,
    /// Calls of the threads that write.
    waits: Vec<&'static str>,
    /// Syncs of the thread that brings batches into the state, in the calls and in the figures.
    syncs: (u64, u64),
}

/// The number of threads, of the commands of each, and of the entries that a command changes.
fn story(path: &Path, log_bytes: u64, (threads, commands, entries): (u64, u64, u64)) -> Seen {
    let run = |db: &Durable<Accounts>, writers: &Mutex<Vec<u32>>| {
        writers.lock().unwrap().push(thread());
        for number in 0..commands {
            let set = |s: &mut Accounts| {
                // Of lengths that differ, so that no place in the log is the end of all turns.
                let some = entries.saturating_sub(number % 3 * 100).max(1);
                (0..some).try_for_each(|at| s.log.set(at as usize, [number + 1, at, 7]).map(drop))
            };
            db.write(set).unwrap().unwrap();
        }
    };
    let writers = Mutex::default();
    let work = || {
        let db = Durable::open(path, small().log_size(log_bytes), init).unwrap();
        // One by one: none of these is longer than the log.
        for at in 0..entries {
            db.write(|s| s.log.push([0, at, 7])).unwrap().unwrap();
        }
        let before = db.figures();
        mark();
        run(&db, &writers);
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(|| run(&db, &writers))));
        });
        mark();
        let mut counts = db.figures();
        counts.batches -= before.batches;
        counts.durable_waits -= before.durable_waits;
        let syncs = db.state_syncs();
        db.close().unwrap();
        (counts, syncs)
    };
    let ((counts, syncs), calls) = supervise(None, "waits", work);
    let Calls { names, threads, .. } = calls;
    let marks: Vec<usize> = (0..names.len()).filter(|at| names[*at] == MARK).collect();
    let [from, to] = marks[..] else { panic!("{names:?}") };
    let writers = writers.into_inner().unwrap();
    let is_wait = |at: &usize| writers.contains(&threads[*at]) && WAITS.contains(&names[*at]);
    let waits = (from..to).filter(is_wait).map(|at| names[at]).collect();
    // Until the state was closed, as the figures of a moment may be beside those of the calls.
    let is_sync = |at: &usize| !writers.contains(&threads[*at]) && names[*at] == "fdatasync";
    let seen = (from..to).filter(is_sync).count() as u64;
    Seen { counts, waits, syncs: (seen, syncs) }
}

#[test]
fn a_batch_is_one_write_of_the_kernel_on_a_disk_and_none_in_memory() {
    for (number, (_place, path)) in places().into_iter().enumerate() {
        let is_written = number == 0;
        // The log has room for all, and no record goes over its end.
        let Seen { counts, waits, syncs } = story(&path, 4 << 20, (1, 300, 1));
        assert_eq!(counts.batches, 300);
        let expected = if is_written { vec!["pwrite64"; 300] } else { vec![] };
        assert_eq!(waits, expected, "{}", path.display());
        assert_eq!(counts.durable_waits, expected.len() as u64);
        assert!(syncs.0 <= syncs.1, "{syncs:?}");
    }
}

#[test]
fn threads_that_write_at_once_wait_once_for_a_batch() {
    for (number, (_place, path)) in places().into_iter().enumerate() {
        let Seen { counts, waits, .. } = story(&path, 16 << 20, (8, 100, 1));
        let expected = if number == 0 { counts.batches } else { 0 };
        assert!(counts.batches <= 800, "{counts:?}");
        assert_eq!((counts.durable_waits, waits.len() as u64), (expected, expected));
    }
}

/// Records of some pages in a log of 64 KiB, which has its end often.
#[test]
fn a_record_that_goes_over_the_end_of_the_log_is_two_writes() {
    for (number, (_place, path)) in places().into_iter().enumerate() {
        let Seen { counts, waits, syncs } = story(&path, 64 << 10, (1, 100, 400));
        assert_eq!(counts.batches, 100);
        assert_eq!(counts.durable_waits, waits.len() as u64);
        let over = waits.len() as u64 - if number == 0 { counts.batches } else { 0 };
        // 200 to 400 entries of 24 bytes are two or three pages of sixteen.
        let bounds = if number == 0 { 3..40 } else { 0..1 };
        assert!(bounds.contains(&over), "{over} of {counts:?}");
        assert!(syncs.0 > 0 && syncs.0 <= syncs.1, "{syncs:?}");
    }
}
