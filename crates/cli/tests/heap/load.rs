//! `dump` and `load`: what is loaded of a dump is the heap that was dumped. And `shrink`.

use super::{BYTES, Place, fill, lose, numbers};
use serde_json::{Value, json};
use spandrel_pheap::{BLOCK_BYTES, Choice, Heap, Options};
use std::process::{Command, Stdio};

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
    let whole = in_order(&whole);
    place.write("cut.json", &whole[..whole.len() - 9]);
    place.refuses(&["load", "b.heap", "--from", "cut.json"], &["cut.json: EOF"]);
    place.write("more.json", format!("{whole}{whole}"));
    place.refuses(&["load", "b.heap", "--from", "more.json"], &["more.json: trailing"]);
    let left = ["a.heap", "cut.json", "more.json", "outline.json", "wrong.json"];
    assert_eq!((place.names(), parts), (left.map(String::from).to_vec(), 13));
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
                // A root or a pointer may lead to nothing now, and what it led to is gone.
                let check = place.run(&["check", "b.heap"]);
                assert!(matches!(check.code, Some(0 | 1)), "{check:?}");
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
