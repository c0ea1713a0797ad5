//! Every system call that a heap depends on fails, one at a time, while it is made, opened, grown, made durable, closed: what was acknowledged
//! before is there afterwards, the program hears of it by an error, and a call that a signal interrupts is no error at all.
//!
//! The calls fail by `strace`, which `scripts/setup test` installs.

use std::path::Path;
use std::process::{Command, Stdio};

use spandrel_pheap::collections::{HashMap, MapHead};
use spandrel_pheap::{Choice, Error, Heap, Media, Medium, Options, RootType};

const TYPES: &[RootType<'_>] = &[RootType::of::<MapHead<u64, u64>>("map")];
const ROUNDS: u64 = 6;
/// The calls that open files: by a path alone, and in a directory.
const OPEN: &str = "open,openat";

fn options() -> Options<'static> {
    let has_sums = std::env::var("SUMS").is_ok();
    let choice = if std::env::var("LOGGED").is_ok() { Choice::Logged } else { Choice::Mapped };
    Options::new().size(1 << 20).roots(TYPES).medium(choice).sums(has_sums)
}

/// The kind of heap whose calls fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Mapped,
    Logged,
    LoggedWithSums,
}

/// One round: a key, an object for which the heap has to grow, and a checkpoint, which acknowledges the key.
fn round(heap: &Heap<Media>, number: u64) -> Result<(), Error> {
    let mut map = HashMap::<u64, u64, _>::open(heap, "map")?;
    map.insert(number, number * 7)?;
    if number % 2 == 1 {
        let object = heap.alloc(700 << 10)?;
        // SAFETY: the process's own, and gone after this.
        unsafe {
            object.write_bytes(1, 700 << 10);
            heap.free(object)?;
        }
    }
    heap.checkpoint()
}

#[test]
#[ignore = "is the process whose calls fail"]
fn worker() {
    // What the test harness has begun to say of this test ends here.
    println!();
    let path = std::env::var("HEAP").unwrap();
    let (heap, _) = match options().open_or_create(&path) {
        Ok(opened) => opened,
        Err(why) => return println!("opening: {why}"),
    };
    for number in 0..ROUNDS {
        match round(&heap, number) {
            Ok(()) => println!("acknowledged {number}"),
            Err(why) => println!("round {number}: {why}"),
        }
    }
    match heap.close() {
        Ok(()) => println!("closed"),
        Err(why) => println!("closing: {why}"),
    }
}

struct Ran {
    acknowledged: Vec<u64>,
    is_closed: bool,
    text: String,
    /// The call did fail.
    was_injected: bool,
}

fn run(path: &Path, of: Of, call: &str, error: &str, when: u32) -> Ran {
    let told = path.with_extension("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&told).args(["-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:error={error}:when={when}")]);
    if [OPEN, "mmap", "pread64"].contains(&call) {
        // Of other files the program's start depends on them.
        let (log, place) = (path.with_extension("heap.wal"), path.parent().unwrap());
        command.arg("-P").arg(path).arg("-P").arg(log).arg("-P").arg(place);
        command.arg("-P").arg(path.with_extension("heap.sum"));
    }
    command.arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "worker", "--nocapture", "--test-threads", "1"]);
    command.env("HEAP", path);
    if of != Of::Mapped {
        command.env("LOGGED", "1");
    }
    if of == Of::LoggedWithSums {
        command.env("SUMS", "1");
    }
    let output = command.stderr(Stdio::piped()).output().expect("strace is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{call} {error} {when}: {:?}\n{text}", output.status);
    let number = |line: &str| line.strip_prefix("acknowledged ")?.parse().ok();
    Ran {
        acknowledged: text.lines().filter_map(number).collect(),
        is_closed: text.lines().any(|line| line == "closed"),
        was_injected: std::fs::read_to_string(&told).unwrap().contains("(INJECTED)"),
        text,
    }
}

/// What a run has left: opened by a process whose calls do not fail.
fn look(path: &Path, of: Of, ran: &Ran, what: &str) {
    if !path.exists() {
        assert!(ran.acknowledged.is_empty(), "{what}: the file is gone\n{}", ran.text);
        return;
    }
    accuses_no_page(path, what);
    let choice = if of == Of::Mapped { Choice::Mapped } else { Choice::Logged };
    let options = Options::new().roots(TYPES).medium(choice);
    let (heap, opened) = options
        .open(path.to_str().unwrap())
        .unwrap_or_else(|why| panic!("{what}: {why}\n{}", ran.text));
    assert!(opened.was_clean || !ran.is_closed, "{what}\n{}", ran.text);
    let map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
    for number in &ran.acknowledged {
        assert_eq!(map.get(number), Some(number * 7), "{what}: {number}\n{}", ran.text);
    }
}

/// Sums of pages fit, or are not believed.
fn accuses_no_page(path: &Path, what: &str) {
    let Ok(medium) = Options::new().compare_sums().copy_medium(path.to_str().unwrap()) else {
        return;
    };
    let see = &mut |at, mismatch| panic!("{what}: {at:#x}: {mismatch:?}");
    medium.compare_sums(see).unwrap();
}

fn every_call_fails(of: Of, calls: &[&str], errors: &[&str]) {
    let mut untried = Vec::new();
    for call in calls {
        for error in errors {
            let mut injected = 0;
            // Each time a little later, until it is not called as often.
            for when in 1..60 {
                let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                let path = place.path().join("a.heap");
                let what = format!("{call}, {error}, time {when}");
                let ran = run(&path, of, call, error, when);
                look(&path, of, &ran, &what);
                if *error == "EINTR" {
                    let is_whole = ran.is_closed && ran.acknowledged.len() as u64 == ROUNDS;
                    assert!(is_whole, "{what} is no error\n{}", ran.text);
                }
                if !ran.was_injected {
                    break;
                }
                injected += 1;
            }
            if injected == 0 {
                untried.push(format!("{call}: {error}"));
            }
        }
    }
    assert!(untried.is_empty(), "these calls were never made: {untried:?}");
}

#[test]
fn of_a_heap_with_a_log() {
    let calls = ["fallocate", "fdatasync", "fsync", "pwrite64", "linkat", "flock", "pread64"];
    every_call_fails(Of::Logged, &calls, &["EIO", "ENOSPC"]);
    every_call_fails(Of::Logged, &[OPEN, "mmap"], &["EIO"]);
}

#[test]
fn of_a_heap_with_sums() {
    let calls = ["fallocate", "fdatasync", "pwrite64", "linkat", "pread64"];
    every_call_fails(Of::LoggedWithSums, &calls, &["EIO", "ENOSPC"]);
    every_call_fails(Of::LoggedWithSums, &[OPEN, "mmap"], &["EIO"]);
    every_call_fails(Of::LoggedWithSums, &["pwrite64", "fdatasync"], &["EINTR"]);
}

#[test]
fn of_a_mapped_heap() {
    let calls = ["fallocate", "fdatasync", "fsync", "linkat", "flock"];
    every_call_fails(Of::Mapped, &calls, &["EIO"]);
}

#[test]
fn of_a_signal_that_interrupts_it() {
    let calls = ["fallocate", "fdatasync", "fsync", "pwrite64", "linkat", "flock", OPEN];
    every_call_fails(Of::Logged, &calls, &["EINTR"]);
}
