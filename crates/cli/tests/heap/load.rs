//! `dump` and `load`: what is loaded of a dump is the heap that was dumped. And `shrink`.

use super::messages::limited;
use super::{BYTES, Place, fill, lose, numbers};
use serde_json::{Value, json};
use spandrel_pheap::{BLOCK_BYTES, Choice, Heap, Options};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is the same of two heaps of which one is the other, loaded.
fn compared(place: &Place, file: &str) -> Value {
    let mut dump = place.run(&["dump", file]).json();
    let record = dump["record"].as_object_mut().unwrap();
    for own in ["uuid", "sequence", "generation", "closed"] {
        record.remove(own).unwrap();
    }
    dump.as_object_mut().unwrap().remove("heap").unwrap();
    dump
}

/// Numbers as good as drawn.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}

/// Objects of all sizes that lead to one another by offsets, and in a fixed heap by addresses; roots with and without names.
fn grow(heap: &Heap, draw: &mut Draw) {
    let mut objects = Vec::new();
    for _ in 0..draw.below(200) + 1 {
        let bytes = match draw.below(20) {
            0 => BLOCK_BYTES + draw.below(300_000),
            1..=3 => draw.below(40_000) + 1,
            _ => draw.below(600) + 1,
        };
        let object = heap.alloc_zeroed(bytes.next_multiple_of(8)).unwrap();
        for _ in 0..draw.below(6) {
            let place = draw.below(bytes.div_ceil(8));
            let to = match objects.get(draw.below(objects.len() + 1)) {
                Some(to) if heap.fixed_base().is_some() && draw.below(2) == 0 => {
                    std::ptr::NonNull::<u8>::as_ptr(*to) as u64
                }
                Some(to) => heap.pointer(*to).raw(),
                None => draw.below(usize::MAX) as u64,
            };
            // SAFETY: within the object.
            unsafe { object.cast::<u64>().add(place).write(to) };
        }
        objects.push(object);
    }
    for number in 0..draw.below(12) {
        let object = objects[draw.below(objects.len())];
        let root = match draw.below(2) {
            0 => draw.below(500),
            _ => heap.named_root_of(&format!("root {number}"), 7 * number as u64).unwrap(),
        };
        heap.set_root(root, (draw.below(8) > 0).then_some(object)).unwrap();
    }
}

#[test]
fn what_is_loaded_of_a_dump_is_the_heap() {
    let mut draw = Draw(1);
    for turn in 0..15 {
        let place = Place::new();
        let choice = [Choice::Auto, Choice::Mapped, Choice::Logged][turn % 3];
        let options = Options::new().size(BYTES).medium(choice).layout((turn % 4) as u64);
        let options = if turn % 2 == 0 { options.fixed() } else { options };
        let heap = options.create(place.path("a.heap")).unwrap();
        grow(&heap, &mut draw);
        heap.checkpoint().unwrap();
        match turn % 5 {
            0 => heap.abandon(),
            _ => heap.close().unwrap(),
        }
        let dumped = compared(&place, "a.heap");
        place.says(0, &["dump", "a.heap", "--out", "a.json"]);
        let said = place.says(0, &["load", "b.heap", "--from", "a.json"]);
        assert!(said.starts_with("b.heap: ") && said.contains("object"), "{said}");
        assert_eq!(compared(&place, "b.heap"), dumped, "turn {turn}");
        assert!(place.says(0, &["check", "b.heap"]).contains("b.heap: sound; "));
        let info = place.run(&["info", "--json", "b.heap"]).json();
        assert_eq!((&info["record"]["closed"], &info["lost"]), (&true.into(), &0.into()));
        let _ = std::fs::remove_file(place.path("a.heap.wal"));
        assert_eq!(place.names(), ["a.heap", "a.json", "b.heap"]);
        // It goes on as any heap.
        let heap = Options::new().open(place.path("b.heap")).unwrap().0;
        grow(&heap, &mut draw);
        heap.close().unwrap();
        assert!(place.says(0, &["check", "b.heap"]).contains("b.heap: sound; "));
    }
}

#[test]
fn a_dump_goes_through_a_pipe() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Auto);
    fill(&heap);
    lose(&heap, 5);
    heap.close().unwrap();
    let spandrel = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.arg("heap").args(args).current_dir(place.0.path());
        command
    };
    let mut dump = spandrel(&["dump", "a.heap"]).stdout(Stdio::piped()).spawn().unwrap();
    let load = spandrel(&["load", "b.heap"]).stdin(dump.stdout.take().unwrap()).output().unwrap();
    assert!(dump.wait().unwrap().success() && load.status.success(), "{load:?}");
    assert_eq!(numbers(&place.path("b.heap")), Vec::from_iter(0..100));
    let check = place.run(&["check", "--json", "b.heap"]).json();
    assert_eq!(check["lost"], 0, "what nothing led to is not there");
}

/// A dump as text: its record before roots and objects, as `dump` writes it.
fn in_order(dump: &Value) -> String {
    let Some(members) = dump.as_object() else { return dump.to_string() };
    let keys = ["format", "heap", "record", "roots", "objects"];
    let text = |key: &&str| Some(format!("{}:{}", json!(key), members.get(*key)?));
    format!("{{{}}}", keys.iter().filter_map(text).collect::<Vec<_>>().join(","))
}

#[test]
fn what_is_no_dump_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    fill(&heap);
    heap.close().unwrap();
    let whole = place.run(&["dump", "a.heap"]).json();
    place.says(0, &["dump", "--outline", "a.heap", "--out", "outline.json"]);
    let outline: Value = serde_json::from_slice(&place.bytes("outline.json")).unwrap();
    assert!(outline["objects"][0]["data"].is_null() && outline["roots"] == whole["roots"]);
    place.refuses(&["load", "a.heap", "--from", "outline.json"], &["a.heap: it is there already"]);
    place.refuses(&["load", "b.heap", "--from", "outline.json"], &["outline.json: ", "--outline"]);
    place.refuses(&["load", "b.heap", "--from", "none.json"], &["none.json: No such file"]);
    place.refuses(&["load", "no/b.heap", "--from", "outline.json"], &["no/b.heap: No such file"]);
    let mut parts = 0;
    let mut refuses = |change: &dyn Fn(&mut Value), part: &str| {
        let mut dump = whole.clone();
        change(&mut dump);
        place.write("wrong.json", in_order(&dump));
        place.refuses(&["load", "b.heap", "--from", "wrong.json"], &["wrong.json: ", part, "dump"]);
        parts += 1;
    };
    refuses(&|dump| dump["format"] = json!(1), "format 1");
    refuses(&|dump| *dump = json!([1]), "invalid type");
    refuses(&|dump| dump["record"] = Value::Null, "invalid type");
    refuses(&|dump| dump["record"]["medium"] = json!("paper"), "'paper'");
    refuses(&|dump| dump["record"]["bytes"] = json!(17), "17 bytes are less than any heap");
    refuses(&|dump| dump["record"]["layout"] = json!("12"), "'12' is no number");
    refuses(
        &|dump| drop(dump.as_object_mut().unwrap().remove("record")),
        "the record comes before",
    );
    refuses(&|dump| dump["roots"][0]["index"] = json!(512), "no root 512");
    refuses(&|dump| dump["roots"][2]["name"] = json!("x".repeat(41)), "1 to 40 bytes");
    refuses(&|dump| dump["objects"][0]["at"] = json!(64), "where the heap keeps its own");
    refuses(&|dump| dump["objects"][0]["bytes"] = json!(1u64 << 40), "behind the heap");
    refuses(&|dump| dump["objects"][0]["data"] = json!("0"), "hex");
    let twice = |dump: &mut Value| dump["objects"][1] = dump["objects"][0].clone();
    refuses(&twice, "overlaps");
    let one_index =
        |dump: &mut Value| dump["roots"][1]["index"] = dump["roots"][0]["index"].clone();
    refuses(&one_index, "two roots of one index");
    let one_name = |dump: &mut Value| dump["roots"][1]["name"] = dump["roots"][2]["name"].clone();
    refuses(&one_name, "two roots of one name");
    refuses(&|dump| dump["roots"][0]["offset"] = json!(1 << 20), "a root that leads to no object");
    let whole = in_order(&whole);
    place.write("cut.json", &whole[..whole.len() - 9]);
    place.refuses(&["load", "b.heap", "--from", "cut.json"], &["cut.json: EOF"]);
    place.write("more.json", format!("{whole}{whole}"));
    place.refuses(&["load", "b.heap", "--from", "more.json"], &["more.json: trailing"]);
    let left = ["a.heap", "cut.json", "more.json", "outline.json", "wrong.json"];
    assert_eq!((place.names(), parts), (left.map(String::from).to_vec(), 16));
}

/// Whatever stands in a dump: a message, or a heap that is sound.
#[test]
fn any_text_is_a_heap_or_a_message() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Mapped);
    fill(&heap);
    heap.close().unwrap();
    let whole = place.run(&["dump", "a.heap"]).out.into_bytes();
    let mut draw = Draw(7);
    let mut loaded = 0;
    for turn in 0..80 {
        let mut text = whole.clone();
        for _ in 0..=turn % 4 {
            let at = draw.below(text.len());
            match draw.below(4) {
                0 => text[at] ^= 1 << draw.below(7),
                1 => drop(text.remove(at)),
                2 => text.insert(at, b"0123456789abcdef\"{}[],-"[draw.below(23)]),
                _ => text[at] = b"0123456789"[draw.below(10)],
            }
        }
        place.write("a.json", &text);
        let done = place.run(&["load", "b.heap", "--from", "a.json"]);
        match done.code {
            Some(0) => {
                let check = place.run(&["check", "b.heap"]);
                assert_eq!(check.code, Some(0), "{check:?}");
                std::fs::remove_file(place.path("b.heap")).unwrap();
                loaded += 1;
            }
            code => assert!(code == Some(2) && done.err.contains("; "), "{done:?}"),
        }
        assert_eq!(place.names(), ["a.heap", "a.json"]);
    }
    assert!(loaded > 3, "{loaded}");
}

#[test]
fn a_load_that_a_signal_ends_leaves_nothing() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    let dump = place.run(&["dump", "a.heap"]).out;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.args(["heap", "load", "b.heap"]).current_dir(place.0.path());
        // The tests may run with signals ignored (`nohup`, a job in the background).
        // SAFETY: between fork and exec, a call that POSIX allows in signal handlers.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            })
        };
        let mut load = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // The heap is half made when the input pauses.
        let mut input = load.stdin.take().unwrap();
        input.write_all(&dump.as_bytes()[..dump.len() - 4]).unwrap();
        let (begun, soon) = (Instant::now(), Duration::from_secs(20));
        let is_half_made = || {
            let made = place.names().into_iter().find(|name| name.starts_with(".spandrel-heap-"));
            made.is_some_and(|made| place.0.path().join(made).join("heap").exists())
        };
        while !is_half_made() && begun.elapsed() < soon {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_half_made());
        // SAFETY: a signal to a process of this test.
        assert_eq!(unsafe { libc::kill(load.id() as i32, signal) }, 0);
        assert_eq!(load.wait().unwrap().signal(), Some(signal));
        assert_eq!(place.names(), ["a.heap"]);
    }
}

/// A command that gets `EINVAL` of `renameat2`, as on NFS and FUSE.
fn without_renameat2(place: &Place, args: &[&str]) -> std::process::Output {
    let filter = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let program = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_renameat2 as u32),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let forbid = move || {
        let len = program.len() as u16;
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        // SAFETY: a filter that outlives the call, which the kernel copies.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    // SAFETY: two system calls, which allocate nothing.
    unsafe { command.pre_exec(forbid) };
    command.arg("heap").args(args).current_dir(place.0.path()).output().unwrap()
}

#[test]
fn a_heap_is_loaded_where_a_file_cannot_be_renamed_without_replacing() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    place.says(0, &["dump", "a.heap", "--out", "a.json"]);
    let done = without_renameat2(&place, &["load", "b.heap", "--from", "a.json"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(numbers(&place.path("b.heap")), Vec::from_iter(0..100));
    assert_eq!(place.names(), ["a.heap", "a.json", "b.heap"]);
}

#[test]
fn a_dump_appears_whole_or_not_at_all() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    let large = heap.alloc_zeroed(24 << 20).unwrap();
    // SAFETY: the object has as many bytes.
    unsafe { large.as_ptr().write_bytes(0xab, 24 << 20) };
    heap.set_root(7, Some(large)).unwrap();
    heap.close().unwrap();
    place.write("a.json", "an earlier dump");
    for out in ["a.json", "b.json"] {
        let args = ["dump", "a.heap", "--out", out];
        let said = limited(&place, libc::RLIMIT_FSIZE, 1 << 20, &args);
        assert!(said.contains(&format!("{out}: File too large")), "{said}");
        assert_eq!(place.bytes("a.json"), b"an earlier dump");
        assert_eq!(place.names(), ["a.heap", "a.json"]);
    }
    let mut was_killed = 0;
    for milliseconds in [5, 10, 20, 40, 80, 160, 320] {
        let mut dump = Command::new(env!("CARGO_BIN_EXE_spandrel"))
            .args(["heap", "dump", "a.heap", "--out", "a.json"])
            .current_dir(place.0.path())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        dump.kill().unwrap();
        if dump.wait().unwrap().success() {
            break;
        }
        was_killed += 1;
        let found = place.bytes("a.json");
        assert!(found == b"an earlier dump" || found.ends_with(b"]}\n"), "{}", found.len());
        assert_eq!(place.names(), ["a.heap", "a.json"]);
    }
    assert!(was_killed > 0, "the first dump was done before it was killed");
    place.says(0, &["dump", "a.heap", "--out", "a.json"]);
    assert!(serde_json::from_slice::<Value>(&place.bytes("a.json")).is_ok());
    // A pipe is written to at once.
    assert!(place.says(0, &["dump", "a.heap", "--out", "/dev/stdout"]).ends_with("]}\n"));
    assert_eq!(place.names(), ["a.heap", "a.json"]);
}

#[test]
fn free_blocks_at_the_end_are_released() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    let large = heap.alloc_zeroed(40 << 20).unwrap();
    // SAFETY: no other code uses it.
    unsafe { heap.free(large).unwrap() };
    heap.close().unwrap();
    let before = place.bytes("a.heap").len();
    let said = place.says(0, &["shrink", "a.heap"]);
    assert!(said.starts_with("a.heap: ") && said.contains(" released; it has "), "{said}");
    let after = place.bytes("a.heap").len();
    assert!(before > 40 << 20 && after < 4 << 20, "{before} to {after}");
    let said = place.says(0, &["shrink", "a.heap"]);
    assert!(said.contains("its last block is in use"), "{said}");
    assert!(place.says(0, &["check", "a.heap"]).contains("sound"));
    assert_eq!(numbers(&place.path("a.heap")), Vec::from_iter(0..100));
    place.refuses(&["shrink", "none.heap"], &["none.heap: there is no such file"]);
    let heap = Options::new().open(place.path("a.heap")).unwrap().0;
    place.refuses(&["shrink", "a.heap"], &["a.heap: process ", "has it open"]);
    heap.close().unwrap();
}

/// Standard output is a file that has lines of others, or the heap is none.
#[test]
fn what_stood_in_a_file_before_a_dump_stays() {
    let place = Place::new();
    let heap = place.create("a.heap", Choice::Logged);
    fill(&heap);
    heap.close().unwrap();
    let all = place.path("all.json");
    for (name, code) in [("none.heap", 2), ("a.heap", 0)] {
        std::fs::write(&all, "before\n").unwrap();
        let to = std::fs::OpenOptions::new().append(true).open(&all).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        let command = command.args(["heap", "dump", &place.path(name), "--out", "/dev/stdout"]);
        let done = command.stdout(to).stderr(Stdio::null()).status().unwrap();
        assert_eq!(done.code(), Some(code), "{name}");
        let text = std::fs::read_to_string(&all).unwrap();
        assert!(text.starts_with("before\n") && (code == 2 || text.len() > 100), "{text:?}");
    }
}
