//! What other threads store for a command, and what a command stores that only reads: it is durable as well, at once or after a while.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use spandrel::durable::{Options, Plain, Stores};

use crate::children::child;
use crate::states::{is_translated, open, options};

/// Pages of it are longer than the shortest log.
const LEN: usize = 40_000;

#[derive(Default)]
pub struct Row {
    all: Vec<u64>,
    reads: AtomicU64,
}

/// A part of a row, for a worker.
struct Part(*mut u64, usize);

// SAFETY: the command waits for the worker.
unsafe impl Send for Part {}

/// A worker that sleeps until it has something to do. What it needs lies outside of the state.
#[derive(Default)]
struct Sleeper {
    part: Mutex<Option<Part>>,
    has_changed: Condvar,
}

impl Sleeper {
    fn work(&self) {
        let mut place = self.part.lock().unwrap();
        loop {
            if let Some(Part(at, len)) = place.take() {
                // SAFETY: the command waits.
                unsafe { std::slice::from_raw_parts_mut(at, len).fill(7) };
                self.has_changed.notify_all();
            }
            place = self.has_changed.wait(place).unwrap();
        }
    }

    /// Has the worker fill the row, and waits for it.
    fn fill(&self, row: &mut [u64]) {
        let mut place = self.part.lock().unwrap();
        *place = Some(Part(row.as_mut_ptr(), row.len()));
        self.has_changed.notify_all();
        while place.is_some() {
            place = self.has_changed.wait(place).unwrap();
        }
    }
}

static SLEEPER: Sleeper = Sleeper { part: Mutex::new(None), has_changed: Condvar::new() };

/// A worker that never sleeps: no system call tells of it.
static AWAKE: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

fn work_awake() {
    loop {
        let at = AWAKE.0.load(Acquire);
        if at != 0 {
            // SAFETY: the command waits.
            unsafe {
                std::slice::from_raw_parts_mut(at as *mut u64, AWAKE.1.load(Relaxed)).fill(7)
            };
            AWAKE.0.store(0, Release);
        }
        std::hint::spin_loop();
    }
}

fn fill_awake(row: &mut [u64]) {
    AWAKE.1.store(row.len(), Relaxed);
    AWAKE.0.store(row.as_mut_ptr() as usize, Release);
    while AWAKE.0.load(Acquire) != 0 {
        std::hint::spin_loop();
    }
}

fn made(path: &Path, options: Options) -> Plain<Row> {
    made_of(path, options, LEN)
}

fn made_of(path: &Path, options: Options, len: usize) -> Plain<Row> {
    let db = Plain::open(path, options.log_size(1 << 16), Row::default).unwrap();
    db.write(|row| row.all = vec![1; len]).unwrap();
    db
}

/// Numbers of a row that nearly fills a log of 1 MiB, and of those the ones that a thread stores unseen: a sixteenth of the log.
const CROWD: usize = 135_000;
const UNSEEN: usize = 8192;

/// What a child does: it ends without closing the state, but for the last kind.
pub fn run(path: &Path, kind: &str) {
    let db = made(path, options());
    match kind {
        "begun" => {
            let fill = |row: &mut Row| {
                std::thread::scope(|scope| {
                    for part in row.all.chunks_mut(LEN / 4) {
                        scope.spawn(move || part.fill(7));
                    }
                });
            };
            db.write(fill).unwrap();
        }
        "woken" => {
            std::thread::spawn(|| SLEEPER.work());
            std::thread::sleep(Duration::from_millis(50));
            // The second time it may be awake yet.
            db.write(|row| SLEEPER.fill(&mut row.all[..LEN / 2])).unwrap();
            db.write(|row| SLEEPER.fill(&mut row.all[LEN / 2..])).unwrap();
        }
        "awake" => {
            std::thread::spawn(work_awake);
            std::thread::sleep(Duration::from_millis(50));
            db.write(|row| fill_awake(&mut row.all)).unwrap();
            // Found by the comparison that goes on all the time, and noted by the next command.
            std::thread::sleep(Duration::from_millis(3000));
            db.write(|_| ()).unwrap();
        }
        "quiet" => {
            // Nothing has run for longer than a comparison takes, and nothing is noted afterwards.
            std::thread::spawn(work_awake);
            std::thread::sleep(Duration::from_millis(3000));
            db.write(|row| fill_awake(&mut row.all)).unwrap();
            std::thread::sleep(Duration::from_millis(3000));
            db.write(|_| ()).unwrap();
        }
        "met late" => {
            // The thread has stored before the command awaits it.
            std::thread::spawn(work_awake);
            db.write(|row| {
                fill_awake(&mut row.all);
                std::thread::yield_now();
            })
            .unwrap();
        }
        "crowded" => {
            // The log has no room for both: what the command has stored, and what is found afterwards.
            drop(db);
            std::thread::spawn(work_awake);
            let db = Plain::open(path, options().log_size(1 << 20), Row::default).unwrap();
            db.write(|row| {
                row.all = Vec::with_capacity(CROWD);
                row.all.resize(UNSEEN, 1);
            })
            .unwrap();
            // The last record of this log would leave less room.
            db.close().unwrap();
            let db = Plain::open(path, options().log_size(1 << 20), Row::default).unwrap();
            std::thread::sleep(Duration::from_millis(3000));
            db.write(|row| {
                row.all.resize(CROWD, 7);
                fill_awake(&mut row.all[..UNSEEN]);
            })
            .unwrap();
            std::thread::sleep(Duration::from_millis(3000));
            db.write(|_| ()).unwrap();
            assert!(db.read(|row| row.all.iter().all(|number| *number == 7)));
        }
        "read" => {
            db.read(|row| row.reads.fetch_add(5, Relaxed));
            std::thread::sleep(Duration::from_millis(3000));
            db.write(|_| ()).unwrap();
        }
        "closed" => {
            std::thread::spawn(work_awake);
            db.write(|row| fill_awake(&mut row.all)).unwrap();
            db.read(|row| row.reads.fetch_add(5, Relaxed));
            db.close().unwrap();
        }
        _ => panic!("{kind}"),
    }
    std::process::abort();
}

/// The row and the number of a state whose program has ended, and what it has said.
fn left_by(kind: &str, place: &str) -> (bool, u64, String) {
    let directory = tempfile::tempdir_in(place).unwrap();
    let path = directory.path().join("state");
    let mut command = child("threads", &path);
    let output = command.arg(kind).stdout(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_aborted = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(is_aborted, Some(libc::SIGABRT), "{kind}: {said}");
    let db = open(&path, Row::default);
    let is_full = |row: &Row| row.all.len() == LEN && row.all.iter().all(|number| *number == 7);
    let (is_full, reads) = db.read(|row| (is_full(row), row.reads.load(Relaxed)));
    (is_full, reads, said)
}

pub fn what_other_threads_store_for_a_command_is_durable() {
    let kinds =
        [("begun", "/dev/shm"), ("woken", "/tmp"), ("woken", "/dev/shm"), ("met late", "/tmp")];
    for (kind, place) in kinds {
        let (is_full, _, said) = left_by(kind, place);
        // At once, and not by the comparison that goes on all the time.
        assert!(is_full && !said.contains("was changed at"), "{kind}, {place}: {said}");
    }
}

pub fn what_is_stored_unseen_is_durable_later() {
    for (place, kind) in [("/tmp", "awake"), ("/dev/shm", "quiet")] {
        let (is_full, _, said) = left_by(kind, place);
        assert!(is_full, "{said}");
        // Pages see it at once.
        assert_eq!(said.contains("by another thread for one"), is_translated(), "{said}");
        let (_, reads, said) = left_by("read", place);
        assert_eq!(reads, 5, "{said}");
        let (is_full, reads, said) = left_by("closed", place);
        assert!(is_full && reads == 5, "{said}");
    }
}

pub fn what_is_stored_unseen_has_room_in_the_log() {
    for place in ["/tmp", "/dev/shm"] {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path().join("state");
        let output = child("threads", &path).arg("crowded").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ended = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(ended, Some(libc::SIGABRT), "{said}");
        let db = open(&path, Row::default);
        let sevens = db.read(|row| row.all.iter().filter(|number| **number == 7).count());
        assert_eq!(sevens, CROWD, "{place}: {said}");
    }
}

pub fn what_other_threads_store_for_an_undone_command_is_undone() {
    std::thread::spawn(work_awake);
    std::thread::spawn(|| SLEEPER.work());
    for options in [options(), Options::new().stores(Stores::Verified)] {
        // Of a few words the command's own stores lie in the same blocks.
        [3, LEN].into_iter().for_each(|len| undone_with(options, len));
    }
}

fn undone_with(options: Options, len: usize) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    let db = made_of(&path, options, len);
    // The last one is known by those before.
    for kind in ["begun", "woken", "awake"] {
        let panics = || {
            db.write(|row| {
                row.all.push(5);
                if kind == "begun" {
                    std::thread::scope(|scope| {
                        scope.spawn(|| row.all.fill(7));
                    });
                } else if kind == "woken" {
                    SLEEPER.fill(&mut row.all);
                } else {
                    fill_awake(&mut row.all);
                }
                panic!("on purpose");
            })
        };
        let outcome: Result<Result<(), _>, _> = catch_unwind(AssertUnwindSafe(panics));
        assert!(outcome.is_err());
        assert!(db.read(|row| row.all.iter().all(|number| *number == 1)), "{kind}");
        db.write(|row| row.all[0] = 1).unwrap();
    }
    db.close().unwrap();
    assert!(open(&path, Row::default).read(|row| row.all.iter().all(|number| *number == 1)));
}

pub fn threads_of_an_undone_command_have_ended() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let db = made(&directory.path().join("state"), options());
    let panics = || {
        db.write(|_| {
            let (numbers, is_done) = (Arc::new(vec![3; 1 << 20]), Arc::new(AtomicBool::new(false)));
            let (own, tells) = (numbers.clone(), is_done.clone());
            // As threads of the standard library do, it goes on for a moment when it is done for the command.
            std::thread::spawn(move || {
                tells.store(true, SeqCst);
                std::thread::sleep(Duration::from_millis(4));
                if own.len() != 1 << 20 || own.iter().any(|number| *number != 3) {
                    std::process::abort();
                }
            });
            while !is_done.load(SeqCst) {
                std::thread::yield_now();
            }
            panic!("on purpose");
        })
    };
    let outcome: Result<Result<(), _>, _> = catch_unwind(AssertUnwindSafe(panics));
    assert!(outcome.is_err());
    db.write(|row| row.all.fill(1)).unwrap();
    // A thread that has not ended does so now.
    std::thread::sleep(Duration::from_millis(60));
    db.close().unwrap();
}
