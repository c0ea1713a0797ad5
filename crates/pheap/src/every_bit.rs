//! Every bit of the metadata of a small heap that was closed, flipped; pages zeroed, swapped and torn: no damage is called sound, no
//! live object is overwritten by what is allocated afterwards, and no repair makes it worse.
//!
//! CI flips one bit in [`STRIDE`]. `SPANDREL_EVERY_BIT=1 cargo test --release -p spandrel-pheap --lib every_bit` flips all of them; the
//! name of a place ([`places`]) instead of 1 those of that place.

use std::ops::Range;
use std::prelude::v1::*;

use super::*;
use crate::collections::{
    HashMap, MapHead, SortedBytes, SortedBytesHead, SortedHead, SortedMap, Text, Vector, VectorHead,
};
use crate::layout::{BITS_BYTES, BLOCK_BYTES, HEADER_BYTES, LEAST_BYTES, SUPERBLOCK, first_block};
use crate::plain::Plain;
use crate::sums::LINE_WORDS;
use crate::superblock::{ASKING, IDENTITY_COPY, NAMES, ROOTS, UNDO_LOG};

const BYTES: usize = LEAST_BYTES + 23 * BLOCK_BYTES;
const BLOCKS: usize = BYTES / BLOCK_BYTES;
/// A prime: so bits of all places in a byte and of all kinds of words are among the flipped ones.
const STRIDE: usize = 2999;
const PAGE: usize = 4096;
/// Objects that are allocated, and written to, to see whether one is handed out that is live.
const ALLOCATIONS: usize = 10_000;

const TYPES: &[RootType<'_>] = &[
    RootType::of::<VectorHead<u64>>("numbers"),
    RootType::of::<MapHead<u32, [u8; 24]>>("map"),
    RootType::of::<SortedHead<u64, u64>>("sorted"),
    RootType::of::<VectorHead<u8>>("text"),
    RootType::of::<SortedBytesHead>("bytes"),
];
/// Nodes of a list that is of no type, and objects of it.
const CHAIN: u64 = 60;

fn numbers(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn populate(heap: &Heap<&Plain>) -> Result<(), Error> {
    let mut vector = Vector::<u64, _>::open(heap, "numbers")?;
    for number in 0..300 {
        vector.push(numbers(number))?;
    }
    let mut map = HashMap::<u32, [u8; 24], _>::open(heap, "map")?;
    for key in 0..100 {
        map.insert(key, [key as u8; 24])?;
    }
    let mut sorted = SortedMap::<u64, u64, _>::open(heap, "sorted")?;
    for key in 0..50 {
        sorted.insert(key * 7 % 50, key)?;
    }
    let mut text = Text::open(heap, "text")?;
    text.push("a text of some length")?;
    let mut bytes = SortedBytes::open(heap, "bytes")?;
    for key in 0..50u32 {
        bytes.insert(&(key * 7 % 50).to_le_bytes(), &[key as u8; 9])?;
    }
    let large = heap.alloc_zeroed(3 * BLOCK_BYTES)?.cast::<u64>();
    for word in 0..3 * BLOCK_BYTES / 8 {
        // SAFETY: within the object.
        unsafe { large.add(word).write(numbers(word as u64) >> 16) };
    }
    heap.set_root(0, Some(large.cast()))?;
    let mut before = 0;
    for number in 0..CHAIN {
        let bytes = if number % 10 == 0 { 5000 } else { 64 };
        let node = heap.alloc_zeroed(bytes)?.cast::<u64>();
        // SAFETY: within the object.
        unsafe {
            node.write(before);
            node.add(1).write(numbers(number) >> 16);
        }
        before = heap.pointer(node).raw();
        // Others between them, which are free again.
        let other = heap.alloc(bytes)?;
        // SAFETY: it is not used.
        unsafe { heap.free(other)? };
    }
    heap.set_root(1, heap.address(PPtr::<u8>::from_raw(before)))
}

/// Compares with what was written. `Err`: something is missing or other than it was, and nothing has said so. `Ok`: how much
/// is refused with an error.
fn verify(heap: &Heap<&Plain>) -> Result<u64, String> {
    let mut refused = 0;
    match Vector::<u64, _>::open(heap, "numbers") {
        Ok(vector) if vector.len() != 300 => return Err(format!("{} numbers", vector.len())),
        Ok(vector) => {
            if !vector.iter().enumerate().all(|(at, number)| number == numbers(at as u64)) {
                return Err("numbers".into());
            }
        }
        Err(_) => refused += 1,
    }
    match HashMap::<u32, [u8; 24], _>::open(heap, "map") {
        Ok(map) => {
            if !(0..100).all(|key| map.get(&key) == Some([key as u8; 24])) {
                return Err("map".into());
            }
        }
        Err(_) => refused += 1,
    }
    match SortedMap::<u64, u64, _>::open(heap, "sorted") {
        Ok(map) => {
            if !(0..50).all(|key| map.get(&(key * 7 % 50)) == Some(key)) {
                return Err("sorted".into());
            }
        }
        Err(_) => refused += 1,
    }
    match Text::open(heap, "text") {
        Ok(text) if text.chars().collect::<String>() != "a text of some length" => {
            return Err("text".into());
        }
        Ok(_) => {}
        Err(_) => refused += 1,
    }
    match SortedBytes::open(heap, "bytes") {
        Ok(map) => {
            let has =
                |key: u32| map.get(&(key * 7 % 50).to_le_bytes()) == Some(&[key as u8; 9][..]);
            if !(0..50).all(has) {
                return Err("bytes".into());
            }
        }
        Err(_) => refused += 1,
    }
    let object = |word: u64, bytes: usize| {
        let at = heap.address(PPtr::<u64>::from_raw(word))?;
        let is_there =
            word.is_multiple_of(16) && heap.usable_bytes(at.cast()).is_ok_and(|has| has >= bytes);
        is_there.then_some(at)
    };
    let large = heap.root_word(0).ok().and_then(|word| object(word, 3 * BLOCK_BYTES));
    let large = large.ok_or("the large object is missing")?;
    // SAFETY: the object has `3 * BLOCK_BYTES` bytes.
    let is_word = |word: usize| unsafe { large.add(word).read() } == numbers(word as u64) >> 16;
    if !(0..3 * BLOCK_BYTES / 8).all(is_word) {
        return Err("the large object".into());
    }
    let mut word = heap.root_word(1).unwrap_or(0);
    for number in (0..CHAIN).rev() {
        let node = object(word, 64).ok_or_else(|| format!("node {number} is missing"))?;
        // SAFETY: an object of two words at least.
        if unsafe { node.add(1).read() } != numbers(number) >> 16 {
            return Err(format!("node {number}"));
        }
        // SAFETY: as above.
        word = unsafe { node.read() };
    }
    Ok(refused)
}

/// Allocates of all sizes and writes to all of it, until there is no room.
fn stir(heap: &Heap<&Plain>) -> Result<(), Error> {
    let sizes = [16, 32, 48, 64, 100, 160, 5000, 1024, 2048, 320, 20_000, 100_000];
    let (mut number, mut full) = (0, 0);
    while number < ALLOCATIONS && full < sizes.len() {
        let bytes = sizes[number % sizes.len()];
        number += 1;
        match heap.alloc(bytes) {
            // SAFETY: an object that is given to nothing else.
            Ok(object) => unsafe { object.write_bytes(0xee, heap.usable_bytes(object)?) },
            Err(Error::Full) => {
                full += 1;
                continue;
            }
            Err(why) => return Err(why),
        }
        full = 0;
    }
    Ok(())
}

/// What became of a damaged heap when it was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Used {
    /// It was refused, or allocations were.
    Refused,
    /// All of it was there, before and after.
    Whole,
}

/// Opens a heap, looks, allocates, looks, closes; and again, as a refused close leaves it to be recovered.
fn used(plain: &Plain) -> Result<Used, String> {
    let mut used = Used::Whole;
    for round in 0..2 {
        let Ok((heap, _)) = Heap::open(plain, 0, Some(TYPES)) else { return Ok(Used::Refused) };
        let look = |when: &str| match verify(&heap) {
            Ok(refused) => Ok(refused),
            Err(why) => Err(format!("{when}, round {round}: {why}")),
        };
        let before = look("opened");
        let stirred = stir(&heap);
        let after = look("after allocating");
        let closed = heap.close();
        if before? + after? > 0 || stirred.is_err() || closed.is_err() {
            used = Used::Refused;
        }
    }
    Ok(used)
}

fn image() -> Vec<u8> {
    let plain = Plain::new(&vec![0; BYTES]);
    let heap = Heap::create(&plain, [7, 8], 0, 0).unwrap();
    populate(&heap).unwrap();
    heap.close().unwrap();
    // A life of some sessions, with changes of several words.
    for _ in 0..3 {
        let (heap, opened) = Heap::open(&plain, 0, Some(TYPES)).unwrap();
        assert!(opened.was_clean);
        let mut vector = Vector::<u64, _>::open(&heap, "numbers").unwrap();
        vector.push(1).unwrap();
        vector.pop().unwrap();
        heap.close().unwrap();
    }
    plain.all().to_vec()
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

/// Where two images of a heap differ, but for what a repair writes anew: the numbers of records, and the undo log of a heap that is closed.
fn differs(one: &[u8], other: &[u8]) -> Option<usize> {
    (0..one.len()).step_by(8).find(|at| {
        let is_record = (SUPERBLOCK..ROOTS).contains(at);
        let is_log = (UNDO_LOG + 64..ASKING).contains(at);
        !is_record && !is_log && word(one, *at) != word(other, *at)
    })
}

/// What the places mean, by name: of the last ones nothing.
fn places() -> Vec<(&'static str, Range<usize>, bool)> {
    let (first, last) = (first_block(0).header(), BLOCKS * HEADER_BYTES);
    let bits = BLOCK_BYTES + first_block(0).0 as usize * BITS_BYTES;
    vec![
        ("identity", 0..64, true),
        ("region line", 64..64 + LINE_WORDS * 8, true),
        ("behind the region line", 64 + LINE_WORDS * 8..128, false),
        ("headers of metadata", 128..first, false),
        ("headers", first..last, true),
        ("headers beyond the heap", last..last + 8 * HEADER_BYTES, false),
        ("mark bits of metadata", BLOCK_BYTES..bits, false),
        ("mark bits", bits..BLOCK_BYTES + BLOCKS * BITS_BYTES, true),
        ("records", SUPERBLOCK..SUPERBLOCK + 128, true),
        ("behind the first record", SUPERBLOCK + 128..SUPERBLOCK + 256, false),
        ("large change", SUPERBLOCK + 2048..SUPERBLOCK + 2112, false),
        ("the other record", SUPERBLOCK + PAGE..SUPERBLOCK + PAGE + 128, true),
        ("roots", ROOTS..NAMES, true),
        ("names", NAMES..UNDO_LOG, true),
        ("undo log", UNDO_LOG..ASKING, false),
        ("asking", ASKING..ASKING + 128, false),
        ("copy of the identity", IDENTITY_COPY..IDENTITY_COPY + 64, true),
    ]
}

/// A flipped bit: it is found or means nothing; a heap with it loses nothing silently; a repair makes all as it was.
fn flip(
    sound: &[u8],
    plain: &mut Plain,
    bit: usize,
    is_meant: bool,
) -> Result<&'static str, String> {
    let restore = |plain: &mut Plain, image: &[u8]| plain.all_mut().copy_from_slice(image);
    let mut damaged = sound.to_vec();
    damaged[bit / 8] ^= 1 << (bit % 8);
    restore(plain, &damaged);
    let outcome = check(&*plain, TYPES, &mut |_| ());
    let survey = outcome.map_err(|why| format!("check: {why}"))?;
    if is_meant && survey.damaged == 0 {
        return Err("called sound".into());
    }
    let used = used(plain).map_err(|why| format!("used: {why}"))?;
    if survey.damaged == 0 {
        return if used == Used::Whole {
            Ok("means nothing")
        } else {
            Err("refused, and sound".into())
        };
    }
    restore(plain, &damaged);
    let repaired = repair(&*plain, &mut |_| ()).map_err(|why| format!("repair: {why}"))?;
    if let Some(at) = differs(plain.all(), sound) {
        return Err(format!("{at:#x} is not as it was: {repaired:?}"));
    }
    let again = check(&*plain, TYPES, &mut |_| ()).map_err(|why| format!("check again: {why}"))?;
    if again.damaged != 0 || !repaired.is_closed {
        return Err(format!("not sound: {repaired:?}"));
    }
    let found = if used == Used::Whole { "found, and harmless" } else { "found, and refused" };
    // What is word for word as it was is used as it was; of all bits some are used again all the same.
    if !bit.is_multiple_of(11) {
        return Ok(found);
    }
    match self::used(plain) {
        Ok(Used::Whole) => Ok(found),
        other => Err(format!("repaired: {other:?}")),
    }
}

#[test]
fn no_bit_is_called_sound_and_none_loses_an_object() {
    let sound = image();
    let wanted = std::env::var("SPANDREL_EVERY_BIT").ok();
    let stride = if wanted.is_some() { 1 } else { STRIDE };
    let is_wanted =
        |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == "1" || wanted == name);
    let mut plain = Plain::new(&sound);
    assert_eq!(used(&plain), Ok(Used::Whole));
    let (mut failed, mut all) = (Vec::new(), 0);
    for (name, bytes, is_meant) in places().into_iter().filter(|(name, ..)| is_wanted(name)) {
        let mut counts = std::collections::BTreeMap::new();
        let bits = bytes.start * 8..bytes.end * 8;
        for bit in bits.clone().filter(|bit| (bit - bits.start) % stride == 0) {
            all += 1;
            match flip(&sound, &mut plain, bit, is_meant) {
                Ok(what) => *counts.entry(what).or_insert(0) += 1,
                Err(why) => failed.push(format!("{name}, {:#x} bit {}: {why}", bit / 8, bit % 8)),
            }
        }
        std::eprintln!("{name}: {counts:?}");
        if failed.len() > 20 {
            break;
        }
    }
    assert!(failed.is_empty(), "{} of {all}:\n{}", failed.len(), failed.join("\n"));
    std::eprintln!("{all} bits flipped");
}

/// Pages of metadata that mean something.
fn pages() -> Vec<usize> {
    // The first page of mark bits is of metadata alone.
    let bits = BLOCK_BYTES / PAGE + 1;
    let superblock = SUPERBLOCK / PAGE;
    let of_names = superblock + 3..superblock + 12;
    let mut pages = vec![0, superblock, superblock + 1, superblock + 2, superblock + 15];
    pages.extend(bits..BLOCK_BYTES / PAGE + (BLOCKS * BITS_BYTES).div_ceil(PAGE));
    pages.extend(of_names);
    pages
}

/// Damage of whole pages: whatever it is, nothing is lost silently, and what a repair leaves is sound. Roots and names that it says are
/// lost may be set again: what they lead to was not overwritten.
fn damage_pages(sound: &[u8], damaged: &[u8]) -> Result<&'static str, String> {
    if sound == damaged {
        return Ok("the same");
    }
    let plain = Plain::new(damaged);
    let survey = check(&plain, TYPES, &mut |_| ()).map(|survey| survey.damaged);
    let used = used(&plain).map_err(|why| format!("used: {why}"))?;
    match survey {
        Err(_) if used == Used::Refused => return Ok("hopeless"),
        Err(why) => return Err(format!("check: {why}")),
        Ok(0) if differs(sound, damaged).is_some() => return Err("called sound".into()),
        Ok(_) => {}
    }
    let mut plain = Plain::new(damaged);
    let mut roots_are_lost = false;
    let mut told = |finding: &Finding| {
        let is_superblock = (ROOTS..UNDO_LOG).contains(&(finding.at as usize));
        roots_are_lost |= finding.kind != Kind::Mended && is_superblock;
    };
    let repaired = repair(&plain, &mut told).map_err(|why| format!("repair: {why}"))?;
    let mut findings = Vec::new();
    let again = check(&plain, &[], &mut |finding| findings.push(*finding));
    let again = again.map_err(|why| format!("check again: {why}"))?;
    if again.damaged != 0 {
        return Err(format!("not sound: {repaired:?} {findings:?}"));
    }
    if roots_are_lost {
        if !repaired.is_closed {
            return Ok("roots and more are lost");
        }
        let heap = Heap::open(&plain, 0, Some(TYPES)).map_err(|why| format!("open: {why}"))?.0;
        stir(&heap).map_err(|why| format!("stir: {why}"))?;
        heap.close().map_err(|why| format!("close: {why}"))?;
        plain.all_mut()[ROOTS..UNDO_LOG].copy_from_slice(&sound[ROOTS..UNDO_LOG]);
        // Not as a heap that was closed, whose sums would refuse them.
        let heap = Heap::open(&plain, 0, Some(TYPES));
        if !matches!(heap.map(drop), Err(Error::Damaged { .. })) {
            return Err("other roots were taken for the heap's".into());
        }
        repair(&plain, &mut |_| ()).map_err(|why| format!("repair again: {why}"))?;
        let heap = Heap::open(&plain, 0, Some(TYPES)).map_err(|why| format!("again: {why}"))?.0;
        let looked = verify(&heap).map_err(|why| format!("given back: {why}"));
        heap.abandon();
        return match looked? {
            0 => Ok("roots are lost, and no object"),
            _ => Err("given back, and refused".into()),
        };
    }
    match self::used(&plain) {
        Ok(Used::Whole) if repaired.is_closed => Ok("as it was"),
        Ok(Used::Whole) => Ok("recovered"),
        Ok(Used::Refused) => Err(format!("refused after a repair: {repaired:?}")),
        Err(why) => Err(format!("repaired: {why}, {repaired:?}")),
    }
}

#[test]
fn no_page_that_is_lost_stale_torn_or_elsewhere_loses_an_object_silently() {
    let (sound, old) = (image(), old_image());
    let pages = pages();
    let (mut failed, mut counts) = (Vec::new(), std::collections::BTreeMap::new());
    let mut see = |what: String, damaged: &[u8]| match damage_pages(&sound, damaged) {
        Ok(outcome) => *counts.entry(outcome).or_insert(0) += 1,
        Err(why) => failed.push(format!("{what}: {why}")),
    };
    let with = |bytes: Range<usize>, from: &[u8]| {
        let mut damaged = sound.clone();
        damaged[bytes].copy_from_slice(from);
        damaged
    };
    for page in &pages {
        let all = page * PAGE..(page + 1) * PAGE;
        let (first, last) = (all.start..all.start + PAGE / 2, all.start + PAGE / 2..all.end);
        see(format!("page {page} zeroed"), &with(all.clone(), &[0; PAGE]));
        see(format!("page {page} of ones"), &with(all.clone(), &[0xff; PAGE]));
        for (what, bytes) in [("old", all.clone()), ("half old", first), ("half new", last)] {
            see(format!("page {page} {what}"), &with(bytes.clone(), &old[bytes]));
        }
        for other in pages.iter().filter(|other| *other > page) {
            let mut swapped = with(all.clone(), &sound[other * PAGE..][..PAGE]);
            swapped[other * PAGE..][..PAGE].copy_from_slice(&sound[all.clone()]);
            see(format!("pages {page} and {other} swapped"), &swapped);
        }
    }
    std::eprintln!("{counts:?}");
    assert!(failed.is_empty(), "{}:\n{}", failed.len(), failed.join("\n"));
}

/// The same heap in the middle of its life.
fn old_image() -> Vec<u8> {
    let plain = Plain::new(&vec![0; BYTES]);
    let heap = Heap::create(&plain, [7, 8], 0, 0).unwrap();
    let objects: Vec<_> = (0..2000).map(|number| heap.alloc(16 << (number % 5)).unwrap()).collect();
    let mut numbers = Vector::<u64, _>::open(&heap, "others").unwrap();
    numbers.push(5).unwrap();
    heap.set_root(2, Some(objects[7])).unwrap();
    heap.close().unwrap();
    plain.all().to_vec()
}
