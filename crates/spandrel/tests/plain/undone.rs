//! Commands that are undone, and owners of parts of the state outside of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use spandrel::durable::{Error, Plain, outside};

use crate::states::open;

/// A text that does not fit where the empty one was.
fn text(number: usize) -> String {
    format!("text {number} ").repeat(10)
}

fn panics<S: Send + Sync>(db: &Plain<S>, command: impl Fn(&mut S) + Sync) {
    let run = || {
        db.write(|state| {
            command(state);
            panic!("on purpose");
        })
    };
    let outcome: Result<Result<(), Error>, _> = catch_unwind(AssertUnwindSafe(run));
    assert!(outcome.is_err());
}

/// The counter of an `Arc` lies in the state: a reader changes it, and what undoes a command must not change it back.
pub fn an_arc_outside_outlives_an_undone_command() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let db = open(&directory.path().join("state"), || (Arc::new(String::new()), 0u64));
    for round in 0..20 {
        db.write(|state| state.0 = Arc::new(text(round))).unwrap();
        let kept = db.read(|state| Arc::clone(&state.0));
        panics(&db, |state| {
            state.1 += 1;
            drop(Arc::clone(&state.0));
        });
        assert_eq!(Arc::strong_count(&kept), 2);
        for other in 1000..1010 {
            db.write(|state| state.0 = Arc::new(text(other))).unwrap();
        }
        assert_eq!((Arc::strong_count(&kept), &*kept), (1, &text(round)));
    }
}

/// Others of the batch panic, so that commands run again whose results were owners.
pub fn results_of_undone_commands_own_nothing() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, || (Arc::new(text(0)), 0u64));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let result = db.write(|state| {
                            state.1 += 1;
                            Arc::clone(&state.0)
                        });
                        assert_eq!(*result.unwrap(), text(0));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                panics(&db, |state| state.1 += 1);
            }
        });
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    // An owner that was dropped beside a batch which was undone may be counted still; none is missing.
    let seen = |state: &(Arc<String>, u64)| {
        assert!(Arc::strong_count(&state.0) >= 1);
        (state.0.to_string(), state.1)
    };
    assert_eq!(db.read(seen), (text(0), 900));
    for _ in 0..10 {
        db.write(|state| state.0 = Arc::new(text(0))).unwrap();
    }
    drop(db);
    assert_eq!(open(&path, || (Arc::new(String::new()), 0u64)).read(seen), (text(0), 900));
}

/// What a command frees where it allocates outside, or in a thread, is not freed when the command is undone.
pub fn what_an_undone_command_has_freed_is_there() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let db = open(&directory.path().join("state"), Vec::<String>::new);
    db.write(|all| all.extend((0..10).map(text))).unwrap();
    panics(&db, |all| {
        let taken = std::mem::take(&mut all[3]);
        outside(|| drop(taken));
    });
    panics(&db, |all| {
        let taken = std::mem::take(&mut all[4]);
        std::thread::scope(|scope| scope.spawn(|| drop(taken)).join().unwrap());
    });
    db.write(|all| all.extend((10..30).map(text))).unwrap();
    assert!(db.read(|all| all.iter().cloned().eq((0..30).map(text))));
    // What is freed so by a command that is kept is freed once.
    db.write(|all| {
        let mut taken: Vec<_> = all.drain(..20).collect();
        outside(|| taken.truncate(10));
        std::thread::scope(|scope| scope.spawn(|| drop(taken)).join().unwrap());
    })
    .unwrap();
    for round in 0..10 {
        db.write(|all| all.extend((0..10).map(|n| text(round * 10 + n)))).unwrap();
    }
    let (kept, added) = ((20..30).map(text), (0..100).map(text));
    assert!(db.read(|all| all.iter().cloned().eq(kept.chain(added))));
}

struct Notes<'d>(&'d Plain<Vec<String>>);

impl Drop for Notes<'_> {
    fn drop(&mut self) {
        self.0.write(|all| all.push(text(all.len()))).unwrap();
        // One that panics meanwhile is caught in the destructor.
        panics(self.0, Vec::clear);
    }
}

/// The program panics, and a destructor writes: what it allocates lies in the state all the same.
pub fn a_destructor_of_a_panicking_thread_writes() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Vec::<String>::new);
    for _ in 0..3 {
        let unwinds = catch_unwind(AssertUnwindSafe(|| {
            let _notes = Notes(&db);
            panic!("on purpose");
        }));
        assert!(unwinds.is_err());
    }
    assert_eq!(db.escaped(), None);
    drop(db);
    let db = open(&path, Vec::<String>::new);
    assert!(db.read(|all| all.iter().cloned().eq((0..3).map(text))));
}

struct RolledBack<'s>(&'s mut Vec<String>);

impl Drop for RolledBack<'_> {
    fn drop(&mut self) {
        self.0.push(text(7));
    }
}

/// A command catches a panic of its own. What is allocated while it unwinds lies outside of the state, which must not lead there.
pub fn a_command_that_keeps_what_a_panic_has_made_is_undone() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let db = open(&directory.path().join("state"), Vec::<String>::new);
    db.write(|all| all.reserve(10)).unwrap();
    let caught = |all: &mut Vec<String>, is_kept: bool| {
        let unwinds = catch_unwind(AssertUnwindSafe(|| {
            let _rolled_back = is_kept.then(|| RolledBack(all));
            std::panic::panic_any(7);
        }));
        assert!(unwinds.is_err());
    };
    let refused = catch_unwind(AssertUnwindSafe(|| db.write(|all| caught(all, true))));
    let payload = refused.unwrap_err();
    let said = payload.downcast_ref::<String>().map(String::as_str);
    let said = said.or(payload.downcast_ref::<&'static str>().copied()).unwrap();
    assert!(said.contains("caught a panic of its own"), "{said}");
    assert_eq!(db.read(Vec::len), 0);
    db.write(|all| {
        caught(all, false);
        all.push(text(1));
    })
    .unwrap();
    assert_eq!(db.read(Vec::clone), [text(1)]);
    assert_eq!(db.escaped(), None);
}

/// A child of a fork that returns from the command which has made it writes nothing.
pub fn a_command_that_forks_is_the_parents() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Vec::<String>::new);
    for round in 0..3 {
        let child = db.write(|all| {
            all.push(text(round));
            // SAFETY: the child ends below.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // Its allocations would be refused.
                all.iter_mut().for_each(|text| text.make_ascii_uppercase());
            }
            child
        });
        // SAFETY: the child ends without destructors; the parent waits for it.
        unsafe {
            match child {
                Ok(child) if child > 0 => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    assert_eq!(status, 0);
                }
                outcome => libc::_exit(i32::from(outcome != Err(Error::Forked))),
            }
        }
    }
    drop(db);
    assert!(open(&path, Vec::<String>::new).read(|all| all.iter().cloned().eq((0..3).map(text))));
}

/// A child of a fork drops the state of its parent, whose other threads were in the midst of commands.
pub fn a_child_that_drops_the_state_ends() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Vec::<String>::new);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let _ = scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    db.write(|all| *all = vec![text(1)]).unwrap();
                }
            });
        }
        for round in 0..500 {
            // SAFETY: the child drops its copy of the state and ends; the parent waits for it.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(10);
                    drop(std::ptr::read(&raw const db));
                    libc::_exit(0);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0, "child {round}");
            }
        }
        is_over.store(true, Relaxed);
    });
}

/// What was freed outside of commands does not stay allocated when the state is closed before the next one.
pub fn what_was_freed_before_the_end_is_free() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    for round in 0..40u8 {
        let db = open(&path, || Arc::new(Vec::new()));
        let kept = db.read(Arc::clone);
        db.write(|all| *all = Arc::new(vec![round; 1 << 20])).unwrap();
        drop(kept);
        db.close().unwrap();
    }
    let longest = std::fs::metadata(path.join("state")).unwrap().len();
    assert!(longest < 16 << 20, "{longest} bytes for one mebibyte");
}

type Owners = (Vec<Option<Arc<String>>>, Vec<u8>);

/// A command that is longer than the log is undone, and runs again with a longer one. What its result has counted in the state is undone with it.
pub fn the_result_of_a_command_that_is_too_long_counts_once() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let one = || {
        let one = Arc::new(text(0));
        (vec![Some(Arc::clone(&one)), Some(one)], Vec::new())
    };
    let db = open(&directory.path().join("state"), one);
    let taken = db.write(|state: &mut Owners| {
        state.1 = vec![7; 4 << 20];
        state.0[0].take()
    });
    let count = |state: &Owners| Arc::strong_count(state.0[1].as_ref().unwrap());
    assert_eq!(db.read(count), 2);
    drop(taken.unwrap());
    db.write(|state: &mut Owners| state.0.extend((1..20).map(|n| Some(Arc::new(text(n))))))
        .unwrap();
    let seen = |state: &Owners| (count(state), state.0[1].as_deref().cloned());
    assert_eq!(db.read(seen), (1, Some(text(0))));
    // The last owner.
    let before = db.write(|state| {
        state.1 = vec![8; 9 << 20];
        state.0[1].replace(Arc::new(text(30)))
    });
    assert_eq!(before.unwrap().as_deref(), Some(&text(0)));
    db.write(|state| state.0.push(Some(Arc::new(text(31))))).unwrap();
    let all =
        |state: &Owners| state.0.iter().flatten().map(|one| one.to_string()).collect::<Vec<_>>();
    let expected: Vec<_> = [30].into_iter().chain(1..20).chain([31]).map(text).collect();
    assert_eq!(db.read(all), expected);
}

/// More changes than the list of a batch has room for, each apart from the others.
pub fn a_command_that_changes_millions_of_places_is_durable() {
    const COUNT: usize = 4_300_000;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, || vec![[1u64; 8]; COUNT]);
    db.write(|all: &mut Vec<[u64; 8]>| all.iter_mut().for_each(|one| one[0] += 1)).unwrap();
    drop(db);
    let log = path.join("log").metadata().unwrap().len();
    assert!(log <= 2 << 30, "{log}");
    let db = open(&path, Vec::new);
    assert!(db.read(|all: &Vec<[u64; 8]>| all.len() == COUNT
        && all.iter().all(|one| one[0] == 2 && one[7] == 1)));
}

/// The command waits until the log is made that it needs.
pub fn a_long_command_has_a_log_that_is_little_longer() {
    const BYTES: usize = 320 << 20;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Vec::<u8>::new);
    db.write(|bytes| *bytes = vec![7; BYTES]).unwrap();
    let log = path.join("log").metadata().unwrap().len();
    assert!((BYTES as u64..BYTES as u64 + (300 << 20)).contains(&log), "{log}");
    // Another one of the length has room.
    db.write(|bytes| bytes.fill(8)).unwrap();
    assert_eq!(path.join("log").metadata().unwrap().len(), log);
    drop(db);
    let db = open(&path, Vec::<u8>::new);
    let expected = vec![8; BYTES];
    assert!(db.read(|bytes| *bytes == expected));
}

/// An owner that a reader had while a command changed the count, and that is gone: the next process counts the owners that the state has.
pub fn owners_outside_are_not_counted_after_them() {
    type Shared = (Arc<String>, Option<Arc<String>>, u64);
    for has_another_batch in [false, true] {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("state");
        let init = || (Arc::new(text(1)), None, 0);
        let db = open::<Shared>(&path, init);
        let kept = db.read(|state| Arc::clone(&state.0));
        db.write(|state| state.1 = Some(Arc::clone(&state.0))).unwrap();
        assert_eq!(Arc::strong_count(&kept), 3);
        drop(kept);
        if has_another_batch {
            db.write(|state| state.2 += 1).unwrap();
        }
        db.close().unwrap();
        let db = open::<Shared>(&path, init);
        assert_eq!(db.read(|state| Arc::strong_count(&state.0)), 2);
        db.close().unwrap();
    }
}

/// Far from the count of its owners.
struct Tally {
    _far: [u64; 32],
    dropped: std::sync::atomic::AtomicU64,
}

#[derive(Clone)]
struct Ticket(Arc<Tally>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Relaxed);
    }
}

/// A command's result is code of the program too: what its destructor stores to the state is durable.
pub fn what_a_result_stores_is_durable() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    let init = || Arc::new(Tally { _far: [0; 32], dropped: 0.into() });
    let db = open(&path, init);
    drop(db.write(|tally| Ticket(Arc::clone(tally))).unwrap());
    let dropped = |db: &Plain<Arc<Tally>>| db.read(|tally| tally.dropped.load(Relaxed));
    // That of the command itself, and its copy outside.
    assert_eq!(dropped(&db), 2);
    db.close().unwrap();
    let db = open(&path, init);
    assert!(dropped(&db) >= 1, "{}", dropped(&db));
    db.close().unwrap();
}
