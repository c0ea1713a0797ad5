//! Copies of a state while the program goes on: each is a state of its own, as it was between two batches.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use spandrel::durable::Error;

use super::{Accounts, open, places};

/// Pieces of a copy: the state has some dozens.
const ENTRIES: u64 = 400_000;
const ACCOUNTS: u64 = 64;
const MONEY: u64 = 1000;

/// Moves money from one account to another, and notes it.
fn transfer(accounts: &mut Accounts, turn: u64) -> Result<u64, spandrel::heap::Error> {
    let (from, to) = (turn % ACCOUNTS, turn * 7 % ACCOUNTS);
    let of = |accounts: &Accounts, account| accounts.of.get(&account).unwrap_or(0);
    let amount = of(accounts, from).min(turn % 10);
    accounts.of.insert(from, of(accounts, from) - amount)?;
    accounts.of.insert(to, of(accounts, to) + amount)?;
    // Two places that are far from each other: a copy has one of them before the other.
    let place = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (ENTRIES / 2);
    for place in [place, place + ENTRIES / 2] {
        accounts.log.set(place as usize, [turn, amount, place % (ENTRIES / 2)])?;
    }
    accounts.log.push([turn, amount, !turn])?;
    Ok(accounts.log.len() as u64)
}

#[test]
fn copies_are_made_while_threads_write() {
    for (place, path) in places() {
        let db = open(&path).unwrap();
        for part in 0..ENTRIES / 10_000 {
            let made = db.write(|accounts| {
                let place = |entry| (part * 10_000 + entry) % (ENTRIES / 2);
                (0..10_000).try_for_each(|entry| accounts.log.push([0, 0, place(entry)]))
            });
            made.unwrap().unwrap();
        }
        let money = db.write(|accounts| {
            (0..ACCOUNTS).try_for_each(|account| accounts.of.insert(account, MONEY).map(drop))
        });
        money.unwrap().unwrap();
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(ENTRIES));
        let copies: Vec<_> = (0..4).map(|n| place.path().join(format!("copy {n}"))).collect();
        let least: Vec<u64> = std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (db, stop, acknowledged) = (&db, &stop, &acknowledged);
                scope.spawn(move || {
                    for turn in 0.. {
                        if stop.load(SeqCst) {
                            break;
                        }
                        let entries = db.write(|accounts| transfer(accounts, turn * 3 + thread));
                        acknowledged.fetch_max(entries.unwrap().unwrap(), SeqCst);
                    }
                });
            }
            let least = copies.iter().map(|copy| {
                let least = acknowledged.load(SeqCst);
                db.copy(copy).unwrap();
                // The program went on meanwhile: more was acknowledged than the copy has to have.
                assert!(acknowledged.load(SeqCst) > least);
                least
            });
            let least = least.collect();
            stop.store(true, SeqCst);
            least
        });
        let all = db.read(|accounts| accounts.log.len() as u64);
        db.close().unwrap();
        for (copy, least) in copies.iter().zip(least) {
            let db = open(copy).unwrap();
            let (entries, money) = db.read(|accounts| {
                for entry in accounts.log.iter().skip(ENTRIES as usize) {
                    assert_eq!(entry[0], !entry[2]);
                }
                let first = accounts.log.iter().take(ENTRIES as usize / 2);
                let second = accounts.log.iter().skip(ENTRIES as usize / 2);
                let differ = first.zip(second).filter(|(one, other)| one != other).count();
                assert_eq!(differ, 0, "half of a batch");
                (accounts.log.len() as u64, accounts.of.values().sum::<u64>())
            });
            assert!((least..=all).contains(&entries), "{least} <= {entries} <= {all}");
            assert_eq!(money, ACCOUNTS * MONEY);
            // A state like any other.
            let written = db.write(|accounts| transfer(accounts, 1));
            assert_eq!(written.unwrap().unwrap(), entries + 1);
            db.close().unwrap();
        }
    }
}

#[test]
fn a_copy_that_cannot_be_made_is_an_error_and_harms_nothing() {
    for (place, path) in places() {
        let db = open(&path).unwrap();
        db.write(|accounts| accounts.of.insert(1, 1)).unwrap().unwrap();
        let copy = place.path().join("copy");
        db.copy(&copy).unwrap();
        let why = db.copy(&copy).unwrap_err();
        assert!(why.why == Error::Occupied && why.to_string().contains("copy: the directory has"));
        assert_eq!(db.copy(&path).unwrap_err().why, Error::Occupied, "onto itself");
        let linked = place.path().join("linked");
        std::fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(&path, linked.join("state")).unwrap();
        assert_eq!(db.copy(&linked).unwrap_err().why, Error::NotAState);
        assert_eq!(
            db.copy(place.path().join("no/such")).unwrap_err().why,
            Error::System(libc::ENOENT)
        );
        let shared = place.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(db.copy(&shared).unwrap_err().why, Error::Shared(0o777));
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(db.copy(&file).unwrap_err().why, Error::NotADirectory);
        // Copies wait for nothing but the thread that makes them.
        let begun = Instant::now();
        db.copy(place.path().join("another")).unwrap();
        assert!(begun.elapsed().as_secs() < 5);
        db.write(|accounts| accounts.of.insert(1, 2)).unwrap().unwrap();
        db.close().unwrap();
        assert_eq!(open(&path).unwrap().read(|accounts| accounts.of.get(&1)), Some(2));
        assert_eq!(open(&copy).unwrap().read(|accounts| accounts.of.get(&1)), Some(1));
    }
}

/// What is left of a copy whose disk is full: nothing, and the state goes on.
#[test]
fn a_copy_beyond_the_limit_of_files_is_refused() {
    const MARK: &str = "SPANDREL_TEST_COPY";
    let (_place, path) = places().remove(0);
    let Some(path) = std::env::var_os(MARK) else {
        let own = std::env::current_exe().unwrap();
        let status = std::process::Command::new(own)
            .args(["--exact", "copies::a_copy_beyond_the_limit_of_files_is_refused"])
            .env(MARK, &path)
            .status();
        assert!(status.unwrap().success());
        return;
    };
    let path = std::path::PathBuf::from(path);
    let db = open(&path).unwrap();
    let made = db.write(|accounts| (0..100_000).try_for_each(|n| accounts.log.push([n; 3])));
    made.unwrap().unwrap();
    let limit = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    };
    // The state's own file has all of it by then, and is not written to beyond the limit.
    std::thread::sleep(std::time::Duration::from_millis(500));
    limit(1 << 20);
    let copy = path.with_extension("copy");
    assert_eq!(db.copy(&copy).unwrap_err().why, Error::System(libc::EFBIG));
    assert!(!copy.exists(), "its directory was made for it");
    assert!(!copy.join("state").exists());
    limit(libc::RLIM_INFINITY);
    db.copy(&copy).unwrap();
    db.write(|accounts| accounts.of.insert(1, 1)).unwrap().unwrap();
    db.close().unwrap();
    assert_eq!(open(&copy).unwrap().read(|accounts| accounts.log.len()), 100_000);
}
