//! `spandrel durable`: what it says of a state that was killed, recovered, closed, damaged or is open.

use std::path::Path;
use std::process::{Command, Output};

use spandrel::durable::collections::{HashMap, Open as _};
use spandrel::durable::{Durable, Options};

struct Numbers {
    of: HashMap<u64, u64>,
}

fn open(path: &Path) -> Durable<Numbers> {
    let options = Options::new().log_size(1 << 20);
    Durable::open(path, options, |arena| Ok(Numbers { of: HashMap::open(arena, "of")? })).unwrap()
}

fn spandrel(task: &str, path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel")).args(["durable", task]).arg(path).output().unwrap()
}

#[track_caller]
fn says(output: &Output, code: i32, words: &str) {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.code() == Some(code) && text.contains(words), "{text}");
}

#[test]
fn a_state_is_shown_verified_and_recovered() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("numbers");
    let killed = place.path().join("killed");
    let db = open(&path);
    for key in 0..100 {
        db.write(|s| s.of.insert(key, key)).unwrap().unwrap();
    }
    says(&spandrel("info", &path), 2, "a process has the state open");
    // What a kill leaves, the state first.
    std::fs::create_dir(&killed).unwrap();
    for file in ["state", "log"] {
        std::fs::copy(path.join(file), killed.join(file)).unwrap();
    }
    says(&spandrel("info", &killed), 0, "it was not closed");
    says(&spandrel("verify", &killed), 0, "of the log");
    // Its batches are in the log only, or in parts.
    let saved = place.path().join("saved");
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["durable", "copy"])
        .args([&killed, &saved])
        .output()
        .unwrap();
    says(&output, 0, "a copy of");
    says(&spandrel("info", &saved), 0, "the state has all batches");
    says(&spandrel("recover", &killed), 0, "state");
    says(&spandrel("info", &killed), 0, "the state has all batches");
    says(&spandrel("recover", &killed), 0, "the state has all batches");
    db.close().unwrap();
    let copied = place.path().join("copied");
    let copy = |from: &Path, to: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.args(["durable", "copy"]).arg(from).arg(to).output().unwrap()
    };
    says(&copy(&path, &copied), 0, "copied: a copy of ");
    says(&copy(&path, &copied), 2, "copied: the directory has a state or a log already");
    says(&copy(&path, &path), 2, "numbers: the directory has a state or a log already");
    says(&spandrel("verify", &copied), 0, "the heap of the state is sound");
    assert_eq!(open(&copied).read(|s| s.of.len()), 100);
    // At the address of the other one, which is free now.
    assert_eq!(open(&killed).read(|s| s.of.len()), 100);
    says(&spandrel("verify", &path), 0, "the heap of the state is sound");
    let json = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["durable", "info", "--json"])
        .arg(&path)
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["pending"]["batches"], 0);
    assert_eq!(json["log"]["capacity_bytes"], 1 << 20);
    says(&spandrel("info", &place.path().join("nothing")), 2, "nothing: ");
    std::fs::write(path.join("log"), [7; 8192]).unwrap();
    says(&spandrel("verify", &path), 2, "the file `log` is no log");
}
