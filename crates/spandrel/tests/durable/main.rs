//! A durable state: what a write has returned is there after any kill, and what does not fit is refused with a reason.

mod aborts;
mod bytes;
mod copies;
mod faults;
mod growth;
mod histories;
mod injected;
mod kills;
mod power;
mod refused;
mod traced;
mod verdicts;
mod versions;
mod waits;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use spandrel::durable::collections::{HashMap, Open as _, Vector};
use spandrel::durable::{Arena, Durable, Error, OpenError, Opening, Options};

struct Accounts {
    of: HashMap<u64, u64>,
    log: Vector<[u64; 3]>,
}

fn init(arena: &Arc<Arena>) -> Result<Accounts, spandrel::heap::Error> {
    let of = HashMap::open(arena, "accounts")?;
    Ok(Accounts { of, log: Vector::open(arena, "log")? })
}

fn small() -> Options {
    Options::new().log_size(1 << 20).limit(1 << 30)
}

fn open(path: &Path) -> Result<Durable<Accounts>, OpenError> {
    Durable::open(path, small(), init)
}

/// The files of a state that no program has open fit each other, and its heap is sound.
fn verified(path: &Path) {
    use std::os::unix::ffi::OsStrExt as _;
    let paths = spandrel_durable::directory::Paths::new(path.as_os_str().as_bytes()).unwrap();
    let verified = spandrel_durable::verify::verify(&paths, &mut |_, _| ()).unwrap();
    assert_eq!((verified.compared.differing, verified.compared.first), (0, None), "{path:?}");
    let mut found = Vec::new();
    let survey =
        spandrel_pheap::check(&verified.memory, &[], &mut |finding| found.push(*finding)).unwrap();
    assert_eq!(survey.damaged, 0, "{path:?}: {found:?}");
}

/// On a disk, and in memory that outlives processes.
fn places() -> Vec<(tempfile::TempDir, PathBuf)> {
    let disk = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    [disk, memory]
        .map(|place| (place.path().join("bank"), place))
        .map(|(path, place)| (place, path))
        .into()
}

/// Panics on purpose say nothing; all others do.
fn expect_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&"on purpose") {
                usual(panic);
            }
        }));
    });
}

#[test]
fn a_state_is_there_the_next_time_closed_or_not() {
    for (_place, path) in places() {
        for round in 0..5u64 {
            let db = open(&path).unwrap();
            assert_eq!(db.report().created, round == 0);
            assert!(db.report().was_closed);
            assert_eq!(db.read(|s| (s.of.len() as u64, s.log.len() as u64)), (round * 100, round));
            for number in 0..100 {
                let key = round * 100 + number;
                assert_eq!(db.write(|s| s.of.insert(key, key * 2)).unwrap(), Ok(None));
            }
            db.write(|s| s.log.push([round; 3])).unwrap().unwrap();
            assert!(db.figures().batches >= 101, "{:?}", db.figures());
            if round % 2 == 0 { db.close().unwrap() } else { drop(db) }
        }
        // A closed state is a heap like any other.
        let heap = path.join("state");
        let (heap, opened) = spandrel::heap::Options::new().open(&heap).unwrap();
        assert!(opened.was_clean);
        let map =
            spandrel::heap::collections::HashMap::<u64, u64>::open(&heap, "accounts").unwrap();
        assert_eq!((map.len(), map.get(&499)), (500, Some(998)));
    }
}

#[test]
fn a_command_whose_error_undoes_it_leaves_nothing() {
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
        let refused = db.try_write(|s| {
            s.of.insert(1, 2).unwrap();
            s.of.insert(2, 2).unwrap();
            Err::<(), _>("refused")
        });
        assert_eq!(refused, Ok(Err("refused")));
        assert_eq!(db.read(|s| (s.of.get(&1), s.of.get(&2))), (Some(1), None));
        assert_eq!(db.try_write(|s| s.of.insert(2, 3).map_err(drop)), Ok(Ok(None)));
        db.close().unwrap();
        let db = open(&path).unwrap();
        assert_eq!(db.read(|s| (s.of.get(&1), s.of.get(&2))), (Some(1), Some(3)));
    }
}

#[test]
fn what_is_made_between_recovery_and_the_first_command_is_there_whole_or_not_at_all() {
    for (_place, path) in places() {
        for (is_finished, is_there) in [(false, false), (true, false), (true, true)] {
            let opening = Opening::begin(&path, Options::new()).unwrap();
            let arena = Arc::clone(opening.arena());
            assert_eq!(arena.find_root("made").unwrap().is_some(), is_there);
            if !is_there {
                let object = arena.alloc_zeroed(100).unwrap();
                let root = arena.named_root_of("made", 0).unwrap();
                arena.set_root(root, Some(object)).unwrap();
            }
            drop(arena);
            if is_finished {
                opening.finish(|_| Ok(())).unwrap().close().unwrap();
            }
        }
    }
}

#[test]
fn threads_read_and_write_at_once() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let db = open(&place.path().join("bank")).unwrap();
    db.write(|s| (0..8).try_for_each(|key| s.of.insert(key, 100).map(drop))).unwrap().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                let mut client = db.client();
                for turn in 0..500u64 {
                    let (from, to) = ((thread + turn) % 8, (thread + turn * 3 + 1) % 8);
                    client
                        .write(|s| {
                            let (a, b) = (s.of.get(&from).unwrap_or(0), s.of.get(&to).unwrap_or(0));
                            if from != to && a > 0 {
                                s.of.insert(from, a - 1)?;
                                s.of.insert(to, b + 1)?;
                            }
                            s.log.push([thread, from, to])
                        })
                        .unwrap()
                        .unwrap();
                    let sum: u64 = client.read(|s| (0..8).filter_map(|key| s.of.get(&key)).sum());
                    assert_eq!(sum, 800, "a reader has seen half of a command");
                }
            });
        }
    });
    assert_eq!(db.read(|s| s.log.len()), 2000);
    let figures = db.figures();
    assert!(figures.batches <= 2002 && figures.bytes > 0, "{figures:?}");
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bank");
    let db = open(&path).unwrap();
    let refused = open(&path).unwrap_err();
    assert_eq!(refused.why, Error::Locked);
    assert!(refused.to_string().starts_with(path.to_str().unwrap()), "{refused}");
    db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
    // A store outside of a write.
    let stray = Arc::new(std::sync::Mutex::new(None));
    let other = Arc::clone(&stray);
    drop(db);
    let db = Durable::open(&path, small(), |arena| {
        *other.lock().unwrap() = Some(Arc::clone(arena));
        init(arena)
    })
    .unwrap();
    let arena = stray.lock().unwrap().take().unwrap();
    HashMap::<u64, u64>::open(&arena, "stray").unwrap().insert(1, 1).unwrap();
    drop(arena);
    assert_eq!(db.write(|s| s.of.insert(2, 2)).err(), Some(Error::Stray));
    assert_eq!(db.read(|s| s.of.get(&2)), None, "a read sees what was refused");
    drop(db);
    let db = open(&path).unwrap();
    assert_eq!(db.read(|s| (s.of.get(&1), s.of.get(&2))), (Some(1), None));
    db.close().unwrap();
    // Another program's types.
    let made = Durable::open(path.join("layout"), small().layout(7), init).unwrap();
    drop(made);
    let refused = Durable::open(path.join("layout"), small().layout(8), init).unwrap_err();
    assert_eq!(refused.why, Error::Layout { state: 7, given: 8 });
    // A state that says nothing of its types is not one of a program that does.
    let refused = Durable::open(&path, small().layout(8), init).unwrap_err();
    assert_eq!(refused.why, Error::Layout { state: 0, given: 8 });
    // Files that are missing or damaged.
    std::fs::rename(path.join("state"), path.join("kept")).unwrap();
    assert_eq!(open(&path).unwrap_err().why, Error::MissingState);
    std::fs::rename(path.join("kept"), path.join("state")).unwrap();
    std::fs::rename(path.join("log"), path.join("kept")).unwrap();
    assert_eq!(open(&path).unwrap().read(|s| s.of.get(&1)), Some(1), "a closed state needs no log");
    std::fs::write(path.join("log"), "no log at all, but some bytes").unwrap();
    assert_eq!(open(&path).unwrap_err().why, Error::NotALog);
    std::fs::rename(path.join("kept"), path.join("log")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(open(&path).unwrap_err().why, Error::Shared(0o777));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::set_permissions(path.join("log"), PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(open(&path).unwrap_err().why, Error::Shared(0o666));
}

#[test]
fn a_transaction_within_a_write_is_undone() {
    struct Kept {
        arena: Arc<Arena>,
        of: HashMap<u64, u64>,
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("kept");
    let open = || {
        Durable::open(&path, small(), |arena| {
            Ok(Kept { arena: Arc::clone(arena), of: HashMap::open(arena, "of")? })
        })
        .unwrap()
    };
    let db = open();
    db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
    let undone = db.write(|s| {
        let Kept { arena, of } = s;
        arena.transaction(|| {
            of.insert(1, 2)?;
            of.insert(2, 2)?;
            Err::<(), _>(spandrel::heap::Error::Full)
        })
    });
    assert_eq!(undone, Ok(Err(spandrel::heap::Error::Full)));
    let done = db.write(|s| {
        let Kept { arena, of } = s;
        arena.transaction(|| of.insert(3, 3).map(drop))
    });
    assert_eq!(done, Ok(Ok(())));
    let all = |db: &Durable<Kept>| db.read(|s| [1, 2, 3].map(|key| s.of.get(&key)));
    assert_eq!(all(&db), [Some(1), None, Some(3)]);
    db.close().unwrap();
    assert_eq!(all(&open()), [Some(1), None, Some(3)]);
}

/// Commands that panic, and such as are longer than the log, among others that are neither: nothing is there of those that panic, and all of the others.
#[test]
fn a_command_that_panics_is_undone_and_the_others_run() {
    const THREADS: u64 = 6;
    const TURNS: u64 = 30;
    expect_panics();
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        db.write(|s| (0..1000).try_for_each(|key| s.of.insert(1_000_000 + key, key).map(drop)))
            .unwrap()
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let db = &db;
                scope.spawn(move || {
                    let mut client = db.client();
                    for turn in 0..TURNS {
                        let key = thread * 1000 + turn;
                        let panics = (thread + turn) % 7 == 0;
                        let is_long = (thread + turn) % 19 == 5;
                        let command = std::panic::AssertUnwindSafe(|s: &mut Accounts| {
                            s.of.insert(key, key + 1).unwrap();
                            s.log.push([thread, turn, 0]).unwrap();
                            if panics {
                                for other in 0..200 {
                                    s.of.remove(&(1_000_000 + other)).unwrap();
                                    s.of.insert(2_000_000 + other, 1).unwrap();
                                }
                                panic!("on purpose");
                            }
                            if is_long {
                                (0..40_000).for_each(|n| {
                                    s.of.insert(3_000_000 + n, n).unwrap();
                                });
                            }
                            turn
                        });
                        let call = std::panic::AssertUnwindSafe(|| client.write(|s| command(s)));
                        match std::panic::catch_unwind(call) {
                            Err(_) => assert!(panics),
                            Ok(Err(why)) => panic!("{why:?}"),
                            Ok(Ok(result)) => assert!(!panics && result == turn),
                        }
                    }
                });
            }
        });
        let check = |db: &Durable<Accounts>| {
            db.read(|s| {
                let mut count = 0;
                for thread in 0..THREADS {
                    for turn in 0..TURNS {
                        let is_there = (thread + turn) % 7 != 0;
                        let key = thread * 1000 + turn;
                        let expected = is_there.then_some(key + 1);
                        assert_eq!(s.of.get(&key), expected, "{thread} {turn}");
                        count += u64::from(is_there);
                    }
                }
                assert_eq!((s.of.len() as u64, s.log.len() as u64), (1000 + 40_000 + count, count));
            });
        };
        check(&db);
        db.close().unwrap();
        let db = open(&path).unwrap();
        check(&db);
        db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
    }
}

/// Where the address space is limited less is reserved, and the state works.
#[test]
fn a_limit_of_the_address_space() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_LIMITED";
    if let Some(path) = std::env::var_os(CHILD) {
        let open = || Durable::open(Path::new(&path), Options::new().log_size(1 << 20), init);
        for round in 0..2 {
            let db = open().unwrap();
            assert_eq!(db.write(|s| s.of.insert(1, round)).unwrap().unwrap(), round.checked_sub(1));
        }
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let limited =
        format!("ulimit -v 2000000; exec {} a_limit_of_the_address_space --exact", test.display());
    let mut command = Command::new("sh");
    let command = command.args(["-c", &limited]).env(CHILD, place.path().join("bank"));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

/// The child of a fork is refused, and harms neither the log nor the lock of its parent.
#[test]
fn a_child_of_a_fork_is_refused_and_harms_nothing() {
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        for turn in 0..20u64 {
            db.write(|s| s.of.insert(turn, turn)).unwrap().unwrap();
            // SAFETY: the child calls what a forked child of this library may, and ends.
            let child = unsafe { fork() };
            if child == 0 {
                let refused = db.write(|s| s.of.insert(turn, 99).map(drop)) == Err(Error::Forked);
                let refused = refused && db.close() == Err(Error::Forked);
                // SAFETY: ends the child at once.
                unsafe { _exit(if refused { 7 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: the status is writable.
            assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
            assert_eq!(status >> 8 & 0xff, 7);
            assert_eq!(open(&path).unwrap_err().why, Error::Locked, "still the parent's");
        }
        // As a kill leaves it.
        let copy = path.with_extension("copy");
        std::fs::create_dir(&copy).unwrap();
        for file in ["state", "log"] {
            std::fs::copy(path.join(file), copy.join(file)).unwrap();
        }
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o700)).unwrap();
        db.close().unwrap();
        let db = open(&copy).unwrap();
        assert_eq!(db.read(|s| (s.of.len(), s.of.get(&19))), (20, Some(19)));
    }
}

/// A command that opens a collection and is undone leaves a handle that leads to nothing: nothing is accepted any more, and nothing is harmed.
#[test]
fn an_undone_command_that_had_opened_a_collection_ends_writing() {
    struct Several {
        arena: Arc<Arena>,
        all: Vec<HashMap<u64, u64>>,
    }
    expect_panics();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("several");
    let open = || {
        Durable::open(&path, small(), |arena| {
            let first = HashMap::open(arena, "first")?;
            Ok(Several { arena: Arc::clone(arena), all: vec![first] })
        })
        .unwrap()
    };
    let db = open();
    // One that is not undone may.
    db.write(|s| HashMap::open(&s.arena, "second").map(|map| s.all.push(map))).unwrap().unwrap();
    db.write(|s| s.all[1].insert(1, 1)).unwrap().unwrap();
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.write(|s| {
            s.all.push(HashMap::open(&s.arena, "third").unwrap());
            panic!("on purpose");
        })
    }));
    assert!(panics.is_err());
    assert_eq!(db.write(|s| s.all[0].insert(1, 1)).err(), Some(Error::Undone));
    assert_eq!(db.close(), Err(Error::Undone));
    let db = open();
    db.write(|s| HashMap::open(&s.arena, "second").map(|map| s.all.push(map))).unwrap().unwrap();
    assert_eq!(db.read(|s| (s.all[0].len(), s.all[1].get(&1))), (0, Some(1)));
}

#[test]
fn a_log_is_made_longer_and_limits_of_files_are_errors() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bank");
    let long = |db: &Durable<Accounts>| {
        db.write(|s| (0..60_000).try_for_each(|key| s.of.insert(key, key).map(drop)))
    };
    let db = open(&path).unwrap();
    db.write(|s| s.of.insert(70_000, 7)).unwrap().unwrap();
    let log = || std::fs::metadata(path.join("log")).unwrap().len();
    assert_eq!(log(), (1 << 20) + 4096);
    assert_eq!(long(&db), Ok(Ok(())), "the log has become longer");
    assert!(log() > 2 << 20);
    for key in 0..1000 {
        db.write(|s| s.of.insert(key, 5)).unwrap().unwrap();
    }
    assert!(db.figures().batches > 1000);
    drop(db);
    let db = open(&path).unwrap();
    assert_eq!(
        db.read(|s| (s.of.len(), s.of.get(&70_000), s.of.get(&999))),
        (60_001, Some(7), Some(5))
    );
    assert_eq!(log(), (1 << 20) + 4096, "as long as is wanted");
    drop(db);
    for bytes in [1 << 50, u64::MAX] {
        let refused = Durable::open(place.path().join("huge"), small().log_size(bytes), init);
        assert!(matches!(refused.unwrap_err().why, Error::System(_)));
    }
    let refused = Durable::open(place.path().join("odd"), small().block_size(7), init);
    assert_eq!(refused.unwrap_err().why, Error::BlockSize(7));
}

/// `ulimit -f` is an error, and no signal.
#[test]
fn a_limit_of_files_is_an_error_and_no_signal() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_FILES";
    if let Some(path) = std::env::var_os(CHILD) {
        if let Ok(db) = open(Path::new(&path)) {
            let refused = (0..100_000u64).find_map(|key| db.write(|s| s.of.insert(key, 1)).err());
            assert!(refused.is_some());
        }
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bank");
    drop(open(&path).unwrap());
    let test = std::env::current_exe().unwrap();
    let name = "a_limit_of_files_is_an_error_and_no_signal";
    let limited = format!("ulimit -f 256; exec {} {name} --exact", test.display());
    let mut command = Command::new("sh");
    let done = command.args(["-c", &limited]).env(CHILD, &path).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    drop(open(&path).unwrap());
}

/// A field of the state that panics when it is dropped: the state is closed all the same.
#[test]
fn a_state_whose_drop_panics_is_closed() {
    struct Bad(HashMap<u64, u64>);
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    expect_panics();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bad");
    let open = || Durable::open(&path, small(), |arena| Ok(Bad(HashMap::open(arena, "of")?)));
    for round in 0..3u64 {
        let db = open().unwrap();
        assert!(db.report().was_closed);
        assert_eq!(db.write(|s| s.0.insert(1, round)).unwrap(), Ok(round.checked_sub(1)));
        let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.close()));
        assert!(closed.is_err());
    }
    // One that cannot be opened leaves nothing open.
    let refused =
        Durable::open(&path, small(), |_| Err::<Accounts, _>(spandrel::heap::Error::Full));
    assert!(refused.is_err());
    std::mem::forget(open().unwrap());
}

/// A result whose destructor panics when its command runs again: nothing half done is there.
#[test]
fn a_result_that_panics_when_it_is_dropped() {
    struct Bad(bool);
    impl Drop for Bad {
        fn drop(&mut self) {
            if self.0 && !std::thread::panicking() {
                panic!("on purpose");
            }
        }
    }
    expect_panics();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bank");
    let db = open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                for turn in 0..40 {
                    let call = || {
                        let outcome = db.write(|s| {
                            s.of.insert(thread * 1000 + turn * 2, 1).unwrap();
                            s.of.insert(thread * 1000 + turn * 2 + 1, 1).unwrap();
                            assert!(thread != 3, "on purpose");
                            Bad(thread == 2)
                        });
                        if let Ok(mut bad) = outcome {
                            bad.0 = false;
                        }
                    };
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
                }
            });
        }
    });
    let check = |db: &Durable<Accounts>| {
        db.read(|s| {
            for key in (0..4000).step_by(2) {
                assert_eq!(s.of.get(&key), s.of.get(&(key + 1)), "half of a command");
            }
        });
    };
    check(&db);
    drop(db);
    check(&open(&path).unwrap());
}

/// The allocator of this test is the system's.
#[test]
fn a_plain_state_is_refused_under_another_allocator() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let refused = spandrel::durable::Plain::open(&path, Options::new(), Vec::<u8>::new);
    assert_eq!(refused.unwrap_err().why, Error::Allocator);
    assert!(!path.exists());
}
