//! `repair --write`: what is kept of a heap as it was, and blocks that are set aside.

use super::messages::limited;
use super::{BYTES, Filled, Place, ROOTS, fill, header_of, numbers};
use spandrel_pheap::{BLOCK_BYTES, Choice, Options};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A heap that was not closed, with the log of another one: the log does not fit.
fn with_a_log_that_does_not_fit(place: &Place) {
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    let other = place.create("b.heap", Choice::Logged);
    fill(&other);
    other.checkpoint().unwrap();
    other.abandon();
    for (from, to) in [("b.heap.wal", "a.heap.wal"), ("b.heap", "unused")] {
        std::fs::rename(place.path(from), place.path(to)).unwrap();
    }
    std::fs::remove_file(place.path("unused")).unwrap();
    // A root, so that there is something to mend.
    let mut bytes = place.bytes("a.heap");
    bytes[ROOTS + 9 * 8..ROOTS + 10 * 8].fill(1);
    place.write("a.heap", bytes);
}

#[test]
fn the_copy_of_before_is_the_file_as_it_was_and_the_log_is_named() {
    let place = Place::new();
    with_a_log_that_does_not_fit(&place);
    let (file, log) = (place.bytes("a.heap"), place.bytes("a.heap.wal"));
    let said = place.says(0, &["repair", "--write", "--forget-log", "a.heap"]);
    assert!(said.contains("kept in a.heap.before-repair and a.heap.bad"), "{said}");
    assert!(place.bytes("a.heap.before-repair") == file, "the copy is the file as it was");
    assert!(place.bytes("a.heap.bad") == log);
    assert_eq!(place.names(), ["a.heap", "a.heap.bad", "a.heap.before-repair"]);
    assert_eq!(numbers(&place.path("a.heap")), Vec::from_iter(0..100));
}

#[test]
fn a_repair_that_finds_no_room_for_the_copy_changes_nothing() {
    let place = Place::new();
    with_a_log_that_does_not_fit(&place);
    let (file, log) = (place.bytes("a.heap"), place.bytes("a.heap.wal"));
    let args = ["repair", "--write", "--forget-log", "a.heap"];
    let said = limited(&place, libc::RLIMIT_FSIZE, BYTES as u64 - 1, &args);
    assert!(said.contains("a.heap.before-repair: File too large"), "{said}");
    assert!(place.bytes("a.heap") == file && place.bytes("a.heap.wal") == log);
    assert_eq!(place.names(), ["a.heap", "a.heap.wal"]);
}

#[test]
fn the_copy_of_before_has_the_log_that_the_heap_needs() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    let filled = fill(&heap);
    heap.close().unwrap();
    let heap = Options::new().open(place.path("a.heap")).unwrap().0;
    let object = heap.get_root(0).unwrap().unwrap();
    // SAFETY: the object has 32 bytes.
    unsafe { object.cast::<u64>().write(77) };
    heap.checkpoint().unwrap();
    heap.abandon();
    // The name of a root: a page that the log does not have.
    let mut bytes = place.bytes("a.heap");
    bytes[ROOTS + 4096 + 511 * 64] ^= 1;
    place.write("a.heap", &bytes);
    let log = place.bytes("a.heap.wal");
    let before = place.says(1, &["check", "a.heap"]);
    let said = place.says(0, &["repair", "--write", "a.heap"]);
    let names = "kept in a.heap.before-repair and a.heap.before-repair.wal";
    assert!(said.contains(names), "{said}");
    assert!(place.bytes("a.heap.before-repair") == bytes);
    assert!(place.bytes("a.heap.before-repair.wal") == log);
    let kept = place.says(1, &["check", "a.heap.before-repair"]);
    assert_eq!(kept.replace(".before-repair", ""), before);
    let heap = Options::new().open(place.path("a.heap")).unwrap().0;
    let object = heap.get_root(0).unwrap().unwrap();
    assert_eq!(heap.pointer(object).offset(), Some(filled.first));
    // SAFETY: as above; no thread stores to it.
    let word = unsafe { AtomicU64::from_ptr(object.as_ptr().cast()).load(Relaxed) };
    assert_eq!(word, 77);
}

/// A heap with blocks that a repair has set aside.
fn set_aside(place: &Place) -> Filled {
    let heap = place.create("a.heap", Choice::Logged);
    let filled = fill(&heap);
    heap.close().unwrap();
    let mut bytes = place.bytes("a.heap");
    for at in [filled.first, filled.second] {
        bytes[header_of(at)..][..8].fill(0xee);
    }
    place.write("a.heap", bytes);
    let said = place.says(0, &["repair", "--write", "--no-backup", "a.heap"]);
    assert!(said.contains("set aside"), "{said}");
    filled
}

#[test]
fn what_was_set_aside_is_copied_and_not_dumped_in_part() {
    let place = Place::new();
    let filled = set_aside(&place);
    place.write("a.json", "an earlier dump");
    let parts = ["a.heap: a repair has set ", "'spandrel heap copy'", "--outline"];
    place.refuses(&["dump", "a.heap"], &parts);
    place.refuses(&["dump", "a.heap", "--out", "a.json"], &parts);
    assert_eq!(place.bytes("a.json"), b"an earlier dump");
    let outline = place.run(&["dump", "--outline", "a.heap"]).json();
    let objects = outline["objects"].as_array().unwrap();
    let block = filled.first / BLOCK_BYTES * BLOCK_BYTES;
    let block_at = |object: &&serde_json::Value| object["at"] == block;
    let blocks: Vec<_> = objects.iter().filter(block_at).collect();
    assert!(blocks.len() == 1 && blocks[0]["bytes"].is_null(), "{blocks:?}");
    let pointers = serde_json::json!([[filled.first - block + 8, filled.second]]);
    assert_eq!(blocks[0]["pointers"], pointers);
    place.says(0, &["copy", "a.heap", "b.heap"]);
    let (file, copy) = (place.bytes("a.heap"), place.bytes("b.heap"));
    assert!(file[filled.second..][..512] == copy[filled.second..][..512]);
}

/// The process that has the heap open lends it for the look, and not for the repair.
#[test]
fn a_heap_that_is_open_is_not_mended_and_no_copy_is_left() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    fill(&heap);
    let file = std::fs::OpenOptions::new().write(true).open(place.path("a.heap")).unwrap();
    file.write_all_at(&[1; 8], (ROOTS + 9 * 8) as u64).unwrap();
    let is_over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                heap.checkpoint().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let done = std::panic::catch_unwind(|| place.run(&["repair", "--write", "a.heap"]));
        is_over.store(true, Relaxed);
        done.unwrap()
    });
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("has it open; close it there first"), "{done:?}");
    assert_eq!(place.names(), ["a.heap"]);
    heap.abandon();
}
