//! Heaps in real files, opened by real processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use spandrel_pheap::collections::{HashMap, Vector, VectorHead};
use spandrel_pheap::{Choice, Error, Guarantee, Heap, Media, Options, RootType};
use tempfile::TempDir;

/// A directory in memory, and one on a disk.
fn places() -> [TempDir; 2] {
    [
        tempfile::tempdir_in("/dev/shm").unwrap(),
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    ]
}

fn heap_file(place: &TempDir) -> PathBuf {
    place.path().join("a.heap")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const NUMBERS: &[RootType<'_>] = &[RootType::of::<VectorHead<u64>>("numbers")];

fn numbers(heap: &Heap<Media>) -> Vector<'_, u64> {
    Vector::open(heap, "numbers").unwrap()
}

#[test]
fn what_was_closed_is_there_again_on_every_medium() {
    for place in places() {
        let path = heap_file(&place);
        let heap = Options::new().size(1 << 20).create(text(&path)).unwrap();
        // More than it was made with: it grows.
        let mut vector = numbers(&heap);
        for number in 0..400_000u64 {
            vector.push(number).unwrap();
            if number % 100_000 == 0 {
                heap.checkpoint().unwrap();
            }
        }
        heap.close().unwrap();
        let (heap, opened) = Options::new().roots(NUMBERS).open(text(&path)).unwrap();
        assert!(opened.was_clean);
        assert_eq!(numbers(&heap).len(), 400_000);
        assert!(numbers(&heap).iter().enumerate().all(|(at, number)| at as u64 == number));
        assert!(heap.bytes() > 4 << 20);
    }
}

/// A file that was copied in part, beside a log whose checkpoint continues it: what no record of the log has is missing.
#[test]
fn a_heap_that_was_cut_off_is_refused() {
    for place in places() {
        let path = heap_file(&place);
        let options = || Options::new().medium(Choice::Logged);
        let heap = options().size(1 << 20).create(text(&path)).unwrap();
        (0..400_000u64).for_each(|number| numbers(&heap).push(number).unwrap());
        heap.close().unwrap();
        let (heap, _) = options().roots(NUMBERS).open(text(&path)).unwrap();
        numbers(&heap).push(7).unwrap();
        heap.checkpoint().unwrap();
        // As a kill leaves them.
        let killed = tempfile::tempdir_in(place.path()).unwrap();
        for file in ["a.heap", "a.heap.wal"] {
            std::fs::copy(place.path().join(file), killed.path().join(file)).unwrap();
        }
        let cut = killed.path().join("a.heap");
        let file = std::fs::OpenOptions::new().write(true).open(&cut).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(bytes).unwrap();
        for part in (1..8).rev() {
            file.set_len(bytes * part / 8).unwrap();
            let why = options().roots(NUMBERS).open(text(&cut)).err();
            assert_eq!(why, Some(Error::CutOff), "{part}");
            assert!(spandrel_pheap::copy(text(&cut)).is_err());
        }
        heap.close().unwrap();
        // One that was cut in order, behind its last object, is opened and killed as any other.
        let (heap, _) = options().roots(NUMBERS).open(text(&path)).unwrap();
        numbers(&heap).clear().unwrap();
        let object = heap.alloc(8 << 20).unwrap();
        heap.checkpoint().unwrap();
        // SAFETY: nothing leads to it.
        unsafe { heap.free(object).unwrap() };
        heap.close().unwrap();
        let shrunk = options().shrink(text(&path)).unwrap();
        assert!(shrunk.to < shrunk.from, "{shrunk:?}");
        for round in 0..3 {
            let (heap, _) = options().roots(NUMBERS).open(text(&path)).unwrap();
            numbers(&heap).push(round).unwrap();
            heap.checkpoint().unwrap();
            for file in ["a.heap", "a.heap.wal"] {
                std::fs::copy(place.path().join(file), killed.path().join(file)).unwrap();
            }
            heap.close().unwrap();
            let (heap, _) = options().roots(NUMBERS).open(text(&cut)).unwrap();
            assert_eq!(numbers(&heap).len() as u64, round + 1);
        }
    }
}

#[test]
fn the_medium_suits_the_file() {
    let [memory, disk] = places();
    let guarantee = |place: &TempDir| {
        let heap = Options::new().size(1 << 20).create(text(&heap_file(place))).unwrap();
        heap.medium().guarantee()
    };
    assert_eq!(guarantee(&memory), Guarantee::Memory);
    assert_eq!(guarantee(&disk), Guarantee::File);
    // A log of its own also where none is needed.
    let path = memory.path().join("b.heap");
    let options = Options::new().size(1 << 20).medium(Choice::Logged);
    let heap = options.create(text(&path)).unwrap();
    assert_eq!(heap.medium().guarantee(), Guarantee::File);
    numbers(&heap).push(1).unwrap();
    heap.checkpoint().unwrap();
    numbers(&heap).push(2).unwrap();
    let (copy, opened) = Options::new().roots(NUMBERS).copy(text(&path)).unwrap();
    assert!(!opened.was_clean, "an open heap is not closed");
    assert_eq!(numbers(&copy).iter().collect::<Vec<_>>(), [1], "as of the last checkpoint");
    heap.close().unwrap();
}

#[test]
fn what_a_heap_was_made_to_lie_on_is_remembered() {
    let [memory, disk] = places();
    for (place, choice, guarantee) in [
        (&disk, Choice::Mapped, Guarantee::Memory),
        (&memory, Choice::Mapped, Guarantee::Memory),
        (&memory, Choice::Logged, Guarantee::File),
        (&disk, Choice::Logged, Guarantee::File),
    ] {
        let path = place.path().join(format!("{choice:?}.heap"));
        let options = Options::new().size(1 << 20);
        let heap = options.medium(choice).create(text(&path)).unwrap();
        numbers(&heap).push(1).unwrap();
        heap.checkpoint().unwrap();
        numbers(&heap).push(2).unwrap();
        heap.abandon();
        let (heap, _) = Options::new().roots(NUMBERS).open(text(&path)).unwrap();
        assert_eq!(heap.medium().guarantee(), guarantee);
        let kept = if choice == Choice::Mapped { &[1, 2][..] } else { &[1] };
        assert_eq!(numbers(&heap).iter().collect::<Vec<_>>(), kept);
        heap.close().unwrap();
        // The log of a heap that was closed may be lost: it is one with a log all the same.
        let _ = std::fs::remove_file(path.with_extension("heap.wal"));
        let (heap, _) = Options::new().open(text(&path)).unwrap();
        assert_eq!(heap.medium().guarantee(), guarantee);
    }
}

/// A medium in the options overrides the heap's own for that time, and nothing that was promised is lost.
#[test]
fn an_option_is_followed_and_what_is_only_in_a_log_is_not_lost() {
    for place in places() {
        for made in [Choice::Auto, Choice::Mapped, Choice::Logged] {
            let path = place.path().join(format!("{made:?}.heap"));
            let heap = Options::new().size(1 << 20).medium(made).create(text(&path)).unwrap();
            numbers(&heap).push(0).unwrap();
            heap.close().unwrap();
            let mut kept = vec![0];
            for (turn, chosen) in
                [Choice::Logged, Choice::Mapped, Choice::Logged, Choice::Auto].iter().enumerate()
            {
                let options = Options::new().roots(NUMBERS).medium(*chosen);
                let (heap, _) = options.open(text(&path)).unwrap();
                let guarantee = heap.medium().guarantee();
                match chosen {
                    Choice::Mapped => assert_eq!(guarantee, Guarantee::Memory),
                    Choice::Logged => assert_eq!(guarantee, Guarantee::File),
                    Choice::Auto => {}
                }
                let mut vector = numbers(&heap);
                assert_eq!(vector.iter().collect::<Vec<_>>(), kept, "{made:?}, turn {turn}");
                let number = 10 * turn as u64;
                vector.push(number + 1).unwrap();
                heap.checkpoint().unwrap();
                kept.push(number + 1);
                vector.push(number + 2).unwrap();
                if guarantee == Guarantee::Memory {
                    kept.push(number + 2);
                }
                // A log is left with a record, or a file that was not closed.
                heap.abandon();
                let copy = Options::new().roots(NUMBERS).copy(text(&path)).unwrap().0;
                assert_eq!(
                    numbers(&copy).iter().collect::<Vec<_>>(),
                    kept,
                    "{made:?}, turn {turn}"
                );
            }
        }
    }
}

#[test]
fn a_log_that_cannot_be_used_is_not_passed_over() {
    for place in places() {
        let path = heap_file(&place);
        let options = Options::new().size(1 << 20);
        let heap = options.medium(Choice::Logged).create(text(&path)).unwrap();
        numbers(&heap).push(1).unwrap();
        heap.checkpoint().unwrap();
        heap.abandon();
        let (log, elsewhere) = (path.with_extension("heap.wal"), place.path().join("elsewhere"));
        std::fs::rename(&log, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &log).unwrap();
        for choice in [Choice::Auto, Choice::Mapped, Choice::Logged] {
            let refused = Options::new().medium(choice).open(text(&path)).err();
            assert_eq!(refused, Some(Error::NotALog), "{choice:?}");
        }
        // That of another heap is no better.
        std::fs::remove_file(&log).unwrap();
        let other = options.medium(Choice::Logged).create(text(&place.path().join("b.heap")));
        let other = other.unwrap();
        numbers(&other).push(2).unwrap();
        other.checkpoint().unwrap();
        other.abandon();
        std::fs::rename(place.path().join("b.heap.wal"), &log).unwrap();
        for choice in [Choice::Auto, Choice::Mapped, Choice::Logged] {
            let refused = Options::new().medium(choice).open(text(&path)).err();
            assert_eq!(refused, Some(Error::ForeignLog), "{choice:?}");
        }
        assert_eq!(spandrel_pheap::copy(text(&path)).err(), Some(Error::ForeignLog));
        std::fs::rename(&elsewhere, &log).unwrap();
        let (heap, _) = Options::new().roots(NUMBERS).open(text(&path)).unwrap();
        assert_eq!(numbers(&heap).iter().collect::<Vec<_>>(), [1]);
    }
}

/// Where the two pages of the tie lie: part of the format.
const TIE: std::ops::Range<usize> = 643_072..651_264;

#[test]
fn a_damaged_tie_is_an_error_that_names_the_way_out() {
    for (place, choice) in places().iter().zip([Choice::Mapped, Choice::Logged]) {
        let path = heap_file(place);
        let heap = Options::new().size(1 << 20).medium(choice).create(text(&path)).unwrap();
        numbers(&heap).push(1).unwrap();
        heap.close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[TIE].fill(0xff);
        std::fs::write(&path, &bytes).unwrap();
        let why = Options::new().open(text(&path)).err().unwrap();
        assert_eq!((why, why.errno()), (Error::DamagedTie, libc::EBADMSG));
        assert!(
            why.to_string().ends_with("repair --forget-log', or the option forget_log"),
            "{why}"
        );
        assert!(std::fs::read(&path).unwrap() == bytes, "nothing is written");
        let (heap, _) = Options::new().forget_log().open(text(&path)).unwrap();
        assert_eq!(numbers(&heap).iter().collect::<Vec<_>>(), [1]);
        heap.close().unwrap();
        Options::new().open(text(&path)).unwrap();
    }
}

#[test]
fn one_has_it_and_it_is_no_link() {
    for place in places() {
        let path = heap_file(&place);
        let heap = Options::new().size(1 << 20).create(text(&path)).unwrap();
        assert_eq!(Options::new().open(text(&path)).err(), Some(Error::Locked));
        drop(heap);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(Options::new().open(text(&link)).err(), Some(Error::System(libc::ELOOP)));
        let again = Options::new().create(text(&path));
        assert_eq!(again.err(), Some(Error::System(libc::EEXIST)));
        let none = place.path().join("none");
        assert_eq!(Options::new().open(text(&none)).err(), Some(Error::System(libc::ENOENT)));
        std::fs::write(&none, "text").unwrap();
        assert_eq!(Options::new().open(text(&none)).err(), Some(Error::NotAHeap));
    }
}

#[test]
fn a_fixed_heap_is_where_it_was_or_not_opened() {
    let [place, _] = places();
    let path = heap_file(&place);
    let heap = Options::new().size(1 << 20).limit(1 << 30).fixed().create(text(&path)).unwrap();
    let base = heap.base();
    // Addresses in it are pointers.
    let (first, second) = (heap.alloc_zeroed(64).unwrap(), heap.alloc_zeroed(64).unwrap());
    // SAFETY: an object.
    unsafe { first.cast().write(second) };
    heap.set_root(0, Some(first)).unwrap();
    heap.abandon();
    let (heap, opened) = Options::new().limit(1 << 30).open(text(&path)).unwrap();
    assert_eq!((heap.base(), opened.collected.unwrap().live), (base, 2));
    heap.close().unwrap();
    // SAFETY: what is mapped there is this test's.
    let taken = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        libc::mmap(base.as_ptr().cast(), 4096, libc::PROT_NONE, flags, -1, 0)
    };
    assert_eq!(taken, base.as_ptr().cast());
    let refused = Options::new().limit(1 << 30).open(text(&path)).err();
    let taken = Some(Error::BaseTaken(base.as_ptr() as u64));
    assert_eq!(refused, taken);
    assert_eq!(spandrel_pheap::copy(text(&path)).err(), taken);
}

#[test]
fn what_is_cut_off_is_said_to_be() {
    for place in places() {
        let path = heap_file(&place);
        Options::new().size(4 << 20).create(text(&path)).unwrap().close().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(3 << 20).unwrap();
        let wrong = Options::new().open(text(&path)).err();
        assert_eq!(wrong, Some(Error::Truncated { has: 3 << 20, needs: 4 << 20 }));
        // Of little that is left only the first line says what it was.
        for (left, wrong) in [
            (700 << 10, Error::Truncated { has: 700 << 10, needs: 704 << 10 }),
            (4096, Error::Truncated { has: 4096, needs: 704 << 10 }),
            (100, Error::Truncated { has: 100, needs: 704 << 10 }),
            (63, Error::NotAHeap),
            (0, Error::NotAHeap),
        ] {
            file.set_len(left).unwrap();
            assert_eq!(Options::new().open(text(&path)).err(), Some(wrong));
            assert_eq!(spandrel_pheap::copy(text(&path)).err(), Some(wrong));
        }
    }
}

#[test]
fn a_full_heap_is_an_error_and_goes_on() {
    let [place, _] = places();
    let heap =
        Options::new().size(1 << 20).limit(2 << 20).create(text(&heap_file(&place))).unwrap();
    let mut objects = Vec::new();
    let full = loop {
        match heap.alloc(10_000) {
            Ok(object) => objects.push(object),
            Err(why) => break why,
        }
    };
    assert_eq!(full, Error::Full);
    // SAFETY: the test owns the object.
    unsafe { heap.free(objects.pop().unwrap()).unwrap() };
    assert!(heap.alloc(10_000).is_ok());
}

#[test]
fn a_watcher_hears_how_far_a_collection_is() {
    let [place, _] = places();
    let path = heap_file(&place);
    let mut heap = Options::new().size(1 << 20).create(text(&path)).unwrap();
    // More than a region, in a row of objects of which each leads to the next.
    let mut before = 0;
    for _ in 0..200_000 {
        let object = heap.alloc_zeroed(400).unwrap();
        // SAFETY: an object of its own.
        unsafe { object.cast::<u64>().write(before) };
        before = heap.pointer(object).raw();
        heap.set_root(0, Some(object)).unwrap();
    }
    let told = std::sync::Mutex::new(Vec::new());
    let watch = |done, all| told.lock().unwrap().push((done, all));
    let rising = |passes: usize| {
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert!(told.len() >= 5 * passes, "{told:?}");
        let ends = told.iter().filter(|(done, all)| done == all).count();
        assert!(ends >= passes && told.last().is_some_and(|(done, all)| done == all), "{told:?}");
        for pair in told.windows(2) {
            let [(before, all), (after, same)] = [pair[0], pair[1]];
            assert!(after <= same && (before == all || all == same && before <= after), "{told:?}");
        }
    };
    assert_eq!(heap.collect_watched(&[], Some(&watch)).unwrap().live, 200_000);
    rising(1);
    heap.collect(&[]).unwrap();
    assert!(told.lock().unwrap().is_empty(), "there is no watcher");
    heap.close().unwrap();
    let medium = spandrel_pheap::copy(text(&path)).unwrap();
    let survey =
        spandrel_pheap::check_watched(&medium, &[], false, &mut |_| (), Some(&watch)).unwrap();
    assert_eq!(survey.live, 200_000);
    rising(1);
    let repaired = spandrel_pheap::repair_watched(&medium, false, &mut |_| (), Some(&watch));
    assert_eq!(repaired.map(|repaired| repaired.count()), Ok(0));
    rising(1);
}

#[test]
fn a_child_of_a_fork_is_refused() {
    let [place, _] = places();
    let heap = Options::new().size(1 << 20).create(text(&heap_file(&place))).unwrap();
    let [object, medium] = [64, 20_000].map(|bytes| heap.alloc(bytes).unwrap());
    // SAFETY: within the object.
    unsafe { object.cast::<u64>().write(7) };
    // SAFETY: the child does nothing that needs a lock which another thread may have.
    match unsafe { libc::fork() } {
        0 => {
            let is_refused = heap.alloc(64) == Err(Error::Forked)
                && heap.alloc(20_000) == Err(Error::Forked)
                && heap.alloc(100_000) == Err(Error::Forked)
                && heap.set_root(0, None) == Err(Error::Forked)
                && heap.checkpoint() == Err(Error::Forked)
                // SAFETY: it is refused.
                && [object, medium].map(|object| unsafe { heap.free(object) }) == [Err(Error::Forked); 2];
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_refused)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the child made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }
    // SAFETY: the test owns both objects, and the child stored nothing to what they share.
    unsafe {
        assert_eq!(object.cast::<u64>().read(), 7);
        heap.free(object).unwrap();
        heap.free(medium).unwrap();
    }
}

#[test]
fn threads_share_a_heap_and_what_they_keep_comes_back() {
    let [place, _] = places();
    let path = heap_file(&place);
    let heap = Options::new().size(1 << 20).create(text(&path)).unwrap();
    std::thread::scope(|scope| {
        let (give, take) = std::sync::mpsc::channel::<usize>();
        scope.spawn(|| {
            let give = give;
            for round in 0..200_000usize {
                let object = heap.alloc(16 + round % 500).unwrap();
                give.send(object.as_ptr() as usize).unwrap();
            }
        });
        scope.spawn(|| {
            for object in take {
                // SAFETY: the sending thread has given up the object with the message.
                unsafe { heap.free(std::ptr::NonNull::new(object as *mut u8).unwrap()).unwrap() };
            }
        });
    });
    // Both threads have ended: all is free, but for a block of each size.
    heap.close().unwrap();
    let (mut heap, opened) = Options::new().open(text(&path)).unwrap();
    assert!(opened.was_clean);
    let collected = heap.collect(&[]).unwrap();
    assert_eq!((collected.live, collected.freed), (0, 0));
}

/// Run as a process of its own, which is killed.
#[test]
#[ignore = "is what the next test kills"]
fn worker() {
    let path = std::env::var("HEAP").unwrap();
    let (heap, _) = Options::new().roots(NUMBERS).open(&path).unwrap();
    let mut map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
    let mut vector = numbers(&heap);
    for number in vector.len() as u64.. {
        map.insert(number % 1000, number).unwrap();
        vector.push(number).unwrap();
        heap.checkpoint().unwrap();
        println!("{number}");
    }
}

#[test]
fn a_process_that_is_killed_leaves_what_it_had_done() {
    use std::io::{BufRead, BufReader};
    for place in places() {
        let path = heap_file(&place);
        Options::new().size(1 << 20).create(text(&path)).unwrap().close().unwrap();
        let mut said: Option<u64> = None;
        for round in 0..12 {
            let mut worker = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "worker", "--nocapture"])
                .env("HEAP", &path)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
            let mut heard = |count| {
                let numbers =
                    lines.by_ref().map_while(Result::ok).filter_map(|line| line.parse().ok());
                numbers.take(count).last()
            };
            said = heard(50 + round * 37).or(said);
            worker.kill().unwrap();
            said = heard(usize::MAX).or(said);
            worker.wait().unwrap();
            let types =
                [NUMBERS[0], RootType::of::<spandrel_pheap::collections::MapHead<u64, u64>>("map")];
            let (heap, opened) = Options::new().roots(&types).open(text(&path)).unwrap();
            assert!(!opened.was_clean);
            let last = said.unwrap();
            let vector = numbers(&heap);
            let len = vector.len() as u64;
            assert!(len == last + 1 || len == last + 2, "{len} after {last}");
            assert!(vector.iter().enumerate().all(|(at, number)| at as u64 == number));
            let map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
            for number in len.saturating_sub(1000).max(1)..len {
                let found = map.get(&(number % 1000)).unwrap();
                assert!(
                    found == number || found == len && (len % 1000 == number % 1000),
                    "{number}: {found}"
                );
            }
            heap.close().unwrap();
        }
    }
}

#[test]
fn what_is_cut_off_while_it_is_open_is_said_to_be() {
    for place in places() {
        let path = heap_file(&place);
        let heap = Options::new().size(4 << 20).create(text(&path)).unwrap();
        let kept = heap.alloc_zeroed(64).unwrap();
        heap.set_root(0, Some(kept)).unwrap();
        heap.checkpoint().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(3 << 20).unwrap();
        let cut_off = Err(Error::Truncated { has: 3 << 20, needs: 4 << 20 });
        assert_eq!(heap.checkpoint(), cut_off);
        // To make it longer would hide it.
        assert_eq!(heap.alloc(8 << 20).map(|_| ()), cut_off);
        assert_eq!(heap.close(), cut_off);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 << 20);
    }
}

/// What a repair has put right is in the file when it returns, on every medium.
#[test]
fn a_repair_of_one_of_two_records_is_in_the_file() {
    for place in places() {
        let path = heap_file(&place);
        let heap = Options::new().size(1 << 20).create(text(&path)).unwrap();
        numbers(&heap).push(1).unwrap();
        heap.close().unwrap();
        // A bit of each record of the superblock, one at a time.
        for at in [0x90039, 0x91043] {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let damaged = |path: &Path| {
                let copy = spandrel_pheap::copy(text(path)).unwrap();
                spandrel_pheap::check(&copy, NUMBERS, &mut |_| ()).unwrap().damaged
            };
            assert_eq!(damaged(&path), 1, "{at:#x}");
            let medium = Options::new().open_medium(text(&path)).unwrap();
            let repaired = spandrel_pheap::repair(&medium, &mut |_| ()).unwrap();
            drop(medium);
            assert!(repaired.exact == 1 && repaired.is_closed, "{repaired:?}");
            assert_eq!(damaged(&path), 0, "{at:#x}");
        }
    }
}
