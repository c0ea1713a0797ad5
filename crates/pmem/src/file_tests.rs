//! What a file keeps from checkpoint to checkpoint: whatever else happens to it, its log and its process.

use super::*;
use crate::media::{Choice, Media, Name};
use crate::testing::{Directory, FIRST, LIMIT};
use spandrel_os::image::Access;
use std::prelude::v1::*;

type Watch = unsafe fn(*mut u8, usize) -> Written;
/// Both ways to know what was written.
const WAYS: [Watch; 2] = [Written::watch, Written::watch_own];

fn open_by(place: &Directory, watch: Watch) -> Result<File, Failed> {
    let place = place.place();
    File::of(files::locked(&place)?, &place, watch)
}

fn open(place: &Directory) -> Result<File, Failed> {
    File::open(&place.place())
}

fn create(place: &Directory, bytes: usize, watch: Watch) -> File {
    place.make(bytes).unwrap();
    open_by(place, watch).unwrap()
}

fn store(file: &File, at: usize, word: u64) {
    // SAFETY: the test's own.
    unsafe { file.store_word(FIRST + at, word) };
}

fn load(file: &File, at: usize) -> u64 {
    // SAFETY: it is mapped.
    unsafe { file.base().as_ptr().add(FIRST + at).cast::<u64>().read_volatile() }
}

#[test]
fn what_was_stored_since_the_last_checkpoint_is_gone() {
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 1 << 20, watch);
        store(&file, 0, 1);
        store(&file, 512 << 10, 2);
        file.checkpoint().unwrap();
        store(&file, 0, 3);
        store(&file, 4096, 4);
        let copy = place.copy();
        assert_eq!(open(&place).err(), Some(Failed(libc::EWOULDBLOCK)));
        let words = |file: &File| [0, 4096, 512 << 10].map(|at| load(file, at));
        assert_eq!(words(&open_by(&copy, watch).unwrap()), [1, 0, 2]);
        file.checkpoint().unwrap();
        assert_eq!(words(&file), [3, 4, 2]);
        drop(file);
        assert_eq!(words(&open_by(&place, watch).unwrap()), [3, 4, 2]);
        assert_eq!(words(&open_by(&copy, watch).unwrap()), [1, 0, 2], "recovered, and left so");
    }
}

/// The image lacks a record, and has by chance what the page has again: that the page is equal to the image says nothing then.
#[test]
fn a_page_is_compared_with_no_image_that_lacks_a_record() {
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 1 << 20, watch);
        store(&file, 0, 1);
        file.checkpoint().unwrap();
        file.state.lock().wal.fall_behind();
        for word in [2, 1] {
            store(&file, 0, word);
            file.checkpoint().unwrap();
            assert_eq!(load(&open(&place.copy()).unwrap(), 0), word);
        }
        file.settle().unwrap();
        assert_eq!(load(&open(&place.copy()).unwrap(), 0), 1);
    }
}

/// An attempt that found the disk full leaves its pages to the next one; threads write to some of them in between.
#[test]
fn a_page_is_in_a_record_once_however_many_attempts_failed() {
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 1 << 20, watch);
        file.checkpoint().unwrap();
        file.settle().unwrap();
        for _ in 0..3 {
            file.state.lock().runs.add(FIRST, 4096);
        }
        store(&file, 0, 5);
        file.checkpoint().unwrap();
        assert_eq!(file.state.lock().wal.bytes(), 8192, "one page, and its header");
        assert_eq!(load(&open(&place.copy()).unwrap(), 0), 5);
    }
}

#[test]
fn a_checkpoint_that_the_caller_refuses_changes_nothing() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    store(&file, 0, 2);
    file.checkpoint_still(&|_| ()).unwrap();
    let copy = open(&place.copy()).unwrap();
    assert_eq!((copy.bytes(), load(&copy, 0)), (1 << 20, 1));
    file.checkpoint().unwrap();
    assert_eq!(load(&open(&place.copy()).unwrap(), 0), 2);
}

#[test]
fn records_of_any_length_are_in_the_image() {
    for (watch, bytes) in
        WAYS.into_iter().flat_map(|w| [4096, RECORD_BYTES, 3 * RECORD_BYTES / 2].map(|b| (w, b)))
    {
        let place = Directory::new();
        let file = create(&place, bytes + (1 << 20), watch);
        for round in 1..=2 {
            (0..bytes).step_by(4096).for_each(|at| store(&file, at, round * (at as u64 + 1)));
            file.checkpoint().unwrap();
            // Without the log: the image itself.
            let image = std::fs::read(place.path("image")).unwrap();
            for at in (0..bytes).step_by(4096) {
                let word = image[FIRST + at..].first_chunk().map(|word| u64::from_le_bytes(*word));
                assert_eq!(word, Some(round * (at as u64 + 1)), "{at}");
            }
        }
    }
}

#[test]
fn it_grows_where_it_is_and_what_is_new_is_in_the_next_checkpoint() {
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 64 << 10, watch);
        file.checkpoint().unwrap();
        let base = file.base();
        file.grow(3 << 20).unwrap();
        assert_eq!((file.base(), file.bytes()), (base, 3 << 20));
        let last = (3 << 20) - 8 - FIRST;
        store(&file, last, 5);
        let before = place.copy();
        file.checkpoint().unwrap();
        store(&file, last, 6);
        let after = open(&place.copy()).unwrap();
        assert_eq!((after.bytes(), load(&after, last)), (3 << 20, 5));
        assert_eq!(load(&open(&before).unwrap(), last), 0);
        assert_eq!(file.grow(LIMIT + 1), Err(Failed(libc::ENOMEM)));
    }
}

#[test]
fn a_log_begins_anew_when_it_has_become_long() {
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 41 << 20, watch);
        for round in 1..=4 {
            (0..40 << 20).step_by(4096).for_each(|at| store(&file, at, round));
            file.checkpoint().unwrap();
            store(&file, 0, 99);
            let copy = open(&place.copy()).unwrap();
            assert!((0..40 << 20).step_by(4096).all(|at| load(&copy, at) == round));
        }
        let log = std::fs::metadata(place.path("image.wal")).unwrap().len();
        assert!(log < 100 << 20, "{log}");
    }
}

/// What threads store while checkpoints are made: each of their words is in the first checkpoint that begins after it, and a checkpoint that has
/// returned is never harmed by a later store.
#[test]
fn what_other_threads_store_is_in_the_next_checkpoint_and_harms_none() {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    const WORDS: usize = 64;
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 1 << 20, watch);
        let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1.. {
                    // A page each, in order.
                    (0..WORDS).for_each(|word| store(&file, word * 4096, round));
                    done.store(round, Release);
                    if is_over.load(Relaxed) {
                        break;
                    }
                }
            });
            let mut last = 0;
            for _ in 0..60 {
                let least = done.load(Acquire);
                file.checkpoint().unwrap();
                let copy = open(&place.copy()).unwrap();
                let words: Vec<u64> = (0..WORDS).map(|word| load(&copy, word * 4096)).collect();
                assert!(words.iter().all(|word| *word >= least.max(last)), "{least}: {words:?}");
                last = words.iter().copied().min().unwrap();
            }
            is_over.store(true, Relaxed);
        });
    }
}

#[test]
fn a_log_of_another_image_is_refused_and_stays() {
    let (place, mut other) = (Directory::new(), Directory::new());
    let file = create(&place, 64 << 10, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    drop(file);
    other.identity += 1;
    other.make(64 << 10).unwrap();
    std::fs::copy(place.path("image.wal"), other.path("image.wal")).unwrap();
    assert_eq!(open(&other).err(), Some(Failed::FOREIGN_LOG));
    std::fs::copy(other.path("image.wal"), place.path("image.wal")).unwrap();
    assert_eq!(load(&open(&place).unwrap(), 0), 1);
}

#[test]
fn what_has_the_logs_name_and_is_none_is_left_alone() {
    let place = Directory::new();
    place.make(64 << 10).unwrap();
    for text in ["a program's own text", "x"] {
        std::fs::write(place.path("image.wal"), text).unwrap();
        assert_eq!(open(&place).err(), Some(Failed::NOT_A_LOG));
        assert_eq!(Media::open(&place.place()).err(), Some(Failed::NOT_A_LOG));
        let another = Directory::new();
        std::fs::write(another.path("image.wal"), text).unwrap();
        assert_eq!(another.make(64 << 10), Err(Failed::NOT_A_LOG));
        assert_eq!(another.names(), ["image.wal"]);
        assert_eq!(std::fs::read_to_string(place.path("image.wal")).unwrap(), text);
    }
    std::fs::write(place.path("image.wal"), "").unwrap();
    drop(open(&place).unwrap());
    assert_eq!(place.names(), ["image"], "a log without records is of no use");
    std::fs::create_dir(place.path("image.wal")).unwrap();
    assert_eq!(open(&place).err(), Some(Failed::NOT_A_LOG));
}

#[test]
fn what_is_settled_needs_no_log() {
    let place = Directory::new();
    let file = create(&place, 64 << 10, Written::watch);
    store(&file, 4096, 1);
    file.checkpoint().unwrap();
    file.settle().unwrap();
    drop(file);
    assert_eq!(place.names(), ["image"]);
    assert_eq!(load(&open(&place).unwrap(), 4096), 1);
}

#[test]
fn what_was_not_settled_is_not_opened_without_its_log() {
    let place = Directory::new();
    let file = create(&place, 64 << 10, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    drop(file);
    let log = place.path("image.wal");
    let kept = std::fs::read(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(open(&place).err(), Some(Failed::MISSING_LOG));
    // A log that was emptied is as good as none.
    std::fs::write(&log, "").unwrap();
    assert_eq!(open(&place).err(), Some(Failed::MISSING_LOG));
    // One that fits is used, also where that is not demanded.
    std::fs::write(&log, &kept).unwrap();
    let given_up = Place { forgives: true, ..place.place() };
    drop(File::open(&Place { forgives: true, ..place.copy().place() }).unwrap());
    // Given up, what the log had is set aside and not looked at again.
    let mut damaged = kept.clone();
    damaged[4096 + 300] ^= 1;
    std::fs::write(&log, &damaged).unwrap();
    assert_eq!(open(&place).err(), Some(Failed::DAMAGED_LOG));
    drop(File::open(&given_up).unwrap());
    assert!(std::fs::read(place.path("image.wal.aside")).unwrap() == damaged);
    drop(open(&place).unwrap());
    std::fs::write(&log, &kept).unwrap();
    assert_eq!(open(&place).err(), Some(Failed::STALE_LOG));
}

#[test]
fn an_older_copy_refuses_the_log_of_a_newer_state() {
    let place = Directory::new();
    let file = create(&place, 64 << 10, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    file.settle().unwrap();
    let older = place.copy();
    for word in 2..4 {
        store(&file, 0, word);
        file.checkpoint().unwrap();
        file.settle().unwrap();
    }
    store(&file, 0, 9);
    file.checkpoint().unwrap();
    let crashed = place.copy();
    std::fs::copy(older.path("image"), crashed.path("image")).unwrap();
    assert_eq!(open(&crashed).err(), Some(Failed::STALE_LOG));
}

#[test]
fn what_cannot_be_made_leaves_no_file() {
    let place = Directory::new();
    assert!(place.make(1 << 45).is_err());
    assert_eq!(place.names(), [""; 0]);
    place.make(64 << 10).unwrap();
    assert_eq!(place.make(64 << 10), Err(Failed(libc::EEXIST)));
    assert_eq!(place.names(), ["image"]);
    let mut place = place;
    place.limit = 17 << 40;
    assert_eq!(open(&place).err(), Some(Failed(libc::EFBIG)));
}

#[test]
fn a_checkpoint_that_failed_fails_again() {
    let place = Directory::new();
    let file = create(&place, 64 << 10, Written::watch);
    store(&file, 0, 1);
    let mut state = file.state.lock();
    let failed: Result<(), Failed> = Err(Failed(libc::EIO));
    assert_eq!(state.note(failed), failed);
    drop(state);
    assert_eq!(file.checkpoint(), failed);
    assert_eq!(file.settle(), failed);
}

#[test]
fn memory_that_the_file_has_is_given_back() {
    for watch in WAYS {
        let place = Directory::new();
        let file = create(&place, 16 << 20, watch);
        (0..8 << 20).step_by(4096).for_each(|at| store(&file, at, 3));
        file.checkpoint().unwrap();
        store(&file, 0, 4);
        // SAFETY: no other thread has the file.
        let bytes = unsafe { file.give_back() };
        assert_eq!(bytes, (8 << 20) - 4096);
        assert!((4096..8 << 20).step_by(4096).all(|at| load(&file, at) == 3));
        assert_eq!(load(&file, 0), 4);
        (0..8 << 20).step_by(8192).for_each(|at| store(&file, at, 5));
        file.checkpoint().unwrap();
        let copy = open(&place.copy()).unwrap();
        let is_right = |at: usize| load(&copy, at) == if at.is_multiple_of(8192) { 5 } else { 3 };
        assert!((0..8 << 20).step_by(4096).all(is_right));
    }
}

/// A backup is put in the place of a file that a process has open: both would write to the same log.
#[test]
fn one_process_has_a_log_whatever_file_lies_beside_it() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    std::fs::copy(place.path("image"), place.path("backup")).unwrap();
    std::fs::rename(place.path("backup"), place.path("image")).unwrap();
    assert_eq!(open(&place).err(), Some(Failed(libc::EWOULDBLOCK)));
    let forgiving = Place { forgives: true, ..place.place() };
    assert_eq!(File::open(&forgiving).err(), Some(Failed(libc::EWOULDBLOCK)));
    store(&file, 0, 2);
    assert_eq!(file.checkpoint(), Err(Failed::REPLACED));
    drop(file);
    assert_eq!(place.names(), ["image", "image.wal"], "the log of a file without a name stays");
}

#[test]
fn a_file_that_is_not_the_one_that_was_looked_at_is_not_touched() {
    let place = Directory::new();
    drop(create(&place, 1 << 20, Written::watch));
    let before = std::fs::read(place.path("image")).unwrap();
    let at = FIRST as u64;
    for identity_at in [[at, at], [at, 1 << 30]] {
        let other = Place { identity_at: Some(identity_at), forgives: true, ..place.place() };
        assert_eq!(Media::open(&other).err(), Some(Failed(libc::ESTALE)));
        assert_eq!(Media::copy(&other).err(), Some(Failed(libc::ESTALE)));
    }
    assert!(std::fs::read(place.path("image")).unwrap() == before);
    assert_eq!(place.names(), ["image"]);
}

/// A reader that was stopped has the lock that says so, and goes on later, or never.
#[test]
fn a_reader_that_is_stopped_does_not_make_the_log_longer_for_ever() {
    let place = Directory::new();
    let bytes = 32 << 20;
    let file = create(&place, bytes, Written::watch);
    let reader = Image::open(place.place().path, Access::Read).unwrap();
    reader.share_byte(READER).unwrap();
    let mut most = 0;
    for round in 1..=2 * MOST_BYTES / bytes as u64 {
        for at in (0..bytes - FIRST).step_by(4096) {
            store(&file, at, round);
        }
        file.checkpoint().unwrap();
        most = most.max(file.state.lock().wal.bytes());
    }
    assert!((LOG_BYTES..MOST_BYTES + 2 * bytes as u64).contains(&most), "{most}");
}

#[test]
fn a_relative_name_holds_wherever_the_process_goes() {
    let name = Name::of(c"heaps/x.wal").unwrap();
    let here = std::env::current_dir().unwrap().join("heaps/x.wal");
    assert_eq!(name.text().to_str().unwrap(), here.to_str().unwrap());
    assert_eq!(Name::of(c"/x.wal").unwrap().text(), c"/x.wal");
}

#[test]
fn a_copy_that_forgives_takes_no_notice_of_a_file_in_the_place_of_the_log() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    let after = place.copy();
    for content in ["garbage", ""] {
        std::fs::write(after.path("image.wal"), content).unwrap();
        assert!(Media::copy(&after.place()).is_err(), "{content:?}");
        let forgiving = Place { forgives: true, ..after.place() };
        assert_eq!(Media::copy(&forgiving).map(drop), Ok(()), "{content:?}");
    }
    std::fs::remove_file(after.path("image.wal")).unwrap();
    std::fs::create_dir(after.path("image.wal")).unwrap();
    assert_eq!(Media::copy(&after.place()).err(), Some(Failed::NOT_A_LOG));
    let forgiving = Place { forgives: true, ..after.place() };
    assert_eq!(Media::copy(&forgiving).map(drop), Ok(()));
}

#[test]
fn what_would_be_in_a_file_without_its_name_is_not_said_to_be_durable() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    let [image, moved] = ["image", "moved"].map(|name| place.path(name));
    let is_refused = |what: &str| {
        store(&file, 0, 2);
        assert_eq!(file.checkpoint(), Err(Failed::REPLACED), "{what}");
        assert_eq!(file.settle(), Err(Failed::REPLACED), "{what}");
    };
    std::fs::rename(&image, &moved).unwrap();
    is_refused("its log stays where it was");
    std::fs::write(&image, "another file").unwrap();
    is_refused("another file has its name");
    std::fs::rename(&moved, &image).unwrap();
    // It has its name again, and all that was stored meanwhile.
    file.checkpoint().unwrap();
    assert_eq!(load(&open(&place.copy()).unwrap(), 0), 2);
    std::fs::remove_file(&image).unwrap();
    is_refused("it has no name");
    drop(file);
    let mapped = Directory::new();
    mapped.make(1 << 20).unwrap();
    let medium = Media::open(&Place { choice: Choice::Mapped, ..mapped.place() }).unwrap();
    medium.checkpoint().unwrap();
    std::fs::copy(mapped.path("image"), mapped.path("backup")).unwrap();
    std::fs::rename(mapped.path("backup"), mapped.path("image")).unwrap();
    assert_eq!(medium.checkpoint(), Err(Failed::REPLACED));
}

#[test]
fn files_that_are_moved_together_are_used_where_they_are() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    for name in ["image", "image.wal"] {
        std::fs::rename(place.path(name), place.path(&format!("{name}.moved"))).unwrap();
    }
    store(&file, 0, 7);
    file.checkpoint().unwrap();
    let copy = place.copy();
    for name in ["image", "image.wal"] {
        std::fs::rename(copy.path(&format!("{name}.moved")), copy.path(name)).unwrap();
    }
    assert_eq!(load(&open(&copy).unwrap(), 0), 7);
    // The log has no name beside the moved file any more.
    std::fs::remove_file(place.path("image.wal.moved")).unwrap();
    assert_eq!(file.checkpoint(), Err(Failed::REPLACED));
}

#[test]
fn a_log_that_is_cut_off_while_it_is_open_loses_nothing() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    // To nothing, into its head, into its records; also where it has none.
    for (round, left, is_settled) in
        [(1, 0, false), (2, 8, false), (3, 5000, false), (4, 0, true), (5, 8, true)]
    {
        store(&file, 0, round);
        file.checkpoint().unwrap();
        if is_settled {
            file.settle().unwrap();
        }
        let log = std::fs::File::options().write(true).open(place.path("image.wal")).unwrap();
        log.set_len(left).unwrap();
        for word in [8, 16] {
            store(&file, word, round);
            file.checkpoint().unwrap();
        }
        let after = open(&place.copy()).unwrap();
        assert_eq!([0, 8, 16].map(|word| load(&after, word)), [round; 3]);
    }
}

#[test]
fn a_log_whose_name_is_out_of_reach_is_left_empty() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    store(&file, 0, 1);
    file.checkpoint().unwrap();
    let log = place.path("image.wal");
    let elsewhere = place.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(place.path("image"), elsewhere.join("image")).unwrap();
    std::fs::rename(&log, elsewhere.join("image.wal")).unwrap();
    file.checkpoint().unwrap();
    file.settle().unwrap();
    drop(file);
    assert_eq!(std::fs::metadata(elsewhere.join("image.wal")).unwrap().len(), 0);
}

#[test]
fn a_log_that_was_removed_is_made_anew() {
    let place = Directory::new();
    let file = create(&place, 1 << 20, Written::watch);
    for (round, is_moved) in [(1, false), (2, true), (3, false)] {
        store(&file, 0, round);
        file.checkpoint().unwrap();
        let log = place.path("image.wal");
        if is_moved {
            std::fs::rename(&log, place.path("elsewhere")).unwrap();
        } else {
            std::fs::remove_file(&log).unwrap();
        }
        store(&file, 8, round);
        file.checkpoint().unwrap();
        let after = open(&place.copy()).unwrap();
        assert_eq!((load(&after, 0), load(&after, 8)), (round, round));
        let other = Image::open(place.place().log, Access::Write).unwrap();
        assert_eq!(other.lock(Access::Write), Err(libc::EWOULDBLOCK), "the log is its owner's");
    }
    // A file that takes the name is left alone. The image alone has the last checkpoint then.
    std::fs::remove_file(place.path("image.wal")).unwrap();
    std::fs::write(place.path("image.wal"), "a letter").unwrap();
    store(&file, 0, 9);
    assert_eq!(file.checkpoint(), Err(Failed::NOT_A_LOG));
    let copy = place.copy();
    std::fs::remove_file(copy.path("image.wal")).unwrap();
    assert_eq!(load(&open(&copy).unwrap(), 0), 3);
    std::fs::remove_file(place.path("image.wal")).unwrap();
    file.checkpoint().unwrap();
    file.settle().unwrap();
    drop(file);
    assert_eq!(place.names(), ["elsewhere", "image"]);
    assert_eq!(load(&open(&place).unwrap(), 0), 9);
}
