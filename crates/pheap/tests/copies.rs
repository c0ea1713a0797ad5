//! Copies of heaps that a process has open without a log: the owner lends the heap at its next checkpoint.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use spandrel_os::image::{Access, Image};
use spandrel_pheap::collections::{HashMap, MapHead, SortedHead, SortedMap, Vector, VectorHead};
use spandrel_pheap::{Choice, Error, Guarantee, Heap, Media, Medium, Options, RootType, check};
use spandrel_pmem::loan::Loan;
use tempfile::TempDir;

/// Where the line lies in which a process asks for a copy: part of the format.
const ASKING: usize = 638_976;

const TYPES: &[RootType<'_>] =
    &[RootType::of::<VectorHead<u64>>("numbers"), RootType::of::<MapHead<u64, u64>>("map")];

fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn heap_file(place: &TempDir) -> PathBuf {
    place.path().join("a.heap")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn numbers<M: Medium>(heap: &Heap<M>) -> Vec<u64> {
    Vector::<u64>::open(heap, "numbers").unwrap().iter().collect()
}

/// A process of its own, which says a line now and then.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", role, "--nocapture"])
            .env("HEAP", path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Reads until a line is a number, or nothing comes any more.
    fn heard(&mut self) -> Option<u64> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Ok(number) = line.trim().parse() {
                return Some(number);
            }
            line.clear();
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn opened() -> Heap<Media> {
    Options::new().roots(TYPES).open(std::env::var("HEAP").unwrap()).unwrap().0
}

#[test]
#[ignore = "a process of other tests: it changes two collections and makes a checkpoint, again and again"]
fn owner() {
    let heap = opened();
    let mut map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
    let mut vector = Vector::<u64, _>::open(&heap, "numbers").unwrap();
    for number in vector.len() as u64.. {
        // A killed owner leaves both as well, or neither.
        heap.transaction(|| {
            vector.push(number)?;
            map.insert(number % 1000, number)
        })
        .unwrap();
        heap.checkpoint().unwrap();
        if number % 1000 == 0 {
            println!("{number}");
        }
    }
}

#[test]
#[ignore = "a process of other tests: it never makes a checkpoint"]
fn idle() {
    let heap = opened();
    Vector::<u64, _>::open(&heap, "numbers").unwrap().push(5).unwrap();
    println!("1");
    std::thread::sleep(Duration::from_secs(100));
}

#[test]
#[ignore = "a process of other tests: it asks, and does nothing with what it gets"]
fn asker() {
    let path = std::ffi::CString::new(std::env::var("HEAP").unwrap()).unwrap();
    let mut loan = Loan::ask(&path, ASKING).unwrap();
    while !loan.is_granted() {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("1");
    std::thread::sleep(Duration::from_secs(100));
}

/// Tells the other threads of a test that it is over, also if it fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn created(path: &Path) -> Heap<Media> {
    let heap = Options::new().size(1 << 20).create(text(path)).unwrap();
    assert_eq!(heap.medium().guarantee(), Guarantee::Memory);
    heap
}

/// A copy has both collections as they were at one checkpoint. How far they were.
fn checked_copy(path: &Path) -> u64 {
    copy_that_lacks(path, 0)
}

/// The same, where the map may lack as many of the last numbers: its owner was killed between the two.
fn copy_that_lacks(path: &Path, most: u64) -> u64 {
    let medium = Options::new().copy_medium(text(path)).unwrap();
    // SAFETY: within the copy.
    let asked = unsafe { medium.base().add(ASKING).cast::<[u64; 3]>().read() };
    // The second word is the remainder of an owner that was killed while it lent the heap.
    assert_eq!(asked[0], 0, "no process asks the copy");
    let (heap, opened) = Heap::open(&medium, 0, Some(TYPES)).unwrap();
    assert!(!opened.was_clean);
    let numbers = numbers(&heap);
    let map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
    let len = numbers.len() as u64;
    assert!((0..len).eq(numbers));
    for number in len.saturating_sub(1000)..len {
        let may_lack =
            number + most >= len && map.get(&(number % 1000)) == number.checked_sub(1000);
        assert!(may_lack || map.get(&(number % 1000)) == Some(number), "{number} of {len}");
    }
    heap.close().unwrap();
    let survey = check(&medium, TYPES, &mut |finding| panic!("{finding}")).unwrap();
    assert_eq!((survey.damaged, survey.lost), (0, 0));
    len
}

#[test]
fn an_open_heap_is_copied_at_its_next_checkpoint() {
    let place = in_memory();
    let path = heap_file(&place);
    created(&path).close().unwrap();
    let mut owner = Process::start("owner", &path);
    let mut last = owner.heard().unwrap();
    for _ in 0..20 {
        let len = checked_copy(&path);
        assert!(len > last, "{len} after {last}");
        // The owner proceeds.
        last = owner.heard().unwrap();
    }
    drop(owner);
    assert!(copy_that_lacks(&path, 1) > last, "also when it is not open any more");
}

#[test]
fn two_may_ask_at_once() {
    let place = in_memory();
    let path = heap_file(&place);
    created(&path).close().unwrap();
    let mut owner = Process::start("owner", &path);
    owner.heard().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| assert!(checked_copy(&path) > 0)));
        }
    });
    owner.heard().unwrap();
}

#[test]
fn an_owner_without_checkpoints_is_not_waited_for_for_ever() {
    let place = in_memory();
    let path = heap_file(&place);
    let heap = created(&path);
    let copied = |milliseconds| {
        let begun = Instant::now();
        let wait = Options::new().wait(Duration::from_millis(milliseconds));
        (wait.copy(text(&path)).err(), begun.elapsed())
    };
    let (why, took) = copied(300);
    assert_eq!(why, Some(Error::NoCheckpoint));
    assert!((250..5000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(copied(0).0, Some(Error::Locked));
    // The request has ended: the owner does not wait.
    let begun = Instant::now();
    heap.checkpoint().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    heap.close().unwrap();
    assert_eq!(copied(0).0, None);
}

#[test]
fn an_owner_that_is_killed_while_he_is_asked_has_left_his_heap() {
    let place = in_memory();
    let path = heap_file(&place);
    created(&path).close().unwrap();
    let mut idle = Process::start("idle", &path);
    idle.heard().unwrap();
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| Options::new().roots(TYPES).copy(text(&path)).unwrap().0);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!copy.is_finished());
        drop(idle);
        assert_eq!(numbers(&copy.join().unwrap()), [5]);
    });
    // The request has left nothing behind.
    let (heap, _) = Options::new().roots(TYPES).open(text(&path)).unwrap();
    heap.checkpoint().unwrap();
    assert_eq!(numbers(&heap), [5]);
}

#[test]
fn an_asker_that_is_killed_lets_go() {
    let place = in_memory();
    let path = heap_file(&place);
    let heap = created(&path);
    let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                heap.checkpoint().unwrap();
                rounds.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _over = Over(&is_over);
        for _ in 0..5 {
            let mut asker = Process::start("asker", &path);
            asker.heard().unwrap();
            let before = rounds.load(Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            assert!(rounds.load(Relaxed) <= before + 1, "the owner stands still");
            drop(asker);
            let begun = Instant::now();
            while rounds.load(Relaxed) < before + 10 {
                assert!(begun.elapsed() < Duration::from_secs(5), "the owner proceeds");
                std::thread::sleep(Duration::from_millis(1));
            }
            let copy = Options::new().copy_medium(text(&path)).unwrap();
            check(&copy, &[], &mut |finding| panic!("{finding}")).unwrap();
        }
    });
}

#[test]
fn opening_clears_what_askers_have_left() {
    let place = in_memory();
    let path = heap_file(&place);
    created(&path).close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[ASKING..ASKING + 24].fill(7);
    std::fs::write(&path, &bytes).unwrap();
    let line = |heap: &Heap<Media>| {
        // SAFETY: within the heap.
        unsafe { heap.base().add(ASKING).cast::<[u64; 3]>().read_volatile() }
    };
    let (heap, opened) = Options::new().open(text(&path)).unwrap();
    assert!(opened.was_clean);
    assert_eq!(line(&heap), [0; 3]);
    heap.close().unwrap();
    // A copy is not affected either.
    std::fs::write(&path, &bytes).unwrap();
    let copy = Options::new().copy_medium(text(&path)).unwrap();
    check(&copy, &[], &mut |finding| panic!("{finding}")).unwrap();
    assert_eq!(line(&Options::new().copy(text(&path)).unwrap().0), [0; 3]);
}

/// However often the owner makes checkpoints, and however short the wait: each copy is of one of them.
#[test]
fn a_heap_with_a_log_is_copied_while_checkpoints_never_end() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = heap_file(&disk);
    let heap = Options::new().size(48 << 20).medium(Choice::Logged).create(text(&path)).unwrap();
    let filling = heap.alloc(30 << 20).unwrap();
    // SAFETY: the object has 30 MiB.
    unsafe { filling.write_bytes(1, 30 << 20) };
    heap.set_root(0, Some(filling)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut numbers = Vector::<u64>::open(&heap, "numbers").unwrap();
            let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
            let mut count = 0u64;
            while !is_over.load(Relaxed) {
                heap.transaction(|| {
                    numbers.push(count)?;
                    map.insert(count % 1000, count).map(drop)
                })
                .unwrap();
                heap.checkpoint().unwrap();
                count += 1;
            }
            count
        });
        let _over = Over(&is_over);
        let mut last = 0;
        for _ in 0..8 {
            let medium = Options::new().wait(Duration::ZERO).copy_medium(text(&path)).unwrap();
            let (copy, _) = Heap::open(&medium, 0, Some(TYPES)).unwrap();
            let count = numbers(&copy).len() as u64;
            assert!(count >= last, "{count} after {last}");
            let map = HashMap::<u64, u64, _>::open(&copy, "map").unwrap();
            assert_eq!(map.len() as u64, count.min(1000));
            last = count;
        }
        is_over.store(true, Relaxed);
        assert!(owner.join().unwrap() > 0);
    });
}

#[test]
fn an_owner_with_a_log_is_not_asked_whatever_is_beside_the_file() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = heap_file(&disk);
    // No record is in the log yet.
    let heap = Options::new().size(1 << 20).create(text(&path)).unwrap();
    let options = Options::new().roots(TYPES).wait(Duration::ZERO);
    options.copy(text(&path)).unwrap();
    let mut vector = Vector::<u64, _>::open(&heap, "numbers").unwrap();
    vector.push(1).unwrap();
    heap.checkpoint().unwrap();
    vector.push(2).unwrap();
    assert_eq!(numbers(&options.copy(text(&path)).unwrap().0), [1]);
    heap.close().unwrap();
    // An owner without a log, with an empty one beside its file, is asked.
    let (heap, _) = Options::new().medium(Choice::Mapped).open(text(&path)).unwrap();
    std::fs::write(path.with_extension("heap.wal"), "").unwrap();
    assert_eq!(options.copy(text(&path)).err(), Some(Error::Locked));
    drop(heap);
    options.copy(text(&path)).unwrap();
}

#[test]
fn opening_waits_for_readers() {
    for place in [in_memory(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()] {
        let path = heap_file(&place);
        Options::new().size(1 << 20).create(text(&path)).unwrap().close().unwrap();
        let reader = std::ffi::CString::new(text(&path)).unwrap();
        let reader = Image::open(&reader, Access::Read).unwrap();
        reader.lock(Access::Read).unwrap();
        std::thread::scope(|scope| {
            let open = scope.spawn(|| Options::new().open(text(&path)).unwrap().1);
            std::thread::sleep(Duration::from_millis(200));
            assert!(!open.is_finished());
            reader.unlock();
            assert!(open.join().unwrap().was_clean);
        });
    }
}

/// The heap of a process that was killed inside a transaction, as its file has it.
#[test]
fn a_check_counts_what_an_opening_finds_also_where_a_transaction_was_cut_off() {
    let place = in_memory();
    let (path, killed) = (heap_file(&place), place.path().join("killed.heap"));
    let heap = Options::new().size(4 << 20).create(text(&path)).unwrap();
    let mut sorted = SortedMap::<u64, u64, _>::open(&heap, "sorted").unwrap();
    let mut vector = Vector::<[u64; 100], _>::open(&heap, "vector").unwrap();
    for key in 0..500 {
        sorted.insert(key, key).unwrap();
    }
    vector.extend(&[[7; 100]; 50]).unwrap();
    Vector::<u64, _>::open(&heap, "gone").unwrap().push(1).unwrap();
    let outcome = heap.transaction(|| {
        heap.remove_root("gone")?;
        sorted.clear()?;
        (0..20).try_for_each(|key| sorted.insert(key + 1000, key).map(drop))?;
        // More words than the undo log of one operation has.
        vector.set(3, [8; 100])?;
        std::fs::copy(&path, &killed).map(drop).map_err(|_| Error::DiskFull)
    });
    outcome.unwrap();
    let types = &[
        RootType::of::<SortedHead<u64, u64>>("sorted"),
        RootType::of::<VectorHead<[u64; 100]>>("vector"),
        RootType::of::<VectorHead<u64>>("gone"),
    ];
    let before = std::fs::read(&killed).unwrap();
    let medium = spandrel_pheap::copy(text(&killed)).unwrap();
    let survey = check(&medium, types, &mut |found| panic!("{found}")).unwrap();
    assert!(std::fs::read(&killed).unwrap() == before, "the file does not change");
    let (found, opened) = Options::new().roots(types).copy(text(&killed)).unwrap();
    let live = opened.collected.unwrap();
    assert_eq!((survey.live, survey.live_bytes), (live.live, live.live_bytes));
    assert_eq!((survey.roots, survey.damaged), (3, 0));
    assert_eq!(SortedMap::<u64, u64, _>::open(&found, "sorted").unwrap().len(), 500);
}
