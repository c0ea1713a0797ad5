//! Threads that commands have begun. A thread of the standard library is done for those that wait for it before it has ended: it drops what it shares with them afterwards, and that lies in
//! the state where a command has begun the thread. Before the batch is undone, and that memory is as it was, such threads end.

use std::fs;
use std::prelude::v1::*;
use std::thread::sleep;
use std::time::{Duration, Instant};

use spandrel_os::clock;

/// How long the end of threads is waited for. One that goes on is no such thread: a command must not begin it.
const LONGEST: Duration = Duration::from_millis(10);
/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(50);
/// Names of threads of this library begin so.
const OWN: &str = "spandrel-";

/// What `/proc/self/task/THREAD/stat` says: whether the thread is one of this library, and when it began, in ticks since the machine started.
fn began(stat: &str) -> Option<(bool, u64)> {
    // A name may have any characters.
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    // The 22nd word; the third one is the first of the rest.
    let ticks = rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()?;
    Some((name.starts_with(OWN), ticks))
}

/// Whether threads of the process have begun in that tick or later.
fn are_some_since(tick: u64) -> bool {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| began(&stat)).any(|(is_own, ticks)| !is_own && ticks >= tick)
}

/// Waits for the end of threads that have begun since that time, of [`clock::coarse_ms`]; not for long.
pub fn await_end(since_ms: u64) {
    let (tick, begin) = (clock::tick_of(since_ms), Instant::now());
    while are_some_since(tick) && begin.elapsed() < LONGEST {
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_threads_beginning_is_read() {
        let line = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(began(line), Some((false, 4711)));
        assert_eq!(began(&line.replace("a )", "spandrel-log")).map(|(own, _)| own), Some(true));
        assert_eq!(began("7 (a) S 1"), None);
        assert_eq!(began(""), None);
    }

    #[test]
    fn the_end_of_new_threads_is_waited_for() {
        let before = clock::tick_of(clock::coarse_ms());
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ends.recv());
        assert!(are_some_since(before));
        let begin = Instant::now();
        await_end(clock::coarse_ms());
        assert!(begin.elapsed() >= LONGEST, "it goes on");
        drop(end);
        let _ = thread.join();
    }
}
