//! The map beside a model of the standard library, its invariants, what is lent across a rollback, full heaps and damaged bytes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::prelude::v1::*;

use proptest::prelude::*;
use spandrel_pmem::simulator::Memory;
use spandrel_pmem::{Captured, Medium, Notes};

use super::node::{MAX_LEVELS, SLOTS};
use super::tree::{Node, Tree};
use super::*;
use crate::collections::tests::{BYTES, UUID};
use crate::layout::{BLOCK_BYTES, LEAST_BYTES};
use crate::plain::Plain;
use crate::{Error, Heap, RootType, check};

const TYPES: &[RootType<'_>] = &[RootType::of::<SortedBytesHead>("b")];
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn create<M: Medium>(medium: M) -> Heap<M> {
    Heap::create(medium, UUID, 0, 0).unwrap()
}

/// The numbers of leaves, and of inner nodes, of a tree of which each invariant holds.
fn survey<H: HeapRef>(map: &SortedBytes<'_, H>) -> (usize, usize) {
    let tree = map.tree();
    let mut keys = Vec::new();
    let counts = tree.root().map_or((0, 0), |root| look(tree, &root, None, None, &mut keys));
    assert_eq!(keys.len(), map.len());
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    counts
}

type Keys = Vec<Vec<u8>>;

fn look<M: Medium>(
    tree: Tree<'_, M>,
    node: &Node,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
    keys: &mut Keys,
) -> (usize, usize) {
    if let (Some(low), Some(high)) = (low, high) {
        assert_eq!(low[..node.skip], high[..node.skip], "a node leaves out what is in common");
    } else {
        assert_eq!(node.skip, 0);
    }
    let len = node.order.len();
    if node.level == 0 {
        assert!(len > 0, "an empty leaf is freed");
        for place in 0..len {
            let entry = tree.entry_at(node, place).unwrap();
            assert!(
                low.is_none_or(|low| low <= entry.key) && high.is_none_or(|high| entry.key < high)
            );
            assert_eq!(tree.slot(node, place).0, super::node::prefix(entry.key, node.skip));
            keys.push(entry.key.to_vec());
        }
        return (1, 0);
    }
    let begin = low.or(high).unwrap_or(&[])[..node.skip].to_vec();
    let separators: Keys = (0..len)
        .map(|place| {
            let found = tree.separator(node.skip, tree.slot(node, place), &begin);
            [found.begin, found.end()].concat()
        })
        .collect();
    assert!(separators.windows(2).all(|pair| pair[0] < pair[1]), "{separators:?}");
    let (mut counts, mut was_empty, mut is_any) = ((0, 1), false, false);
    for place in 0..=len {
        let is_empty = tree.child(node, place) == 0;
        assert!(!(is_empty && was_empty), "empty places beside each other");
        was_empty = is_empty;
        let Some(child) = tree.child_node(node, place) else {
            assert!(is_empty);
            continue;
        };
        is_any = true;
        let from = place.checked_sub(1).map(|before| &separators[before][..]).or(low);
        let to = separators.get(place).map(|key| &key[..]).or(high);
        let (leaves, inner) = look(tree, &child, from, to, keys);
        counts = (counts.0 + leaves, counts.1 + inner);
    }
    assert!(is_any, "a node without children is freed");
    counts
}

/// Objects that are live in a heap, and that its types lead to.
fn live(memory: &Memory) -> u64 {
    let memory = Memory::from_image(&memory.journal().last());
    let (heap, opened) = Heap::open(&memory, 0, Some(TYPES)).unwrap();
    let live = opened.collected.unwrap().live;
    heap.abandon();
    live
}

/// Whether nothing is damaged and nothing lost, by the types and without them.
fn is_sound(memory: &Memory) -> bool {
    [TYPES, &[]].into_iter().all(|types| {
        let survey = check(&memory, types, &mut |_| ()).unwrap();
        (survey.damaged, survey.lost) == (0, 0)
    })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop_oneof![Just(0), Just(1), Just(b'a'), Just(0xff)];
    prop_oneof![
        3 => proptest::collection::vec(letters, 0..12),
        3 => (0u32..300).prop_map(|number| format!("{number:016}").into_bytes()),
        2 => (0usize..300, 0u8..3).prop_map(|(len, last)| [vec![b'p'; len], vec![last]].concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
    ]
}

fn bound(key: &[u8], kind: u8) -> Bound<&[u8]> {
    match kind % 3 {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

/// What a range has by the model, for bounds that the model refuses as well.
fn expected<'m>(
    model: &'m Model,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
) -> Vec<(&'m [u8], &'m [u8])> {
    let is_in = |key: &[u8]| (from, to).contains(key);
    model.iter().filter(|(key, _)| is_in(key)).map(|(key, value)| (&key[..], &value[..])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_map_agrees_with_a_model(
        steps in proptest::collection::vec((0u8..10, key(), 0usize..400), 1..400),
        bounds in proptest::collection::vec((key(), key(), any::<u8>(), any::<u64>()), 1..20),
    ) {
        let memory = Memory::new(BYTES);
        let heap = create(&memory);
        let mut map = SortedBytes::open(&heap, "b").unwrap();
        let mut model = Model::new();
        for (number, (what, key, len)) in steps.into_iter().enumerate() {
            let value = vec![number as u8; len];
            match what {
                0..=2 => prop_assert_eq!(map.remove(&key).unwrap(), model.remove(&key).is_some()),
                3 if len < 4 => { map.clear().unwrap(); model.clear(); }
                _ => {
                    prop_assert_eq!(map.insert(&key, &value).unwrap(), model.contains_key(&key));
                    model.insert(key.clone(), value);
                }
            }
            prop_assert_eq!(map.get(&key), model.get(&key).map(|value| &value[..]));
            prop_assert_eq!(map.contains_key(&key), model.contains_key(&key));
        }
        survey(&map);
        let all = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        prop_assert!(map.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).eq(model.iter().map(all)));
        prop_assert_eq!(map.first().map(|(key, _)| key), model.first_key_value().map(|(key, _)| &key[..]));
        prop_assert_eq!(map.last().map(|(key, _)| key), model.last_key_value().map(|(key, _)| &key[..]));
        for (from, to, kinds, mut sides) in bounds {
            prop_assert_eq!(map.get(&from), model.get(&from).map(|value| &value[..]));
            let (from, to) = (bound(&from, kinds), bound(&to, kinds / 3));
            let mut wanted = std::collections::VecDeque::from(expected(&model, from, to));
            let mut range = map.range((from, to));
            loop {
                sides = sides.rotate_left(1);
                let is_front = sides & 1 == 0;
                let (found, wanted) = if is_front {
                    (range.next(), wanted.pop_front())
                } else {
                    (range.next_back(), wanted.pop_back())
                };
                prop_assert_eq!(found, wanted);
                if found.is_none() { break }
            }
            prop_assert!(range.next().is_none() && range.next_back().is_none());
        }
        heap.close().unwrap();
        prop_assert!(is_sound(&memory));
    }
}

fn numbers(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    }
}

/// Keys of a kind: numbers of 16 digits, of eight bytes, with a long common beginning, of lengths that differ.
fn nth(kind: usize, number: usize) -> Vec<u8> {
    match kind {
        0 => format!("{number:016}").into_bytes(),
        1 => (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
        2 => format!("{}/{number}", "a common beginning of forty-one bytes, or so".repeat(2))
            .into_bytes(),
        _ => vec![b'k'; number % 90].into_iter().chain((number as u32).to_be_bytes()).collect(),
    }
}

#[test]
fn a_tree_grows_to_several_levels_and_shrinks_to_nothing() {
    for kind in 0..4 {
        let memory = Memory::new(LEAST_BYTES + 40 * BLOCK_BYTES);
        let heap = create(&memory);
        let mut map = SortedBytes::open(&heap, "b").unwrap();
        let (mut model, mut drawn) = (Model::new(), numbers(kind as u64));
        for round in 0..3 {
            for step in 0..3500 {
                let (key, is_removed) = (nth(kind, drawn() % 2500), drawn() % 10 < 2);
                if is_removed {
                    assert_eq!(map.remove(&key).unwrap(), model.remove(&key).is_some());
                } else {
                    let value = vec![step as u8; drawn() % 60];
                    assert_eq!(
                        map.insert(&key, &value).unwrap(),
                        model.insert(key, value).is_some()
                    );
                }
            }
            let (leaves, inner) = survey(&map);
            assert!(leaves > 120 && inner > 10 && map.tree().height() >= 2, "{leaves} {inner}");
            assert!(map.iter().eq(model.iter().map(|(key, value)| (&key[..], &value[..]))));
            assert!(
                map.iter().rev().eq(model.iter().rev().map(|(key, value)| (&key[..], &value[..])))
            );
            let mut keys: Vec<_> = model.keys().cloned().collect();
            if round == 1 {
                keys.reverse();
            } else if round == 2 {
                keys.sort_by_key(|key| {
                    key.iter().fold(7u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte))
                });
            }
            for (number, key) in keys.iter().enumerate() {
                assert!(map.remove(key).unwrap() && map.get(key).is_none());
                model.remove(key);
                if number % 400 == 0 {
                    survey(&map);
                    assert_eq!(
                        map.first().map(|(key, _)| key),
                        model.keys().next().map(|key| &key[..])
                    );
                    assert_eq!(
                        map.last().map(|(key, _)| key),
                        model.keys().next_back().map(|key| &key[..])
                    );
                }
            }
            assert!(map.is_empty() && map.iter().next().is_none() && map.tree().root().is_none());
            // The head alone is left.
            assert_eq!(live(&memory), 1, "{kind} {round}");
        }
        heap.close().unwrap();
        assert!(is_sound(&memory));
    }
}

#[test]
fn keys_that_rise_or_fall_fill_their_leaves() {
    for is_rising in [true, false] {
        let memory = Memory::new(LEAST_BYTES + 40 * BLOCK_BYTES);
        let heap = create(&memory);
        let mut map = SortedBytes::open(&heap, "b").unwrap();
        for number in 0..3000 {
            let number = if is_rising { number } else { 2999 - number };
            map.insert(&nth(0, number), b"value").unwrap();
        }
        let (leaves, inner) = survey(&map);
        assert!(leaves <= 3000_usize.div_ceil(SLOTS) + 1 && inner < 40, "{leaves} {inner}");
    }
}

#[test]
fn a_queue_of_keys_keeps_its_tree_small() {
    let memory = Memory::new(LEAST_BYTES + 40 * BLOCK_BYTES);
    let heap = create(&memory);
    let mut map = SortedBytes::open(&heap, "b").unwrap();
    for number in 0..20_000 {
        map.insert(&nth(0, number), b"value").unwrap();
        if number >= 100 {
            assert!(map.remove(&nth(0, number - 100)).unwrap());
        }
    }
    let (leaves, inner) = survey(&map);
    assert!(leaves < 12 && inner < 12, "{leaves} {inner}");
    assert!(map.tree().height() < MAX_LEVELS / 2);
}

#[test]
fn leaves_with_few_keys_become_one() {
    for kind in 0..4 {
        let memory = Memory::new(LEAST_BYTES + 40 * BLOCK_BYTES);
        let heap = create(&memory);
        let mut map = SortedBytes::open(&heap, "b").unwrap();
        for number in 0..3000 {
            map.insert(&nth(kind, number), b"value").unwrap();
        }
        // One key of twelve stays: without more each leaf would keep one or two of its fifteen.
        for number in (0..3000).filter(|number| number % 12 != 0) {
            assert!(map.remove(&nth(kind, number)).unwrap());
        }
        let (leaves, _) = survey(&map);
        assert!(leaves < 80, "{kind}: {leaves} leaves for {} keys", map.len());
        for number in 0..3000 {
            assert_eq!(map.contains_key(&nth(kind, number)), number % 12 == 0);
        }
    }
}

#[test]
fn keys_and_values_of_all_sizes_are_kept_or_refused() {
    let memory = Memory::new(LEAST_BYTES + 40 * BLOCK_BYTES);
    let heap = create(&memory);
    let mut map = SortedBytes::open(&heap, "b").unwrap();
    let long = vec![7; 64 << 10];
    assert_eq!(map.insert(&[7; (64 << 10) + 1], b""), Err(Error::Size((64 << 10) + 1)));
    assert!(map.is_empty());
    for len in [0, 1, 500, 513, 5000, 40_000, 100_000, 300_000] {
        let value: Vec<_> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        for key in [&b""[..], b"\0", b"key", &long, &long[1..]] {
            map.insert(key, &value).unwrap();
            assert_eq!(map.get(key), Some(&value[..]));
            assert_eq!(map.get_with(key, <[u8]>::len), Some(len));
        }
        assert_eq!(map.len(), 5);
        let keys: Vec<_> = map.iter().map(|(key, _)| key.len()).collect();
        assert_eq!(keys, [0, 1, (64 << 10) - 1, 64 << 10, 3]);
    }
    assert!(map.insert(b"larger than the heap", &vec![0; 40 * BLOCK_BYTES]).unwrap_err().is_full());
    assert_eq!(map.len(), 5);
    heap.close().unwrap();
    assert!(is_sound(&memory));
}

#[test]
fn what_is_lent_outlives_a_rollback() {
    let memory = Memory::new(BYTES);
    let heap = create(&memory);
    let mut map = SortedBytes::open(&heap, "b").unwrap();
    for number in 0..100 {
        map.insert(&nth(0, number), b"before").unwrap();
    }
    let (mut lent, mut range) = (None, None);
    {
        let (map, lent, range) = (&mut map, &mut lent, &mut range);
        let outcome = heap.transaction(move || {
            let changed = map;
            for number in 0..60 {
                changed.insert(&nth(0, number * 2), b"within")?;
            }
            changed.insert(b"0000000000000050+", b"another")?;
            let map = &*changed;
            *lent = map.get(&nth(0, 2));
            let mut from = map.range((Bound::Included(&b"0000000000000048"[..]), Bound::Unbounded));
            let read: Vec<_> = from.by_ref().take(4).collect();
            *range = Some((from, read));
            Err::<(), _>(Error::Full)
        });
        assert_eq!(outcome, Err(Error::Full));
    }
    // What the transaction had allocated is used by others.
    while let Ok(object) = heap.alloc(32) {
        // SAFETY: the object has as many bytes.
        unsafe { object.as_ptr().write_bytes(0xee, 32) };
    }
    assert_eq!(lent, Some(&b"within"[..]));
    let (rest, read) = range.unwrap();
    let read: Vec<_> = read.iter().map(|(key, value)| (key.len(), *value)).collect();
    assert_eq!(read, [(16, &b"within"[..]), (16, b"before"), (16, b"within"), (17, b"another")]);
    // It goes on with what was restored.
    let rest: Vec<_> = rest.map(|(key, value)| (key.to_vec(), value)).collect();
    let wanted: Vec<_> = (51..100).map(|number| (nth(0, number), &b"before"[..])).collect();
    assert!(rest == wanted);
    assert!(map.iter().map(|(_, value)| value).eq([b"before"; 100]));
    survey(&map);
}

#[test]
fn a_full_heap_refuses_changes_and_loses_nothing() {
    // With errors, and without.
    let mut outcomes = [0; 2];
    for spare in [0, 1, 2, 4] {
        let memory = Memory::new(LEAST_BYTES + 16 * BLOCK_BYTES);
        let heap = create(&memory);
        let mut map = SortedBytes::open(&heap, "b").unwrap();
        let spare: Vec<_> = (0..spare).map(|_| heap.alloc(60_000).unwrap()).collect();
        let mut count = 0;
        let mut failures = 0;
        while failures < 40 {
            match map.insert(&nth(1, count), &[1; 100][..20 + count % 2 * 80]) {
                Ok(_) => count += 1,
                Err(why) => {
                    assert!(why.is_full());
                    failures += 1;
                    if failures % 2 == 0 {
                        count += 1;
                    }
                }
            }
        }
        let state = |map: &SortedBytes<'_, _>| -> Vec<(Vec<u8>, Vec<u8>)> {
            map.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
        };
        survey(&map);
        // SAFETY: the test's own.
        spare.into_iter().for_each(|object| unsafe { heap.free(object).unwrap() });
        for step in 0..8 {
            let before = state(&map);
            let outcome =
                heap.transaction(|| match step % 4 {
                    0 => map.clear(),
                    1 => (0..300).try_for_each(|number| map.remove(&nth(1, number)).map(drop)),
                    2 => (0..300)
                        .try_for_each(|number| map.insert(&nth(1, number), &[3; 100]).map(drop)),
                    _ => (0..300)
                        .try_for_each(|number| map.insert(&nth(0, number), &[3; 90]).map(drop)),
                });
            outcomes[usize::from(outcome.is_ok())] += 1;
            if let Err(why) = outcome {
                assert!(why.is_full(), "{why}");
                assert!(state(&map) == before, "step {step}: an error changes nothing");
            }
            survey(&map);
        }
        for number in 0..count / 2 {
            map.remove(&nth(1, number)).unwrap();
        }
        for number in 0..20 {
            map.insert(&nth(1, number), b"again").unwrap();
        }
        survey(&map);
        drop(map);
        heap.close().unwrap();
        assert!(is_sound(&memory));
    }
    assert!(outcomes.iter().all(|count| *count > 4), "{outcomes:?}");
}

/// A place where no store is noted.
struct Nowhere;

impl Notes for Nowhere {
    fn note(&self, _: *const u8, _: usize) {}
}

/// On a medium whose batches are durable as a whole values are stored over old ones, and what is freed is free at once.
#[test]
fn the_map_of_a_durable_state_agrees_with_a_model() {
    let medium = Captured::new(None, BYTES, 2 * BYTES, Nowhere).unwrap();
    let heap = create(medium);
    let mut map = SortedBytes::open(&heap, "b").unwrap();
    let at = |map: &SortedBytes<'_, _>, key: &[u8]| map.get(key).map(<[u8]>::as_ptr);
    map.insert(b"key", &[1; 100]).unwrap();
    let place = at(&map, b"key");
    map.insert(b"key", &[2; 90]).unwrap();
    assert_eq!((at(&map, b"key"), map.get(b"key")), (place, Some(&[2; 90][..])));
    map.insert(b"key", &[3; 500]).unwrap();
    assert_ne!(at(&map, b"key"), place, "it has no room");
    heap.transaction(|| map.insert(b"key", &[4; 500])).unwrap();
    assert_eq!(map.get(b"key"), Some(&[4; 500][..]));
    let (mut model, mut drawn) = (Model::from([(b"key".to_vec(), vec![4; 500])]), numbers(9));
    for step in 0..6000 {
        let key = nth(drawn() % 4, drawn() % 300);
        let value = vec![step as u8; drawn() % 80];
        match drawn() % 10 {
            0..3 => assert_eq!(map.remove(&key).unwrap(), model.remove(&key).is_some()),
            3 => {
                let outcome = heap.transaction(|| {
                    map.insert(&key, &value)?;
                    map.remove(&nth(0, drawn() % 300))?;
                    Err::<(), _>(Error::Full)
                });
                assert_eq!(outcome, Err(Error::Full));
            }
            _ => assert_eq!(map.insert(&key, &value).unwrap(), model.insert(key, value).is_some()),
        }
    }
    survey(&map);
    assert!(map.iter().eq(model.iter().map(|(key, value)| (&key[..], &value[..]))));
    map.clear().unwrap();
    assert!(map.is_empty());
}

/// Uses a map whose bytes are damaged. Whatever it says, it ends.
fn use_damaged(heap: &Heap<&Plain>) {
    let Ok(mut map) = SortedBytes::open(heap, "b") else { return };
    let mut sum = map.len();
    for number in (0..400).step_by(7) {
        sum += map.get(&nth(0, number)).map_or(0, <[u8]>::len);
    }
    let all = map.iter().map(|(key, value)| key.len() + value.len()).fold(0, usize::wrapping_add);
    sum = sum.wrapping_add(all).wrapping_add(map.iter().rev().count());
    let middle =
        (Bound::Excluded(&b"0000000000000100"[..]), Bound::Included(&b"0000000000000300"[..]));
    sum = sum.wrapping_add(map.range(middle).count() + map.range(middle).rev().count());
    for number in (0..500).step_by(3) {
        let _ = map.insert(&nth(0, number), b"changed");
        let _ = map.remove(&nth(0, number + 1));
    }
    let _ = heap.transaction(|| map.insert(b"another", b"one").and_then(|_| map.clear()));
    std::hint::black_box(sum);
}

#[test]
fn damaged_bytes_neither_end_nor_hold_up_the_program() {
    let plain = Plain::new(&vec![0; LEAST_BYTES + 8 * BLOCK_BYTES]);
    let heap = create(&plain);
    let mut map = SortedBytes::open(&heap, "b").unwrap();
    for number in 0..400 {
        map.insert(&nth(0, number * 37 % 400), &[5; 20]).unwrap();
    }
    let tree = map.tree();
    // Every node, some entries, and the head.
    let mut places = vec![(tree.head, 24)];
    let mut nodes = vec![tree.root().unwrap()];
    while let Some(node) = nodes.pop() {
        places.push((node.at, if node.level > 0 { 384 } else { 256 }));
        places.extend(tree.entry_at(&node, 0).map(|entry| (entry.at, 8)));
        nodes.extend((0..=node.order.len()).filter_map(|place| tree.child_node(&node, place)));
    }
    let root = tree.root().unwrap().at;
    drop(map);
    heap.close().unwrap();
    let sound = plain.all().to_vec();
    let mut drawn = numbers(3);
    let mut opened = 0;
    for _ in 0..1500 {
        let mut plain = Plain::new(&sound);
        for _ in 0..1 + drawn() % 3 {
            let (at, bytes) = places[drawn() % places.len()];
            let at = at + drawn() % (bytes / 8) * 8;
            let word = u64::from_le_bytes(sound[at..at + 8].try_into().unwrap());
            let (other, _) = places[drawn() % places.len()];
            let damaged = match drawn() % 5 {
                0 | 1 => word ^ 1 << (drawn() % 64),
                2 => PPtr::<u8>::to(other).raw(),
                3 => PPtr::<u8>::to(root).raw(),
                _ => (drawn() as u64) << 32 | drawn() as u64,
            };
            plain.all_mut()[at..at + 8].copy_from_slice(&damaged.to_le_bytes());
        }
        if let Ok((heap, _)) = Heap::open(&plain, 0, Some(TYPES)) {
            opened += 1;
            use_damaged(&heap);
            // As after a failure: the next opening follows the types.
            heap.abandon();
        }
        if let Ok((heap, _)) = Heap::open(&plain, 0, Some(TYPES)) {
            use_damaged(&heap);
            heap.abandon();
        }
    }
    assert!(opened > 1400, "{opened}");
}
