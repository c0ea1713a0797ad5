//! Sums of pages (`create --sums`): what `check` finds and says, and what `repair` leaves damaged.

use super::{Place, ROOTS, fill};
use spandrel_pheap::Options;

/// A heap with sums, closed. The offset of an object of three blocks.
fn made(place: &Place) -> usize {
    let args = ["create", "a.heap", "--size", "2MiB", "--medium", "logged", "--sums"];
    place.says(0, &args);
    let heap = Options::new().open(place.path("a.heap")).unwrap().0;
    let filled = fill(&heap);
    heap.close().unwrap();
    filled.large
}

fn flip(place: &Place, name: &str, at: usize) {
    let mut bytes = place.bytes(name);
    bytes[at] ^= 0x10;
    place.write(name, bytes);
}

#[test]
fn a_flipped_bit_of_an_object_is_found_with_its_page_and_its_root() {
    let place = Place::new();
    let large = made(&place);
    let said = place.says(0, &["check", "a.heap"]);
    assert!(said.contains("all pages were compared with their sums"), "{said}");
    flip(&place, "a.heap", large + 70_000);
    let said = place.says(1, &["check", "a.heap"]);
    let page = (large + 70_000) / 4096 * 4096;
    for part in [
        format!(
            "{page:#012x}  page        a page that is not what its sum says; it has 1 object of"
        ),
        format!("the first at {large:#x}, among them that of root 1"),
        "a.heap: 1 page is not what the sums say".into(),
        "spandrel heap repair --accept-sums --write a.heap".into(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let json = place.run(&["check", "--json", "a.heap"]).json();
    assert_eq!(
        (&json["sound"], &json["pages"], &json["damaged"]),
        (&false.into(), &1.into(), &0.into())
    );
    assert_eq!((&json["sums"], &json["live"]), (&"compared".into(), &5.into()));
    let finding = &json["findings"][0];
    assert_eq!((&finding["kind"], &finding["at"]), (&"page".into(), &page.into()));
    assert_eq!(
        (&finding["objects"]["at"], &finding["objects"]["root"]),
        (&large.into(), &1.into())
    );
}

#[test]
fn a_repair_makes_no_page_a_sound_one_unless_an_option_says_so() {
    let place = Place::new();
    let large = made(&place);
    flip(&place, "a.heap", large + 70_000);
    for args in [&["repair", "a.heap"][..], &["repair", "--write", "a.heap"]] {
        let said = place.says(1, args);
        assert!(said.contains("1 page is not what the sums say"), "{said}");
    }
    // A root: it can be put right, and the page of the object cannot.
    flip(&place, "a.heap", ROOTS + 3);
    let said = place.says(1, &["repair", "--write", "--no-backup", "a.heap"]);
    assert!(said.contains("put right") && said.contains("1 page is not what"), "{said}");
    assert!(place.says(1, &["check", "a.heap"]).contains("1 page is not what"));
    let said = place.says(0, &["repair", "--write", "--accept-sums", "a.heap"]);
    assert!(said.contains("the sums of all pages were computed again"), "{said}");
    assert!(place.says(0, &["check", "a.heap"]).contains("compared with their sums"));
    assert_eq!(place.names(), ["a.heap", "a.heap.before-repair", "a.heap.sum"]);
}

#[test]
fn sums_that_say_nothing_are_named_with_the_reason() {
    let place = Place::new();
    made(&place);
    let backup = place.bytes("a.heap");
    let heap = Options::new().open(place.path("a.heap")).unwrap().0;
    heap.set_root(5, Some(heap.alloc(100).unwrap())).unwrap();
    heap.checkpoint().unwrap();
    let said = place.says(0, &["check", "a.heap"]);
    assert!(said.contains("a.heap.sum changes, as a process has the heap open"), "{said}");
    heap.close().unwrap();
    place.write("a.heap", backup);
    let said = place.says(0, &["check", "a.heap"]);
    assert!(said.contains("a.heap.sum is of another state of the heap"), "{said}");
    place.write("a.heap.sum", "a text");
    let said = place.says(0, &["check", "a.heap"]);
    assert!(said.contains("a.heap.sum is no file of this heap"), "{said}");
    assert_eq!(place.run(&["check", "--json", "a.heap"]).json()["sums"], "foreign");
    let args = ["create", "b.heap", "--medium", "mapped", "--sums"];
    place.refuses(&args, &["b.heap: ", "no moment at which a sum", "with a log"]);
    assert_eq!(place.names(), ["a.heap", "a.heap.sum"]);
}

#[test]
fn a_damaged_sum_is_no_damage_of_a_page() {
    let place = Place::new();
    let large = made(&place);
    flip(&place, "a.heap.sum", 4096 + large / 4096 * 8);
    let said = place.says(1, &["check", "a.heap"]);
    assert!(said.contains("a damaged sum, so that nothing is known of its page"), "{said}");
    let said = place.says(0, &["repair", "--write", "--accept-sums", "--no-backup", "a.heap"]);
    assert!(said.contains("computed again"), "{said}");
    place.says(0, &["check", "a.heap"]);
}
