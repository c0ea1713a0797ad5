//! Rings of redo records with any bytes in them: an error, or records that were committed, in their order. Never a fault.
//!
//! A ring gets records in some epochs. The input damages it, then names the state that an image has.
#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use spandrel_redolog::memory::Bytes;
use spandrel_redolog::{Point, Reader, Ring, Shape};

const IDENTITY: u64 = 7;
const SHAPE_BYTES: u64 = 16 << 10;

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    /// Records begin at multiples of 64 to 4096 bytes.
    align: u8,
    /// Lengths of the records of each epoch.
    epochs: Vec<Vec<u16>>,
    /// Bytes that are changed: where, and by which bits.
    damage: Vec<(u16, u8)>,
    /// How many records the image has, and whether it says that it needs no others.
    has: u8,
    is_complete: bool,
}

/// The bytes of a record, which its number tells.
fn contents(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

fuzz_target!(|input: Input| {
    let shape = Shape { capacity: SHAPE_BYTES, align: 64 << (input.align % 7) };
    let file = Bytes::new(shape.file_bytes() as usize);
    let base = Point { epoch: 1, sequence: 0 };
    let mut ring = Ring::create(&file, IDENTITY, shape, (base, 2)).unwrap();
    // The state after each record, and its bytes; positions where they begin.
    let (mut states, mut bytes, mut heads) = (vec![base], Vec::new(), vec![ring.end()]);
    for (number, lengths) in input.epochs.iter().take(4).enumerate() {
        if number > 0 {
            ring.begin(&file, number as u64 + 2).unwrap();
            // Nothing before is needed: the image has all of it.
            heads.fill(ring.end());
        }
        for len in lengths.iter().take(20) {
            let contents = contents(bytes.len(), usize::from(*len % 6000) + 1);
            let needs = ring.bytes_of(contents.len() as u64 + 16);
            let head = heads.iter().copied().rev().find(|head| ring.has_room(needs, *head));
            if head.is_none() || !ring.can_hold(needs) {
                continue;
            }
            let mut buffer = vec![0; 512];
            let mut record = ring.record(&file, &mut buffer);
            record.run(0, &contents).unwrap();
            ring.commit(record, &&file).unwrap();
            states.push(ring.last());
            bytes.push(contents);
            heads.push(ring.end());
        }
    }
    for (at, bits) in &input.damage {
        let mut file = file.0.borrow_mut();
        let at = usize::from(*at) % file.len();
        file[at] ^= bits;
    }
    let has = usize::from(input.has) % states.len();
    let mut buffer = vec![0; 4096];
    let state = (states[has], input.is_complete);
    let Ok(found) = Ring::open(&file, IDENTITY, state, &mut buffer) else { return };
    let mut reader = Reader::new(&found, states[has]);
    for expected in has.. {
        if reader.at() >= found.end() {
            break;
        }
        let mut read = Vec::new();
        let apply = |_: u64, part: &[u8]| {
            read.extend_from_slice(part);
            Ok(())
        };
        if reader.next(&file, &mut [0; 512], |_| Ok(()), apply).is_err() {
            break;
        }
        // A record is whole, and the one that follows.
        assert_eq!(Some(&read), bytes.get(expected));
        assert_eq!(Some(&reader.point()), states.get(expected + 1));
    }
});
