//! The example that counts words, killed in the middle, counts the same as one that was left alone.
#![cfg(feature = "heap")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The example, built: of a single test cargo builds nothing else.
fn example() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--quiet", "-p", "spandrel", "--example", "word_count"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/word_count")
}

fn command(example: &Path, heap: &Path, text: &Path) -> Command {
    let mut command = Command::new(example);
    command.args([heap, text]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it says when it was left alone, and whether it had to recover the heap.
fn run(example: &Path, heap: &Path, text: &Path) -> (String, bool) {
    let output = command(example, heap, text).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    (String::from_utf8(output.stdout).unwrap(), errors.contains("recovered"))
}

fn killed_in_the_middle(directory: &Path) {
    let place = tempfile::tempdir_in(directory).unwrap();
    let file = |name: &str| place.path().join(name);
    let mut text = String::new();
    for number in 0..60_000 {
        writeln!(text, "line {number} of many, {} words and {}", number % 977, number % 13)
            .unwrap();
    }
    let all = file("text");
    std::fs::write(&all, text).unwrap();
    let example = example();
    let begun = Instant::now();
    let (undisturbed, recovered) = run(&example, &file("other.heap"), &all);
    let took = begun.elapsed();
    assert!(!recovered);
    let mut killed = 0;
    for hundredths in [8, 12, 5, 15, 8] {
        let mut child = command(&example, &file("heap"), &all).spawn().unwrap();
        std::thread::sleep((took * hundredths / 100).min(Duration::from_secs(2)));
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
    }
    let (said, recovered) = run(&example, &file("heap"), &all);
    assert_eq!(said, undisturbed);
    assert!(killed > 0 && recovered, "none of them was killed before it had ended");
}

#[test]
fn in_memory() {
    killed_in_the_middle(Path::new("/dev/shm"));
}

#[test]
fn on_a_disk() {
    killed_in_the_middle(&std::env::temp_dir());
}
