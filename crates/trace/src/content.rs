//! A file's bytes: the header and blocks, checked.

use crate::error::Error;
use crate::events::Events;
use spandrel_pages::HEAP_PAGE_BYTES;
use spandrel_recorder::layout::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, BLOCK_MAGIC, CHECKSUM, END_AT, HEADER_BYTES, HEADER_CRC_AT,
    MAGIC, MISSED_AT, PROGRAM, STATE_AT, VERSION,
};
use spandrel_recorder::{End, Kinds};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a recording says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose it is.
    pub pid: i32,
    /// The program's name.
    pub program: String,
    /// What was recorded.
    pub kinds: Kinds,
    /// When it began: nanoseconds since 1970.
    pub began_ns: u64,
    /// How it ended.
    pub end: End,
    /// Events that could not be recorded.
    pub missed: u64,
}

/// A part of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// When it began: nanoseconds since the recording did.
    pub began_ns: u64,
    /// Where its events are.
    pub events: Range<usize>,
}

/// A recording in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// What it says of itself.
    pub header: Header,
    pub(crate) bytes: Vec<u8>,
    pub(crate) lanes: BTreeMap<u32, Vec<Block>>,
}

impl Trace {
    /// Checks a file's bytes: the header, and each block's checksum and place.
    ///
    /// # Errors
    /// The first thing that is wrong, and where.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Error> {
        let header = header(&bytes)?;
        let mut lanes = BTreeMap::<u32, Vec<(u64, usize, Block)>>::new();
        for at in (HEADER_BYTES..bytes.len()).step_by(BLOCK_BYTES) {
            let all = bytes.get(at..at + BLOCK_BYTES).ok_or_else(|| {
                let there = bytes.len() - at;
                let why = format!("the file is cut off: {there} of {BLOCK_BYTES} bytes of a block");
                Error::at(bytes.len() as u64, why)
            })?;
            if let Some((lane, number, block)) = block(all, at)? {
                lanes.entry(lane).or_default().push((number, at, block));
            }
        }
        let mut in_order = BTreeMap::new();
        for (lane, mut blocks) in lanes {
            blocks.sort_by_key(|(number, ..)| *number);
            for (expected, (number, at, _)) in blocks.iter().enumerate() {
                if *number != expected as u64 {
                    let why = format!("block {expected} of lane {lane} is missing or there twice");
                    return Err(Error::at(*at as u64, why));
                }
            }
            in_order.insert(lane, blocks.into_iter().map(|(_, _, block)| block).collect());
        }
        Ok(Self { header, bytes, lanes: in_order })
    }

    /// All events, in the order in which they happened.
    pub fn events(&self) -> Events<'_> {
        Events::new(self)
    }

    /// Bytes of the file.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.lanes.values().flatten().all(|block| block.events.is_empty())
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    if let Some(from) = bytes.get(at..at + N) {
        number.copy_from_slice(from);
    }
    number
}

fn header(bytes: &[u8]) -> Result<Header, Error> {
    let short = |at: usize| u32::from_le_bytes(number(bytes, at));
    if !bytes.starts_with(&MAGIC) {
        return Err(Error::at(0, "this is no recording: its first bytes are not 'SPNDRTRC'"));
    }
    if bytes.len() < HEADER_BYTES {
        let why =
            format!("the file is cut off: {} of {HEADER_BYTES} bytes of a header", bytes.len());
        return Err(Error::at(bytes.len() as u64, why));
    }
    // Before the checksum, which another version may have elsewhere.
    if short(8) != VERSION {
        let why = format!(
            "this recording is of version {}; this command reads version {VERSION}",
            short(8)
        );
        return Err(Error::at(8, why));
    }
    if CHECKSUM.checksum(&bytes[..HEADER_CRC_AT]) != short(HEADER_CRC_AT) {
        return Err(Error::at(0, "the header is damaged: its checksum does not fit"));
    }
    for (at, expected) in [(12, HEADER_BYTES), (16, BLOCK_BYTES), (20, HEAP_PAGE_BYTES)] {
        if short(at) as usize != expected {
            let why = format!("the header says {}, where {expected} is to be", short(at));
            return Err(Error::at(at as u64, why));
        }
    }
    let kinds = Kinds::from_bits(short(28))
        .ok_or_else(|| Error::at(28, "the header does not say what was recorded"))?;
    let (end, len) = End::from_bytes(number(bytes, END_AT))
        .ok_or_else(|| Error::at(END_AT as u64, "the header does not say how it ended"))?;
    // A program that was killed leaves as much as there is; one that ended said how much it is.
    if (bytes.len() as u64) < len {
        let why = format!("the file is cut off: {} of {len} bytes", bytes.len());
        return Err(Error::at(bytes.len() as u64, why));
    }
    let name = &bytes[PROGRAM];
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Header {
        pid: i32::from_le_bytes(number(bytes, 24)),
        program: String::from_utf8_lossy(name).into_owned(),
        kinds,
        began_ns: u64::from_le_bytes(number(bytes, 32)),
        end,
        missed: u64::from_le_bytes(number(bytes, MISSED_AT)),
    })
}

/// A block's lane and number; `None`: it was not begun.
fn block(bytes: &[u8], at: usize) -> Result<Option<(u32, u64, Block)>, Error> {
    let magic: [u8; 4] = number(bytes, 0);
    if magic == [0; 4] {
        return Ok(None);
    }
    let damaged = |why: &str| Error::at(at as u64, format!("a block is damaged: {why}"));
    if magic != BLOCK_MAGIC {
        return Err(damaged("its first bytes are not 'SBLK'"));
    }
    let len = u32::from_le_bytes(number(bytes, STATE_AT)) as usize;
    let crc = u32::from_le_bytes(number(bytes, STATE_AT + 4));
    let events = bytes
        .get(BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES.saturating_add(len))
        .ok_or_else(|| damaged("its length is beyond its end"))?;
    let mut digest = CHECKSUM.digest();
    digest.update(&bytes[..STATE_AT]);
    digest.update(events);
    if digest.finalize() != crc {
        return Err(damaged("its checksum does not fit"));
    }
    let from = at + BLOCK_HEADER_BYTES;
    let began_ns = u64::from_le_bytes(number(bytes, 16));
    let lane = u32::from_le_bytes(number(bytes, 4));
    let number = u64::from_le_bytes(number(bytes, 8));
    Ok(Some((lane, number, Block { began_ns, events: from..from + len })))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use spandrel_recorder::Event;
    use spandrel_recorder::layout;

    /// Events of a block, each at a time.
    type Timed<'a> = &'a [(u64, Event)];

    /// A recording of these lanes' blocks.
    pub(crate) fn recorded(lanes: &[(u32, &[Timed<'_>])]) -> Vec<u8> {
        let kinds = Kinds { requests: true, spans: true };
        let mut bytes = layout::header(7, kinds, 1, b"program").to_vec();
        for (lane, blocks) in lanes {
            for (number, events) in blocks.iter().enumerate() {
                let mut block = layout::Block::new();
                let began_ns = events.first().map_or(0, |(ns, _)| *ns);
                let mut cursor = block.begin(*lane, number as u64, began_ns);
                for (ns, event) in *events {
                    assert!(block.add(&mut cursor, *ns, event));
                }
                bytes.extend(block.bytes());
            }
        }
        bytes
    }

    fn example() -> Vec<u8> {
        let allocate = |address| Event::Allocate { address, size: 9, align_log2: 0, zeroed: false };
        recorded(&[
            (0, &[&[(5, Event::Release { pages: 3 })]]),
            (2, &[&[(1, allocate(16)), (4, allocate(32))], &[(9, Event::Free { address: 16 })]]),
        ])
    }

    #[test]
    fn a_recording_says_whose_it_is() {
        let trace = Trace::new(example()).unwrap();
        assert_eq!((trace.header.pid, trace.header.program.as_str()), (7, "program"));
        assert_eq!((trace.header.end, trace.header.missed), (End::Open, 0));
        assert_eq!(trace.lanes.len(), 2);
        assert!(!trace.is_empty());
    }

    #[test]
    fn what_is_cut_off_is_refused_with_its_end() {
        let bytes = example();
        for len in [0, 7, 8, 100, HEADER_BYTES - 1, HEADER_BYTES + 1, bytes.len() - 1] {
            let error = Trace::new(bytes[..len].to_vec()).unwrap_err();
            assert!(error.offset <= len as u64, "{len}: {error}");
        }
        // Whole blocks that are missing at the end are like a program that did less...
        let fewer = Trace::new(bytes[..bytes.len() - BLOCK_BYTES].to_vec()).unwrap();
        assert_eq!(fewer.lanes[&2].len(), 1);
        // ... unless it came to its end, and said how much there was ...
        let mut ended = bytes.clone();
        ended[END_AT..END_AT + 4].copy_from_slice(&End::Exit.to_bytes(bytes.len() as u64));
        assert_eq!(Trace::new(ended.clone()).unwrap().header.end, End::Exit);
        for blocks in 0..3 {
            let len = HEADER_BYTES + blocks * BLOCK_BYTES;
            let error = Trace::new(ended[..len].to_vec()).unwrap_err();
            assert_eq!(error.offset, len as u64, "{error}");
            assert!(error.message.contains("cut off"), "{error}");
        }
        // ... nor are those in the middle.
        let mut gap = bytes.clone();
        gap.drain(HEADER_BYTES + BLOCK_BYTES..HEADER_BYTES + 2 * BLOCK_BYTES);
        assert!(Trace::new(gap).unwrap_err().message.contains("block 0 of lane 2"));
    }

    #[test]
    fn a_block_that_was_not_begun_is_none() {
        let mut bytes = example();
        bytes.extend([0; BLOCK_BYTES]);
        assert_eq!(Trace::new(bytes).unwrap().lanes, Trace::new(example()).unwrap().lanes);
    }

    #[test]
    fn another_version_is_told_by_its_number() {
        let mut bytes = example();
        bytes[8] = 2;
        let error = Trace::new(bytes).unwrap_err();
        assert!(error.message.contains("version 2"), "{error}");
    }

    proptest! {
        #[test]
        fn no_change_of_what_was_recorded_goes_unseen(at in 0usize..300, bit in 0u8..8) {
            let bytes = example();
            // The headers and events, of all blocks.
            let places: Vec<usize> = (0..BLOCK_HEADER_BYTES + 12)
                .flat_map(|offset| (0..3).map(move |n| HEADER_BYTES + n * BLOCK_BYTES + offset))
                .chain(0..END_AT)
                .collect();
            let at = places[at * 37 % places.len()];
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let trace = Trace::new(damaged.clone());
            // Beyond a block's end there may be anything.
            let same = trace.is_ok_and(|trace| {
                let whole = Trace::new(bytes.clone()).unwrap();
                let events = |t: &Trace| t.events().collect::<Result<Vec<_>, _>>().unwrap();
                events(&trace) == events(&whole) && at >= HEADER_BYTES
            });
            let in_block = (at - HEADER_BYTES.min(at)) % BLOCK_BYTES;
            let used = |block: usize| {
                let state = HEADER_BYTES + block * BLOCK_BYTES + STATE_AT;
                BLOCK_HEADER_BYTES + u32::from_le_bytes(number(&bytes, state)) as usize
            };
            let block = (at - HEADER_BYTES.min(at)) / BLOCK_BYTES;
            prop_assert_eq!(same, at >= HEADER_BYTES && in_block >= used(block));
        }

        #[test]
        fn any_bytes_are_a_recording_or_an_error(
            changes in prop::collection::vec((0usize..200_000, any::<u8>()), 0..20),
            len in 0usize..210_000,
        ) {
            let mut bytes = example();
            for (at, byte) in changes {
                let len = bytes.len();
                bytes[at % len] = byte;
            }
            bytes.truncate(len);
            if let Ok(trace) = Trace::new(bytes) {
                for _ in trace.events() {}
            }
        }
    }
}
