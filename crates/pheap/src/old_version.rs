//! Heaps of format version 1, which opening makes heaps of this version: written by the last program that made them.

use std::prelude::v1::*;

use spandrel_pmem::simulator::{Bounds, Memory, Outcome, Point};

use super::*;
use crate::collections::{HashMap, MapHead, Vector, VectorHead};
use crate::layout::BLOCK_BYTES;
use crate::superblock::{IDENTITY_COPY, OLD_VERSION, ROOTS, UNDO_LOG};

const CLOSED: &str = include_str!("../tests/data/version-1-closed.words");
const OPEN: &str = include_str!("../tests/data/version-1-open.words");
const TYPES: &[RootType<'_>] =
    &[RootType::of::<VectorHead<u64>>("numbers"), RootType::of::<MapHead<u32, u64>>("map")];

/// An image of its length and its words that are not zero, in hexadecimal.
fn image(text: &str) -> Vec<u8> {
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let (bytes, rest) = text.split_once('\n').unwrap();
    let mut image = vec![0; number(bytes) as usize];
    for row in rest.split('@').skip(1) {
        let mut words = row.split_whitespace();
        let at = number(words.next().unwrap()) as usize;
        for (place, word) in image[at..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&number(word).to_le_bytes());
        }
    }
    image
}

/// What the program has written, in as many turns of 20.
fn verify(heap: &Heap<&Memory>, turns: u64) -> Result<(), String> {
    let count = turns * 20;
    let numbers = Vector::<u64, _>::open(heap, "numbers").map_err(|why| format!("{why}"))?;
    if numbers.iter().ne((0..count).map(|number| number * 3)) {
        return Err("numbers".into());
    }
    let map = HashMap::<u32, u64, _>::open(heap, "map").map_err(|why| format!("{why}"))?;
    let wanted = |key: u64| (key % 20 != 3).then_some(key * 5);
    if (0..count).any(|key| map.get(&(key as u32)) != wanted(key)) {
        return Err("map".into());
    }
    let mut word = heap.root_word(0).unwrap();
    for number in (0..turns).flat_map(|turn| turn * 20..turn * 20 + 8).rev() {
        let at = crate::pointer::offset_of(word).ok_or("a node is missing")?;
        if heap.core().load(at + 8) != number {
            return Err("a node".into());
        }
        word = heap.core().load(at);
    }
    let large = heap.get_root(1).unwrap().ok_or("the large object is missing")?;
    let at = heap.core().offset(large.as_ptr());
    let is_right = heap.core().load(at) == 77 && heap.usable_bytes(large) == Ok(2 * BLOCK_BYTES);
    if is_right { Ok(()) } else { Err("the large object".into()) }
}

#[test]
fn a_heap_of_the_old_version_is_checked_and_copied_as_it_is() {
    for (text, is_closed) in [(CLOSED, true), (OPEN, false)] {
        let image = image(text);
        let memory = Memory::from_image(&image);
        let survey = check(&memory, TYPES, &mut |_| ()).unwrap();
        assert_eq!((survey.version, survey.damaged), (OLD_VERSION, 0));
        assert_eq!(survey.record.state == State::Clean, is_closed);
        let repaired = repair(&memory, &mut |_| ()).unwrap();
        assert_eq!(repaired, Repaired { is_closed, ..Repaired::default() });
        assert_eq!(memory.journal().last(), image, "nothing is written");
    }
}

#[test]
fn a_heap_of_the_old_version_becomes_one_of_this_version() {
    for (text, turns) in [(CLOSED, 1), (OPEN, 2)] {
        let memory = Memory::from_image(&image(text));
        let (heap, opened) = Heap::open(&memory, 0, Some(TYPES)).unwrap();
        assert_eq!(opened.was_clean, turns == 1);
        verify(&heap, turns).unwrap();
        heap.alloc(64).unwrap();
        heap.close().unwrap();
        let survey = check(&memory, TYPES, &mut |_| ()).unwrap();
        assert_eq!((survey.version, survey.damaged), (VERSION, 0));
        let (heap, opened) = Heap::open(&memory, 0, Some(TYPES)).unwrap();
        assert!(opened.was_clean);
        verify(&heap, turns).unwrap();
        heap.close().unwrap();
    }
}

#[test]
fn a_heap_of_the_old_version_gets_sums() {
    for text in [CLOSED, OPEN] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.heap").to_str().unwrap().to_string();
        std::fs::write(&path, image(text)).unwrap();
        let compared = || {
            let medium = Options::new().compare_sums().copy_medium(&path).unwrap();
            let survey = check(&medium, TYPES, &mut |_| ()).unwrap();
            (survey.version, survey.sums, survey.pages, survey.damaged)
        };
        assert_eq!(compared(), (OLD_VERSION, Standing::Absent, 0, 0));
        let options = Options::new().medium(Choice::Logged).roots(TYPES);
        let (heap, _) = options.sums(true).open(&path).unwrap();
        heap.checkpoint().unwrap();
        heap.abandon();
        assert_eq!(compared(), (VERSION, Standing::Compared, 0, 0));
        let (heap, _) = options.open(&path).unwrap();
        heap.alloc(64).unwrap();
        heap.close().unwrap();
        assert_eq!(compared(), (VERSION, Standing::Compared, 0, 0));
    }
}

/// A change of several words that version 1 began and did not end, in the entries that it had.
#[test]
fn the_undo_log_of_the_old_version_is_undone() {
    let mut image = image(OPEN);
    let version = u64::from_le_bytes(*image[UNDO_LOG..].first_chunk().unwrap());
    let root = u64::from_le_bytes(*image[ROOTS..].first_chunk().unwrap());
    for (number, word) in [ROOTS as u64, root, version + 1].into_iter().enumerate() {
        image[UNDO_LOG + 64 + number * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    image[ROOTS..ROOTS + 8].fill(0);
    let memory = Memory::from_image(&image);
    let (heap, _) = Heap::open(&memory, 0, Some(TYPES)).unwrap();
    verify(&heap, 2).unwrap();
}

#[test]
fn an_upgrade_that_a_failure_cuts_off_is_done_again() {
    for (text, turns) in [(CLOSED, 1), (OPEN, 2)] {
        let memory = Memory::from_image(&image(text));
        Heap::open(&memory, 0, Some(TYPES)).unwrap().0.close().unwrap();
        let check = |image: &[u8], _: &Point<'_>| {
            let after = Memory::from_image(image);
            let (heap, _) = Heap::open(&after, 0, Some(TYPES)).map_err(|why| format!("{why}"))?;
            verify(&heap, turns)?;
            heap.close().map_err(|why| format!("{why}"))
        };
        let bounds = Bounds { most: 64, drawn: 8, ..Bounds::default() };
        let outcome = memory.journal().images(&bounds, check);
        let outcome = outcome.unwrap_or_else(|found| std::panic!("{found}"));
        assert!(matches!(outcome, Outcome { points: 12.., .. }), "{outcome:?}");
    }
}

#[test]
fn damage_of_the_old_version_is_found_and_mended_as_far_as_it_goes() {
    let sound = image(CLOSED);
    let first = crate::layout::first_block(0);
    let mut damaged = sound.clone();
    damaged[first.header() + 1] ^= 64;
    let memory = Memory::from_image(&damaged);
    assert!(check(&memory, TYPES, &mut |_| ()).unwrap().damaged > 0);
    let opened = Heap::open(&memory, 0, Some(TYPES)).map(drop);
    assert!(matches!(opened, Err(Error::Damaged { .. })));
    let repaired = repair(&memory, &mut |_| ()).unwrap();
    assert!(!repaired.is_closed && repaired.aside == 1 && repaired.objects > 0, "{repaired:?}");
    // What lies in the block is still there: it was set aside.
    let (heap, _) = Heap::open(&memory, 0, Some(TYPES)).unwrap();
    verify(&heap, 1).unwrap();
    while let Ok(object) = heap.alloc(48) {
        // SAFETY: an object of its own.
        unsafe { object.write_bytes(0xee, 48) };
    }
    verify(&heap, 1).unwrap();
    heap.close().unwrap();
    // The identity has no copy in the old version, and what lies there is not taken for one.
    let mut damaged = sound;
    damaged[30] ^= 1;
    damaged[IDENTITY_COPY..IDENTITY_COPY + 64].copy_from_slice(&image(CLOSED)[..64]);
    let opened = Heap::open(&Memory::from_image(&damaged), 0, Some(TYPES)).map(drop);
    assert!(matches!(opened, Err(Error::Damaged { at: 0, .. })), "{opened:?}");
}
