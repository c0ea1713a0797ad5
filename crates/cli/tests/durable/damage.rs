//! Files of a state that are not what its batches have made them.

use super::*;

/// Where a file has these bytes, and what stands there instead of the middle one from then on.
fn flip(file: &Path, bytes: &[u8]) -> usize {
    let mut all = std::fs::read(file).unwrap();
    let at = all.windows(bytes.len()).position(|found| found == bytes).unwrap() + bytes.len() / 2;
    all[at] ^= 1;
    std::fs::write(file, all).unwrap();
    at
}

/// On a disk and in memory, closed and killed, also with another log: the files are compared with each other.
#[test]
fn what_the_state_has_otherwise_than_its_batches_is_found() {
    for folder in ["/dev/shm", "/tmp"] {
        let place = tempfile::tempdir_in(folder).unwrap();
        let path = place.path().join("state");
        let open = |log| {
            let options = Options::new().log_size(log);
            Durable::open(&path, options, |arena| SortedBytes::open(arena, "of")).unwrap()
        };
        let value = |number: u32| format!("the value of the key {number:>60}").into_bytes();
        let db = open(1 << 20);
        // Most of a megabyte of log, and more than that: the first records are overwritten.
        for round in 0..3u32 {
            for number in 0..1000u32 {
                db.write(|map| map.insert(&number.to_be_bytes(), &value(round * 1000 + number)))
                    .unwrap()
                    .unwrap();
            }
        }
        let lost = place.path().join("lost");
        killed(&path, &lost);
        says(&spandrel("verify", &lost), 0, "the heap of the state is sound");
        db.close().unwrap();
        says(
            &spandrel("verify", &path),
            0,
            "that the log still holds have stored; the heap of the state is sound",
        );
        // One that the log still has. No sum of the heap covers an object.
        let damaged = place.path().join("damaged");
        killed(&path, &damaged);
        let at = flip(&damaged.join("state"), &value(2999));
        let words = format!("in 1 byte, the first at {at:#x} of the file");
        says(&spandrel("verify", &damaged), 1, &words);
        // With the log of another length nothing is left to compare with.
        let db = open(2 << 20);
        db.close().unwrap();
        says(&spandrel("verify", &path), 0, "the log has no batch that the state lacks");
        let db = open(2 << 20);
        db.write(|map| map.insert(b"last", &value(3001))).unwrap().unwrap();
        db.close().unwrap();
        says(&spandrel("verify", &path), 0, "that the log still holds have stored");
        let at = flip(&path.join("state"), &value(3001));
        says(&spandrel("verify", &path), 1, &format!("the first at {at:#x} of the file"));
    }
}

/// A file that was copied in part, of a process that was killed with a batch that only the log has: bytes that no batch of the log has stored are missing.
#[test]
fn a_state_that_was_cut_off_is_refused() {
    for place in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        let path = place.path().join("state");
        let open = |path: &Path| {
            let options = Options::new().log_size(1 << 20);
            Durable::open(path, options, |arena| SortedBytes::open(arena, "of"))
        };
        let db = open(&path).unwrap();
        for number in 0..3000u32 {
            db.write(|map| map.insert(&number.to_be_bytes(), &[7; 1000])).unwrap().unwrap();
        }
        db.close().unwrap();
        let db = open(&path).unwrap();
        db.write(|map| map.insert(b"after", b"acknowledged")).unwrap().unwrap();
        let (cut, copy) = (place.path().join("cut"), place.path().join("copy"));
        killed(&path, &cut);
        let state = std::fs::OpenOptions::new().write(true).open(cut.join("state")).unwrap();
        let bytes = state.metadata().unwrap().len();
        // Longer first: what is refused changes nothing.
        for len in (1..8).rev().map(|part| bytes * part / 8).filter(|len| *len > 800 << 10) {
            state.set_len(len).unwrap();
            let words = "the file `state` was cut off";
            says(&spandrel("verify", &cut), 1, words);
            for task in ["info", "recover", "compact"] {
                says(&spandrel(task, &cut), 2, words);
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
            let copied = command.args(["durable", "copy"]).args([&cut, &copy]).output().unwrap();
            says(&copied, 2, words);
            assert!(!copy.exists());
            assert_eq!(open(&cut).err().unwrap().why, Error::CutState);
            assert_eq!(state.metadata().unwrap().len(), len);
        }
        db.close().unwrap();
        // A state that became shorter by the command, in order, is opened and killed as any other.
        let db = open(&path).unwrap();
        db.write(|map| (0..3000u32).try_for_each(|key| map.remove(&key.to_be_bytes()).map(drop)))
            .unwrap()
            .unwrap();
        db.close().unwrap();
        says(&spandrel("compact", &path), 0, " released; it has ");
        for round in 0..3u32 {
            let db = open(&path).unwrap();
            db.write(|map| map.insert(&round.to_be_bytes(), &[8; 100_000])).unwrap().unwrap();
            let again = place.path().join(format!("again{round}"));
            killed(&path, &again);
            db.close().unwrap();
            says(&spandrel("verify", &again), 0, "the heap of the state is sound");
            says(&spandrel("recover", &again), 0, "brought into the state");
        }
    }
}

/// Also where less is left than the least heap has, or its records are not.
#[test]
fn damage_of_the_heap_is_no_wrong_use() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("state");
    let db = open(&path);
    db.write(|s| s.of.insert(1, 2)).unwrap().unwrap();
    db.close().unwrap();
    for len in [600 << 10, 100 << 10, 20 << 10, 50, 0] {
        let cut = place.path().join(format!("cut{len}"));
        killed(&path, &cut);
        let state = std::fs::OpenOptions::new().write(true).open(cut.join("state")).unwrap();
        state.set_len(len).unwrap();
        says(&spandrel("verify", &cut), 1, &format!("cut{len}: "));
    }
}

struct Hidden {
    arena: Arc<Arena>,
    of: HashMap<u64, u64>,
}

/// No word of the state is the address of an object that a program finds by another number: it is an object all the same.
#[test]
fn what_no_collection_would_find_stays_when_a_state_is_compacted() {
    const OBJECTS: u64 = 100;
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("state");
    let open = |path: &Path| {
        let options = Options::new().log_size(1 << 20);
        Durable::open(path, options, |arena| {
            Ok(Hidden { arena: Arc::clone(arena), of: HashMap::open(arena, "of")? })
        })
        .unwrap()
    };
    let db = open(&path);
    let bytes = |number: u64| [100, 70_000][number as usize % 2];
    for number in 0..OBJECTS {
        db.write(|s| {
            let object = s.arena.alloc_zeroed(bytes(number)).unwrap();
            // SAFETY: within the object, which no other command knows.
            unsafe { object.cast::<u64>().write(number) };
            s.of.insert(number, !(object.as_ptr() as u64)).unwrap();
            let free = s.arena.alloc_zeroed(1 << 20).unwrap();
            // SAFETY: no other code uses it.
            unsafe { s.arena.free(free).unwrap() };
        })
        .unwrap();
    }
    let object_of = |db: &Durable<Hidden>, number: u64| {
        db.read(|s| std::ptr::NonNull::new(!s.of.get(&number).unwrap() as *mut u64).unwrap())
    };
    let (lost, shut) = (place.path().join("lost"), place.path().join("shut"));
    killed(&path, &lost);
    db.close().unwrap();
    killed(&path, &shut);
    for state in [&lost, &shut] {
        says(&spandrel("compact", state), 0, "; it has ");
        says(&spandrel("verify", state), 0, "the heap of the state is sound");
        let db = open(state);
        for number in 0..OBJECTS {
            let object = object_of(&db, number);
            let room = db.read(|s| s.arena.usable_bytes(object.cast()));
            assert!(room.unwrap() >= bytes(number), "{number}");
            // SAFETY: an object of the state.
            assert_eq!(unsafe { object.read() }, number);
        }
        // Nothing that is made now is in the place of one.
        db.write(|s| {
            for number in 0..OBJECTS {
                s.arena.alloc_zeroed(bytes(number)).unwrap();
            }
        })
        .unwrap();
        for number in 0..OBJECTS {
            // SAFETY: as above.
            assert_eq!(unsafe { object_of(&db, number).read() }, number);
        }
        db.close().unwrap();
        says(&spandrel("verify", state), 0, "the heap of the state is sound");
        let file = state.join("state");
        says(&heap("gc", &[&file]), 2, "spandrel durable compact");
        says(&heap("shrink", &[&file]), 2, "spandrel durable compact");
        says(&heap("dump", &[&file]), 0, "of allocated objects are not in the dump");
    }
}

/// Small objects that are gone leave blocks without any, which a process that is killed does not give back itself.
#[test]
fn blocks_without_objects_are_released_of_a_state_that_was_killed() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, lost) = (place.path().join("state"), place.path().join("lost"));
    let open = |path: &Path| {
        Durable::open(path, Options::new(), |arena| SortedBytes::open(arena, "of")).unwrap()
    };
    let key = |number: u32| number.to_be_bytes();
    let db = open(&path);
    for number in 0..20_000 {
        db.write(|map| map.insert(&key(number), &[7; 500])).unwrap().unwrap();
    }
    for number in 1..20_000 {
        db.write(|map| map.remove(&key(number)).map(drop)).unwrap().unwrap();
    }
    killed(&path, &lost);
    let before = lost.join("state").metadata().unwrap().len();
    says(&spandrel("compact", &lost), 0, " released; it has ");
    let after = lost.join("state").metadata().unwrap().len();
    assert!(after < before / 4, "{before} bytes, and {after}");
    db.close().unwrap();
    let db = open(&lost);
    assert_eq!(db.read(|map| (map.len(), map.get(&key(0)).map(<[u8]>::len))), (1, Some(500)));
}

/// Mark bits of a durable state say what is allocated, whether it was closed or not.
#[test]
fn a_flipped_mark_bit_of_a_state_that_was_killed_is_found_and_mended() {
    /// The mark bits of the heap's first 1,024 blocks.
    const MARKS: std::ops::Range<usize> = 0x10000..0x90000;
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, lost) = (place.path().join("state"), place.path().join("lost"));
    let db = open(&path);
    // More than the log holds.
    for key in 0..20_000 {
        db.write(|s| s.of.insert(key % 3000, key % 3000)).unwrap().unwrap();
    }
    killed(&path, &lost);
    db.close().unwrap();
    says(&spandrel("recover", &lost), 0, "brought into the state");
    let file = lost.join("state");
    let (sound, log) = (std::fs::read(&file).unwrap(), std::fs::read(lost.join("log")).unwrap());
    let set: Vec<usize> = MARKS.filter(|at| sound[*at] != 0).collect();
    let places = [set[0], set[set.len() / 2], set[set.len() - 1], set[0] ^ 7];
    for at in places {
        for bit in [0, 5] {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << bit;
            std::fs::write(&file, damaged).unwrap();
            std::fs::write(lost.join("log"), &log).unwrap();
            // Also by the log, where it has the batch that has stored the bit.
            says(&spandrel("verify", &lost), 1, "");
            says(&heap("check", &[&file]), 1, "mark bit");
            let command = ["heap", "repair", "--write", "--no-backup"];
            let mut mend = Command::new(env!("CARGO_BIN_EXE_spandrel"));
            says(&mend.args(command).arg(&file).output().unwrap(), 0, "it is sound now");
            // The state has all of it, and another one is begun.
            says(
                &spandrel("verify", &lost),
                1,
                "if a heap command has changed the closed state, remove the log",
            );
            std::fs::remove_file(lost.join("log")).unwrap();
            says(&spandrel("verify", &lost), 0, "the heap of the state is sound");
            let db = open(&lost);
            assert!(db.read(|s| (0..3000).all(|key| s.of.get(&key) == Some(key))));
            db.write(|s| s.of.insert(1, 1)).unwrap().unwrap();
            db.close().unwrap();
        }
    }
}

/// Batches that only the log has are a part of the heap that is checked.
#[test]
fn the_heap_is_checked_with_the_batches_that_the_state_lacks() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, older) = (place.path().join("state"), place.path().join("older"));
    let db = open(&path);
    db.close().unwrap();
    killed(&path, &older);
    let db = open(&path);
    for key in 0..100 {
        db.write(|s| s.of.insert(key, key)).unwrap().unwrap();
    }
    // The state as it was, and a log that has a hundred batches more.
    std::fs::copy(path.join("log"), older.join("log")).unwrap();
    let output = spandrel("verify", &older);
    says(&output, 0, "batches of the log continue the state, and each is whole");
    says(&output, 0, "with all batches the heap of the state is sound");
    // The heap's first header: no batch has stored it. A sum of the heap has it.
    let mut state = std::fs::read(older.join("state")).unwrap();
    let uuid = state[24..40].to_vec();
    let copy = state.windows(16).rposition(|found| found == uuid).unwrap();
    state[copy] ^= 1;
    std::fs::write(older.join("state"), state).unwrap();
    let output = spandrel("verify", &older);
    says(&output, 1, "one of the two copies of the heap's identity");
    says(&output, 1, "the state with all batches is damaged in 1 place");
    db.close().unwrap();
}
