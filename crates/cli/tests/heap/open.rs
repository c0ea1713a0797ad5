//! Heaps that a process has open, or has not closed.

use super::{Place, fill, numbers};
use spandrel_pheap::{Choice, Options};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn one_that_was_not_closed_is_shown_so_and_recovered_by_collecting() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.checkpoint().unwrap();
    heap.abandon();
    let (before, log) = (place.bytes("a.heap"), place.bytes("a.heap.wal"));
    assert!(place.says(0, &["info", "a.heap"]).contains("open, or not closed"));
    assert!(place.says(0, &["check", "a.heap"]).contains("sound"));
    place.says(0, &["dump", "a.heap"]);
    let said = place.says(0, &["copy", "a.heap", "b.heap"]);
    assert!(said.contains("recovered when it is opened"), "{said}");
    assert!(before == place.bytes("a.heap") && log == place.bytes("a.heap.wal"));
    assert!(place.says(0, &["gc", "a.heap"]).contains("it was not closed, and is recovered; "));
    assert!(place.says(0, &["info", "a.heap"]).contains(", closed\n"));
    for file in ["a.heap", "b.heap"] {
        assert_eq!(numbers(&place.path(file)), Vec::from_iter(0..100));
    }
}

#[test]
fn an_open_heap_with_a_log_is_that_of_the_last_checkpoint() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.checkpoint().unwrap();
    heap.set_root(7, heap.get_root(0).unwrap()).unwrap();
    let roots = place.run(&["roots", "--json", "a.heap"]).json();
    assert_eq!(roots["roots"].as_array().unwrap().len(), 3);
    assert!(place.says(0, &["info", "a.heap"]).contains("open, or not closed"));
    assert!(place.says(0, &["check", "a.heap"]).contains("sound"));
    place.says(0, &["copy", "a.heap", "b.heap"]);
    let mode = std::fs::metadata(place.path("b.heap")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let whose = format!("a.heap: process {} (", std::process::id());
    place.refuses(&["gc", "a.heap"], &[&whose, ") has it open; close it there first"]);
    // Whether there is anything to mend a copy tells.
    assert!(place.says(0, &["repair", "--write", "a.heap"]).contains("nothing to mend"));
    heap.close().unwrap();
    assert_eq!(numbers(&place.path("b.heap")), Vec::from_iter(0..100));
    assert_eq!(place.names(), ["a.heap", "b.heap"]);
}

#[test]
fn an_open_heap_without_a_log_is_waited_for() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    fill(&heap);
    let whose = format!("process {} (", std::process::id());
    for args in [
        &["info", "a.heap"][..],
        &["check", "a.heap"],
        &["repair", "a.heap"],
        &["roots", "a.heap"],
        &["dump", "a.heap"],
        &["copy", "a.heap", "b.heap"],
    ] {
        let refuses = |wait, part| {
            let args = [args, &["--wait", wait]].concat();
            place.refuses(
                &args,
                &["a.heap: ", &whose, " has it open", part, "close it there first"],
            );
        };
        refuses("0", "no log");
        refuses("0.1", "came to no checkpoint in the time; have it call checkpoint");
    }
    place.refuses(&["gc", "a.heap"], &["a.heap: ", &whose, ") has it open; close it there first"]);
    place.refuses(&["info", "a.heap", "--wait", "soon"], &["--wait", "'soon'", "10 or 0.5"]);
    place.refuses(&["info", "a.heap", "--wait", "-1"], &["--wait", "10 or 0.5"]);
    heap.close().unwrap();
    place.says(0, &["copy", "a.heap", "b.heap"]);
    let objects = |name| place.run(&["dump", name]).json()["objects"].clone();
    assert!(objects("a.heap") == objects("b.heap"), "a copy holds the same");
    assert_eq!(place.names(), ["a.heap", "b.heap"]);
}

#[test]
fn an_open_heap_without_a_log_is_shown_and_copied_where_it_comes_to_a_checkpoint() {
    let place = Place(tempfile::tempdir_in("/dev/shm").unwrap());
    let heap = place.create("a.heap", Choice::Auto);
    fill(&heap);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                heap.checkpoint().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = std::panic::catch_unwind(|| {
            let info = place.says(0, &["info", "a.heap"]);
            assert!(
                info.contains("open, or not closed") && info.contains("roots: 3 of 512"),
                "{info}"
            );
            assert!(place.says(0, &["check", "a.heap"]).contains("a.heap: sound; "));
            assert!(place.says(0, &["repair", "a.heap"]).contains("nothing to mend"));
            assert!(place.says(0, &["roots", "a.heap"]).contains("numbers"));
            assert_eq!(place.run(&["dump", "a.heap"]).json()["record"]["closed"], false);
            let said = place.says(0, &["copy", "--wait", "60", "a.heap", "b.heap"]);
            assert!(said.contains("recovered when it is opened"), "{said}");
        });
        is_over.store(true, Relaxed);
        outcome.unwrap();
    });
    heap.close().unwrap();
    for file in ["a.heap", "b.heap"] {
        assert_eq!(numbers(&place.path(file)), Vec::from_iter(0..100));
    }
}

#[test]
fn an_empty_log_beside_a_copy_is_no_obstacle() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    place.write("b.heap.wal", "");
    place.says(0, &["copy", "a.heap", "b.heap"]);
    assert_eq!(numbers(&place.path("b.heap")), Vec::from_iter(0..100));
}

#[test]
fn a_copy_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let heap = Options::new().size(192 << 20).medium(Choice::Mapped).create(place.path("a.heap"));
    let heap = heap.unwrap();
    fill(&heap);
    heap.close().unwrap();
    let mut was_killed = 0;
    for milliseconds in [20, 40, 60, 80, 120, 160, 240] {
        let mut copy = Command::new(env!("CARGO_BIN_EXE_spandrel"))
            .args(["heap", "copy", "a.heap", "b.heap"])
            .current_dir(place.0.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        copy.kill().unwrap();
        copy.wait().unwrap();
        if place.names() == ["a.heap", "b.heap"] {
            assert_eq!(place.bytes("b.heap").len(), 192 << 20, "it appears whole");
            break;
        }
        assert_eq!(place.names(), ["a.heap"]);
        was_killed += 1;
    }
    assert!(was_killed > 0, "the first copy was done before it was killed");
}
