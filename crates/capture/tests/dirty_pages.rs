//! Notes and dirty pages find the same writes to mapped memory.

mod mapped;

use mapped::PAGE;
use proptest::prelude::*;
use spandrel_capture::{Capture, DirtyPages, Explicit, Refused, Regions, Sizes};
use spandrel_os::written::Written;

const PAGES: usize = 24;
const BYTES: usize = PAGES * PAGE;

type Mapped = mapped::Mapped<BYTES>;

fn put(memory: &Mapped, at: usize, bytes: usize, value: u8) {
    assert!(at + bytes <= BYTES);
    // SAFETY: within the mapping, to which no reference exists.
    unsafe { memory.0.add(at).write_bytes(value, bytes) };
}

/// Marks the bytes that a capture names.
fn named(capture: &mut dyn Capture, at: *mut u8) -> Vec<bool> {
    let (mut all, mut behind) = (vec![false; BYTES], 0);
    capture.end(&mut |run, bytes| {
        let from = run as usize - at as usize;
        assert!(from >= behind && bytes > 0, "disjoint and sorted");
        behind = from + bytes + 1;
        all[from..from + bytes].fill(true);
    });
    all
}

type Watch = unsafe fn(*mut u8, usize) -> Written;

fn check(watch: Watch, block_bytes: usize, batches: &[Vec<(usize, usize, u8)>]) {
    let mapped = Mapped::new();
    let (older, fill) = mapped.older();
    // SAFETY: a private mapping that was read only so far; the captures are dropped before it.
    let mut dirty = unsafe {
        DirtyPages::new(watch(mapped.0, BYTES), mapped.0, BYTES, block_bytes, fill).unwrap()
    };
    let regions = Regions::of(mapped.0, BYTES).unwrap();
    let mut explicit = Explicit::new(Sizes { block_bytes, ..Sizes::default() }, regions).unwrap();
    for writes in batches {
        dirty.begin();
        explicit.begin();
        for (at, bytes, value) in writes {
            let bytes = *bytes.min(&(BYTES - at));
            explicit.note(mapped.0.wrapping_add(*at), bytes);
            put(&mapped, *at, bytes, *value);
        }
        let now = mapped.bytes();
        let differs: Vec<bool> =
            now.iter().zip(older.borrow().iter()).map(|(a, b)| a != b).collect();
        let by_notes = named(&mut explicit, mapped.0);
        let by_pages = named(&mut dirty, mapped.0);
        for block in (0..BYTES).step_by(block_bytes) {
            let all = block..block + block_bytes;
            let differs = differs[all.clone()].contains(&true);
            assert!(by_pages[all.clone()].iter().all(|named| *named == differs), "{block:#x}");
            assert!(!differs || by_notes[all].iter().all(|named| *named), "{block:#x}");
        }
        *older.borrow_mut() = now;
    }
    assert_eq!(named(&mut dirty, mapped.0), vec![false; BYTES]);
}

fn writes() -> impl Strategy<Value = Vec<(usize, usize, u8)>> {
    let bytes = prop_oneof![6 => 0_usize..40, 2 => 0_usize..700, 1 => 0_usize..3 * PAGE];
    // Few values: some writes change nothing.
    prop::collection::vec((0..BYTES, bytes, 0_u8..4), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn notes_and_dirty_pages_agree(
        has_kernel in any::<bool>(),
        block_bytes in prop_oneof![Just(16), Just(32), Just(64), Just(128)],
        batches in prop::collection::vec(writes(), 1..5),
    ) {
        let watch: Watch = if has_kernel { Written::watch } else { Written::watch_own };
        check(watch, block_bytes, &batches);
    }
}

#[test]
fn runs_go_on_over_the_edge_of_a_page() {
    let mapped = Mapped::new();
    let (older, fill) = mapped.older();
    // SAFETY: as in `check`.
    let mut dirty = unsafe {
        let written = Written::watch(mapped.0, BYTES - PAGE);
        DirtyPages::new(written, mapped.0, BYTES - PAGE, 32, fill).unwrap()
    };
    put(&mapped, PAGE - 40, 80, 9);
    put(&mapped, 7 * PAGE, 1, 99);
    let mut runs = Vec::new();
    dirty.end(&mut |at, bytes| runs.push((at as usize - mapped.0 as usize, bytes)));
    assert_eq!(runs, [(PAGE - 64, 128), (7 * PAGE, 32)]);
    // SAFETY: the last page is mapped, and was read only so far.
    unsafe {
        assert_eq!(dirty.extend(BYTES - 1), Err(Refused::Size));
        assert_eq!(dirty.extend(PAGE), Err(Refused::Size));
        dirty.extend(BYTES).unwrap();
    }
    *older.borrow_mut() = mapped.bytes();
    put(&mapped, PAGE, 1, 8);
    put(&mapped, BYTES - 1, 1, 1);
    runs.clear();
    dirty.end(&mut |at, bytes| runs.push((at as usize - mapped.0 as usize, bytes)));
    assert_eq!(runs, [(PAGE, 32), (BYTES - 32, 32)]);
    assert_eq!((dirty.statistics().blocks, dirty.statistics().duplicates), (7, 0));
}
