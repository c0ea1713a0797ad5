//! A panic where panics abort: the next process finds the state of the batch before, never half a command.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Accounts, open, places};

/// Commands before the one that panics.
const WHOLE: u64 = 50;

/// The child's side: counts up beside another thread, whose last command panics half-way. The hook ends the process where a build with `panic = "abort"` would: after the message,
/// and before anything unwinds.
fn panic_half_way(path: &Path) {
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let db = open(path).unwrap();
    let begin = db.read(|s| s.of.get(&0).unwrap_or(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let work = |s: &mut Accounts| {
                    let next = s.of.get(&1).unwrap_or(0) + 1;
                    s.of.insert(1, next)?;
                    s.log.push([1, next, next * 7])
                };
                db.write(work).unwrap().unwrap();
            }
        });
        for number in begin + 1.. {
            let work = |s: &mut Accounts| {
                s.of.insert(0, number)?;
                assert!(number <= begin + WHOLE, "on purpose");
                s.log.push([0, number, number * 7])
            };
            db.write(work).unwrap().unwrap();
            let _ = writeln!(&mut std::io::stdout(), "durable {number}");
        }
    });
}

#[test]
fn a_panic_that_aborts_leaves_the_state_of_the_batch_before() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_ABORT";
    if let Some(path) = std::env::var_os(CHILD) {
        return panic_half_way(Path::new(&path));
    }
    for (_place, path) in places() {
        for round in 1..=3 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["aborts::a_panic_that_aborts_leaves_the_state_of_the_batch_before"])
                .args(["--exact", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let said = lines.map_while(Result::ok).filter_map(|line| {
                line.strip_prefix("durable ").and_then(|number| number.parse::<u64>().ok())
            });
            assert_eq!(said.last(), Some(round * WHOLE));
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGABRT));
            let db = open(&path).unwrap();
            assert!(!db.report().was_closed);
            db.read(|s| {
                let mut next = [1, 1];
                for [thread, number, product] in (0..s.log.len()).filter_map(|at| s.log.get(at)) {
                    let expected = &mut next[thread as usize];
                    assert_eq!((number, product), (*expected, *expected * 7));
                    *expected += 1;
                }
                let of = [0, 1].map(|thread| s.of.get(&thread).unwrap_or(0));
                assert_eq!(of, next.map(|next| next - 1), "no command is there by half");
                assert_eq!(of[0], round * WHOLE);
            });
            db.close().unwrap();
        }
    }
}
