//! No written byte is lost, and no byte outside of the written blocks is named, whatever is written and however small the table is.

use proptest::prelude::*;
use spandrel_capture::{Capture, Captured, Explicit, Extent, RANGE_BYTES, Regions, Sizes};

const PAGE: usize = 4096;

/// First and last byte.
type Run = (usize, usize);

fn drain(captured: &mut Captured) -> (Extent, Vec<Run>) {
    let mut runs = Vec::new();
    let extent = captured.drain(|at, bytes| {
        assert!(bytes > 0);
        runs.push((at as usize, at as usize + (bytes - 1)));
    });
    (extent, runs)
}

/// The union of writes, each widened to whole units.
fn union(writes: &[(usize, usize)], unit: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = writes
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(at, bytes)| (at & !(unit - 1), at.saturating_add(bytes - 1) | (unit - 1)))
        .collect();
    runs.sort_unstable();
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if run.0 <= last.1.saturating_add(1) => last.1 = last.1.max(run.1),
            _ => all.push(run),
        }
    }
    all
}

fn covers(runs: &[Run], all: &[Run]) -> bool {
    all.iter().all(|one| runs.iter().any(|run| run.0 <= one.0 && one.1 <= run.1))
}

fn check(captured: &mut Captured, writes: &[(usize, usize)]) -> Extent {
    writes.iter().for_each(|(at, bytes)| captured.note(*at, *bytes));
    let (extent, runs) = drain(captured);
    assert!(runs.windows(2).all(|pair| pair[0].1 < pair[1].0), "disjoint and sorted: {runs:x?}");
    let block = captured.block_bytes();
    match extent {
        Extent::Blocks => assert_eq!(runs, union(writes, block)),
        Extent::Pages => {
            assert!(covers(&runs, &union(writes, block)), "{runs:x?}");
            assert!(covers(&union(writes, PAGE), &runs), "{runs:x?}");
        }
        Extent::Everything => assert_eq!(runs, []),
    }
    assert_eq!(drain(captured), (Extent::Blocks, Vec::new()), "a drain forgets all");
    extent
}

fn write() -> impl Strategy<Value = (usize, usize)> {
    let at = prop_oneof![
        6 => 0_usize..1 << 14,
        3 => (0_usize..1 << 20).prop_map(|at| at * 4099),
        1 => (0_usize..600).prop_map(|before| usize::MAX - before),
        1 => any::<usize>(),
    ];
    // Addresses near the edges of blocks.
    let at = prop_oneof![at.clone(), at.prop_map(|at| (at & !31).wrapping_sub(1) & !7)];
    let bytes = prop_oneof![
        1 => Just(0_usize),
        8 => 1_usize..17,
        6 => 1_usize..200,
        2 => prop_oneof![Just(16_usize), Just(32), Just(64), Just(128)],
        2 => RANGE_BYTES - 2..RANGE_BYTES + 2,
        1 => 1_usize..1 << 16,
    ];
    (at, bytes)
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let blocks = prop_oneof![Just(16), Just(32), Just(64), Just(128)];
    let slots = prop_oneof![Just(64), Just(256), Just(8192)];
    let overflow = prop_oneof![Just(0), Just(1), Just(7), Just(60), Just(3000)];
    let ranges = prop_oneof![Just(2), Just(3), Just(16), Just(1 << 16)];
    let range_bytes =
        prop_oneof![4 => Just(RANGE_BYTES), 1 => Just(1), 1 => Just(100), 1 => Just(usize::MAX)];
    (blocks, slots, overflow, ranges, range_bytes).prop_map(
        |(block_bytes, slots, overflow, ranges, range_bytes)| {
            let has_repeats = false;
            Sizes { block_bytes, slots, overflow, ranges, range_bytes, has_repeats }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn runs_are_the_union_of_the_written_blocks(
        sizes in sizes(),
        batches in prop::collection::vec(prop::collection::vec(write(), 0..400), 1..4),
    ) {
        let mut captured = Captured::new(sizes).unwrap();
        for writes in &batches {
            let _ = check(&mut captured, writes);
        }
    }

    #[test]
    fn a_table_that_never_fills_is_exact(writes in prop::collection::vec(write(), 0..300)) {
        let mut captured = Captured::new(Sizes::default()).unwrap();
        prop_assert_eq!(check(&mut captured, &writes), Extent::Blocks);
        let statistics = captured.statistics();
        prop_assert_eq!((statistics.coarse, statistics.whole), (0, 0));
    }

    #[test]
    fn explicit_notes_name_each_byte_of_the_regions(
        sizes in sizes(),
        writes in prop::collection::vec((0_usize..6 * PAGE, prop_oneof![0_usize..64, 0_usize..9000]), 0..200),
    ) {
        let mut regions = Regions::new();
        regions.add(PAGE as *const u8, PAGE).unwrap();
        regions.add((3 * PAGE) as *const u8, 2 * PAGE).unwrap();
        let is_durable = |at: &usize| matches!(at / PAGE, 1 | 3 | 4);
        let mut explicit = Explicit::new(sizes, regions).unwrap();
        explicit.begin();
        let (mut bytes, mut allowed) = (vec![false; 6 * PAGE], vec![false; 6 * PAGE]);
        for (at, len) in &writes {
            explicit.note(*at as *const u8, *len);
            let end = (at + len).min(6 * PAGE);
            (*at..end).filter(is_durable).for_each(|at| bytes[at] = true);
            if *len > 0 {
                let block = sizes.block_bytes;
                let blocks = at / block * block..end.next_multiple_of(block);
                blocks.filter(is_durable).for_each(|at| allowed[at] = true);
            }
        }
        let mut named = vec![false; 6 * PAGE];
        explicit.end(&mut |at, len| {
            let run = at as usize..at as usize + len;
            assert!(run.clone().all(|at| is_durable(&at) && !named[at]), "named twice");
            named[run].fill(true);
        });
        prop_assert!((0..6 * PAGE).all(|at| named[at] || !bytes[at]));
        let statistics = explicit.statistics();
        if (statistics.coarse, statistics.whole) == (0, 0) {
            prop_assert_eq!(named, allowed);
        }
    }
}

/// Blocks far from each other.
fn sparse(count: usize, apart: usize) -> Vec<(usize, usize)> {
    (1..=count).map(|number| (number * apart, 8)).collect()
}

#[test]
fn a_batch_becomes_coarser_step_by_step() {
    let sizes = Sizes { slots: 64, overflow: 40, ranges: 4, ..Sizes::default() };
    let mut captured = Captured::new(sizes).unwrap();
    // 60 % of 64 slots, the overflow, its duplicates, pages, and too many pages.
    assert_eq!(check(&mut captured, &sparse(38, 64)), Extent::Blocks);
    assert_eq!(captured.statistics().overflowed, 0);
    assert_eq!(check(&mut captured, &sparse(38 + 40, 64)), Extent::Blocks);
    assert_eq!(captured.statistics().overflowed, 40);
    let mut twice = sparse(38, 64);
    (0..500).for_each(|time| twice.push(((100 + time % 10) * 64, 1)));
    assert_eq!(check(&mut captured, &twice), Extent::Blocks);
    assert_eq!(check(&mut captured, &sparse(38 + 41, 64)), Extent::Pages);
    assert_eq!(check(&mut captured, &sparse(1 << 20, 64)[..3000]), Extent::Pages);
    assert_eq!(check(&mut captured, &sparse(2000, 8192)), Extent::Everything);
    assert_eq!(check(&mut captured, &sparse(3, 8192)), Extent::Blocks);
    let statistics = captured.statistics();
    assert_eq!((statistics.coarse, statistics.whole), (2, 1));
}

#[test]
fn repeats_are_named_as_often_as_they_come() {
    let mut captured = Captured::new(Sizes { has_repeats: true, ..Sizes::default() }).unwrap();
    for (at, bytes) in [(64, 8), (640, 1000), (64, 8), (70, 1), (0, 0)] {
        captured.note(at, bytes);
    }
    let (extent, runs) = drain(&mut captured);
    assert_eq!((extent, runs), (Extent::Blocks, vec![(64, 95), (640, 1663), (64, 95), (64, 95)]));
    assert_eq!(drain(&mut captured).1, []);
}

/// A translated copy of 256 bytes or more is a range: a command may change hundreds of thousands of objects far from each other.
#[test]
fn many_copies_far_from_each_other_are_named_exactly() {
    let mut captured = Captured::new(Sizes::default()).unwrap();
    let copies: Vec<_> = (1..=400_000).map(|number| (number * 8192, 300)).collect();
    assert_eq!(check(&mut captured, &copies), Extent::Blocks);
    let statistics = captured.statistics();
    assert_eq!((statistics.coarse, statistics.whole), (0, 0));
}

/// A write that finds no room costs no look at all ranges.
#[test]
fn writes_beyond_all_room_take_no_time() {
    let mut captured = Captured::new(Sizes::default()).unwrap();
    let begin = std::time::Instant::now();
    (1..=3_000_000).for_each(|number| captured.note(number * 8192, 300));
    assert_eq!(drain(&mut captured), (Extent::Everything, Vec::new()));
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}

#[test]
fn ranges_become_coarser_step_by_step() {
    let mut captured = Captured::new(Sizes { ranges: 8, ..Sizes::default() }).unwrap();
    let ranges = |count: usize, apart: usize| -> Vec<_> {
        (1..=count).map(|number| (number * apart, RANGE_BYTES)).collect()
    };
    assert_eq!(check(&mut captured, &ranges(8, 1024)), Extent::Blocks);
    assert_eq!(check(&mut captured, &ranges(1000, RANGE_BYTES)), Extent::Blocks);
    assert_eq!(check(&mut captured, &ranges(30, 1024)), Extent::Pages);
    assert_eq!(check(&mut captured, &ranges(30, 1 << 20)), Extent::Everything);
    assert_eq!(check(&mut captured, &ranges(1, 1 << 20)), Extent::Blocks);
    assert_eq!(captured.statistics().ranges, 8 + 1000 + 30 + 30 + 1);
}

#[test]
fn the_ends_of_the_address_space_are_covered() {
    let mut captured = Captured::new(Sizes::default()).unwrap();
    for writes in [
        &[(usize::MAX, 1)][..],
        &[(usize::MAX - 31, 32), (0, 1)],
        &[(usize::MAX, usize::MAX)],
        &[(1, usize::MAX), (usize::MAX - 3, 8)],
    ] {
        assert_eq!(check_ends(&mut captured, writes), union(writes, 32));
    }
    captured.note(0, usize::MAX);
    let half = usize::MAX / 2;
    assert_eq!(drain(&mut captured), (Extent::Blocks, vec![(0, half), (half + 1, usize::MAX)]));
}

/// The drained runs; halves of the whole address space are joined.
fn check_ends(captured: &mut Captured, writes: &[(usize, usize)]) -> Vec<Run> {
    writes.iter().for_each(|(at, bytes)| captured.note(*at, *bytes));
    let runs: Vec<_> = drain(captured).1;
    union(&runs.iter().map(|(start, last)| (*start, last - start + 1)).collect::<Vec<_>>(), 32)
}

#[test]
fn everything_is_every_byte_of_the_regions() {
    let mut regions = Regions::new();
    regions.add(PAGE as *const u8, PAGE).unwrap();
    regions.add((1 << 20) as *const u8, 1 << 30).unwrap();
    let sizes = Sizes { overflow: 4, slots: 64, ..Sizes::default() };
    let mut explicit = Explicit::new(sizes, regions).unwrap();
    explicit.begin();
    (0..1000).for_each(|page| explicit.note(((1 << 20) + page * PAGE * 2) as *const u8, 1));
    let mut named = Vec::new();
    explicit.end(&mut |at, bytes| named.push((at as usize, bytes)));
    assert_eq!(named, [(PAGE, PAGE), (1 << 20, 1 << 30)]);
    assert_eq!(explicit.statistics().whole, 1);
}

#[test]
fn sizes_out_of_bounds_are_refused() {
    let fine = Sizes::default();
    for sizes in [
        Sizes { block_bytes: 0, ..fine },
        Sizes { block_bytes: 8, ..fine },
        Sizes { block_bytes: 48, ..fine },
        Sizes { block_bytes: 256, ..fine },
        Sizes { slots: 32, ..fine },
        Sizes { slots: 8191, ..fine },
        Sizes { overflow: usize::MAX, ..fine },
        Sizes { ranges: 1, ..fine },
        Sizes { range_bytes: 0, ..fine },
    ] {
        assert!(Captured::new(sizes).is_err(), "{sizes:?}");
    }
}

#[test]
fn repeated_notes_are_duplicates() {
    let mut captured = Captured::new(Sizes::default()).unwrap();
    for _ in 0..10 {
        captured.note(64, 8);
        captured.note(88, 8);
        captured.note(95, 2);
        captured.note(95, 0);
    }
    assert_eq!(drain(&mut captured).1, [(64, 127)]);
    let statistics = captured.statistics();
    assert_eq!((statistics.blocks, statistics.duplicates), (2, 38));
}
