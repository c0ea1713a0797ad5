//! Heaps that a disk, a cable or a person has damaged.

use std::prelude::v1::*;

use proptest::prelude::*;
use spandrel_pmem::Medium as _;
use spandrel_pmem::simulator::Memory;

use super::*;
use crate::collections::{HashMap, MapHead, SortedHead, SortedMap, Text, Vector, VectorHead};
use crate::header::Header;
use crate::layout::{BLOCK_BYTES, BlockId, LEAST_BYTES, SUPERBLOCK, first_block};
use crate::shared::Core;
use crate::sums::Sums;
use crate::superblock::{NAMES, ROOTS, UNDO_LOG};

const BYTES: usize = LEAST_BYTES + 24 * BLOCK_BYTES;

/// A heap with some of everything, closed.
fn image() -> Vec<u8> {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, [7, 8], 0, 0).unwrap();
    fill(&heap);
    let large = heap.alloc_zeroed(3 * BLOCK_BYTES).unwrap();
    heap.set_root(0, Some(large)).unwrap();
    heap.close().unwrap();
    memory.journal().last()
}

/// Uses collections, whatever the heap holds.
fn fill(heap: &Heap<&Memory>) {
    if let Ok(mut numbers) = Vector::<u64, _>::open(heap, "numbers") {
        for number in 0..300 {
            let _ = numbers.push(number);
        }
        let _ = numbers.pop();
    }
    if let Ok(mut map) = HashMap::<u32, [u8; 24], _>::open(heap, "map") {
        for key in 0..100 {
            let _ = map.insert(key, [key as u8; 24]);
        }
        let _ = map.remove(&5);
    }
    if let Ok(mut map) = SortedMap::<u64, u64, _>::open(heap, "sorted") {
        for key in 0..50 {
            let _ = map.insert(key * 7 % 50, key);
        }
        let _ = map.remove(&5);
        assert!(map.iter().take(1000).count() <= 1000);
    }
    if let Ok(mut text) = Text::open(heap, "text") {
        let _ = text.push("a text");
        assert!(text.chars().take(1000).count() <= 1000);
    }
}

fn types() -> [RootType<'static>; 4] {
    [
        RootType::of::<VectorHead<u64>>("numbers"),
        RootType::of::<MapHead<u32, [u8; 24]>>("map"),
        RootType::of::<SortedHead<u64, u64>>("sorted"),
        RootType::of::<VectorHead<u8>>("text"),
    ]
}

fn found(image: &[u8]) -> Result<(Survey, Vec<Finding>), Error> {
    let mut findings = Vec::new();
    let survey =
        check(&Memory::from_image(image), &types(), &mut |finding| findings.push(*finding))?;
    Ok((survey, findings))
}

#[test]
fn a_sound_heap_is_found_sound() {
    let (survey, findings) = found(&image()).unwrap();
    assert_eq!((survey.damaged, findings.len()), (0, 0), "{findings:?}");
    assert_eq!((survey.large_objects, survey.roots, survey.lost), (1, 5, 0));
    assert!(survey.live > 50, "{survey:?}");
}

#[test]
fn each_damage_is_named_with_its_place_and_can_be_mended() {
    let sound = image();
    let first = first_block(0);
    let block = |from: BlockId, kind: fn(&Header) -> bool| {
        let memory = Memory::from_image(&sound);
        let word = |block: BlockId| {
            // SAFETY: within the memory.
            unsafe { memory.base().as_ptr().add(block.header()).cast::<u64>().read() }
        };
        (from.0..)
            .map(BlockId)
            .find(|b| Header::parse(word(*b), *b).is_some_and(|h| kind(&h)))
            .unwrap()
    };
    let small = block(first, |header| matches!(header, Header::Small(_)));
    let large = block(first, |header| matches!(header, Header::Large(_)));
    let free = block(large.plus(4), |header| *header == Header::Free);
    let covered = Header::Small(crate::class::Class(3)).word(large.plus(1)).to_le_bytes();
    let cases: [(usize, &[u8], usize, &str); 10] = [
        (small.header() + 1, &[0xff], small.header(), "the header of a block"),
        (large.header() + 2, &[0xff], large.header(), "the header of a block"),
        (small.header() + 9, &[1], small.bits(), "the mark bits of a block: their sum"),
        (small.header() + 17, &[1], small.header() + 16, "something behind"),
        (large.plus(1).header(), &covered, large.plus(1).header(), "part of a large object"),
        (large.plus(2).header() + 16, &[1], large.plus(2).header() + 16, "something behind"),
        (free.bits() + 3, &[4], free.bits(), "a mark bit"),
        (ROOTS + 8 * 9, &[1; 8], ROOTS + 8 * 9, "a root that leads to no object"),
        (NAMES + 64 * 511, b"X", NAMES + 64 * 511, "the name of a root"),
        (small.bits(), &[0; 8], small.start(), "that is free"),
    ];
    for (at, bytes, named, what) in cases {
        let mut damaged = sound.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let (survey, findings) = found(&damaged).unwrap();
        let is_it =
            |finding: &&Finding| finding.at as usize == named && finding.what.contains(what);
        assert!(findings.iter().any(|finding| is_it(&finding)), "{what}: {findings:?}");
        assert!(survey.damaged > 0, "{what}");
        let memory = Memory::from_image(&damaged);
        repair(&memory, &mut |_| ()).unwrap();
        let (survey, findings) = found(&memory.journal().last()).unwrap();
        assert_eq!((survey.damaged, survey.lost), (0, 0), "{what}: {findings:?}");
        let again = memory.journal().last();
        let memory = Memory::from_image(&again);
        let (heap, _) = Heap::open(&memory, 0, Some(&types())).unwrap();
        fill(&heap);
        heap.close().unwrap();
    }
}

/// What collections hang on is damaged: they say so, or end sooner, and write nowhere else.
#[test]
fn collections_of_damaged_heaps_come_to_an_end() {
    let memory = Memory::from_image(&image());
    let (heap, _) = Heap::open(&memory, 0, Some(&types())).unwrap();
    let mut sorted = SortedMap::<u64, u64, _>::open(&heap, "sorted").unwrap();
    let head = heap.root::<SortedHead<u64, u64>>("sorted").unwrap();
    let first = heap.address(head.get()).unwrap().cast::<u64>();
    // Every list leads back to its first node.
    heap.each_object(&types(), &mut |object| {
        heap.each_pointer(object, &mut |at, to| {
            let is_link = at >= 24 && to.bytes == object.bytes;
            if is_link && object.bytes < 300 {
                // SAFETY: the heap's own word.
                unsafe { heap.core().store(object.at + at, first.read()) };
            }
        });
    })
    .unwrap();
    assert!(sorted.iter().count() <= 50);
    for key in 0..60 {
        let _ = (sorted.get(&key), sorted.remove(&key), sorted.insert(key, 1));
    }
    drop(sorted);
    // A root that leads into the middle of an object, and to none.
    for word in [head.get().raw() + 4, PPtr::<u8>::to(BYTES - 8).raw(), PPtr::<u8>::to(64).raw()] {
        heap.core().store(ROOTS + head.index() * 8, word);
        let opened = SortedMap::<u64, u64, _>::open(&heap, "sorted");
        assert!(matches!(opened.err(), Some(Error::Foreign(_))), "{word:#x}");
    }
    heap.abandon();
}

/// Counts are of things that there is no room for.
#[test]
fn counts_of_a_damaged_heap_are_not_believed() {
    let memory = Memory::from_image(&image());
    let (heap, _) = Heap::open(&memory, 0, Some(&types())).unwrap();
    for at in (crate::layout::first_block(0).start()..BYTES).step_by(8) {
        if (1..1 << 20).contains(&heap.core().load(at)) {
            heap.core().store(at, u64::MAX);
        }
    }
    let mut map = HashMap::<u32, [u8; 24], _>::open(&heap, "map").unwrap();
    let mut sorted = SortedMap::<u64, u64, _>::open(&heap, "sorted").unwrap();
    for key in 0..200 {
        let _ = (map.insert(key, [1; 24]), map.remove(&(key / 2)));
        let _ = (sorted.insert(key.into(), 1), sorted.remove(&u64::from(key / 2)));
    }
    heap.abandon();
}

/// Damaged mark bits are an error each time that blocks of the region are needed, and what lies before them is not noted twice. Such
/// a heap is not closed: the next opening makes the mark bits anew.
#[test]
fn a_region_with_damaged_mark_bits_can_be_asked_for_again() {
    let mut damaged = image();
    let word = |at: usize| u64::from_le_bytes(*damaged[at..].first_chunk().unwrap());
    let is_small = |block: &BlockId| Header::class(word(block.header())).is_some();
    let last = (0..(BYTES / BLOCK_BYTES) as u32).rev().map(BlockId).find(is_small).unwrap();
    damaged[last.bits()] ^= 1;
    let memory = Memory::from_image(&damaged);
    let (heap, opened) = Heap::open(&memory, 0, None).unwrap();
    assert!(opened.was_clean);
    for _ in 0..3 {
        for bytes in [64, 5000, 100_000] {
            assert!(matches!(heap.alloc(bytes), Err(Error::Damaged { .. })));
        }
    }
    fill(&heap);
    assert!(matches!(heap.close(), Err(Error::Damaged { .. })));
    let (heap, opened) = Heap::open(&memory, 0, Some(&types())).unwrap();
    assert!(!opened.was_clean);
    fill(&heap);
    heap.close().unwrap();
    let (survey, findings) = found(&memory.journal().last()).unwrap();
    assert_eq!(survey.damaged, 0, "{findings:?}");
}

/// A header that is not what it was is an error of the opening: what looks at objects could not tell.
#[test]
fn a_heap_whose_headers_are_others_is_not_opened() {
    let sound = image();
    let small = Header::Small(crate::class::Class(3));
    for (word, which) in [(small, 12), (Header::Free, 10), (Header::Large(2), 30)] {
        let (mut damaged, block) = (sound.clone(), BlockId(which));
        damaged[block.header()..][..8].copy_from_slice(&word.word(block).to_le_bytes());
        assert_ne!(damaged, sound);
        let memory = Memory::from_image(&damaged);
        let opened = Heap::open(&memory, 0, Some(&types())).map(drop);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{word:?}");
        assert_eq!(memory.journal().last(), damaged, "nothing is written");
        let repaired = repair(&memory, &mut |_| ()).unwrap();
        assert!(repaired.is_closed && repaired.exact == 1, "{repaired:?}");
        assert_eq!(memory.journal().last(), sound);
    }
}

/// An image whose metadata was changed by a program that has made all sums fit.
fn forged(image: &[u8], change: impl FnOnce(&Core<&Memory>, &mut Record)) -> Vec<u8> {
    let memory = Memory::from_image(image);
    let (identity, mut record) = (Identity::read(&memory).unwrap(), Record::read(&memory).unwrap());
    let core = Core::new(&memory, identity, record, 0).unwrap();
    change(&core, &mut record);
    core.sum_all();
    record.sums = Sums { undo: record.sums.undo, ..core.sums(record.bytes) };
    record.put(&&memory);
    drop(core);
    memory.journal().last()
}

/// The large object of [`image`], with a header that says another length.
fn with_length(image: &[u8], blocks: u32) -> (Vec<u8>, BlockId) {
    let mut at = first_block(0);
    let forged = forged(image, |core, _| {
        while !matches!(core.header(at), Ok(Header::Large(_))) {
            at = at.plus(1);
        }
        core.store_header(at, Header::Large(blocks));
    });
    (forged, at)
}

/// What a repair leaves of a forged image is a heap that opens.
fn is_mended(forged: &[u8]) {
    let memory = Memory::from_image(forged);
    let repaired = repair(&memory, &mut |_| ()).unwrap();
    assert!(!repaired.is_closed);
    let (survey, findings) = found(&memory.journal().last()).unwrap();
    assert_eq!(survey.damaged, 0, "{findings:?}");
    let (heap, opened) = Heap::open(&memory, 0, Some(&types())).unwrap();
    assert!(!opened.was_clean && Vector::<u64, _>::open(&heap, "numbers").unwrap().len() == 299);
}

#[test]
fn no_large_object_is_longer_than_its_heap_whatever_the_sums_say() {
    for blocks in [28, 1015, 100_000, u32::MAX] {
        let (long, at) = with_length(&image(), blocks);
        let memory = Memory::from_image(&long);
        let opened = Heap::open(&memory, 0, Some(&types())).map(drop);
        let length =
            Error::Damaged { at: at.header() as u64, what: "the length of a large object" };
        assert_eq!(opened, Err(length), "{blocks} blocks");
        assert!(memory.journal().last() == long, "nothing is written");
        is_mended(&long);
        // Before a recovery, which refuses the heap.
        let dirty = forged(&long, |_, record| record.state = State::Dirty);
        let memory = Memory::from_image(&dirty);
        let (mut heap, _) = Heap::open(&memory, 0, None).unwrap();
        for inside in [at.start(), at.start() + BLOCK_BYTES + 8] {
            assert!(heap.core().object_of(inside).is_none(), "{blocks} blocks");
        }
        assert!(matches!(heap.usable_bytes(heap.core().at(at.start())), Err(Error::Foreign(_))));
        assert_eq!(heap.collect(&types()).map(drop), Err(length));
        heap.abandon();
    }
}

#[test]
fn no_large_object_covers_another_whatever_the_sums_say() {
    let image = image();
    let (_, large) = with_length(&image, 3);
    let twice = forged(&image, |core, _| {
        core.store_header(large.plus(1), Header::Small(crate::class::Class(3)));
    });
    let memory = Memory::from_image(&twice);
    let opened = Heap::open(&memory, 0, Some(&types())).map(drop);
    let at = large.plus(1).header() as u64;
    assert_eq!(opened, Err(Error::Damaged { at, what: crate::blocks::USED_TWICE }));
    is_mended(&twice);
}

#[test]
fn no_word_of_a_record_becomes_the_version_of_the_undo_log_that_is_none() {
    for word in [1, u64::MAX, 1 << 63] {
        let wrong = forged(&image(), |_, record| record.sums.undo = word);
        let memory = Memory::from_image(&wrong);
        let opened = Heap::open(&memory, 0, Some(&types())).map(drop);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{word:#x}: {opened:?}");
        assert!(memory.journal().last() == wrong, "nothing is written");
        assert_eq!(found(&wrong).unwrap().0.damaged, 1);
        is_mended(&wrong);
    }
}

/// A heap that was not closed has no sums to refuse it by: a damaged name may be the one that is looked for.
#[test]
fn no_root_gets_a_name_while_another_name_is_damaged() {
    let memory = Memory::from_image(&image());
    Heap::open(&memory, 0, Some(&types())).unwrap().0.abandon();
    let mut damaged = memory.journal().last();
    let map = damaged.windows(8).skip(NAMES).position(|bytes| bytes == b"map\0\0\0\0\0").unwrap();
    damaged[NAMES + map] ^= 2;
    let memory = Memory::from_image(&damaged);
    let (heap, opened) = Heap::open(&memory, 0, Some(&types())).unwrap();
    assert!(!opened.was_clean);
    let refused = |name| matches!(heap.named_root::<u64>(name), Err(Error::Damaged { .. }));
    assert!(refused("map") && refused("another"));
    assert!(matches!(heap.remove_root("map"), Err(Error::Damaged { .. })));
    assert!(Vector::<u64, _>::open(&heap, "numbers").is_ok(), "what is there is found");
}

/// The newest record of a heap that was not closed is damaged: the older one does not say that it was.
#[test]
fn no_damaged_record_makes_a_closed_heap_of_an_open_one() {
    let memory = Memory::from_image(&image());
    Heap::open(&memory, 0, Some(&types())).unwrap().0.abandon();
    let open = memory.journal().last();
    for at in [SUPERBLOCK, SUPERBLOCK + 4096] {
        for bit in 0..128 * 8 {
            let mut damaged = open.clone();
            damaged[at + bit / 8] ^= 1 << (bit % 8);
            let memory = Memory::from_image(&damaged);
            let record = Record::read(&memory).unwrap();
            assert_eq!(record.state, State::Dirty, "{at:#x} bit {bit}");
            if bit % 37 == 0 {
                assert_eq!(found(&damaged).unwrap().0.damaged, 1, "{at:#x} bit {bit}");
                assert_eq!(repair(&memory, &mut |_| ()).unwrap().exact, 1);
                assert!(memory.journal().last() == open, "{at:#x} bit {bit}");
            }
        }
    }
    // A bit of each.
    let sound = image();
    let mut damaged = sound.clone();
    damaged[SUPERBLOCK + 7] ^= 1;
    damaged[SUPERBLOCK + 4096 + 56] ^= 8;
    let memory = Memory::from_image(&damaged);
    assert!(matches!(Heap::open(&memory, 0, None).map(drop), Err(Error::Damaged { .. })));
    let repaired = repair(&memory, &mut |_| ()).unwrap();
    assert!(repaired.is_closed && repaired.exact == 2, "{repaired:?}");
    assert!(memory.journal().last() == sound);
}

/// A word that could be of no other value: whatever took its place, the sums tell what it was.
#[test]
fn one_word_that_is_anything_is_put_right_as_it_was() {
    let sound = image();
    let word = |at: usize| u64::from_le_bytes(*sound[at..].first_chunk().unwrap());
    let used = (0..(BYTES / BLOCK_BYTES) as u32).map(BlockId);
    let used = used.skip_while(|block| *block < first_block(0));
    let headers = used.filter(|block| word(block.header()) != 0).map(BlockId::header);
    let mut places: Vec<usize> = headers.flat_map(|at| [at, at + 8]).collect();
    places.extend([64, 72, 80]);
    places.extend((ROOTS..NAMES).step_by(8).filter(|at| word(*at) != 0));
    assert!(places.len() > 20, "{}", places.len());
    for (number, at) in places.into_iter().enumerate() {
        for other in [
            0,
            u64::MAX,
            0x50a7_0000_0000_1230,
            (number as u64).wrapping_mul(0x1234_5678_9abc_def1),
        ] {
            let mut damaged = sound.clone();
            damaged[at..at + 8].copy_from_slice(&other.to_le_bytes());
            if damaged == sound {
                continue;
            }
            let memory = Memory::from_image(&damaged);
            let repaired = repair(&memory, &mut |_| ()).unwrap();
            assert!(repaired.is_closed && repaired.exact == 1, "{at:#x} {other:#x}: {repaired:?}");
            assert!(memory.journal().last() == sound, "{at:#x} {other:#x}: not as it was");
        }
    }
}

/// A session that allocates nothing changes no header: those of a heap that it did not close are compared and put right all the same.
#[test]
fn sums_hold_where_the_session_that_failed_has_changed_nothing() {
    let memory = Memory::from_image(&image());
    Heap::open(&memory, 0, Some(&types())).unwrap().0.abandon();
    let open = memory.journal().last();
    let block = first_block(0);
    for word in [0, Header::Small(crate::class::Class(9)).word(block)] {
        let mut damaged = open.clone();
        damaged[block.header()..][..8].copy_from_slice(&word.to_le_bytes());
        assert!(found(&damaged).unwrap().0.damaged > 0);
        let memory = Memory::from_image(&damaged);
        let opened = Heap::open(&memory, 0, Some(&types())).map(drop);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{opened:?}");
        let repaired = repair(&memory, &mut |_| ()).unwrap();
        assert_eq!((repaired.exact, repaired.count(), repaired.is_closed), (1, 1, false));
        let after = memory.journal().last();
        assert_eq!(after[block.header()..][..8], open[block.header()..][..8]);
        let (heap, _) = Heap::open(&memory, 0, Some(&types())).unwrap();
        assert_eq!(Vector::<u64, _>::open(&heap, "numbers").unwrap().len(), 299);
    }
}

#[test]
fn a_log_of_any_words_is_emptied_by_a_repair() {
    let mut damaged = image();
    for (number, word) in damaged[UNDO_LOG..UNDO_LOG + 4096].chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(number as u64 % 5).to_le_bytes());
    }
    let memory = Memory::from_image(&damaged);
    repair(&memory, &mut |_| ()).unwrap();
    let (survey, findings) = found(&memory.journal().last()).unwrap();
    assert_eq!(survey.damaged, 0, "{findings:?}");
}

#[test]
fn what_nothing_leads_to_is_lost_and_no_damage() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, [7, 8], 0, 0).unwrap();
    for bytes in [64, 64, 5000, 200_000] {
        heap.alloc(bytes).unwrap();
    }
    heap.close().unwrap();
    let (survey, findings) = found(&memory.journal().last()).unwrap();
    assert_eq!((survey.damaged, survey.lost, findings.len()), (0, 4, 4));
    assert!(findings.iter().all(|finding| finding.kind == Kind::Lost));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever lies in the file: an error, or a heap that can be used.
    #[test]
    fn any_bytes_are_an_error_and_never_a_fault(
        patches in proptest::collection::vec((0usize..4, 0usize..BYTES, any::<u64>()), 1..12),
        is_dirty in any::<bool>(),
    ) {
        let mut image = image();
        for (what, at, word) in patches {
            // Metadata is what matters, and little of the image.
            let at = match what {
                0 => (at % 4096) & !7,
                1 => BlockId(at as u32 % (BYTES / BLOCK_BYTES) as u32).header(),
                2 => ROOTS + ((at % (UNDO_LOG + 4096 - ROOTS)) & !7),
                _ => at & !7,
            };
            // Words that are near to right ones, and any.
            let word = match word % 4 {
                0 => PPtr::<u8>::to(word as usize % BYTES).raw(),
                1 => Header::Large(word as u32 >> 24).word(BlockId::of(at)),
                2 => word >> 60,
                _ => word,
            };
            image[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        if is_dirty {
            image[crate::layout::SUPERBLOCK + 4096..][..8].fill(0xee);
        }
        let _ = found(&image);
        let memory = Memory::from_image(&image);
        if let Ok(repaired) = repair(&memory, &mut |_| ()) {
            let (survey, findings) = found(&memory.journal().last()).unwrap();
            prop_assert!(
                findings.iter().all(|finding| finding.kind == Kind::Lost || finding.kind == Kind::Dangling),
                "{repaired:?} {survey:?} {findings:?}"
            );
        }
        for types in [None, Some(&[][..])] {
            let memory = Memory::from_image(&image);
            if let Ok((mut heap, opened)) = Heap::open(&memory, 0, types) {
                if !opened.was_clean && opened.collected.is_none() {
                    let _ = heap.collect(&[]);
                }
                fill(&heap);
                let _ = heap.close();
            }
        }
    }
}
