//! The log refuses a record while other threads have commands: what was refused is seen by no reader, in memory or after the next opening.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use spandrel::durable::{Durable, Error};

use super::{Accounts, init, small};

const THREADS: u64 = 4;

fn open(path: &Path) -> Result<Durable<Accounts>, spandrel::durable::OpenError> {
    Durable::open(path, small(), init)
}
/// The key that every write changes, too.
const SUM: u64 = 1000;
const ROUNDS: u64 = 40;

fn get(state: &Accounts, key: u64) -> u64 {
    state.of.get(&key).unwrap_or(0)
}

/// Adds 1 to a thread's number and to the sum, and returns the number.
fn add(state: &mut Accounts, thread: u64) -> u64 {
    for key in [thread, SUM] {
        state.of.insert(key, get(state, key) + 1).unwrap();
    }
    // Some records are longer than a page.
    state.of.insert(2000 + get(state, SUM) % 400, 1).unwrap();
    get(state, thread)
}

/// All threads' numbers, which the sum agrees with.
fn look(state: &Accounts) -> Vec<u64> {
    let all: Vec<u64> = (0..THREADS).map(|thread| get(state, thread)).collect();
    assert_eq!(all.iter().sum::<u64>(), get(state, SUM));
    all
}

/// The longest file that the process may write.
fn limit(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit that is read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

/// Writes in all threads until the log refuses. Returns each thread's last number.
fn write_until_refused(db: &Durable<Accounts>, bytes: u64, random: &mut fastrand::Rng) -> Vec<u64> {
    let done: [AtomicU64; THREADS as usize] = Default::default();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let done = &done[thread as usize];
                scope.spawn(move || {
                    let mut client = db.client();
                    done.store(client.read(|state| get(state, thread)), SeqCst);
                    loop {
                        match client.write(|state| add(state, thread)) {
                            Ok(number) => assert_eq!(done.swap(number, SeqCst), number - 1),
                            Err(Error::Poisoned(_) | Error::Full(_)) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let (done, is_over) = (&done, &is_over);
            scope.spawn(move || {
                let mut client = db.client();
                while !is_over.load(SeqCst) {
                    let before: Vec<u64> = done.iter().map(|done| done.load(SeqCst)).collect();
                    let seen = client.read(look);
                    assert!(before.iter().zip(&seen).all(|(before, seen)| before <= seen));
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
        }
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        limit(bytes);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, SeqCst);
    });
    done.map(AtomicU64::into_inner).into()
}

fn run(path: &Path) {
    // The limit may come between the library's look at it and the write.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut last = vec![0; THREADS as usize];
    for round in 0..ROUNDS {
        let db = open(path).unwrap();
        assert_eq!(db.read(look), last, "round {round}: after opening");
        // All writes fail, or those behind some place of the log.
        let bytes = if random.bool() { 4096 } else { random.u64(8192..1 << 20) };
        let done = write_until_refused(&db, bytes, &mut random);
        assert_eq!(db.read(look), done, "round {round}: in memory, {bytes}");
        assert!(db.write(|state| add(state, 0)).is_err());
        limit(libc::RLIM_INFINITY);
        drop(db);
        last = done;
    }
    assert!(last.iter().sum::<u64>() > ROUNDS);
}

#[test]
fn what_the_log_refuses_is_seen_by_no_reader() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_REFUSED";
    if let Some(path) = std::env::var_os(CHILD) {
        return run(Path::new(&path));
    }
    // On a disk: a log in memory is written by stores.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bank");
    if !open(&path).unwrap().medium().contains("write") {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "refused::what_the_log_refuses_is_seen_by_no_reader";
    let done = command.args([name, "--exact", "--nocapture"]).env(CHILD, path).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(done.status.success(), "{}: {said}", done.status);
}

/// Ends a child of a fork: 0 if it was told what it is.
fn end_child<T>(written: Result<T, Error>) -> ! {
    // SAFETY: no destructor of the parent's runs.
    unsafe { libc::_exit(i32::from(!matches!(written, Err(Error::Forked)))) }
}

/// A command may be run by any thread that writes: the one that forks is the only one in the child.
#[test]
fn a_command_that_forks_beside_others_is_refused_in_the_child() {
    let place = tempfile::tempdir().unwrap();
    let db = open(&place.path().join("bank")).unwrap();
    // In the child the heap refuses.
    let set = |state: &mut Accounts, key: u64| {
        let _ = state.of.insert(key, get(state, key) + 1);
    };
    let (is_over, own) = (AtomicBool::new(false), std::process::id());
    std::thread::scope(|scope| {
        for thread in 1..THREADS {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    let written = db.write(|state| set(state, thread));
                    if std::process::id() != own {
                        end_child(written);
                    }
                    written.unwrap();
                }
            });
        }
        for round in 0..40 {
            let child = AtomicU64::new(0);
            // SAFETY: the child ends without a look at what other threads had locked.
            let fork = || child.store(unsafe { libc::fork() } as u64, SeqCst);
            let written = db.write(|state| {
                fork();
                set(state, 0);
            });
            if std::process::id() != own {
                end_child(written);
            }
            written.unwrap();
            let (child, mut status) = (child.load(SeqCst) as i32, 1);
            let ended = (0..2000).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                // SAFETY: a place for the status.
                unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) == child }
            });
            if !ended {
                // SAFETY: the child is this test's.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            is_over.fetch_or(!ended || status != 0, SeqCst);
            assert!(ended && status == 0, "round {round}: {ended} {status}");
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(db.read(|state| get(state, 0)), 40);
}
