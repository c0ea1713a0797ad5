//! One thread is the writer and the replica in turn, but for what they do at a time.

use super::*;
use crate::ring_file::RingFile;
use core::slice;
use core::sync::atomic::AtomicU64;
use spandrel_os::image::Image;
use spandrel_redolog::{Header, Point, Reader, Ring, Shape};
use std::ffi::CString;
use std::prelude::v1::*;

/// Numbers that look drawn (xorshift64).
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn value(number: usize, len: usize) -> Vec<u8> {
    (number as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(len)
        .collect()
}

/// A ring on a disk, and its writer and its replica, which take turns.
struct Both {
    file: RingFile,
    ring: Ring,
    reader: Reader,
    buffer: Vec<u8>,
    head: u64,
    passed: u64,
    /// Lengths of the records' payloads.
    lens: Vec<usize>,
    read: usize,
    _place: tempfile::TempDir,
}

impl Both {
    fn new(capacity: u64) -> Self {
        Self::with_file(capacity, 0)
    }

    /// In a file of `more` bytes more.
    fn with_file(capacity: u64, more: u64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = CString::new(place.path().join("ring").to_str().unwrap()).unwrap();
        let shape = Shape { capacity, align: 4096 };
        let image = Image::create(&path).unwrap();
        image.grow(0, shape.file_bytes() + more).unwrap();
        let file = RingFile::blank(&image, false).unwrap();
        let base = Point { epoch: 1, sequence: 0 };
        let ring = Ring::create(&file, 7, shape, (base, 2)).unwrap();
        file.forget(shape, ring.end(), ring.end() + capacity);
        let reader = Reader::new(&ring, base);
        let (buffer, lens, _place) = (vec![0; 64 << 10], Vec::new(), place);
        Self { file, ring, reader, buffer, head: 0, passed: 0, lens, read: 0, _place }
    }

    /// Appends a record, if there is room.
    fn write(&mut self, len: usize) -> bool {
        let has_room = self.ring.has_room(self.ring.bytes_of(len as u64 + 100), self.head);
        if has_room {
            let mut record = self.ring.record(&self.file, &mut self.buffer);
            record.set_image_bytes(1 << 30);
            record.run(0, &value(self.lens.len(), len)).unwrap();
            self.ring.commit(record, &&self.file).unwrap();
            self.lens.push(len);
        }
        has_room
    }

    fn see(reader: &mut Reader, file: &RingFile, buffer: &mut [u8], expected: &[u8]) {
        let mut found = Vec::new();
        let apply = |_, part: &[u8]| {
            found.extend_from_slice(part);
            Ok(())
        };
        reader.next(file, buffer, |_: &Header| Ok(()), apply).unwrap();
        assert!(found == expected, "{}", reader.at());
    }

    fn read(&mut self) -> bool {
        let Some(len) = self.lens.get(self.read) else { return false };
        Self::see(&mut self.reader, &self.file, &mut self.buffer, &value(self.read, *len));
        self.read += 1;
        true
    }

    fn pass(&mut self, is_over: bool) -> u64 {
        let from = core::mem::replace(&mut self.passed, self.reader.at());
        let free = self.file.pass(self.ring.shape(), from, self.passed, is_over);
        assert!(free <= self.passed && (!is_over || free == self.passed));
        free
    }

    /// A command is undone: the records that the state's file may lack are read again.
    fn recall(&mut self) {
        self.file.recall(self.ring.shape(), self.head, self.ring.end()).unwrap();
        if self.read == self.lens.len() {
            return;
        }
        let mut again = Reader::from(&self.ring, self.reader.at(), &self.file).unwrap();
        for number in self.read..self.lens.len() {
            let expected = value(number, self.lens[number]);
            Self::see(&mut again, &self.file, &mut self.buffer, &expected);
        }
    }
}

/// Each record is read as it was written, wherever its memory has come from.
fn story(seed: u64, capacity: u64, turns: usize) {
    let (mut both, mut drawn) = (Both::new(capacity), Drawn(seed));
    for _ in 0..turns {
        // Now and then until the ring is full.
        let (few, fills) = (drawn.below(12), drawn.below(3) == 0);
        for _ in 0..if fills { usize::MAX } else { few as usize } {
            let most = match fills {
                true => 500_000,
                false => [100, 4000, 70_000, 700_000, 3 << 20][drawn.below(5) as usize],
            };
            if !both.write(1 + drawn.below(most) as usize) {
                break;
            }
        }
        for _ in 0..drawn.below(1 + (both.lens.len() - both.read) as u64) {
            both.read();
        }
        match drawn.below(8) {
            0 => drop(both.pass(false)),
            step @ 1..6 => both.head = both.pass(step < 3),
            6 if both.read == both.lens.len() => {
                both.head = both.pass(true);
                both.file.forget(both.ring.shape(), both.head, both.head);
            }
            6 => {}
            _ => both.recall(),
        }
    }
    assert!(both.lens.len() > turns);
}

#[test]
fn memory_that_is_used_again_has_the_records_that_are_needed() {
    for (seed, chunks) in [(3, 8), (5, 9)] {
        let capacity = (chunks * CHUNK_BYTES) as u64;
        story(seed, capacity, 50);
        // A ring that does not end with a chunk.
        story(seed + 1, capacity + (36 << 10), 25);
    }
    // And one without chunks.
    story(9, 8 << 20, 20);
}

/// Length of the payload of a record with that number.
fn len_of(seed: u64, number: u64) -> usize {
    let mut drawn = Drawn((number + 1).wrapping_mul(seed | 1) ^ seed);
    drawn.below(7);
    let most = [100, 4000, 70_000, 700_000, 3 << 20][drawn.below(5) as usize];
    1 + drawn.below(most) as usize
}

/// The replica of [`threads`]: reads all records, and passes and rests now and then.
fn replica(
    both: (&RingFile, Shape, Reader),
    seed: u64,
    records: u64,
    (end, head): (&AtomicU64, &AtomicU64),
) {
    let (file, shape, mut reader) = both;
    let (mut drawn, mut buffer, mut passed) = (Drawn(seed + 7), vec![0; 64 << 10], reader.at());
    for number in 0..records {
        let is_behind = || end.load(Acquire) <= reader.at();
        while is_behind() {
            // As after a pause, or where the writer waits for room.
            if drawn.below(1000) == 0 {
                head.store(file.pass(shape, passed, reader.at(), true), Release);
                passed = reader.at();
                file.forget(shape, passed, passed);
            }
            core::hint::spin_loop();
        }
        let expected = value(number as usize, len_of(seed, number));
        Both::see(&mut reader, file, &mut buffer, &expected);
        if reader.at() - passed > drawn.below(shape.capacity / 4) {
            let free = file.pass(shape, passed, reader.at(), drawn.below(3) == 0);
            passed = reader.at();
            // Now and then later, as the state's file is synced in between.
            if drawn.below(2) == 0 {
                head.store(free, Release);
            }
        }
    }
    assert_eq!(file.pass(shape, passed, reader.at(), true), reader.at());
}

/// Writer and replica at a time.
fn threads(seed: u64, capacity: u64, records: u64) {
    let Both { file, mut ring, reader, mut buffer, _place, .. } = Both::new(capacity);
    let (end, head) = (AtomicU64::new(0), AtomicU64::new(0));
    let (file, shape) = (&file, ring.shape());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| replica((file, shape, reader), seed, records, (&end, &head)));
        for number in 0..records {
            let len = len_of(seed, number);
            while !ring.has_room(ring.bytes_of(len as u64 + 100), head.load(Acquire)) {
                assert!(!reading.is_finished());
                core::hint::spin_loop();
            }
            let mut record = ring.record(file, &mut buffer);
            record.set_image_bytes(1 << 30);
            record.run(0, &value(number as usize, len)).unwrap();
            ring.commit(record, &file).unwrap();
            end.store(ring.end(), Release);
        }
    });
}

#[test]
fn a_writer_and_a_replica_at_a_time() {
    for seed in 0..4 {
        // Also a ring that does not end with a chunk.
        let more = (seed % 2) * (36 << 10);
        threads(seed, (8 * CHUNK_BYTES) as u64 + more, 400);
    }
}

/// The head does not move into a chunk whose memory is about to be used for others: the writer would store to it.
#[test]
fn a_full_ring_keeps_the_beginning_of_a_chunk_whose_end_was_passed() {
    let chunk = CHUNK_BYTES as u64;
    let mut both = Both::new(8 * chunk);
    let fill = |both: &mut Both| while both.write(60_000) {};
    while both.ring.end() < chunk * 3 / 2 {
        assert!(both.write(60_000) && both.read());
    }
    both.head = both.pass(false);
    assert_eq!(both.head, chunk);
    fill(&mut both);
    while both.reader.at() < 7 * chunk {
        assert!(both.read());
    }
    both.head = both.pass(false);
    assert_eq!(both.head, 7 * chunk);
    fill(&mut both);
    while both.read() {}
    // The same where the writer asks for all room that there is.
    both.head = both.pass(true);
    fill(&mut both);
    while both.reader.at() < 20 * chunk {
        assert!(both.read());
    }
    both.head = both.pass(false);
    fill(&mut both);
    while both.read() {}
}

/// The chunk that was stored to last is the next one too where a record ends a turn of the ring later at its beginning.
#[test]
fn a_chunk_that_the_next_record_begins_in_again_is_used() {
    let chunk = CHUNK_BYTES as u64;
    let capacity = 8 * chunk;
    let mut both = Both::new(capacity);
    while both.ring.end() < chunk / 2 {
        assert!(both.write(60_000) && both.read());
    }
    // Nothing was settled so far.
    assert_eq!(both.pass(false), 0);
    both.head = both.ring.end();
    let rest = capacity - both.ring.end();
    let fits = |len: &usize| both.ring.bytes_of(*len as u64 + 100) == rest;
    let len = (rest as usize - 8192..rest as usize).rev().find(fits).unwrap();
    assert!(both.write(len));
    assert_eq!(both.ring.end(), capacity);
    assert!(both.read());
    // The file has what the first records have, too.
    both.head = both.pass(true);
    // The second one takes spare memory for its later chunks before it comes back to its header.
    assert!(both.write(60_000) && both.write(9 << 20));
    while both.read() {}
}

/// The writer comes to a chunk while its memory is given back.
#[test]
fn what_is_stored_while_memory_is_given_back_stays() {
    let memory = RingMemory::new(FIRST + LEAST_CHUNKS * CHUNK_BYTES).unwrap();
    memory.set_capacity((LEAST_CHUNKS * CHUNK_BYTES) as u64);
    for turn in 0..3000_usize {
        let chunk = turn % LEAST_CHUNKS;
        let at = FIRST + chunk * CHUNK_BYTES;
        memory.enter(at, CHUNK_BYTES).unwrap();
        // SAFETY: whole pages of the memory, which this thread has to itself.
        let words = || unsafe {
            let place = memory.place(at, CHUNK_BYTES).unwrap().cast::<usize>();
            slice::from_raw_parts_mut(place, CHUNK_BYTES / 8)
        };
        words().iter_mut().step_by(512).for_each(|word| *word = turn);
        memory.pass(at, CHUNK_BYTES, false);
        std::thread::scope(|scope| {
            let _ = scope.spawn(|| memory.rest());
            for _ in 0..turn % 50 * 20 {
                core::hint::spin_loop();
            }
            memory.enter(at, CHUNK_BYTES).unwrap();
            words().iter_mut().step_by(512).for_each(|word| *word = turn + 1);
        });
        assert!(words().iter().step_by(512).all(|word| *word == turn + 1), "{turn}");
        memory.pass(at, CHUNK_BYTES, false);
        memory.rest();
    }
}

/// A file may be longer than its log.
#[test]
fn a_short_log_in_a_long_file_is_read_as_it_was_written() {
    let mut both = Both::with_file(CHUNK_BYTES as u64, 32 << 20);
    // Records of 64 KiB, which fill it exactly.
    for _ in 0..3 {
        for _ in 0..32 {
            assert!(both.write(65_000) && both.read());
        }
        both.head = both.pass(true);
        for _ in 0..16 {
            assert!(both.write(65_000));
        }
        both.file.memory().rest();
        for _ in 0..16 {
            assert!(both.read() && both.write(65_000));
        }
        while both.read() {}
        both.head = both.pass(true);
    }
}

fn faults() -> i64 {
    // SAFETY: all zero is one, and it is written to.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt
    }
}

/// As long as the replica keeps up. At rest one chunk is left, of which the writer may use the rest at any time.
#[test]
fn a_ring_takes_some_chunks_and_no_faults() {
    let capacity = (16 * CHUNK_BYTES) as u64;
    let mut both = Both::new(capacity);
    let (mut settled, mut before) = (0, 0);
    let resident = |both: &Both| {
        let memory = &both.file.memory();
        vm::resident(memory.at(), memory.len()).unwrap()
    };
    while both.ring.end() < 4 * capacity {
        if before == 0 && both.ring.end() > capacity {
            before = faults();
        }
        assert!(both.write(66_000) && both.read());
        let to = both.ring.end();
        if to - both.passed >= 1 << 20 {
            let free = both.pass(false);
            if to - settled > capacity / 2 {
                (both.head, settled) = (free, to);
                assert!(to - free < CHUNK_BYTES as u64);
            }
        }
        let resident = resident(&both);
        assert!(resident <= (MOST_SPARES + 2) * CHUNK_BYTES, "{resident}");
    }
    let more = faults() - before;
    assert!(more < 3000, "{more} faults for {} pages", (3 * capacity) >> 12);
    both.pass(true);
    both.file.forget(both.ring.shape(), both.passed, both.passed);
    let resident = resident(&both);
    assert!(resident <= CHUNK_BYTES, "{resident}");
}
