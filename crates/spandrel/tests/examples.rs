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
    keeps_what_it_acknowledged("durable_store");
}

/// The same with the standard library's types.
#[cfg(feature = "durable")]
#[test]
fn a_plain_store_keeps_what_it_acknowledged() {
    keeps_what_it_acknowledged("plain_store");
}

#[cfg(feature = "durable")]
fn keeps_what_it_acknowledged(name: &str) {
    let example = example(name);
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

/// The ordered store as a process, and what it answers.
#[cfg(feature = "durable")]
struct Ordered {
    process: std::process::Child,
    commands: Option<std::process::ChildStdin>,
    replies: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

#[cfg(feature = "durable")]
impl Ordered {
    fn start(example: &Path, place: &Path) -> Self {
        let mut store = Command::new(example);
        let store = store.arg(place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = store.spawn().unwrap();
        let commands = process.stdin.take();
        let replies = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, commands, replies }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands.as_ref().unwrap(), "{command}").unwrap();
        self.replies.next().unwrap().unwrap()
    }

    fn end(mut self) {
        drop(self.commands.take());
        assert!(self.process.wait().unwrap().success());
    }
}

/// Keys and values of any length, both ways from a key; batches are whole whenever the program is killed.
#[cfg(feature = "durable")]
#[test]
fn an_ordered_store_keeps_what_it_acknowledged_and_whole_batches() {
    let example = example("ordered_store");
    for folder in folders() {
        let place = folder.path().join("store");
        let mut store = Ordered::start(&example, &place);
        let long = "long".repeat(25_000);
        for (key, value) in [("b", "2"), ("a", "1"), ("d", &long), ("c", "3"), ("ab", "")] {
            let said = store.ask(&format!("put {key} {value}x"));
            assert_eq!(said, "ok");
        }
        assert_eq!(store.ask("get d"), format!("{long}x"));
        assert_eq!(store.ask("scan aa 3"), "ab=x b=2x c=3x");
        assert_eq!(store.ask("rscan bz 9"), "b=2x ab=x a=1x");
        assert_eq!(store.ask("list"), "a ab b c d");
        assert_eq!((store.ask("delete d"), store.ask("delete d")), ("ok".into(), "none".into()));
        assert_eq!((store.ask("rename c e"), store.ask("rscan z 1")), ("ok".into(), "e=3x".into()));
        store.end();
        // One value moves from key to key, and is always there once.
        let mut acknowledged = 0;
        let name = |number: u64| format!("moving{}", number * 7919 % 1000);
        let mut store = Ordered::start(&example, &place);
        store.ask(&format!("put {} {}", name(0), "v".repeat(500)));
        for milliseconds in [3, 11, 29, 61] {
            let mut commands = store.commands.take().unwrap();
            let first = acknowledged;
            let asks = std::thread::spawn(move || {
                let all = (first..first + 100_000).map(|at| (name(at), name(at + 1)));
                for (from, to) in all {
                    if writeln!(commands, "rename {from} {to}").is_err() {
                        return;
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(milliseconds));
            store.process.kill().unwrap();
            store.process.wait().unwrap();
            asks.join().unwrap();
            acknowledged +=
                store.replies.map_while(Result::ok).filter(|said| said == "ok").count() as u64;
            store = Ordered::start(&example, &place);
            let found = store.ask("scan moving 9");
            let value = "v".repeat(500);
            let is_one = |number: u64| found == format!("{}={value}", name(number));
            // The last one may have been done and not said.
            let now = (acknowledged..=acknowledged + 1).find(|number| is_one(*number));
            acknowledged = now.unwrap_or_else(|| panic!("{found} after {acknowledged}"));
        }
        store.end();
    }
}

/// A snapshot stays what it was, whatever is written and whichever other one is released.
#[cfg(feature = "durable")]
#[test]
fn snapshots_of_an_ordered_store_do_not_change() {
    let example = example("ordered_store");
    let folder = tempfile::tempdir().unwrap();
    let mut store = Ordered::start(&example, &folder.path().join("store"));
    type Keys = std::collections::BTreeMap<String, String>;
    let (mut now, mut taken): (Keys, Vec<(String, Keys)>) = Default::default();
    let mut seed = 7u64;
    let mut drawn = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let name = |number: u64| format!("k{number:02}");
    let shown = |keys: Vec<(&String, &String)>| {
        keys.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    for step in 0..3000 {
        let (key, other) = (name(drawn(20)), name(drawn(20)));
        match drawn(12) {
            0..4 => {
                assert_eq!(store.ask(&format!("put {key} v{step}")), "ok");
                now.insert(key, format!("v{step}"));
            }
            4..6 => {
                let said = if now.remove(&key).is_some() { "ok" } else { "none" };
                assert_eq!(store.ask(&format!("delete {key}")), said);
            }
            6 => {
                let value = now.remove(&key);
                let said = if value.is_some() { "ok" } else { "none" };
                assert_eq!(store.ask(&format!("rename {key} {other}")), said);
                now.extend(value.map(|value| (other, value)));
            }
            7 if taken.len() < 6 => taken.push((store.ask("snapshot"), now.clone())),
            8 if !taken.is_empty() => {
                let (number, _) = taken.remove(drawn(taken.len() as u64) as usize);
                assert_eq!(store.ask(&format!("release {number}")), "ok");
                assert!(store.ask(&format!("get {key} {number}")).contains("there is no snapshot"));
            }
            _ if !taken.is_empty() => {
                let (number, keys) = &taken[drawn(taken.len() as u64) as usize];
                let value = keys.get(&key).map_or("none", |value| value);
                assert_eq!(store.ask(&format!("get {key} {number}")), value);
                let behind = keys.range(key.clone()..).take(5).collect();
                assert_eq!(store.ask(&format!("scan {key} 5 {number}")), shown(behind));
                let before = keys.range(..=key.clone()).rev().take(5).collect();
                assert_eq!(store.ask(&format!("rscan {key} 5 {number}")), shown(before));
            }
            _ => assert_eq!(store.ask("scan k 99"), shown(now.iter().collect())),
        }
    }
    store.end();
}

/// Threads and keys that are none are refused in words.
#[cfg(feature = "durable")]
#[test]
fn an_ordered_store_refuses_to_measure_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [["--threads", "0"], ["--num", "0"], ["--num", "x"], ["--threads", "9999999"]] {
        let mut bench = Command::new(example("ordered_store"));
        let out = bench.arg(folder.path().join("store")).args(["--bench", "fillseq"]).args(flags);
        let out = out.output().unwrap();
        let why = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && why.contains("--") && !why.contains("panicked"), "{why}");
    }
}

/// A command line of LevelDB's db_bench is one of the store's.
#[cfg(feature = "durable")]
#[test]
fn an_ordered_store_takes_the_options_of_db_bench() {
    let folder = tempfile::tempdir().unwrap();
    let names =
        "fillseq,fillsync,readrandom,readmissing,readhot,seekrandom,readseq,deleteseq,deleterandom";
    let mut bench = Command::new(example("ordered_store"));
    bench.arg(format!("--benchmarks={names}"));
    bench.arg(format!("--db={}", folder.path().join("store").display()));
    bench.args(["--num=3000", "--value_size=200", "--reads=500", "--threads=1"]);
    let said = lines(&mut bench);
    let found: Vec<_> = said.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(found.join(","), names);
    let mut other = Command::new(example("ordered_store"));
    let out = other.arg(folder.path()).arg("--compression=1").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("--compression is no option"));
}

/// The measurement runs, and says a line for each benchmark.
#[cfg(feature = "durable")]
#[test]
fn an_ordered_store_measures_itself() {
    let example = example("ordered_store");
    let names = "fillseq,readseq,readreverse,overwrite,readrandom,fillrandom,fill100K";
    for folder in folders() {
        let place = folder.path().join("store");
        let mut bench = Command::new(&example);
        bench.arg(&place).args(["--bench", names, "--num", "2000", "--threads", "2"]);
        let said = lines(&mut bench);
        assert_eq!(said.len(), 7, "{said:?}");
        for (name, line) in names.split(',').zip(said) {
            let (found, figures) = line.split_once(':').unwrap();
            assert_eq!(found.trim(), name);
            let micros: f64 = figures.trim().split(' ').next().unwrap().parse().unwrap();
            assert!(
                micros > 0.0 && figures.contains(" micros/op; ") && figures.contains(" MB/s"),
                "{line}"
            );
        }
    }
}
