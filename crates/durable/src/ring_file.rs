//! The ring's file, in memory that the replica shares.
//!
//! - A file in memory (tmpfs) is mapped: what was stored there outlives the process.
//! - So is one on persistent memory (DAX): its lines are written back, and one fence makes a record durable.
//! - An ordinary file has a copy in memory. A record is stored there, and one write past the page cache makes it durable
//!   (`O_DIRECT`, `O_DSYNC`); two, where it goes over the end of the ring. The replica reads the copy: no record is read from the disk. The memory of what the state's file has is used for other
//!   records ([`RingFile::pass`]).

use core::slice;
use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::ring_memory::RingMemory;
use crate::zeroes;
use spandrel_os::image::{Image, Mapping};
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::{Buffer, Failed, persist};
use spandrel_redolog::{Shape, Storage, ring};
use spandrel_sync::Lock;

/// How the file becomes durable.
enum Kind {
    /// Mapped; whether lines are to be written back: on persistent memory.
    Mapped { has_lines: bool },
    /// By writes; whether they are of whole pages.
    Written { file: Image, is_direct: bool },
}

/// Bytes that were stored and are not durable: up to two ranges, as a record may go over the end of the ring.
type Dirty = [(usize, usize); 2];

/// See the head of this file.
pub struct RingFile {
    memory: RingMemory,
    kind: Kind,
    dirty: Lock<Dirty>,
    /// Where the positions begin that were passed, and whose memory was not used for others so far; and where they end.
    passed: Lock<(u64, u64)>,
    /// See [`RingFile::waits`].
    waits: AtomicU64,
}

impl RingFile {
    /// Of an open file of whole pages. `is_mapped`: the file lies in memory.
    ///
    /// # Errors
    /// The error's number.
    pub fn new(image: &Image, is_in_memory: bool) -> Result<Self, Failed> {
        let mut ring = Self::blank(image, is_in_memory)?;
        if ring.is_written() {
            ring.read_all()?;
        }
        Ok(ring)
    }

    /// The same of a file of zeroes, which is not read.
    ///
    /// # Errors
    /// As for [`RingFile::new`].
    pub fn blank(image: &Image, is_in_memory: bool) -> Result<Self, Failed> {
        let len =
            usize::try_from(image.bytes().map_err(Failed)?).map_err(|_| Failed(libc::EFBIG))?;
        // Less than a page behind the log is not a part of it.
        let len = len / PAGE_BYTES * PAGE_BYTES;
        if len == 0 {
            return Err(Failed::DAMAGED_LOG);
        }
        let (memory, waits) = (RingMemory::new(len)?, Default::default());
        let (kind, dirty) = (Kind::Mapped { has_lines: false }, Lock::new([(0, 0); 2]));
        let mut ring = Self { memory, kind, dirty, passed: Lock::new((0, 0)), waits };
        let at = ring.memory.at();
        // SAFETY: the mapping is this value's alone, and no thread uses it yet.
        let map = |how| unsafe { image.map(at, 0, len, how) };
        // Of a file that was copied with holes the rest is allocated first: on a full file system a store to a hole would end the program by SIGBUS.
        if is_in_memory || image.try_map(Mapping::Synchronous).is_ok() {
            image.take_all_room(is_in_memory).map_err(Failed)?;
        }
        if map(Mapping::Synchronous).is_ok() {
            ring.kind = Kind::Mapped { has_lines: true };
        } else if is_in_memory {
            map(Mapping::Shared).map_err(Failed)?;
        } else {
            let (file, is_direct) = image.reopen_durable().map_err(Failed)?;
            ring.kind = Kind::Written { file, is_direct };
        }
        Ok(ring)
    }

    /// Reads the file into memory, which has zeroes and takes none for these. Past the page cache if it can: records were written past it, and are read once.
    fn read_all(&mut self) -> Result<(), Failed> {
        /// A disk is as fast as it gets with pieces of this length, one at a time.
        const PIECE: usize = 8 << 20;
        let Kind::Written { file, .. } = &self.kind else { return Ok(()) };
        let mut buffer = Buffer::new(PIECE)?;
        for from in (0..self.memory.len()).step_by(PIECE) {
            let len = PIECE.min(self.memory.len() - from);
            let piece = buffer.bytes().get_mut(..len).unwrap_or(&mut []);
            if file.read_at(piece, from as u64).map_err(Failed)? < len {
                return Err(Failed::DAMAGED_LOG);
            }
            for (page, at) in piece.chunks(PAGE_BYTES).zip((from..).step_by(PAGE_BYTES)) {
                if !zeroes::are(page) {
                    // SAFETY: within the mapping, which is this value's alone.
                    unsafe {
                        let place = self.memory.at().add(at);
                        place.copy_from_nonoverlapping(page.as_ptr(), page.len());
                    }
                }
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Whether records become durable by writes to a disk.
    pub fn is_written(&self) -> bool {
        matches!(self.kind, Kind::Written { .. })
    }

    /// Fences and durable writes that were waited for. A record is one of them. One that goes over the end of the ring lies in two places, and is two writes; lines
    /// have one fence wherever they lie. In memory that outlives the process there is nothing to wait for.
    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    fn note_wait(&self) {
        // One thread writes: no other adds meanwhile.
        self.waits.store(self.waits() + 1, Relaxed);
    }

    /// Calls `see` with the places in the file, and the lengths, of the positions from `from` up to `to` of the ring: two, as they may go over the end.
    fn places(shape: Shape, from: u64, to: u64, mut see: impl FnMut(u64, u64)) {
        let capacity = shape.capacity.max(1);
        let mut at = from;
        while at < to {
            let within = at % capacity;
            let len = (to - at).min(capacity - within);
            see(ring::FIRST + within, len);
            at += len;
        }
    }

    /// Before the first record of a process, and while none is stored: gives the memory back that has the positions from `from` up to `to` of the ring, which no thread reads any more, and none has written to since; and what was kept of those that were
    /// passed. The file keeps them.
    pub fn forget(&self, shape: Shape, from: u64, to: u64) {
        if !self.is_written() {
            return;
        }
        self.memory.set_capacity(shape.capacity);
        let passed = core::mem::take(&mut *self.passed.lock());
        for (from, to) in [passed, (from, to)] {
            Self::places(shape, from, to, |at, len| {
                self.memory.pass(at as usize, usize::try_from(len).unwrap_or(0), false);
            });
        }
        self.memory.rest();
    }

    /// Has the memory of the positions from `from` up to `to` of the ring be used for records that follow. No thread reads there any more, and none has written to since. The file keeps them.
    /// `is_over`: nothing is kept until more follows. The writer may store to what lies before the position that is returned.
    pub fn pass(&self, shape: Shape, from: u64, to: u64, is_over: bool) -> u64 {
        if !self.is_written() {
            return to;
        }
        let begin = {
            let passed = self.passed.lock();
            if passed.1 == from { passed.0 } else { from }
        };
        let (mut at, mut left) = (begin, 0);
        let is_over = is_over || !self.memory.has_chunks();
        Self::places(shape, begin, to, |place, len| {
            at += len;
            let len = usize::try_from(len).unwrap_or(0);
            left = self.memory.pass(place as usize, len, !is_over && at == to) as u64;
        });
        *self.passed.lock() = (to - left, to);
        to - left
    }

    /// Has memory hold again what the file has at the positions from `from` up to `to` of the ring, whose records are durable, until another record is stored. No other thread uses these.
    ///
    /// # Errors
    /// The error's number.
    pub fn recall(&self, shape: Shape, from: u64, to: u64) -> Result<(), Failed> {
        let Kind::Written { file, is_direct } = &self.kind else { return Ok(()) };
        let mut outcome = Ok(());
        Self::places(shape, from, to, |at, len| {
            // Whole pages, as the file may be read past the page cache.
            let (first, end) = match is_direct {
                true => (
                    at / PAGE_BYTES as u64 * PAGE_BYTES as u64,
                    (at + len).next_multiple_of(PAGE_BYTES as u64),
                ),
                false => (at, at + len),
            };
            let len = usize::try_from(end - first).unwrap_or(usize::MAX);
            let place = self.place(first, len);
            // SAFETY: within the mapping, which no other thread uses there.
            let into = place.map(|place| unsafe { slice::from_raw_parts_mut(place, len) });
            let read = into
                .ok_or(Failed::DAMAGED_LOG)
                .and_then(|into| file.read_at(into, first).map_err(Failed));
            outcome = outcome.and(
                read.and_then(|read| if read == len { Ok(()) } else { Err(Failed::DAMAGED_LOG) }),
            );
        });
        outcome
    }

    /// The words that say how a record becomes durable.
    pub fn how(&self) -> &'static str {
        match self.kind {
            Kind::Mapped { has_lines: true } => "lines written back and a fence",
            Kind::Mapped { has_lines: false } => "a store to memory that outlives the process",
            Kind::Written { is_direct: true, .. } => {
                "a write past the page cache (O_DIRECT, O_DSYNC)"
            }
            Kind::Written { is_direct: false, .. } => "a synchronous write (O_DSYNC)",
        }
    }

    fn place(&self, at: u64, len: usize) -> Option<*mut u8> {
        self.memory.place(usize::try_from(at).ok()?, len)
    }

    fn persist(&self, from: usize, to: usize) -> Result<(), Failed> {
        match &self.kind {
            Kind::Mapped { has_lines: false } => Ok(()),
            Kind::Mapped { has_lines: true } => {
                // SAFETY: within the mapping.
                unsafe { persist::write_back(self.memory.at().wrapping_add(from), to - from) };
                Ok(())
            }
            Kind::Written { file, is_direct } => {
                let (from, to) = match is_direct {
                    true => (from / PAGE_BYTES * PAGE_BYTES, to.next_multiple_of(PAGE_BYTES)),
                    false => (from, to),
                };
                // SAFETY: within the mapping. Threads that read meanwhile read the same.
                let bytes = unsafe {
                    slice::from_raw_parts(self.memory.at().wrapping_add(from), to - from)
                };
                file.check_limit(to as u64).map_err(Failed)?;
                self.note_wait();
                file.write_at(bytes, from as u64).map_err(Failed)
            }
        }
    }
}

impl Storage for RingFile {
    type Error = Failed;

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        let len = into
            .len()
            .min(self.memory.len().saturating_sub(usize::try_from(at).unwrap_or(usize::MAX)));
        if let Some(place) = self.place(at, len) {
            // SAFETY: within the mapping; the writer stores to no record that is read.
            unsafe { place.copy_to_nonoverlapping(into.as_mut_ptr(), len) };
        }
        Ok(len)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        let place = self.place(at, bytes.len()).ok_or(Failed(libc::ENOSPC))?;
        if self.is_written() {
            self.memory.enter(at as usize, bytes.len())?;
        }
        // SAFETY: within the mapping; no thread reads what is before the head or behind the tail.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        if let Kind::Mapped { has_lines: false } = self.kind {
            return Ok(());
        }
        let (from, to) = (at as usize, at as usize + bytes.len());
        let mut dirty = self.dirty.lock();
        // Within a record the writes touch: its payload, piece by piece, and its header in front of that. What lies between two ranges may be no longer in memory.
        for range in dirty.iter_mut() {
            let touches = from <= range.1 && range.0 <= to;
            if range.0 == range.1 || touches {
                *range = match range.0 == range.1 {
                    true => (from, to),
                    false => (range.0.min(from), range.1.max(to)),
                };
                return Ok(());
            }
        }
        let [first, _] = *dirty;
        self.persist(first.0, first.1)?;
        dirty[0] = (from, to);
        Ok(())
    }

    fn allow(&self, _: u64) -> Result<(), Failed> {
        // The file has its length.
        Ok(())
    }

    fn sync(&self) -> Result<(), Failed> {
        // What a process has stored to memory of files outlives it, in the order of its stores.
        if !matches!(self.kind, Kind::Mapped { has_lines: false }) {
            let dirty = core::mem::take(&mut *self.dirty.lock());
            for (from, to) in dirty.into_iter().filter(|(from, to)| from < to) {
                self.persist(from, to)?;
            }
        }
        if let Kind::Mapped { has_lines: true } = self.kind {
            persist::fence();
            self.note_wait();
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64, Failed> {
        Ok(self.memory.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_os::image::Access;
    use spandrel_redolog::{Point, Ring, Shape};
    use std::ffi::CString;
    use std::prelude::v1::*;

    fn a_ring_is_durable_in(directory: &std::path::Path, is_in_memory: bool) {
        let path = CString::new(directory.join("ring").to_str().unwrap()).unwrap();
        let shape = Shape { capacity: 64 << 10, align: 4096 };
        let image = Image::create(&path).unwrap();
        image.grow(0, shape.file_bytes()).unwrap();
        let base = Point { epoch: 1, sequence: 0 };
        let file = RingFile::new(&image, is_in_memory).unwrap();
        let mut ring = Ring::create(&file, 7, shape, (base, 2)).unwrap();
        let mut buffer = vec![0; 4096];
        for number in 0..40u8 {
            let mut record = ring.record(&file, &mut buffer);
            record.set_image_bytes(1 << 20);
            record.run(u64::from(number), &vec![number; usize::from(number) * 100]).unwrap();
            ring.commit(record, &&file).unwrap();
        }
        // What the file has, and not its copy in memory.
        let again = Image::open(&path, Access::Read).unwrap();
        let mut bytes = vec![0; shape.file_bytes() as usize];
        assert_eq!(again.read_at(&mut bytes, 0).unwrap(), bytes.len());
        let read =
            RingFile::new(&Image::open(&path, Access::Write).unwrap(), is_in_memory).unwrap();
        let mut same = vec![0; bytes.len()];
        read.read(0, &mut same).unwrap();
        assert!(bytes == same);
        // What was read can go from memory; the file keeps it.
        let resident = || spandrel_os::vm::resident(read.memory.at(), read.memory.len()).unwrap();
        let before = resident();
        let last = Point { epoch: 2, sequence: 39 };
        let found = Ring::open(&read, 7, (last, false), &mut buffer).unwrap();
        assert_eq!(found.last(), Point { epoch: 2, sequence: 40 });
        read.forget(shape, found.end() + shape.capacity / 2, found.end() + shape.capacity);
        let has_gone = before - resident() >= 24 << 10;
        assert_eq!(has_gone, !is_in_memory);
        // And come back from there.
        let from = found.end() + shape.capacity / 2;
        read.recall(shape, from, from + shape.capacity / 2).unwrap();
        read.read(0, &mut same).unwrap();
        assert!(bytes == same);
        let mut again = vec![0; bytes.len()];
        assert_eq!(
            Image::open(&path, Access::Read).unwrap().read_at(&mut again, 0),
            Ok(bytes.len())
        );
        assert!(again == bytes);
    }

    #[test]
    fn on_a_disk_and_in_memory() {
        a_ring_is_durable_in(tempfile::tempdir().unwrap().path(), false);
        a_ring_is_durable_in(tempfile::tempdir_in("/dev/shm").unwrap().path(), true);
    }

    /// What is counted; that these are the kernel's calls is shown by `crates/spandrel/tests/durable/waits.rs`.
    fn each_record_waits(
        place: &tempfile::TempDir,
        open: impl FnOnce(&Image) -> RingFile,
        waits: impl Fn(bool) -> u64,
    ) {
        let path = CString::new(place.path().join("ring").to_str().unwrap()).unwrap();
        let shape = Shape { capacity: 64 << 10, align: 4096 };
        let image = Image::create(&path).unwrap();
        image.grow(0, shape.file_bytes()).unwrap();
        let file = open(&image);
        let mut ring = Ring::create(&file, 7, shape, (Point { epoch: 1, sequence: 0 }, 2)).unwrap();
        let (mut buffer, mut over) = (vec![0; 4096], 0);
        for number in 0..200usize {
            let before = (file.waits(), ring.end());
            let mut record = ring.record(&file, &mut buffer);
            record.set_image_bytes(1 << 20);
            let runs = 1 + number % 3;
            for run in 0..runs {
                record.run(run as u64 * 9000, &vec![number as u8; number * 37 % 8000]).unwrap();
            }
            ring.commit(record, &&file).unwrap();
            let turn = |at: u64| at / shape.capacity;
            let is_over = turn(before.1) != turn(ring.end() - 1);
            over += u64::from(is_over);
            assert_eq!(file.waits() - before.0, waits(is_over), "record {number}");
        }
        assert!((10..100).contains(&over), "{over}");
        // What the file has, and not its copy in memory.
        let (mut bytes, mut same) = (vec![0; file.memory.len()], vec![0; file.memory.len()]);
        assert_eq!(image.read_at(&mut bytes, 0), Ok(file.memory.len()));
        file.read(0, &mut same).unwrap();
        assert!(bytes == same);
    }

    #[test]
    fn a_record_is_one_write_and_two_at_the_end_of_the_ring() {
        let open = |image: &Image| RingFile::new(image, false).unwrap();
        each_record_waits(&tempfile::tempdir().unwrap(), open, |is_over| 1 + u64::from(is_over));
    }

    #[test]
    fn a_record_in_memory_that_outlives_the_process_waits_for_nothing() {
        let open = |image: &Image| RingFile::new(image, true).unwrap();
        each_record_waits(&tempfile::tempdir_in("/dev/shm").unwrap(), open, |_| 0);
    }

    /// On tmpfs, where nothing depends on the lines: there is no such memory here.
    #[test]
    fn a_record_on_persistent_memory_is_one_fence() {
        let open = |image: &Image| {
            let mut file = RingFile::new(image, true).unwrap();
            file.kind = Kind::Mapped { has_lines: true };
            file
        };
        each_record_waits(&tempfile::tempdir_in("/dev/shm").unwrap(), open, |_| 1);
    }

    #[test]
    fn holes_are_allocated_before_the_file_is_mapped() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("log");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let file = RingFile::new(&Image::open(&name, Access::Write).unwrap(), true).unwrap();
        let blocks = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
        assert!(matches!(file.kind, Kind::Mapped { .. }));
        assert_eq!(blocks, 2048);
    }

    /// A record that goes over the ring's end and comes near its own beginning: the one between them, which is no longer in memory, stays in the file.
    #[test]
    fn the_last_record_is_not_written_over() {
        let place = tempfile::tempdir().unwrap();
        let path = CString::new(place.path().join("ring").to_str().unwrap()).unwrap();
        let shape = Shape { capacity: 64 << 10, align: 4096 };
        let image = Image::create(&path).unwrap();
        image.grow(0, shape.file_bytes()).unwrap();
        let file = RingFile::new(&image, false).unwrap();
        let base = Point { epoch: 1, sequence: 0 };
        let mut ring = Ring::create(&file, 7, shape, (base, 2)).unwrap();
        let mut buffer = vec![0; 4096];
        let mut append = |ring: &mut Ring, bytes: usize| {
            let mut record = ring.record(&file, &mut buffer);
            record.set_image_bytes(1 << 20);
            record.run(0, &vec![9; bytes]).unwrap();
            ring.commit(record, &&file).unwrap();
        };
        (0..8).for_each(|_| append(&mut ring, 1000));
        let settled = ring.last();
        file.forget(shape, 0, ring.end());
        assert!(ring.has_room(15 << 12, ring.end()) && !ring.has_room(16 << 12, ring.end()));
        append(&mut ring, (14 << 12) + 3000);
        // A power failure tore the new one: its first page is not there.
        let torn = Image::open(&path, Access::Write).unwrap();
        torn.write_at(&[0; 4096], ring::FIRST + (8 << 12)).unwrap();
        let read = RingFile::new(&torn, false).unwrap();
        let found = Ring::open(&read, 7, (settled, false), &mut buffer).unwrap();
        assert_eq!((found.last(), found.end()), (settled, 8 << 12));
    }
}
