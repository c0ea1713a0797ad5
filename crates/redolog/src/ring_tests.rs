//! Rings in memory: every life ends with what was committed, and no damage yields anything else.

use std::prelude::v1::*;

use proptest::prelude::*;

use super::*;
use crate::memory::Bytes;

const IDENTITY: u64 = 7;
const IMAGE_BYTES: u64 = 1 << 20;

fn file(shape: Shape) -> Bytes {
    Bytes::new(shape.file_bytes() as usize)
}

fn point(epoch: u64, sequence: u64) -> Point {
    Point { epoch, sequence }
}

fn append(ring: &mut Ring, file: &Bytes, bytes: &[u8]) {
    let mut buffer = vec![0; 512];
    let mut record = ring.record(file, &mut buffer);
    record.set_image_bytes(IMAGE_BYTES);
    record.set_time(ring.last().sequence + 100);
    record.run(ring.last().sequence * 8, bytes).unwrap();
    ring.commit(record, &file).unwrap();
}

/// The contents of all records from a reader's on, up to a position.
fn read_to(stop: u64, reader: &mut Reader, file: &Bytes) -> Result<Vec<Vec<u8>>, Fault> {
    let mut all = Vec::new();
    while reader.at() < stop {
        let mut bytes = Vec::new();
        let apply = |_: u64, part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        reader.next(file, &mut [0; 512], |_| Ok(()), apply)?;
        all.push(bytes);
    }
    Ok(all)
}

/// The contents of all records that the state needs.
fn read(ring: &Ring, file: &Bytes, state: Point) -> Result<Vec<Vec<u8>>, Fault> {
    let mut reader = Reader::new(ring, state);
    let all = read_to(ring.end(), &mut reader, file)?;
    assert_eq!(reader.point(), ring.last());
    Ok(all)
}

/// The contents of all records that are left of those that the state has.
fn held(ring: &Ring, file: &Bytes, state: Point) -> Result<Vec<Vec<u8>>, Fault> {
    let held = ring.held(file, state, &mut [0; 4096])?;
    let Some((mut reader, stop)) = held else { return Ok(Vec::new()) };
    let all = read_to(stop, &mut reader, file)?;
    assert_eq!((reader.at(), reader.point()), (stop, state));
    Ok(all)
}

#[test]
fn what_was_committed_is_there_and_an_epoch_continues_it() {
    for align in [64, 512, 4096] {
        let shape = Shape { capacity: 16384, align };
        let file = file(shape);
        let base = point(1, 0);
        let mut ring = Ring::create(&file, IDENTITY, shape, (base, 2)).unwrap();
        let mut buffer = vec![0; 4096];
        assert_eq!(Ring::open(&file, IDENTITY, (base, true), &mut buffer).unwrap().end(), 0);
        append(&mut ring, &file, b"one");
        append(&mut ring, &file, &[2; 900]);
        let again = Ring::open(&file, IDENTITY, (base, false), &mut buffer).unwrap();
        assert_eq!((again.first(), again.end(), again.last()), (0, ring.end(), point(2, 2)));
        assert_eq!((again.image_bytes(), again.time()), (Some(IMAGE_BYTES), 101));
        assert_eq!(read(&again, &file, base).unwrap(), [b"one".to_vec(), vec![2; 900]]);
        // The image has the first one.
        let later = Ring::open(&file, IDENTITY, (point(2, 1), false), &mut buffer).unwrap();
        assert_eq!(read(&later, &file, point(2, 1)).unwrap(), [vec![2; 900]]);
        // And both: nothing is left, and the next epoch begins behind them.
        let mut done = Ring::open(&file, IDENTITY, (point(2, 2), false), &mut buffer).unwrap();
        assert_eq!((done.first(), done.end()), (ring.end(), ring.end()));
        done.begin(&file, 3).unwrap();
        append(&mut done, &file, b"three");
        let next = Ring::open(&file, IDENTITY, (point(2, 2), false), &mut buffer).unwrap();
        assert_eq!(read(&next, &file, point(2, 2)).unwrap(), [b"three".to_vec()]);
        assert_eq!(next.last(), point(3, 1));
        // A state before the epoch's is another one.
        let stale = Ring::open(&file, IDENTITY, (point(2, 1), false), &mut buffer).err();
        assert_eq!(stale, Some(Fault::Stale));
    }
}

/// Where the newest line is damaged, the records of its epoch are not taken for remains of an older one.
#[test]
fn an_epoch_whose_line_is_damaged_is_not_left_out() {
    let shape = Shape { capacity: 8192, align: 512 };
    let mut buffer = vec![0; 4096];
    for epochs in [1, 2, 3] {
        let file = file(shape);
        let mut state = point(1, 0);
        let mut ring = Ring::create(&file, IDENTITY, shape, (state, 2)).unwrap();
        for epoch in 0..epochs {
            state = ring.last();
            ring.begin(&file, 3 + epoch).unwrap();
            append(&mut ring, &file, b"first");
            append(&mut ring, &file, b"second");
        }
        let mut open = |state, is_complete| {
            Ring::open(&file, IDENTITY, (state, is_complete), &mut buffer).map(|ring| ring.last())
        };
        assert_eq!(open(state, true), Ok(ring.last()));
        let newest = LINES[(epochs as usize + 1) % 2];
        for byte in [0, 9, 20, 60] {
            file.0.borrow_mut()[newest as usize + byte] ^= 4;
            for is_complete in [true, false] {
                assert_eq!(open(state, is_complete), Err(Fault::Damaged), "{epochs} {byte}");
            }
            file.0.borrow_mut()[newest as usize + byte] ^= 4;
        }
        // The image may have parts of the epoch's first record, which is lost.
        file.0.borrow_mut()[FIRST as usize..].fill(0);
        assert_eq!(open(state, true), Ok(state));
        assert_eq!(open(state, false), Err(Fault::Damaged));
    }
}

/// Records behind the end that no state has, one behind the other up to the oldest one that the state has.
#[test]
fn records_that_do_not_lead_to_the_state_are_none_that_it_has() {
    let shape = Shape { capacity: 16384, align: 4096 };
    let file = file(shape);
    let mut ring = Ring::create(&file, IDENTITY, shape, (point(1, 0), 2)).unwrap();
    append(&mut ring, &file, b"kept");
    let mut other = ring;
    [b"a", b"b", b"c"].iter().for_each(|bytes| append(&mut ring, &file, *bytes));
    other.begin(&file, 9).unwrap();
    append(&mut other, &file, b"last");
    let (state, mut buffer) = (other.last(), [0; 4096]);
    let found = Ring::open(&file, IDENTITY, (state, false), &mut buffer).unwrap();
    assert_eq!(held(&found, &file, state).unwrap(), [b"kept".to_vec(), b"last".to_vec()]);
}

#[test]
fn what_is_no_ring_of_the_image_is_refused() {
    let shape = Shape { capacity: 8192, align: 512 };
    let file = file(shape);
    let open = |identity| Ring::open(&file, identity, (point(1, 0), false), &mut [0; 4096]).err();
    assert_eq!(open(IDENTITY), Some(Fault::NotALog));
    let mut ring = Ring::create(&file, IDENTITY, shape, (point(1, 0), 2)).unwrap();
    assert_eq!(open(IDENTITY + 1), Some(Fault::Foreign));
    append(&mut ring, &file, b"first");
    append(&mut ring, &file, b"second");
    file.0.borrow_mut()[FIRST as usize + 130] ^= 1;
    // The first record is damaged, and one behind it is whole.
    assert_eq!(open(IDENTITY), Some(Fault::Damaged));
    file.0.borrow_mut()[2048 + 9] ^= 1;
    assert_eq!(open(IDENTITY), Some(Fault::Damaged));
    file.0.borrow_mut()[17] ^= 1;
    assert_eq!(open(IDENTITY), Some(Fault::Damaged));
    file.0.borrow_mut().truncate(8192);
    assert_eq!(open(IDENTITY), Some(Fault::Damaged));
    // Another version's head has its own sum; one byte of this version's that is damaged is no version.
    let newer = |head: &mut [u8]| head[..8].copy_from_slice(b"SPNDRNG2");
    let mut bytes = head(IDENTITY, shape);
    newer(&mut bytes);
    assert_eq!(parse_head(&bytes, IDENTITY), Err(Fault::Damaged));
    bytes[39] ^= 1;
    assert_eq!(parse_head(&bytes, IDENTITY), Err(Fault::Version(b'2')));
    bytes[3] ^= 1;
    assert_eq!(parse_head(&bytes, IDENTITY), Err(Fault::NotALog));
    assert!(!Shape { capacity: 8192, align: 96 }.is_valid());
    assert!(!Shape { capacity: 8191, align: 64 }.is_valid());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2_000 }))]

    /// Records of random lengths, many laps and epochs, the image behind by a random number of records: what is found is what the image lacks, and before it each record that is
    /// not overwritten.
    #[test]
    fn laps(
        lens in prop::collection::vec(0usize..1500, 1..80),
        behind in 0usize..6,
        epochs in prop::collection::btree_set(0usize..80, 0..4),
        align in prop::sample::select(vec![64u64, 512, 4096]),
        flip in prop::option::of((0usize..16384, 0u8..8)),
    ) {
        let shape = Shape { capacity: 16384, align };
        let file = file(shape);
        let mut ring = Ring::create(&file, IDENTITY, shape, (point(9, 4), 10)).unwrap();
        // The beginning and the state before of each record that the image lacks.
        let mut lacking: Vec<(u64, Point, Vec<u8>)> = Vec::new();
        let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
        for (number, len) in lens.iter().enumerate() {
            if epochs.contains(&number) {
                ring.begin(&file, 100 + number as u64).unwrap();
                lacking.clear();
            }
            let bytes = vec![number as u8; *len];
            let needed = ring.bytes_of(*len as u64 + 16);
            while lacking.len() > behind
                || lacking.first().is_some_and(|(at, ..)| ring.end() + needed - at > shape.capacity)
            {
                lacking.remove(0);
            }
            lacking.push((ring.end(), ring.last(), bytes.clone()));
            all.push((ring.end(), bytes.clone()));
            append(&mut ring, &file, &bytes);
        }
        let state = lacking.first().map_or(ring.last(), |(_, before, _)| *before);
        let expected: Vec<Vec<u8>> = lacking.iter().map(|(.., bytes)| bytes.clone()).collect();
        let found = Ring::open(&file, IDENTITY, (state, false), &mut [0; 4096]).unwrap();
        prop_assert_eq!(found.end() % shape.capacity, ring.end() % shape.capacity);
        prop_assert_eq!(found.last(), ring.last());
        prop_assert_eq!(&read(&found, &file, state).unwrap(), &expected);
        let before = |at: u64| lacking.first().is_none_or(|(first, ..)| at < *first);
        let is_left = |at: u64| at + shape.capacity >= ring.end() && before(at);
        all.retain(|(at, _)| is_left(*at));
        let left: Vec<Vec<u8>> = all.into_iter().map(|(_, bytes)| bytes).collect();
        prop_assert_eq!(&held(&found, &file, state).unwrap(), &left);
        // One flipped bit: an error, all of it, or all but a tail that nothing whole lies behind.
        if let Some((byte, bit)) = flip {
            file.0.borrow_mut()[byte] ^= 1 << bit;
            match Ring::open(&file, IDENTITY, (state, false), &mut [0; 4096]) {
                Err(_) => {}
                Ok(ring) => {
                    prop_assert!(left.ends_with(&held(&ring, &file, state).unwrap()));
                    let found = read(&ring, &file, state).unwrap();
                    prop_assert!(expected.len() - found.len() <= 1);
                    prop_assert_eq!(&expected[..found.len()], &found[..]);
                }
            }
        }
    }

    /// Arbitrary bytes behind a sound head are never a fault of the program.
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 4096), at in 24usize..8192) {
        let shape = Shape { capacity: 8192, align: 64 };
        let file = file(shape);
        let mut ring = Ring::create(&file, IDENTITY, shape, (point(1, 0), 2)).unwrap();
        append(&mut ring, &file, b"first");
        file.0.borrow_mut()[at..at + 4096].copy_from_slice(&bytes);
        let _ = Ring::open(&file, IDENTITY, (point(1, 0), false), &mut [0; 4096]);
    }
}
