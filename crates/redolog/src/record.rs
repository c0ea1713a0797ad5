//! A record of a [`Log`](crate::Log): runs of the image's bytes, which become durable together.
//!
//! ```text
//! record, at a multiple of 4096        all numbers are little-endian
//!   0  magic "SPNDREC2"
//!   8  epoch        drawn when the log began anew: what an earlier epoch has left is no record of this one
//!  16  sequence     1 for the first record of an epoch, and one more for each that follows
//!  24  identity     of the image
//!  32  bytes that the image has from this record on
//!  40  bytes of the runs behind this header
//!  48  epoch        \ of the state that this record continues: that of the record before, or the state of the image
//!  56  sequence     / with which the epoch began
//!  64  checksum     XXH64, seeded with the epoch, of the runs, then of the header's words up to 96 with 0 in this place, the time only if it is said
//!  72  epoch        \ of the state of the image with which this record's epoch began: the first record says the same, and may be
//!  80  sequence     / damaged
//!  88  time         of the record, nanoseconds since 1970; 0: not said
//!  96  zero
//! 128  runs: offset, length, bytes
//! ```

use core::hash::Hasher;

use twox_hash::XxHash64;

use crate::{Fault, Storage};

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDREC2");
/// Bytes of a header.
pub const HEADER_BYTES: usize = 128;
/// Words of a header; zeroes follow.
const WORDS: usize = 12;
/// Bytes before each run: its offset in the image, and its length.
pub const RUN_BYTES: usize = 16;
/// Records begin at multiples of this: no sector has parts of two.
pub const ALIGN_BYTES: u64 = 4096;
/// Records are written and read in pieces of that length.
pub const BUFFER_BYTES: usize = 64 << 10;

/// A state of an image: after a number of records of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// The epoch, a number that was drawn.
    pub epoch: u64,
    /// Records of it.
    pub sequence: u64,
}

impl Point {
    /// The state after one record more of the same epoch.
    pub fn next(self) -> Self {
        Self { sequence: self.sequence.wrapping_add(1), ..self }
    }
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The state of the image with this record.
    pub point: Point,
    /// The image that it is of.
    pub identity: u64,
    /// Bytes that the image has from this record on.
    pub image_bytes: u64,
    /// Bytes of the runs.
    pub payload: u64,
    /// The state that it continues.
    pub before: Point,
    /// The state with which its epoch began.
    pub base: Point,
    /// The sum of all of it.
    pub checksum: u64,
    /// When it was written, in nanoseconds since 1970; 0: not said.
    pub time: u64,
}

/// The first 8 bytes as a little-endian number; 0 if there are fewer.
pub fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Header {
    /// Of a record without runs.
    pub(crate) fn new(identity: u64, point: Point, before: Point, base: Point) -> Self {
        let (image_bytes, payload, checksum, time) = (0, 0, 0, 0);
        Self { point, identity, image_bytes, payload, before, base, checksum, time }
    }

    fn words(&self) -> [u64; WORDS] {
        let Self { point, identity, image_bytes, payload, before, base, checksum, time } = *self;
        [
            MAGIC,
            point.epoch,
            point.sequence,
            identity,
            image_bytes,
            payload,
            before.epoch,
            before.sequence,
            checksum,
            base.epoch,
            base.sequence,
            time,
        ]
    }

    /// As bytes.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether the bytes begin as a header does.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        word(bytes) == MAGIC
    }

    /// The header that the first bytes encode; `None`: they are not a header.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.get(..HEADER_BYTES)?.split_at(WORDS * 8);
        let mut words = head.chunks_exact(8).map(word);
        let mut next = || words.next().unwrap_or(0);
        let magic = next();
        let point = Point { epoch: next(), sequence: next() };
        let (identity, image_bytes, payload) = (next(), next(), next());
        let before = Point { epoch: next(), sequence: next() };
        let checksum = next();
        let base = Point { epoch: next(), sequence: next() };
        let time = next();
        let header = Self { point, identity, image_bytes, payload, before, base, checksum, time };
        (magic == MAGIC && rest.iter().all(|byte| *byte == 0)).then_some(header)
    }

    /// The checksum, of a hasher that has seen the runs.
    pub fn sealed(&self, mut hasher: XxHash64) -> u64 {
        let words = Self { checksum: 0, ..*self }.words();
        // A record that does not say its time has the sum of the format without one.
        let count = WORDS - usize::from(self.time == 0);
        words.iter().take(count).for_each(|word| hasher.write(&word.to_le_bytes()));
        hasher.finish()
    }

    /// The hasher that the runs are given to first.
    pub fn hasher(&self) -> XxHash64 {
        XxHash64::with_seed(self.point.epoch)
    }

    /// Where the record behind this one begins, if this one begins at `at`. Records begin at multiples of `align` bytes.
    pub fn behind(&self, at: u64, align: u64) -> u64 {
        let end = at.saturating_add(HEADER_BYTES as u64).saturating_add(self.payload);
        end.checked_next_multiple_of(align).unwrap_or(u64::MAX)
    }

    /// Whether the record at `at` is whole: its runs are there, and the sum fits.
    ///
    /// # Errors
    /// The storage's.
    pub fn is_whole<S: Storage>(
        &self,
        storage: &S,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<bool, S::Error> {
        let mut hasher = self.hasher();
        let mut at = at + HEADER_BYTES as u64;
        let mut rest = self.payload;
        while rest > 0 {
            let most = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            let part = buffer.get_mut(..most).unwrap_or(&mut []);
            if storage.read(at, part)? < most || most == 0 {
                return Ok(false);
            }
            hasher.write(part);
            (at, rest) = (at + most as u64, rest - most as u64);
        }
        Ok(self.sealed(hasher) == self.checksum)
    }
}

/// A record that is being written. Recovery finds none before its header is written, last of all.
pub struct Record<'a, S> {
    storage: S,
    /// The bytes of the runs. Those of a longer record begin at the front again.
    buffer: &'a mut [u8],
    /// The part of the buffer that the log does not have yet.
    from: usize,
    to: usize,
    /// Whether the buffer has all runs, from its first byte on.
    is_kept: bool,
    /// Where the record begins.
    start: u64,
    /// Where in the log the part that it does not have yet belongs.
    at: u64,
    header: Header,
    hasher: XxHash64,
}

/// A record that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Its header.
    pub header: Header,
    /// Whether the buffer has all runs, from its first byte on.
    pub is_kept: bool,
}

impl<'a, S: Storage> Record<'a, S> {
    /// Begins a record at an offset of the log.
    pub(crate) fn new(storage: S, start: u64, header: Header, buffer: &'a mut [u8]) -> Self {
        let (hasher, at) = (header.hasher(), start + HEADER_BYTES as u64);
        Self { storage, buffer, from: 0, to: 0, is_kept: true, start, at, header, hasher }
    }

    /// Bytes that the image has from this record on.
    pub fn image_bytes(&self) -> u64 {
        self.header.image_bytes
    }

    /// Sets the bytes that the image has from this record on.
    pub fn set_image_bytes(&mut self, bytes: u64) {
        self.header.image_bytes = bytes;
    }

    /// Sets the time that the record says, in nanoseconds since 1970.
    pub fn set_time(&mut self, nanos: u64) {
        self.header.time = nanos;
    }

    /// Bytes of the runs so far, with the head of each.
    pub fn payload(&self) -> u64 {
        self.header.payload
    }

    /// Whether the record has no run.
    pub fn is_empty(&self) -> bool {
        self.header.payload == 0
    }

    /// Adds a run: bytes of the image.
    ///
    /// # Errors
    /// The storage's. The record can only be dropped then.
    pub fn run(&mut self, at: u64, bytes: &[u8]) -> Result<(), S::Error> {
        self.run_of(at, bytes.len(), pieces_of(bytes))
    }

    /// Adds a run of that length, which `fill` puts piece by piece, in order, into the record's own buffer. The checksum, the log and the image are
    /// made from this one copy.
    ///
    /// # Errors
    /// As for [`Record::run`].
    pub fn run_of(
        &mut self,
        at: u64,
        bytes: usize,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<(), S::Error> {
        let mut head = [0; RUN_BYTES];
        head[..8].copy_from_slice(&at.to_le_bytes());
        head[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
        self.put(RUN_BYTES, pieces_of(&head))?;
        self.put(bytes, fill)
    }

    /// Bytes up to the end of the piece. Pieces end at pages of the log, so that no page between is written twice.
    fn room(&self) -> usize {
        let at = self.at + (self.to - self.from) as u64;
        let piece = BUFFER_BYTES - usize::try_from(at % BUFFER_BYTES as u64).unwrap_or(0);
        piece.min(self.buffer.len() - self.to)
    }

    fn put(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<(), S::Error> {
        let mut rest = bytes;
        while rest > 0 {
            let room = self.room();
            let len = rest.min(room);
            let part = self.buffer.get_mut(self.to..self.to + len);
            let part = part.filter(|part| !part.is_empty()).ok_or(Fault::Buffer)?;
            fill(part);
            self.hasher.write(part);
            self.to += len;
            rest -= len;
            if len == room {
                self.flush()?;
            }
        }
        self.header.payload += bytes as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), S::Error> {
        let piece = self.buffer.get(self.from..self.to).unwrap_or(&[]);
        if !piece.is_empty() {
            self.storage.allow(self.at.saturating_add(piece.len() as u64))?;
            self.storage.write(self.at, piece)?;
        }
        self.at += piece.len() as u64;
        self.from = self.to;
        if self.to == self.buffer.len() {
            (self.from, self.to, self.is_kept) = (0, 0, false);
        }
        Ok(())
    }

    /// Writes what the log does not have yet, and the header last. The record is durable after a sync of the log.
    ///
    /// # Errors
    /// The storage's. Recovery may find it or not.
    pub(crate) fn end(mut self) -> Result<Written, S::Error> {
        self.flush()?;
        self.header.checksum = self.header.sealed(self.hasher.clone());
        self.storage.allow(self.start.saturating_add(HEADER_BYTES as u64))?;
        self.storage.write(self.start, &self.header.bytes())?;
        Ok(Written { header: self.header, is_kept: self.is_kept })
    }
}

/// Fills pieces with bytes, in order.
fn pieces_of(bytes: &[u8]) -> impl FnMut(&mut [u8]) {
    let mut rest = bytes;
    move |piece| {
        let (now, later) = rest.split_at(piece.len().min(rest.len()));
        piece.copy_from_slice(now);
        rest = later;
    }
}
