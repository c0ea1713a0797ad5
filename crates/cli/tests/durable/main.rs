//! `spandrel durable`: what it says of a state that was killed, recovered, closed or is open.

mod damage;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use spandrel::durable::collections::{HashMap, Open as _, SortedBytes};
use spandrel::durable::{Allocator, Arena, Durable, Error, Options, Plain, Stores, fix_addresses};

// For the program that is verified.
#[global_allocator]
static ALLOC: Allocator = Allocator::new();

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
    // Of a process that has it open.
    let text = said(&spandrel("info", &path));
    assert!(text.contains(&format!("open in process {}", std::process::id())), "{text}");
    says(&spandrel("verify", &path), 2, "a process has the state open");
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
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for task in ["info", "verify", "recover", "compact"] {
        says(&spandrel(task, &empty), 2, "empty: the directory has no state; give that of one");
    }
    std::fs::copy(path.join("log"), empty.join("log")).unwrap();
    for task in ["info", "verify", "recover", "compact"] {
        says(&spandrel(task, &empty), 2, "empty: there is a log and no state");
    }
    std::fs::write(path.join("log"), [7; 8192]).unwrap();
    says(&spandrel("verify", &path), 2, "the file `log` is no log");
}

/// The state of a process that was killed, whose batches are partly in the state: as files, the state first.
fn killed(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in ["state", "log"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

struct Words {
    map: HashMap<u64, u64>,
    sorted: SortedBytes,
}

fn words(path: &Path, layout: u64) -> Result<Durable<Words>, spandrel::durable::OpenError> {
    Durable::open(path, Options::new().layout(layout), |arena| {
        Ok(Words { map: HashMap::open(arena, "map")?, sorted: SortedBytes::open(arena, "sorted")? })
    })
}

fn heap(task: &str, files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spandrel")).args(["heap", task]).args(files).output().unwrap()
}

/// Keys were removed and values replaced: the state's objects have words that lead to free ones. After a kill as well.
#[test]
fn a_state_is_dumped_and_loaded_for_another_layout() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path, lost, loaded, copied] =
        ["state", "lost", "loaded", "copied"].map(|name| place.path().join(name));
    let db = words(&path, 7).unwrap();
    let key = |number: u64| format!("key {number}").into_bytes();
    for number in 0..1500u64 {
        let value = vec![number as u8; (number % 90) as usize * 10];
        db.write(|s| s.sorted.insert(&key(number), &value)).unwrap().unwrap();
        db.write(|s| s.map.insert(number, number)).unwrap().unwrap();
        if number % 3 > 0 {
            db.write(|s| s.sorted.remove(&key(number / 2))).unwrap().unwrap();
            db.write(|s| s.map.remove(&(number / 2))).unwrap().unwrap();
        }
    }
    let all = |s: &Words| {
        let sorted: Vec<_> =
            s.sorted.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        (sorted, (0..1500).map(|number| s.map.get(&number)).collect::<Vec<_>>())
    };
    let expected = db.read(all);
    killed(&path, &lost);
    db.close().unwrap();
    let why = words(&path, 8).err().unwrap().to_string();
    assert!(
        why.contains("layout 7") && why.contains("`spandrel heap dump DIRECTORY/state"),
        "{why}"
    );
    // What the way out needs first, of a state that was not closed.
    says(&heap("check", &[&lost.join("state")]), 2, "'spandrel durable recover ");
    says(&spandrel("recover", &lost), 0, "state");
    for from in [&path, &lost] {
        let state = from.join("state");
        says(&heap("check", &[&state]), 0, "sound");
        let dump = place.path().join("state.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        let output = command.args(["heap", "dump"]).arg(&state).arg("--out").arg(&dump).output();
        says(&output.unwrap(), 0, "");
        let text = std::fs::read_to_string(&dump).unwrap();
        let [old, new] = [7, 8].map(|number| format!("\"layout\":\"{number:#018x}\",\"medium\""));
        assert_eq!(text.matches(&old).count(), 1);
        std::fs::write(&dump, text.replace(&old, &new)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        std::fs::create_dir(&loaded).unwrap();
        command.args(["heap", "load"]).arg(loaded.join("state")).arg("--from").arg(&dump);
        says(&command.output().unwrap(), 0, "objects");
        std::fs::create_dir(&copied).unwrap();
        says(&heap("copy", &[&state, &copied.join("state")]), 0, "copied/state: ");
        for (path, layout) in [(&loaded, 8), (&copied, 7)] {
            says(&spandrel("verify", path), 0, "the heap of the state is sound");
            let db = words(path, layout).unwrap();
            assert!(db.read(all) == expected);
            db.write(|s| s.sorted.insert(b"later", b"1")).unwrap().unwrap();
            db.close().unwrap();
            says(&spandrel("verify", path), 0, "the heap of the state is sound");
            assert_eq!(words(path, layout).unwrap().read(|s| s.sorted.len()), expected.0.len() + 1);
            std::fs::remove_dir_all(path).unwrap();
        }
        std::fs::remove_file(&dump).unwrap();
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(path: &Path) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    let output = command.args(["durable", "info", "--json"]).arg(path).output().unwrap();
    serde_json::from_str(&said(&output)).unwrap()
}

#[test]
fn an_open_state_shows_its_figures() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("a \"state\"");
    let db = open(&path);
    for key in 0..1000 {
        db.write(|s| s.of.insert(key, key)).unwrap().unwrap();
    }
    let batches = db.figures().batches;
    // Figures are written once a second at most.
    let mut figures = (0..100).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        json(&path)["process"].clone()
    });
    let figures = figures.find(|figures| figures["batches"] == batches).unwrap();
    assert_eq!(figures["commands"], 1000);
    // In memory a store is durable, and what brings batches into the state's file has synced that.
    assert_eq!(figures["durable_waits"], 0);
    assert!(figures["syncs"].as_u64().unwrap() > 0, "{figures}");
    let waits = figures["waits"].as_array().unwrap().iter();
    let waits: u64 = waits.map(|wait| wait["batches"].as_u64().unwrap()).sum();
    // Some are measured, and count as all.
    assert!((900..=1100).contains(&waits), "{waits}");
    assert_eq!(figures["durable"]["sequence"], batches);
    let metrics = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        said(&command.args(["durable", "info", "--prometheus"]).arg(&path).output().unwrap())
    };
    let text = metrics();
    let label = format!("{{directory=\"{}\"}}", path.to_str().unwrap().replace('"', "\\\""));
    for line in ["open 1", "commands_total 1000", "durable_waits_total 0", "state_bytes "] {
        let (name, value) = line.split_once(' ').unwrap();
        assert!(text.contains(&format!("spandrel_durable_{name}{label} {value}")), "{text}");
    }
    assert!(text.contains(",le=\"+Inf\"} "), "{text}");
    db.close().unwrap();
    assert!(metrics().contains(&format!("open{label} 0")));
    let text = said(&spandrel("info", &path));
    assert!(text.contains("the last process"), "{text}");
    assert!(text.contains("0 durable waits") && text.contains("was synced "), "{text}");
    assert_eq!(json(&path)["process"]["is_closed"], true);
    // A damaged file of figures is none.
    std::fs::write(path.join("figures"), [1; 300]).unwrap();
    assert_eq!(json(&path)["process"], serde_json::Value::Null);
    // Nor is that of another state.
    let other = place.path().join("other");
    open(&other).close().unwrap();
    std::fs::copy(other.join("figures"), path.join("figures")).unwrap();
    assert_eq!(json(&path)["process"], serde_json::Value::Null);
}

/// Files of a newer version are refused by each command, with the version and the way out, and stay as they are.
#[test]
fn files_of_a_newer_version_are_refused() {
    use std::os::unix::fs::FileExt as _;
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (place.path().join("numbers"), place.path().join("copy"));
    for is_closed in [true, false] {
        let db = open(&path);
        db.write(|s| s.of.insert(1, 2)).unwrap().unwrap();
        if is_closed {
            db.close().unwrap();
        } else {
            // As a kill leaves it.
            let files =
                ["state", "log"].map(|file| (file, std::fs::read(path.join(file)).unwrap()));
            db.close().unwrap();
            files.iter().for_each(|(file, bytes)| std::fs::write(path.join(file), bytes).unwrap());
        }
        let versions: [(&str, u64, &[u8], &str); 2] = [
            (
                "log",
                0,
                b"SPNDRNG2",
                "the log has version 2 of the format, and this program knows 1",
            ),
            (
                "state",
                8,
                &3u64.to_le_bytes(),
                "it has version 3 of the format; this program knows 2",
            ),
        ];
        for (file, at, newer, words) in versions {
            let before = std::fs::read(path.join(file)).unwrap();
            let open = std::fs::File::options().write(true).open(path.join(file)).unwrap();
            // The identity has a copy, and the log's head a sum.
            let copied =
                if file == "state" { spandrel_pheap::replicated::TIE_AT + 8192 } else { 0 };
            open.write_all_at(newer, at).unwrap();
            open.write_all_at(newer, copied + at).unwrap();
            if file == "log" {
                open.write_all_at(&[0; 8], 32).unwrap();
            }
            let changed = ["state", "log"].map(|file| std::fs::read(path.join(file)).unwrap());
            for task in ["info", "verify", "recover", "compact"] {
                let output = spandrel(task, &path);
                says(&output, 2, words);
                says(&output, 2, "; use the version of Spandrel that made it");
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
            let output = command.args(["durable", "copy"]).args([&path, &copy]).output().unwrap();
            says(&output, 2, words);
            assert!(!copy.join("state").exists());
            let after = ["state", "log"].map(|file| std::fs::read(path.join(file)).unwrap());
            assert!(changed == after, "{file}: a refused file was changed");
            std::fs::write(path.join(file), before).unwrap();
        }
        says(&spandrel("recover", &path), 0, "numbers: ");
    }
}

#[test]
fn what_a_state_does_not_need_is_released() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("numbers");
    let open = |path: &Path| {
        let options = Options::new().log_size(1 << 20);
        Durable::open(path, options, |arena| SortedBytes::open(arena, "of")).unwrap()
    };
    let db = open(&path);
    let key = |number: u32| number.to_be_bytes();
    for number in 0..100 {
        db.write(|map| map.insert(&key(number), &[7; 64 << 10])).unwrap().unwrap();
    }
    db.write(|map| (5..100).try_for_each(|number| map.remove(&key(number)).map(drop)))
        .unwrap()
        .unwrap();
    says(&spandrel("compact", &path), 2, "a process has the state open");
    db.close().unwrap();
    let bytes = |file: &str| path.join(file).metadata().unwrap().len();
    let before = bytes("state");
    // What a command that was killed has left.
    let left = path.join(".spandrel-compact-0123456789ab.tmp");
    std::fs::create_dir_all(left.join("copy")).unwrap();
    std::fs::write(left.join("copy/state"), "half").unwrap();
    // What there is no room for is refused before the work.
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    let output =
        command.args(["durable", "compact", "--log", "64TiB"]).arg(&path).output().unwrap();
    says(&output, 2, "--log: '64TiB'");
    assert_eq!((bytes("state"), left.exists()), (before, true));
    says(&spandrel("compact", &path), 0, " released; it has ");
    assert!(bytes("state") < before, "{before}");
    let names = |path: &Path| path.read_dir().unwrap().map(|one| one.unwrap().file_name());
    assert!(names(&path).all(|name| !name.to_string_lossy().starts_with(".spandrel")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    let output =
        command.args(["durable", "compact", "--log", "64KiB"]).arg(&path).output().unwrap();
    says(&output, 0, " released; it has ");
    assert_eq!(bytes("log"), (64 << 10) + 4096);
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    let output = command.args(["durable", "compact", "--log", "many"]).arg(&path).output().unwrap();
    says(&output, 2, "--log: 'many'");
    says(&spandrel("verify", &path), 0, "the heap of the state is sound");
    let db = open(&path);
    let is_there = |number: &u32| db.read(|map| map.get(&key(*number)) == Some(&[7; 64 << 10]));
    assert_eq!((0..100).filter(is_there).count(), 5);
    db.write(|map| map.insert(&key(7), b"8")).unwrap().unwrap();
    db.close().unwrap();
    assert_eq!(open(&path).read(|map| map.get(&key(7)).map(<[u8]>::to_vec)), Some(b"8".to_vec()));
}

#[test]
fn a_file_of_the_users_is_left_alone() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("numbers");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("figures"), "of last year").unwrap();
    let db = open(&path);
    db.write(|s| s.of.insert(1, 2)).unwrap().unwrap();
    // Without figures nothing is known of it.
    says(&spandrel("info", &path), 2, "a process has the state open");
    db.close().unwrap();
    assert_eq!(std::fs::read(path.join("figures")).unwrap(), b"of last year");
    says(&spandrel("info", &path), 0, "the state has all batches");
    says(&spandrel("compact", &path), 0, "numbers: ");
    assert_eq!(std::fs::read(path.join("figures")).unwrap(), b"of last year");
}

#[inline(never)]
fn store_for_a_command(at: *mut u64, number: u64) {
    // SAFETY: the command waits.
    unsafe { at.write_volatile(number) };
}

/// What is verified: a program whose commands change a state, and another one that has a thread do so for them.
#[test]
#[ignore = "a program that another test runs"]
fn program() {
    use std::sync::atomic::{AtomicUsize, Ordering::*};
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    fix_addresses().unwrap();
    let path = std::env::var_os("SPANDREL_TEST_STATE").unwrap();
    let options = Options::new().stores(Stores::Translated);
    let db = Plain::open(path, options, Vec::<u64>::new).unwrap();
    for number in 0..100 {
        db.write(|all| all.push(number)).unwrap();
    }
    if std::env::var_os("SPANDREL_TEST_WAITS").is_some() {
        println!("begun");
        std::thread::sleep(std::time::Duration::from_secs(100));
    }
    if std::env::var_os("SPANDREL_TEST_BY_OTHERS").is_some() {
        std::thread::spawn(|| {
            for number in 7.. {
                while PLACE.load(Acquire) == 0 {
                    std::hint::spin_loop();
                }
                store_for_a_command(PLACE.load(Acquire) as *mut u64, number);
                PLACE.store(0, Release);
            }
        });
        for _ in 0..3 {
            db.write(|all| {
                PLACE.store(all.as_mut_ptr() as usize, Release);
                while PLACE.load(Acquire) != 0 {
                    std::hint::spin_loop();
                }
            })
            .unwrap();
        }
    }
}

#[test]
fn a_program_whose_commands_note_all_is_told_from_another() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let verified = |name: &str, by_others: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.args(["durable", "verify", "--"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "program", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("SPANDREL_TEST_STATE", place.path().join(name));
        if by_others {
            command.env("SPANDREL_TEST_BY_OTHERS", "1");
        }
        command.output().unwrap()
    };
    let output = verified("own", false);
    says(&output, 0, "100 commands in 102 batches have changed");
    says(&output, 0, "and all of it was noted");
    let output = verified("others", true);
    says(&output, 1, "96 B of it were not noted");
    says(&output, 1, "32 B at 0x");
    // Where the system allows watchpoints.
    if String::from_utf8_lossy(&output.stdout).contains("stored by") {
        says(&output, 1, "in durable::store_for_a_command");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["durable", "verify", "--", "true"])
        .output()
        .unwrap();
    says(&output, 2, "true: it has opened no durable state");
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["durable", "verify", "--", "no-such-program"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    says(&output, output.status.code().unwrap(), "no-such-program");
}

/// What a program's states tell lies in a temporary directory meanwhile.
#[test]
fn a_verification_that_is_interrupted_leaves_nothing() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    let states = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = tempfile::tempdir().unwrap();
    let entries = || std::fs::read_dir(place.path()).unwrap().count();
    // One without a state, and one with a state.
    let without = ["sh", "-c", "echo begun; exec sleep 100"].map(Into::into).to_vec();
    let mut with = vec![std::env::current_exe().unwrap()];
    with.extend(["--exact", "program", "--ignored", "--nocapture"].map(Into::into));
    for words in [without, with] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.args(["durable", "verify", "--"]).args(words).env("TMPDIR", place.path());
        command.env("SPANDREL_TEST_STATE", states.path().join("own"));
        command.env("SPANDREL_TEST_WAITS", "1");
        // As a terminal does it: the signal is one to all processes of the group.
        command.process_group(0).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("begun")));
        assert_eq!(entries(), 1);
        // SAFETY: the group is that of the child, which is not waited for yet.
        assert_eq!(unsafe { libc::kill(-child.id().cast_signed(), libc::SIGINT) }, 0);
        let status = child.wait().unwrap();
        assert!(status.code().is_some() || status.signal() == Some(libc::SIGINT), "{status}");
        assert_eq!(entries(), 0);
    }
}
