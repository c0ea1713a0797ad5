//! Disks that are full, and limits that are reached: errors, after which a program goes on when there is room again, and no signals.

use std::path::Path;
use std::process::{Command, Output};

use spandrel_pheap::collections::{HashMap, MapHead};
use spandrel_pheap::{Choice, Error, Options, RootType, Standing};

const TYPES: &[RootType<'_>] = &[RootType::of::<MapHead<u64, [u64; 16]>>("map")];

fn heap_path() -> String {
    std::env::var("HEAP").unwrap()
}

fn choice() -> Choice {
    if std::env::var("LOGGED").is_ok() { Choice::Logged } else { Choice::Auto }
}

/// Fills the heap until there is no room on the disk, makes all of it durable, removes half, and goes on.
#[test]
#[ignore = "is the process on a disk that becomes full"]
fn filler() {
    let has_sums = std::env::var("SUMS").is_ok();
    let options = Options::new().size(4 << 20).medium(choice()).sums(has_sums);
    let heap = options.create(heap_path()).unwrap();
    let mut map = HashMap::<u64, [u64; 16], _>::open(&heap, "map").unwrap();
    let mut count = 0;
    let why = loop {
        match map.insert(count, [count; 16]) {
            Err(why) => break why,
            Ok(_) => count += 1,
        }
        if count % 5000 == 0 {
            heap.checkpoint().unwrap();
        }
    };
    assert_eq!(why, Error::DiskFull);
    // What is left of it, in small pieces, all written to.
    let why = loop {
        match heap.alloc(48) {
            // SAFETY: the process's own.
            Ok(object) => unsafe { object.write_bytes(1, 48) },
            Err(why) => break why,
        }
    };
    assert_eq!(why, Error::DiskFull);
    heap.checkpoint().unwrap();
    assert!((0..count).all(|key| map.get(&key) == Some([key; 16])));
    for key in 0..count / 2 {
        map.remove(&key).unwrap();
    }
    map.insert(u64::MAX, [1; 16]).unwrap();
    heap.checkpoint().unwrap();
    heap.close().unwrap();
    let (heap, opened) = Options::new().roots(TYPES).open(heap_path()).unwrap();
    assert!(opened.was_clean);
    let map = HashMap::<u64, [u64; 16], _>::open(&heap, "map").unwrap();
    assert_eq!(map.len() as u64, count - count / 2 + 1);
    let verified = heap.verify_sums(&mut |found| panic!("{found}")).unwrap();
    let standing = if has_sums { Standing::Compared } else { Standing::Absent };
    assert_eq!(verified.standing, standing);
    println!("all is there");
}

/// Opens a file with holes on a disk that is full.
#[test]
#[ignore = "is the process that opens a file with holes"]
fn opener() {
    let sound = heap_path();
    let sparse = format!("{sound}.sparse");
    Options::new().create(&sound).unwrap().close().unwrap();
    let copied = Command::new("cp").args(["--sparse=always", &sound, &sparse]).status().unwrap();
    assert!(copied.success());
    let fill = Path::new(&sound).with_extension("fill");
    let _ = std::io::copy(&mut std::io::repeat(1), &mut std::fs::File::create(&fill).unwrap());
    assert_eq!(Options::new().open(&sparse).err(), Some(Error::DiskFull));
    std::fs::remove_file(fill).unwrap();
    let (heap, _) = Options::new().open(&sparse).unwrap();
    for _ in 0..8000 {
        // SAFETY: the process's own.
        unsafe { heap.alloc(4000).unwrap().write_bytes(1, 4000) };
    }
    println!("all is there");
}

/// A log that would become longer than a file may be.
#[test]
#[ignore = "is the process with a limit for files"]
fn limited() {
    // SAFETY: a limit of this process.
    unsafe {
        let limit = libc::rlimit { rlim_cur: 40 << 20, rlim_max: 40 << 20 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    let heap = Options::new().size(17 << 20).medium(Choice::Logged).create(heap_path()).unwrap();
    let object = heap.alloc(12 << 20).unwrap();
    heap.set_root(0, Some(object)).unwrap();
    for round in 1..9 {
        // SAFETY: the object has 12 MiB.
        unsafe { object.write_bytes(round, 12 << 20) };
        heap.checkpoint().unwrap();
    }
    assert_eq!(heap.alloc(30 << 20), Err(Error::FileSize));
    heap.close().unwrap();
    println!("all is there");
}

fn ended_well(what: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("all is there"), "{what}: {:?}\n{text}\n{errors}", output.status);
}

fn arguments(test: &str) -> [&str; 6] {
    ["--ignored", "--exact", test, "--nocapture", "--test-threads", "1"]
}

/// Runs a test on a file system in memory of that size; `None`: this machine does not allow the mount.
fn on_small_disk(test: &str, size: &str, set: &[&str]) -> Option<Output> {
    let place = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=\"$1\" small \"$2\" || exit 77; shift 2; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh", size]);
    command.arg(place.path()).arg(std::env::current_exe().unwrap()).args(arguments(test));
    command.env("HEAP", place.path().join("a.heap"));
    command.envs(set.iter().map(|name| (name, "1")));
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let is_refused = output.status.code() == Some(77) || text.contains("unshare failed");
    if is_refused {
        println!("no file system can be mounted here: {text}");
        return None;
    }
    Some(output)
}

#[test]
fn a_disk_that_was_filled_takes_checkpoints_and_inserts_again() {
    // Of more than a log keeps room for by itself, too.
    let (logged, with_sums) = (&["LOGGED"][..], &["LOGGED", "SUMS"][..]);
    for (size, set) in [("60m", &[][..]), ("60m", logged), ("200m", logged), ("60m", with_sums)] {
        if let Some(output) = on_small_disk("filler", size, set) {
            ended_well(&format!("{size}, {set:?}"), &output);
        }
    }
}

#[test]
fn a_file_with_holes_is_refused_where_they_find_no_room() {
    if let Some(output) = on_small_disk("opener", "200m", &[]) {
        ended_well("holes", &output);
    }
}

#[test]
fn a_limit_for_files_is_an_error_and_no_signal() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(arguments("limited"))
        .env("HEAP", place.path().join("a.heap"))
        .output()
        .unwrap();
    ended_well("RLIMIT_FSIZE", &output);
}
