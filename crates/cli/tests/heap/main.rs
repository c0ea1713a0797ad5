//! `spandrel heap`: heaps of all kinds made, shown, mended and copied, damaged and open ones too; what is
//! refused, and with which exit code.

mod load;
mod messages;
mod open;
mod repair;
mod sums;

use serde_json::Value;
use spandrel_pheap::collections::{Vector, VectorHead};
use spandrel_pheap::{BLOCK_BYTES, Choice, Heap, Options, PPtr, RootType};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// What every heap here has at the beginning.
const BYTES: usize = 2 << 20;
/// Where the roots lie, and a page behind them their names.
const ROOTS: usize = 9 * BLOCK_BYTES + 8192;

/// How a command ended.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }
}

/// A directory that the command is run in.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    fn run(&self, args: &[&str]) -> Done {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        let done = command.arg("heap").args(args).current_dir(self.0.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Done { code: done.status.code(), out: text(done.stdout), err: text(done.stderr) }
    }

    /// The same, with a certain exit code. What it wrote.
    fn says(&self, code: i32, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
        assert_eq!(done.err, "", "{args:?}");
        done.out
    }

    /// The same for what is refused, on standard error.
    fn refuses(&self, args: &[&str], parts: &[&str]) {
        let done = self.run(args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}: {done:?}");
        for part in parts {
            assert!(done.err.contains(part), "{args:?}: '{part}' is not in {}", done.err);
        }
    }

    fn create(&self, name: &str, choice: Choice) -> Heap {
        Options::new().size(BYTES).medium(choice).create(self.path(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), bytes).unwrap();
    }
}

/// Where the objects lie that [`fill`] made.
struct Filled {
    first: usize,
    second: usize,
    large: usize,
}

/// Root 0: an object of 32 bytes that leads to one of 512, from byte 8 on. Root 1: three blocks. `numbers`: a vector.
fn fill(heap: &Heap) -> Filled {
    let at = |object| heap.pointer::<u8>(object).offset().unwrap();
    let [first, second] = [32, 512].map(|bytes| heap.alloc_zeroed(bytes).unwrap());
    let large = heap.alloc_zeroed(3 * BLOCK_BYTES).unwrap();
    // SAFETY: the object has 32 bytes, and the test owns it.
    unsafe { first.cast::<PPtr<u8>>().add(1).write(heap.pointer(second)) };
    heap.set_root(0, Some(first)).unwrap();
    heap.set_root(1, Some(large)).unwrap();
    let mut numbers = Vector::<u64>::open(heap, "numbers").unwrap();
    (0..100).for_each(|number| numbers.push(number).unwrap());
    Filled { first: at(first), second: at(second), large: at(large) }
}

/// Allocates `count` objects of 1000 bytes that nothing leads to.
fn lose(heap: &Heap, count: usize) {
    for _ in 0..count {
        heap.alloc_zeroed(1000).unwrap();
    }
}

fn numbers(path: &str) -> Vec<u64> {
    let types = [RootType::of::<VectorHead<u64>>("numbers")];
    let (heap, _) = Options::new().roots(&types).open(path).unwrap();
    let numbers = Vector::<u64>::open(&heap, "numbers").unwrap();
    (0..numbers.len()).map(|index| numbers.get(index).unwrap()).collect()
}

/// Where the header of the block lies in which an object does.
fn header_of(at: usize) -> usize {
    at / BLOCK_BYTES * 64
}

#[test]
fn a_new_heap_is_what_was_asked_for() {
    let place = Place::new();
    let said = place.says(0, &["create", "a.heap", "--size", "2MiB", "--medium", "logged"]);
    assert!(said.starts_with("a.heap: 2.00 MiB, on a file with a log: "), "{said}");
    assert!(said.contains("last checkpoint survives") && said.lines().count() == 1, "{said}");
    let mode = std::fs::metadata(place.path("a.heap")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = place.says(0, &["info", "a.heap"]);
    for part in ["2.00 MiB, closed", "version 2 of", "address: any", "roots: 0 of 512", "22 free"] {
        assert!(said.contains(part), "'{part}' is not in {said}");
    }
    assert_eq!(place.says(0, &["roots", "a.heap"]), "a.heap: no root is in use\n");
    let said = place.says(0, &["check", "a.heap"]);
    assert_eq!(said, "a.heap: sound; 0 objects can be reached (0 B)\n");
    let said = place.says(0, &["create", "--medium", "mapped", "--size", "704KiB", "m.heap"]);
    assert!(
        said.contains("704 KiB, on ") && said.contains("all survives a crash of the"),
        "{said}"
    );
    assert_eq!(place.names(), ["a.heap", "m.heap"]);
}

#[test]
fn a_heap_with_an_address_of_its_own_keeps_it_in_copies() {
    let place = Place::new();
    let said = place.says(0, &["create", "--fixed", "--size", "1MiB", "f.heap"]);
    let (_, base) = said.trim_end().split_once("always at 0x").unwrap();
    place.says(0, &["copy", "f.heap", "g.heap"]);
    for file in ["f.heap", "g.heap"] {
        let info = place.run(&["info", "--json", file]).json();
        let found = info["record"]["base"].as_str().unwrap();
        assert_eq!(found.trim_start_matches("0x").trim_start_matches('0'), base);
        place.says(0, &["gc", file]);
        place.says(0, &["dump", file]);
    }
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let place = Place::new();
    place.create("there.heap", Choice::Logged).close().unwrap();
    place.write("text", "a text that is no heap, and longer than the identity of one: 64 bytes");
    place.write("x.wal", "another file");
    place.write("short", "short");
    symlink("there.heap", place.path("link")).unwrap();
    symlink("nowhere", place.path("dangling")).unwrap();
    let names = place.names();
    let long = "x".repeat(252);
    for command in ["info", "check", "repair", "gc", "roots", "dump"] {
        for (file, parts) in [
            ("none.heap", &["none.heap: ", "no such file", "heap create"][..]),
            ("text", &["text: it is no heap"]),
            ("short", &["short: it is no heap"]),
            (".", &[".: it is no file"]),
            ("link", &["link: it is a symbolic link", "the file itself"]),
        ] {
            place.refuses(&[command, file], parts);
        }
    }
    for (args, parts) in [
        (&["create", "there.heap"][..], &["there.heap: it is there already"][..]),
        (&["create", "x"], &["x.wal: it is there already"]),
        (&["create", "dangling"], &["dangling: it is there already"]),
        (&["create", "no/such.heap"], &["no/such.heap: No such file"]),
        (&["create", "y", "--size", "many"], &["--size: 'many'", "64KiB"]),
        (&["create", "y", "--size", "-1"], &["--size: '-1'"]),
        (&["create", "y", "--size", "64KiB"], &["--size: '64KiB'", "704 KiB"]),
        (&["create", "y", "--size", "99TiB"], &["--size: '99TiB'", "14TiB"]),
        (&["create", "y", "--medium", "paper"], &["--medium", "'paper'", "logged"]),
        (&["copy", "there.heap", "text"], &["text: it is there already"]),
        (&["copy", "there.heap", "there.heap"], &["there.heap: it is there already"]),
        (&["copy", "there.heap", "x"], &["x.wal: it is there already"]),
        (&["copy", "there.heap", "there.heap.wal"], &["there.heap.wal: the log of there.heap has"]),
        (&["copy", "there.heap", long.as_str()], &["its name has 252 bytes", "a shorter name"]),
        (&["load", long.as_str(), "--from", "text"], &["its name has 252 bytes"]),
        (&["copy", "there.heap", "dangling"], &["dangling: it is there already"]),
        (&["copy", "there.heap", "no/y"], &["no/y: No such file"]),
        (&["copy", "text", "y"], &["text: it is no heap"]),
        (&["copy", "none.heap", "y"], &["none.heap: there is no such file"]),
        (&["dump", "there.heap", "--out", "there.heap"], &["--out: ", "that is read"]),
        (&["dump", "there.heap", "--out", "there.heap.wal"], &["--out: ", "that is read"]),
        (&["dump", "there.heap", "--out", "no/y"], &["no/y: No such file"]),
        (&["repair", "there.heap", "--no-backup"], &["--write"]),
        (&["repair", "--write", "text"], &["text: it is no heap"]),
        (&["copy", "there.heap"], &["<TO>"]),
        (&[], &["Usage"]),
    ] {
        place.refuses(args, parts);
    }
    assert_eq!(place.names(), names);
    assert_eq!(place.bytes("x.wal"), b"another file");
}

#[test]
fn a_heap_is_shown_with_all_that_it_holds() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    let filled = fill(&heap);
    lose(&heap, 20);
    heap.close().unwrap();
    let info = place.says(0, &["info", "a.heap"]);
    for part in
        ["1 large object in 3 blocks", "roots: 3 of 512", "leads to 20 more", "32 B", "fill"]
    {
        assert!(info.contains(part), "'{part}' is not in {info}");
    }
    let info = place.run(&["info", "--json", "a.heap"]).json();
    assert_eq!(
        (&info["lost"], &info["roots"], &info["damaged"]),
        (&20.into(), &3.into(), &0.into())
    );
    assert_eq!((&info["record"]["closed"], &info["version"]), (&true.into(), &2.into()));
    let of_32 = info["classes"].as_array().unwrap().iter().find(|class| class["bytes"] == 32);
    assert!(of_32.unwrap()["live"].as_u64().unwrap() >= 1, "{info}");

    let roots = place.run(&["roots", "--json", "a.heap"]).json();
    let roots = roots["roots"].as_array().unwrap();
    assert_eq!(roots.len(), 3);
    assert_eq!((&roots[0]["offset"], &roots[0]["bytes"]), (&filled.first.into(), &32.into()));
    assert_eq!(roots[1]["bytes"], 3 * BLOCK_BYTES);
    assert_eq!((&roots[2]["name"], &roots[2]["index"]), (&"numbers".into(), &511.into()));
    assert!(roots[2]["layout"].as_str().unwrap().starts_with("0x"));
    let text = place.says(0, &["roots", "a.heap"]);
    assert!(text.contains("numbers") && text.contains(&format!("{:#x}", filled.large)), "{text}");

    let said = place.says(0, &["check", "a.heap"]);
    assert_eq!(said.matches("  note  ").count(), 16, "{said}");
    assert!(said.contains("and 4 more") && said.contains("a.heap: sound; "), "{said}");
    assert!(said.contains("nothing leads to 20 objects"), "{said}");
    let check = place.run(&["check", "--json", "a.heap"]).json();
    assert_eq!(check["findings"].as_array().unwrap().len(), 20);
    assert_eq!((&check["sound"], &check["lost"]), (&true.into(), &20.into()));

    let dump = place.run(&["dump", "a.heap"]).json();
    let object = |at: usize| {
        let objects = dump["objects"].as_array().unwrap();
        objects.iter().find(|object| object["at"] == at).unwrap().clone()
    };
    assert_eq!(object(filled.first)["pointers"], serde_json::json!([[8, filled.second]]));
    assert_eq!(object(filled.second)["bytes"], 512);
    assert_eq!(object(filled.large)["pointers"], serde_json::json!([]));
    assert_eq!(dump["objects"].as_array().unwrap().len() as u64, info["live"].as_u64().unwrap());
    assert_eq!(dump["record"], info["record"]);
    assert_eq!(place.says(0, &["dump", "a.heap", "--out", "a.json"]), "");
    assert_eq!(serde_json::from_slice::<Value>(&place.bytes("a.json")).unwrap(), dump);
}

#[test]
fn what_nothing_leads_to_is_freed() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    lose(&heap, 70);
    heap.alloc_zeroed(2 * BLOCK_BYTES).unwrap();
    heap.close().unwrap();
    let said = place.says(0, &["gc", "a.heap"]);
    assert!(said.starts_with("a.heap: 71 objects freed, and "), "{said}");
    let said = place.says(0, &["check", "a.heap"]);
    assert!(said.lines().count() == 1 && said.contains("sound"), "{said}");
    assert_eq!(numbers(&place.path("a.heap")), Vec::from_iter(0..100));
}

#[test]
fn what_a_heap_was_made_to_lie_on_is_followed_everywhere() {
    let place = Place::new();
    place.says(0, &["create", "--medium", "mapped", "--size", "2MiB", "m.heap"]);
    let heap = Options::new().open(place.path("m.heap")).unwrap().0;
    fill(&heap);
    // Nothing of it was in a checkpoint.
    heap.abandon();
    let info = place.says(0, &["info", "m.heap"]);
    assert!(
        info.contains("on memory: all survives") && info.contains("made to be mapped"),
        "{info}"
    );
    let info = place.run(&["info", "--json", "m.heap"]).json();
    assert_eq!(
        (&info["record"]["medium"], &info["medium"]["is"]),
        (&"mapped".into(), &"memory".into())
    );
    place.says(0, &["copy", "m.heap", "c.heap"]);
    place.says(0, &["gc", "m.heap"]);
    let mut bytes = place.bytes("m.heap");
    bytes[ROOTS + 9 * 8..ROOTS + 10 * 8].fill(1);
    place.write("m.heap", &bytes);
    place.says(0, &["repair", "--write", "--no-backup", "m.heap"]);
    assert_eq!(numbers(&place.path("m.heap")), Vec::from_iter(0..100));
    assert_eq!(numbers(&place.path("c.heap")), Vec::from_iter(0..100));
    assert_eq!(place.names(), ["c.heap", "m.heap"], "no command needed a log");
}

#[test]
fn damage_is_named_with_its_place_and_mended_only_where_asked() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    let filled = fill(&heap);
    heap.close().unwrap();
    let mut bytes = place.bytes("a.heap");
    let header = header_of(filled.large);
    bytes[header + 1] ^= 0xff;
    place.write("a.heap", &bytes);
    let named = format!("{header:#012x}  damage");
    let said = place.says(1, &["check", "a.heap"]);
    assert!(said.contains(&named) && said.contains("the header of a block"), "{said}");
    assert!(said.contains("a.heap: damaged, in ") && said.contains("heap repair a.heap"), "{said}");
    std::fs::rename(place.path("a.heap"), place.path("a heap")).unwrap();
    for (command, code) in [("check", 1), ("info", 0), ("repair", 1)] {
        let said = place.says(code, &[command, "a heap"]);
        assert!(said.contains("\"spandrel heap ") && said.contains(" 'a heap'\""), "{said}");
    }
    std::fs::rename(place.path("a heap"), place.path("a.heap")).unwrap();
    let done = place.run(&["check", "--json", "a.heap"]);
    assert_eq!((done.code, &done.json()["sound"]), (Some(1), &false.into()));
    let findings = done.json()["findings"].as_array().unwrap().clone();
    assert!(findings.iter().any(|found| found["at"] == header && found["kind"] == "damage"));
    let info = place.says(0, &["info", "a.heap"]);
    assert!(info.contains("not counted, as it is damaged in "), "{info}");

    let said = place.says(1, &["repair", "a.heap"]);
    let mended = format!("{header:#012x}  mended      the header of a block: put right");
    assert!(said.contains(&mended) && said.contains("repair --write a.heap"), "{said}");
    assert_eq!(place.bytes("a.heap"), bytes);
    assert_eq!(place.names(), ["a.heap"]);

    place.write("a.heap.before-repair", "another file");
    place.refuses(&["repair", "--write", "a.heap"], &["a.heap.before-repair: it is there already"]);
    std::fs::remove_file(place.path("a.heap.before-repair")).unwrap();
    // A log that was set aside before is not written over.
    place.write("a.heap.bad", "a log of before");
    let forgetting = ["repair", "--write", "--no-backup", "--forget-log", "a.heap"];
    place.refuses(&forgetting, &["a.heap.bad: it is there already"]);
    std::fs::remove_file(place.path("a.heap.bad")).unwrap();
    let said = place.says(0, &["repair", "--write", "a.heap"]);
    assert!(said.contains(&mended) && said.contains("it is sound now"), "{said}");
    assert!(said.contains("kept in a.heap.before-repair"), "{said}");
    assert_eq!(place.bytes("a.heap.before-repair"), bytes);
    assert!(place.says(0, &["check", "a.heap"]).contains("sound"));
    let said = place.says(0, &["repair", "a.heap", "--write"]);
    assert_eq!(said, "a.heap: sound; there is nothing to mend\n");
    assert_eq!(numbers(&place.path("a.heap")), Vec::from_iter(0..100), "the rest is there");

    place.says(1, &["check", "a.heap.before-repair"]);
    place.says(0, &["repair", "--write", "--no-backup", "a.heap.before-repair"]);
    assert!(!Path::new(&place.path("a.heap.before-repair.before-repair")).exists());
}

#[test]
fn roots_and_names_that_were_others_are_put_right() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    let mut bytes = place.bytes("a.heap");
    // Root 9, and the name of root 511.
    let (root, name) = (ROOTS + 9 * 8, ROOTS + 4096 + 511 * 64);
    bytes[root..root + 8].fill(1);
    bytes[name] ^= 1;
    place.write("a.heap", &bytes);
    for (command, parts) in [
        ("check", ["dangling    a root that leads to no object", "damage      the name of a root"]),
        ("repair", ["mended      a root: put right", "mended      the name of a root: put right"]),
    ] {
        let said = place.says(1, &[command, "a.heap"]);
        for (at, part) in [root, name].into_iter().zip(parts) {
            let part = format!("{at:#012x}  {part}");
            assert!(said.contains(&part), "'{part}' is not in {said}");
        }
    }
    place.refuses(&["roots", "a.heap"], &["a.heap: it is damaged", "heap repair a.heap"]);
    assert!(place.says(0, &["repair", "--write", "a.heap"]).contains("2 places put right"));
    let roots = place.run(&["roots", "--json", "a.heap"]).json();
    assert_eq!(roots["roots"].as_array().unwrap().len(), 3, "that of the name leads to the vector");
}

/// Whatever is damaged: a finding or a message, never a fault, and what was mended is sound.
#[test]
fn any_damage_ends_in_an_exit_code() {
    let place = Place::new();
    let heap = place.create("x.heap", Choice::Mapped);
    fill(&heap);
    heap.close().unwrap();
    let whole = place.bytes("x.heap");
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    let mut mended = 0;
    for turn in 0..48 {
        let mut bytes = whole.clone();
        for _ in 0..=turn % 3 {
            // Headers, the superblock, anything.
            let at = match turn % 4 {
                0 => next(BYTES / BLOCK_BYTES * 64),
                1 => ROOTS - 8192 + next(BLOCK_BYTES),
                2 => next(64),
                _ => next(BYTES),
            };
            bytes[at] ^= 1 << next(8);
        }
        place.write("x.heap", &bytes);
        let [check, .., planned] = ["check", "info", "roots", "dump", "repair"].map(|command| {
            let done = place.run(&[command, "x.heap"]);
            assert!(matches!(done.code, Some(0..=2)), "turn {turn}, {command}: {done:?}");
            assert_eq!(done.code == Some(2), !done.err.is_empty(), "{command}: {done:?}");
            done.code
        });
        // A repair without --write finds something to mend where a check finds damage.
        assert_eq!(check, planned, "turn {turn}");
        assert_eq!(place.bytes("x.heap"), bytes);
        let done = place.run(&["repair", "--write", "--no-backup", "x.heap"]);
        if check == Some(0) {
            assert!(done.code == Some(0) && place.bytes("x.heap") == bytes, "{turn}: {done:?}");
        }
        if done.code == Some(0) {
            place.says(0, &["check", "x.heap"]);
            let opened = Options::new().open(place.path("x.heap"));
            let (heap, _) = opened.unwrap_or_else(|why| panic!("turn {turn}: {why:?}"));
            let object = heap.alloc(100).unwrap();
            // SAFETY: no other code has the object.
            unsafe { heap.free(object).unwrap() };
            heap.close().unwrap();
            place.says(0, &["check", "x.heap"]);
            mended += 1;
        }
    }
    assert!(mended > 40, "{mended} of 48");
}

#[test]
fn a_closed_output_ends_a_command_without_a_message() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    heap.close().unwrap();
    for args in [&["dump", "a.heap"][..], &["roots", "a.heap"], &["check", "a.heap"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.arg("heap").args(args).current_dir(place.0.path());
        let done = command.stdout(writer).output().unwrap();
        assert_eq!((done.status.code(), done.stderr.len()), (Some(141), 0), "{args:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_to_says_nothing_of_the_heap() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    heap.close().unwrap();
    for args in [
        &["dump", "a.heap"][..],
        &["roots", "a.heap"],
        &["check", "a.heap"],
        &["check", "--json", "a.heap"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.arg("heap").args(args).current_dir(place.0.path());
        let done = command.stdout(full).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {done:?}");
    }
}

#[test]
fn what_is_cut_off_is_damaged_and_cannot_be_mended() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    fill(&heap);
    heap.close().unwrap();
    let whole = place.bytes("a.heap");
    place.write("a.heap", &whole[..BYTES - BLOCK_BYTES]);
    let said = place.says(1, &["check", "a.heap"]);
    assert!(said.contains("cut off: 2031616 bytes, of 2097152"), "{said}");
    let done = place.run(&["check", "--json", "a.heap"]);
    assert_eq!((done.code, &done.json()["sound"]), (Some(1), &false.into()));
    for args in [&["repair", "a.heap"][..], &["repair", "--write", "a.heap"]] {
        let said = place.says(1, args);
        assert!(said.contains("cut off") && said.contains("cannot be mended"), "{said}");
    }
    for args in [&["info", "a.heap"][..], &["roots", "a.heap"], &["gc", "a.heap"]] {
        place.refuses(args, &["a.heap: it is cut off", "a copy"]);
    }
    place.refuses(&["copy", "a.heap", "b.heap"], &["a.heap: it is cut off"]);
    for left in [BLOCK_BYTES, 100] {
        place.write("a.heap", &whole[..left]);
        let said = place.says(1, &["check", "a.heap"]);
        assert!(said.contains(&format!("cut off: {left} bytes, of 720896 that any")), "{said}");
        place.refuses(&["info", "a.heap"], &["a.heap: it is cut off", "a copy"]);
    }
    // Of one copy of the identity the other tells; without both there is no heap.
    let mut identity = whole;
    identity[40] ^= 1;
    place.write("a.heap", &identity);
    let said = place.says(1, &["repair", "a.heap"]);
    assert!(said.contains("the heap's identity: put right"), "{said}");
    identity[ROOTS - 8192 + 61440 + 40] ^= 1;
    place.write("a.heap", &identity);
    assert!(place.says(1, &["check", "a.heap"]).contains("offset 0x0: the heap's identity"));
    place.refuses(&["info", "a.heap"], &["offset 0x0", "heap check a.heap"]);
    assert!(place.says(1, &["repair", "a.heap"]).contains("cannot be mended"));
}

#[test]
fn a_heap_whose_ties_to_its_log_are_damaged_is_used_as_the_file_has_it() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    let mut bytes = place.bytes("a.heap");
    let ties = ROOTS - 8192 + 53_248;
    bytes[ties..ties + 8192].fill(0xff);
    place.write("a.heap", &bytes);
    let said = place.says(1, &["check", "a.heap"]);
    assert!(said.contains("heap to its log") && said.contains("heap repair a.heap"), "{said}");
    let said = place.says(1, &["repair", "a.heap"]);
    assert!(said.contains("heap repair --forget-log a.heap"), "{said}");
    let said = place.says(1, &["repair", "--forget-log", "a.heap"]);
    assert!(said.contains("the log would be given up") && said.contains("--write"), "{said}");
    assert_eq!(place.bytes("a.heap"), bytes);
    let said = place.says(0, &["repair", "--forget-log", "--write", "--no-backup", "a.heap"]);
    assert!(said.contains("the log given up") && said.contains("it is sound now"), "{said}");
    assert_eq!(numbers(&place.path("a.heap")), Vec::from_iter(0..100));
    let said = place.says(0, &["repair", "--forget-log", "a.heap"]);
    assert_eq!(said, "a.heap: sound; there is nothing to mend\n");
}

#[test]
fn a_log_of_another_heap_is_not_used() {
    let place = Place::new();
    place.create("a.heap", Choice::Logged).close().unwrap();
    let other = place.create("b.heap", Choice::Logged);
    fill(&other);
    other.checkpoint().unwrap();
    other.abandon();
    std::fs::copy(place.path("b.heap.wal"), place.path("a.heap.wal")).unwrap();
    place
        .refuses(&["info", "a.heap"], &["a.heap.wal: it is the log of another heap; move it away"]);
    place.refuses(&["gc", "a.heap"], &["a.heap.wal: ", "another heap"]);
}
