//! The examples that show how a heap is used do what they say, in memory and on a disk.
#![cfg(feature = "heap")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The example, built: of a single test cargo builds nothing else.
fn example(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--quiet", "-p", "spandrel", "--example", name]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// A folder in memory, and one on a disk.
fn folders() -> [tempfile::TempDir; 2] {
    [Path::new("/dev/shm"), &std::env::temp_dir()].map(|at| tempfile::tempdir_in(at).unwrap())
}

/// The lines that a command writes.
#[track_caller]
fn lines(command: &mut Command) -> Vec<String> {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_first_map_counts_on_after_it_was_killed() {
    let example = example("first_map");
    for folder in folders() {
        let heap = folder.path().join("heap");
        let mut killed = Command::new(&example);
        killed.arg(&heap).args(["Ada", "Grace", "Ada"]);
        let mut killed = killed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(killed.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said: Vec<_> = said.take(4).collect();
        assert_eq!(said, ["Ada 1", "Grace 1", "Ada 2", "durable"]);
        killed.kill().unwrap();
        killed.wait().unwrap();
        for count in 3..5 {
            let said = lines(Command::new(&example).arg(&heap).arg("Ada"));
            assert_eq!(said, [format!("Ada {count}"), "durable".to_owned()]);
        }
    }
}

#[test]
fn a_structure_of_ones_own_is_whole_whenever_it_is_killed() {
    let example = example("own_structure");
    for (folder, is_in_memory) in folders().into_iter().zip([true, false]) {
        let heap = folder.path().join("heap");
        let run = |words: &[&str]| lines(Command::new(&example).arg(&heap).args(words));
        assert_eq!(run(&["push", "first", "second"]), ["1", "2"]);
        let mut known = vec!["first".to_owned(), "second".to_owned()];
        for milliseconds in [2, 5, 10, 20] {
            let texts: Vec<_> = (0..5000).map(|at| format!("{milliseconds} {at}")).collect();
            let mut child = Command::new(&example);
            child.arg(&heap).arg("push").args(&texts).stdout(Stdio::piped());
            let mut child = child.spawn().unwrap();
            std::thread::sleep(Duration::from_millis(milliseconds));
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            let said = output.stdout.iter().filter(|byte| **byte == b'\n').count();
            let mut found = run(&["list"]);
            found.reverse();
            // In memory each note that was printed is there, and perhaps one more; on a disk all of a run, or none.
            let more = found.len() - known.len();
            let fits =
                if is_in_memory { more == said || more == said + 1 } else { more % 5000 == 0 };
            assert!(fits, "{more} notes, {said} printed");
            known.extend(texts.into_iter().take(more));
            assert_eq!(found, known);
        }
        assert_eq!(run(&["pop"]), [known.pop().unwrap()]);
        assert_eq!(run(&["list"]).len(), known.len());
    }
}

#[test]
fn a_backup_of_an_open_heap_is_restored() {
    let example = example("backup");
    for folder in folders() {
        let file = |name: &str| folder.path().join(name);
        let said = lines(Command::new(&example).arg(file("heap")).arg(file("backup")));
        assert_eq!(said, ["0 damaged, 1000 numbers, recovered: true"]);
        assert!(file("heap").exists() && file("backup").exists());
    }
}

/// Each put that was acknowledged is there after the program was killed.
#[cfg(feature = "durable")]
#[test]
fn a_durable_store_keeps_what_it_acknowledged() {
    let example = example("durable_store");
    for folder in folders() {
        let place = folder.path().join("store");
        let mut count = 0;
        for round in 0..4 {
            let mut store = Command::new(&example);
            let mut store =
                store.arg(&place).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut commands = store.stdin.take().unwrap();
            let mut replies = BufReader::new(store.stdout.take().unwrap()).lines();
            let mut ask = |command: String| {
                writeln!(commands, "{command}").unwrap();
                replies.next().unwrap().unwrap()
            };
            for key in 0..count {
                assert_eq!(ask(format!("get key{key}")), format!("value{key}"));
            }
            for key in count..count + 50 {
                assert_eq!(ask(format!("put key{key} value{key}")), "ok");
            }
            count += 50;
            assert_eq!(ask("put gone 1".into()), "ok");
            assert_eq!(ask("delete gone".into()), "ok");
            assert_eq!(ask("get gone".into()), "none");
            if round % 2 == 0 {
                store.kill().unwrap();
            }
            drop(commands);
            assert_eq!(store.wait().unwrap().success(), round % 2 == 1);
        }
    }
}
