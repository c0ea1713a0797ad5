//! `spandrel-bench-worker tree`: a program with all its processes.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Tree {
    worker: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Tree {
    fn of(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut worker = Command::new(env!("CARGO_BIN_EXE_spandrel-bench-worker"))
            .args(["tree", "out", "err", "sh", "-c", script])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let words = worker.stdin.take();
        let answers = BufReader::new(worker.stdout.take().unwrap());
        Self { worker, words, answers, folder }
    }

    fn say(&mut self, word: &str) -> Value {
        writeln!(self.words.as_mut().unwrap(), "{word}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("out")).unwrap_or_default()
    }

    /// The process whose number the program has printed.
    fn printed_process(&self) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.output().ends_with('\n') {
            assert!(Instant::now() < until, "nothing is printed");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.output().trim().to_string()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.words = None;
        self.worker.wait().unwrap();
    }
}

/// Whether a process is there, and is more than a zombie.
fn lives(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn the_time_of_all_processes_counts_also_of_orphans() {
    let mut tree = Tree::of("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done & wait; echo done");
    let state = tree.say("wait");
    assert_eq!(state["ended"], 0);
    assert!(state["cpu_ns"].as_f64().unwrap() > 2e7, "{state}");
    assert!(state["peak_rss"].as_f64().unwrap() > 1e5, "{state}");
    assert_eq!((state["processes"].as_u64(), tree.output().as_str()), (Some(0), "done\n"));
    // An orphan is killed when the program has ended, and its time counts.
    let mut tree =
        Tree::of("sh -c 'echo $$; while :; do :; done' & while ! [ -s out ]; do :; done; sleep 1");
    let state = tree.say("wait");
    assert!(!lives(&tree.printed_process()));
    assert_eq!(state["ended"], 0);
    assert!(state["cpu_ns"].as_f64().unwrap() > 3e8, "{state}");
}

#[test]
fn words_end_it() {
    let mut tree = Tree::of("cat; exit 3");
    assert_eq!(tree.say("ended")["ended"], Value::Null);
    assert!(tree.say("look")["rss"].as_f64().unwrap() > 1e4);
    assert_eq!(tree.say("close")["ended"], 3);
    assert_eq!(tree.say("look")["ended"], 3);
    for (word, code) in [("stop", 15), ("interrupt", 2)] {
        let mut tree =
            Tree::of(&format!("trap 'exit {code}' TERM INT; echo; while :; do sleep 0.01; done"));
        tree.printed_process();
        assert_eq!(tree.say(word)["ended"], code, "{word}");
        let mut tree = Tree::of("echo; exec sleep 100");
        tree.printed_process();
        assert_eq!(tree.say(word)["ended"], 128 + code, "{word}");
    }
}

#[test]
fn with_the_caller_all_processes_end() {
    let mut tree = Tree::of(
        "(trap '' TERM; echo $$; exec setsid sh -c 'while :; do sleep 0.1; done') & exec sleep 100",
    );
    let process = tree.printed_process();
    assert!(lives(&process));
    tree.words = None;
    assert!(tree.worker.wait().unwrap().success());
    assert!(!lives(&process));
}

#[test]
fn what_cannot_be_started_is_said() {
    let done = Command::new(env!("CARGO_BIN_EXE_spandrel-bench-worker"))
        .args(["tree", "/dev/null", "/dev/null", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("/no/such/program cannot be started"), "{said}");
}
