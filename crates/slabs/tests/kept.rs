//! Of what a small program gives back at once some is kept for it, for a moment. The heap is the process's:
//! this test is alone in its file.

mod stay;

use spandrel_pages::Figure;
use spandrel_slabs as slabs;
use std::time::{Duration, Instant};

const SIZE: usize = 900;
const MIB: u64 = 1 << 20;

fn figure(figure: Figure) -> u64 {
    slabs::figures().expect("it has started")[figure as usize]
}

fn make(count: usize) -> Vec<usize> {
    let make_one = |_| {
        let at = slabs::alloc(SIZE);
        assert!(!at.is_null());
        at as usize
    };
    (0..count).map(make_one).collect()
}

fn free(objects: Vec<usize>) {
    for at in objects {
        // SAFETY: a live object of this test's, freed once.
        unsafe { slabs::free(at as *mut u8) };
    }
}

#[test]
fn a_part_is_kept_for_a_moment() {
    stay::stay();
    assert!(slabs::start());
    // A little of it stays in use, or a quarter of nothing were kept.
    let rest = make(8_000);
    let kept = || {
        free(make(16_000));
        figure(Figure::InEmptySpans)
    };
    let first = kept();
    assert!(first > MIB / 4 && first <= MIB / 2, "half a mebibyte of a class: {first}");
    let spans = figure(Figure::Spans);
    assert_eq!(kept(), first, "in each round as much");
    (0..3).for_each(|_| _ = kept());
    // Their number does not grow from round to round. How much a refill takes depends on the time since the last one: two spans at a round's end.
    let after = figure(Figure::Spans);
    assert!(after <= spans + 2, "{spans} spans, then {after}");

    // Who goes on without them: what it does now and then gives them back.
    let begun = Instant::now();
    while figure(Figure::InEmptySpans) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{first} bytes are kept on and on");
        std::thread::sleep(Duration::from_millis(50));
        (0..300).for_each(|_| free(vec![slabs::alloc(300_000) as usize]));
    }
    assert!(kept() > 0);
    slabs::trim();
    assert_eq!(figure(Figure::InEmptySpans), 0);

    // In a larger heap nothing is: its huge pages shall become empty.
    let much = make(90_000);
    assert_eq!(kept(), 0);
    free(much);
    free(rest);
    slabs::trim();
    let stats = slabs::stats().unwrap();
    assert_eq!((stats.spans, stats.live.0), (0, 0));
}
