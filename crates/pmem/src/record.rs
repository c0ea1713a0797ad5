//! A record of the [`log`](crate::log): runs of the image's bytes, which become durable together.
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
//!  64  checksum     XXH64, seeded with the epoch, of the runs and of the 64 bytes before it
//!  72  zero
//! 128  runs: offset, length, bytes
//! ```

use core::hash::Hasher;

use spandrel_pages::PAGE_BYTES;
use twox_hash::XxHash64;

use crate::disk::{Disk, Which};
use crate::medium::Failed;

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDREC2");
/// Bytes of a header.
pub const HEADER_BYTES: usize = 128;
/// Bytes before each run: its offset in the image, and its length.
pub const RUN_BYTES: usize = 16;
/// Records begin at multiples of this: no sector has parts of two.
pub const ALIGN_BYTES: u64 = 4096;
/// The least that a buffer must hold.
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
    /// The sum of all of it.
    pub checksum: u64,
}

/// The first 8 bytes as a little-endian number; 0 if there are fewer.
pub fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Header {
    fn words(&self) -> [u64; 9] {
        let Self { point, identity, image_bytes, payload, before, checksum } = *self;
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

    /// The header that the first bytes encode; `None`: they are not a header.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.get(..HEADER_BYTES)?.split_at(72);
        let mut words = head.chunks_exact(8).map(word);
        let [magic, epoch, sequence, identity, image_bytes, payload, old, oldest, checksum] =
            core::array::from_fn(|_| words.next().unwrap_or(0));
        let header = Self {
            point: Point { epoch, sequence },
            identity,
            image_bytes,
            payload,
            before: Point { epoch: old, sequence: oldest },
            checksum,
        };
        (magic == MAGIC && rest.iter().all(|byte| *byte == 0)).then_some(header)
    }

    /// The checksum, of a hasher that has seen the runs.
    pub fn sealed(&self, mut hasher: XxHash64) -> u64 {
        self.words().iter().take(8).for_each(|word| hasher.write(&word.to_le_bytes()));
        hasher.finish()
    }

    /// The hasher that the runs are given to first.
    pub fn hasher(&self) -> XxHash64 {
        XxHash64::with_seed(self.point.epoch)
    }

    /// Where the record behind this one begins, if this one begins at `at`.
    pub fn behind(&self, at: u64) -> u64 {
        let end = at.saturating_add(HEADER_BYTES as u64).saturating_add(self.payload);
        end.checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX)
    }

    /// Whether the record at `at` is whole: its runs are there, and the sum fits.
    ///
    /// # Errors
    /// The disk's.
    pub fn is_whole(&self, disk: &impl Disk, at: u64, buffer: &mut [u8]) -> Result<bool, Failed> {
        let mut hasher = self.hasher();
        let mut at = at + HEADER_BYTES as u64;
        let mut rest = self.payload;
        while rest > 0 {
            let most = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            let part = buffer.get_mut(..most).unwrap_or(&mut []);
            if disk.read(Which::Log, at, part)? < most || most == 0 {
                return Ok(false);
            }
            hasher.write(part);
            (at, rest) = (at + most as u64, rest - most as u64);
        }
        Ok(self.sealed(hasher) == self.checksum)
    }
}

/// A record that is being written. Recovery finds none before its header is written, last of all.
pub struct Record<'a, D> {
    disk: &'a D,
    buffer: &'a mut [u8],
    filled: usize,
    /// Where the record begins.
    start: u64,
    /// Where in the log what is in the buffer belongs.
    at: u64,
    header: Header,
    hasher: XxHash64,
}

impl<'a, D: Disk> Record<'a, D> {
    /// Begins one at an offset of the log, which is not written before the buffer is full.
    pub(crate) fn new(disk: &'a D, start: u64, header: Header, buffer: &'a mut [u8]) -> Self {
        let hasher = header.hasher();
        Self { disk, buffer, filled: 0, start, at: start + HEADER_BYTES as u64, header, hasher }
    }

    /// Bytes that the image has from this record on.
    pub fn image_bytes(&self) -> u64 {
        self.header.image_bytes
    }

    /// Says how many bytes the image has from this record on.
    pub fn set_image_bytes(&mut self, bytes: u64) {
        self.header.image_bytes = bytes;
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.header.payload == 0
    }

    /// Adds a run: bytes of the image.
    ///
    /// # Errors
    /// The disk's. The record can only be dropped then.
    pub fn run(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        let mut rest = bytes;
        self.run_of(at, bytes.len(), |part| {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            part.copy_from_slice(now);
            rest = later;
        })
    }

    /// Adds a run of that length, which `fill` stores piece by piece, in order, in the record's buffer. The checksum is of the bytes that
    /// are written: the memory of the run is read once.
    ///
    /// # Errors
    /// As for [`Record::run`].
    pub fn run_of(
        &mut self,
        at: u64,
        bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<(), Failed> {
        self.put(8, |part| part.copy_from_slice(&at.to_le_bytes()))?;
        self.put(8, |part| part.copy_from_slice(&(bytes as u64).to_le_bytes()))?;
        let mut rest = bytes;
        while rest > 0 {
            if self.room() == 0 {
                self.flush()?;
            }
            let now = rest.min(self.room());
            self.put(now, &mut fill)?;
            rest -= now;
        }
        Ok(())
    }

    /// Bytes that the buffer takes before it is written. Parts end at pages of the log, so no page is written twice.
    fn room(&self) -> usize {
        let most = self.buffer.len();
        let begun = usize::try_from(self.at % ALIGN_BYTES).unwrap_or(0) % most.max(1);
        most.saturating_sub(begun + self.filled)
    }

    /// Adds bytes, no more than a buffer holds.
    fn put(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Failed> {
        if self.room() < len {
            self.flush()?;
        }
        let part = self.buffer.get_mut(self.filled..self.filled + len);
        let part = part.ok_or(Failed(libc::EINVAL))?;
        fill(part);
        self.hasher.write(part);
        self.filled += len;
        self.header.payload += len as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failed> {
        let filled = self.buffer.get(..self.filled).unwrap_or(&[]);
        self.disk.write(Which::Log, self.at, filled)?;
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left of it, and its header last. It is durable after a sync of the log.
    ///
    /// # Errors
    /// The disk's. Recovery may find it or not.
    pub(crate) fn end(mut self) -> Result<Header, Failed> {
        self.flush()?;
        self.header.checksum = self.header.sealed(self.hasher.clone());
        self.disk.write(Which::Log, self.start, &self.header.bytes())?;
        Ok(self.header)
    }
}

/// Calls `apply` with each run of the record at `at`, in order: the offset in the image, and the bytes, in parts that fit the buffer.
/// Returns the header.
///
/// # Errors
/// The disk's, or that of `apply`; [`Failed::DAMAGED_LOG`] if the record is not whole or a run lies beyond the image. Some runs may have
/// been applied then.
pub(crate) fn replay(
    disk: &impl Disk,
    at: u64,
    buffer: &mut [u8],
    apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
) -> Result<Header, Failed> {
    let (header, hasher) = walk(disk, at, buffer, true, apply)?;
    if header.sealed(hasher) == header.checksum { Ok(header) } else { Err(Failed::DAMAGED_LOG) }
}

/// As [`replay`], for a record that this process has just made durable: its checksum need not be computed again.
///
/// # Errors
/// As for [`replay`].
pub(crate) fn replay_own(
    disk: &impl Disk,
    at: u64,
    buffer: &mut [u8],
    apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    walk(disk, at, buffer, false, apply).map(drop)
}

fn walk(
    disk: &impl Disk,
    at: u64,
    buffer: &mut [u8],
    sums: bool,
    mut apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
) -> Result<(Header, XxHash64), Failed> {
    let wrong = Failed::DAMAGED_LOG;
    let mut bytes = [0; HEADER_BYTES];
    disk.read(Which::Log, at, &mut bytes)?;
    let header = Header::parse(&bytes).ok_or(wrong)?;
    let mut hasher = header.hasher();
    let at = at + HEADER_BYTES as u64;
    let end = at.checked_add(header.payload).ok_or(wrong)?;
    let mut payload = Payload { disk, at, end, buffer, from: 0, to: 0 };
    while payload.left() > 0 {
        let head = payload.take(RUN_BYTES as u64)?;
        let (mut offset, mut rest) = (word(head), word(head.get(8..).unwrap_or(&[])));
        if sums {
            hasher.write(head);
        }
        let fits = offset.checked_add(rest).is_some_and(|to| to <= header.image_bytes)
            && rest <= payload.left();
        if !fits {
            return Err(wrong);
        }
        while rest > 0 {
            let part = payload.take(rest)?;
            if sums {
                hasher.write(part);
            }
            apply(offset, part)?;
            (offset, rest) = (offset + part.len() as u64, rest - part.len() as u64);
        }
    }
    Ok((header, hasher))
}

/// The bytes of a record's runs, read a buffer at a time: runs of one page are many, and a system call for each costs as much as what it
/// reads.
struct Payload<'a, D> {
    disk: &'a D,
    /// Where in the log the buffer's next bytes lie, and where the record ends.
    at: u64,
    end: u64,
    buffer: &'a mut [u8],
    /// What was read and not taken.
    from: usize,
    to: usize,
}

impl<D: Disk> Payload<'_, D> {
    /// Bytes that were not taken.
    fn left(&self) -> u64 {
        (self.end - self.at) + (self.to - self.from) as u64
    }

    /// The next bytes: `most` of them, or as many whole pages as the buffer has of more.
    ///
    /// # Errors
    /// The disk's; [`Failed::DAMAGED_LOG`]: there are fewer.
    fn take(&mut self, most: u64) -> Result<&[u8], Failed> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if self.to - self.from < most.min(PAGE_BYTES) {
            self.refill()?;
        }
        let has = self.to - self.from;
        let pages = has / PAGE_BYTES * PAGE_BYTES;
        let len = if has >= most {
            most
        } else if pages > 0 {
            pages
        } else {
            has
        };
        let part = self.buffer.get(self.from..self.from + len).filter(|part| !part.is_empty());
        self.from += len;
        part.ok_or(Failed::DAMAGED_LOG)
    }

    /// Fills the buffer behind what was not taken.
    fn refill(&mut self) -> Result<(), Failed> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let into = self.buffer.get_mut(self.to..).unwrap_or(&mut []);
        let most = rest.min(into.len());
        let into = into.get_mut(..most).unwrap_or(&mut []);
        if self.disk.read(Which::Log, self.at, into)? < most {
            return Err(Failed::DAMAGED_LOG);
        }
        (self.at, self.to) = (self.at + most as u64, self.to + most);
        Ok(())
    }
}
