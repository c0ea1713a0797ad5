//! What happens to the files and the disk of an open state: directories that are renamed, disks that have no room.

use std::path::PathBuf;
use std::process::Command;

use spandrel::durable::{Durable, Error};

use super::{Accounts, open, places, small};

/// A command that is longer than the log of [`small`].
fn long(accounts: &mut Accounts) -> Result<(), spandrel::heap::Error> {
    (0..100_000).try_for_each(|n| accounts.log.push([n; 3]))
}

/// Runs the test again in a process of its own. `None`: this is that process.
fn in_a_process(name: &str) -> Option<()> {
    const MARK: &str = "SPANDREL_TEST_DURABLE_FAULTS";
    if std::env::var_os(MARK).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args([&format!("faults::{name}"), "--exact"]).env(MARK, "1");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    Some(())
}

/// The log that becomes longer is the state's own, and not that of a state which has the name by then.
#[test]
fn a_directory_that_is_renamed_keeps_its_state() {
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        let moved = path.with_extension("moved");
        std::fs::rename(&path, &moved).unwrap();
        let other = open(&path).unwrap();
        other.write(|s| s.of.insert(5, 5)).unwrap().unwrap();
        other.close().unwrap();
        let log = std::fs::read(path.join("log")).unwrap();
        db.write(long).unwrap().unwrap();
        db.write(|s| s.of.insert(1, 2)).unwrap().unwrap();
        db.close().unwrap();
        assert!(std::fs::read(path.join("log")).unwrap() == log, "another state's log");
        let all = |path| open(path).unwrap().read(|s| (s.of.get(&1), s.of.get(&5), s.log.len()));
        assert_eq!(all(&moved), (Some(2), None, 100_000));
        assert_eq!(all(&path), (None, Some(5), 0));
    }
}

#[test]
fn a_program_that_goes_to_another_directory_keeps_its_state() {
    if in_a_process("a_program_that_goes_to_another_directory_keeps_its_state").is_some() {
        return;
    }
    for (place, path) in places() {
        std::env::set_current_dir(place.path()).unwrap();
        let db = open("bank".as_ref()).unwrap();
        std::env::set_current_dir("/").unwrap();
        db.write(long).unwrap().unwrap();
        db.write(|s| s.of.insert(1, 2)).unwrap().unwrap();
        db.close().unwrap();
        let all = open(&path).unwrap().read(|s| (s.of.get(&1), s.log.len()));
        assert_eq!(all, (Some(2), 100_000));
    }
}

fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
}

/// A command is undone for which the log has no room to become longer. All others go on.
#[test]
fn a_log_that_cannot_become_longer_refuses_one_command() {
    if in_a_process("a_log_that_cannot_become_longer_refuses_one_command").is_some() {
        return;
    }
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
        for _ in 0..3 {
            limit_files(2 << 20);
            let why = db.write(long).unwrap_err();
            assert_eq!(why, Error::NoLongerLog(libc::EFBIG));
            assert!(why.to_string().contains("was undone; change less at once"), "{why}");
            assert_eq!(db.write(|s| s.of.insert(1, 2)).unwrap(), Ok(Some(1)));
            assert_eq!(db.write(|s| s.of.insert(1, 1)).unwrap(), Ok(Some(2)));
            assert_eq!(db.read(|s| s.log.len()), 0);
        }
        limit_files(libc::RLIM_INFINITY);
        db.write(long).unwrap().unwrap();
        db.close().unwrap();
        assert_eq!(open(&path).unwrap().read(|s| (s.of.get(&1), s.log.len())), (Some(1), 100_000));
    }
}

/// What a command has taken that is undone is given back: the state's file does not become longer by it.
#[test]
fn the_room_of_an_undone_command_is_given_back() {
    for (_place, path) in places() {
        let roomy = small().log_size(16 << 20);
        let db = Durable::open(&path, roomy, super::init).unwrap();
        let bytes = |path: &PathBuf| path.join("state").metadata().unwrap().len();
        for round in 0..3u64 {
            let refused = db.try_write(|s| {
                (0..200_000).try_for_each(|n| s.log.push([n; 3])).map_err(drop)?;
                Err::<(), _>(())
            });
            assert_eq!(refused, Ok(Err(())));
            // The memory that was given back is used again, and is zero.
            db.write(|s| (0..2000).try_for_each(|n| s.log.push([n, round, 7]))).unwrap().unwrap();
            let all = db.read(|s| s.log.iter().collect::<Vec<_>>());
            let entry = |at: u64| [at % 2000, at / 2000, 7];
            assert_eq!(all.len() as u64, (round + 1) * 2000);
            assert!(all.iter().enumerate().all(|(at, found)| *found == entry(at as u64)));
        }
        db.close().unwrap();
        assert!(bytes(&path) <= 2 << 20, "{}", bytes(&path));
        let db = open(&path).unwrap();
        assert_eq!(db.read(|s| s.log.len()), 6000);
        db.write(long).unwrap().unwrap();
        assert_eq!(db.read(|s| s.log.len()), 106_000);
    }
}

/// A log of one block: each command that is longer has it become longer.
#[test]
fn the_shortest_log_is_enough_to_begin_with() {
    for (_place, path) in places() {
        let db = Durable::open(&path, small().log_size(1), super::init).unwrap();
        for key in 0..50 {
            assert_eq!(db.write(|s| s.of.insert(key, key)).unwrap(), Ok(None));
        }
        drop(db);
        assert_eq!(open(&path).unwrap().read(|s| s.of.len()), 50);
    }
}

/// Commands of three fifths of the log fit it one by one, though the last record of a log is kept.
#[test]
fn commands_that_fit_the_log_need_no_longer_one() {
    const ENTRIES: u64 = 24_000;
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        for part in 0..24 {
            let some = |s: &mut Accounts| (0..1000).try_for_each(|at| s.log.push([part, at, 0]));
            db.write(some).unwrap().unwrap();
        }
        let bytes = || path.join("log").metadata().unwrap().len();
        let before = bytes();
        for round in 1..5 {
            let all = |s: &mut Accounts| {
                (0..ENTRIES).try_for_each(|at| s.log.set(at as usize, [round, at, 1]).map(drop))
            };
            db.write(all).unwrap().unwrap();
        }
        assert_eq!(bytes(), before, "a longer log was made");
        db.close().unwrap();
        let db = open(&path).unwrap();
        assert!(db.read(|s| s.log.iter().eq((0..ENTRIES).map(|at| [4, at, 1]))));
    }
}

#[test]
fn the_shortest_log_is_enough_to_close() {
    for (_place, path) in places() {
        for round in 0..3 {
            let db = Durable::open(&path, small().log_size(1), super::init).unwrap();
            assert!(db.report().was_closed);
            db.write(|s| s.of.insert(round, 1)).unwrap().unwrap();
            db.close().unwrap();
        }
    }
}

#[test]
fn what_init_makes_may_be_longer_than_the_log() {
    for (_place, path) in places() {
        for is_there in [false, true] {
            let db = Durable::open(&path, small(), |arena| {
                let mut accounts = super::init(arena)?;
                if accounts.log.is_empty() {
                    long(&mut accounts)?;
                }
                Ok(accounts)
            });
            let db = db.unwrap();
            assert_eq!(db.report().created, !is_there);
            assert_eq!(db.read(|s| s.log.len()), 100_000);
            db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
            drop(db);
        }
        assert_eq!(open(&path).unwrap().read(|s| (s.log.len(), s.of.get(&1))), (100_000, Some(1)));
    }
}
