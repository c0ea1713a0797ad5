//! Kills: nothing that was acknowledged is lost, and no command is there by half.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Accounts, open, places, verified};

/// The child's side: counts up, and says each number when it is durable.
fn count(path: &Path) {
    let db = open(path).unwrap();
    let mut out = std::io::stdout();
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let db = &db;
            scope.spawn(move || {
                let mut client = db.client();
                let mut next = client.read(|s| s.of.get(&thread).unwrap_or(0));
                loop {
                    next += 1;
                    let work = |s: &mut Accounts| {
                        s.of.insert(thread, next)?;
                        s.log.push([thread, next, next * 7])
                    };
                    client.write(work).unwrap().unwrap();
                    let _ = writeln!(&mut std::io::stdout(), "{thread} {next}");
                }
            });
        }
    });
    let _ = out.flush();
}

/// Kills at random moments: nothing that was said is lost, and every command is there as a whole, once.
#[test]
fn nothing_that_was_acknowledged_is_lost_by_kills() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_CHILD";
    if let Some(path) = std::env::var_os(CHILD) {
        count(Path::new(&path));
        return;
    }
    for (_place, path) in places() {
        let mut said = [0u64; 2];
        let mut seed = std::process::id();
        for round in 0..12u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "kills::nothing_that_was_acknowledged_is_lost_by_kills",
                    "--exact",
                    "--nocapture",
                ])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let until = Instant::now() + Duration::from_millis(u64::from(seed >> 16) % 60 + 5);
            let (mut killed, mut has_said) = (false, false);
            for line in lines {
                let Ok(line) = line else { break };
                let mut words = line.split(' ').map_while(|word| word.parse::<u64>().ok());
                if let (Some(thread @ 0..2), Some(number)) = (words.next(), words.next()) {
                    said[thread as usize] = said[thread as usize].max(number);
                    has_said = true;
                }
                if !killed && has_said && Instant::now() >= until {
                    child.kill().unwrap();
                    killed = true;
                }
            }
            child.wait().unwrap();
            assert!(killed, "the child ended by itself");
            verified(&path);
            let db = open(&path).unwrap();
            assert!(!db.report().was_closed, "round {round}");
            let (of, log) = db.read(|s| {
                let of = [0, 1].map(|thread| s.of.get(&thread).unwrap_or(0));
                (of, (0..s.log.len()).filter_map(|at| s.log.get(at)).collect::<Vec<_>>())
            });
            for thread in 0..2 {
                assert!(
                    of[thread] >= said[thread],
                    "{} of {} in {path:?}",
                    of[thread],
                    said[thread]
                );
                // Not more than the one command that was under way.
                assert!(of[thread] <= said[thread] + 2, "{} of {}", of[thread], said[thread]);
            }
            let mut next = [1, 1];
            for [thread, number, product] in log {
                let expected = &mut next[thread as usize];
                assert_eq!((number, product), (*expected, *expected * 7));
                *expected += 1;
            }
            assert_eq!(next, of.map(|count| count + 1), "each command is there once");
            said = of;
            db.close().unwrap();
        }
        assert!(said.iter().all(|count| *count > 0), "{said:?}");
    }
}

/// Kills while commands run for which the log becomes longer: each is there as a whole or not at all, and none that was acknowledged is missing.
#[test]
fn kills_while_the_log_becomes_longer() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_LONG";
    const KEYS: u64 = 40_000;
    if let Some(path) = std::env::var_os(CHILD) {
        let db = open(Path::new(&path)).unwrap();
        let mut next = db.read(|s| s.of.get(&0).unwrap_or(0));
        loop {
            next += 1;
            let work = |s: &mut Accounts| {
                // A new table, and a vector that is new.
                s.of.clear()?;
                (0..KEYS).try_for_each(|key| s.of.insert(key, next).map(drop))?;
                s.log.push([next; 3])
            };
            db.write(work).unwrap().unwrap();
            println!("{next}");
        }
    }
    for (_place, path) in places() {
        let (mut said, mut became_longer) = (0, false);
        let mut seed = std::process::id();
        for _ in 0..8 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["kills::kills_while_the_log_becomes_longer", "--exact", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines =
                BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let first = lines.find_map(|line| line.parse::<u64>().ok()).unwrap();
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            std::thread::sleep(Duration::from_millis(u64::from(seed >> 16) % 200));
            child.kill().unwrap();
            said = lines.filter_map(|line| line.parse().ok()).fold(first.max(said), u64::max);
            child.wait().unwrap();
            verified(&path);
            let log = std::fs::metadata(path.join("log"));
            became_longer |= log.is_ok_and(|log| log.len() > 2 << 20);
            let db = open(&path).unwrap();
            let all = db.read(|s| {
                let first = s.of.get(&0).unwrap();
                assert!((0..KEYS).all(|key| s.of.get(&key) == Some(first)), "half of a command");
                assert_eq!((s.of.len() as u64, s.log.len() as u64), (KEYS, first));
                first
            });
            assert!(all == said || all == said + 1, "{all} of {said}");
            said = all;
        }
        assert!(became_longer);
    }
}
