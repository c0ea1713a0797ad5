//! A log of records that is written from its beginning on.
//!
//! A change of the image is one [`record`](crate::record). Once the record is durable its runs are written to the image, whose own durability
//! can wait until the log begins anew: until then recovery writes them again. So a change waits for the disk once.
//!
//! A log belongs to one state of one image. Its records are those of an epoch, a number that is drawn; the first one names the state that it
//! continues, and the image names the state that it is in itself. What does not fit is refused and left as it is ([`Log::fits`]).
//!
//! ```text
//!    0  magic "SPNDWAL2", identity of the image, XXH64 of both, zeroes: written once, when the file is made
//! 4096  records, one behind the other
//! ```
//!
//! Recovery takes records from the beginning as long as each is whole and follows the one before. What ends them is the torn tail of a
//! checkpoint that never returned, unless a record of the same epoch lies behind it: then the log is damaged.
//!
//! Before the log begins anew the image is made durable, together with a line that says that it is complete; then the next epoch is written
//! over the records of the last one.

use core::cmp::Ordering;
use core::hash::Hasher;

use twox_hash::XxHash64;

use crate::record::{ALIGN_BYTES, HEADER_BYTES, Header, Point, Record, Written, word};
use crate::replay::{replay, replay_written};
use crate::storage::write_again;
use crate::{Fault, Storage};

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDWAL2");
/// Where the records begin.
pub const FIRST: u64 = 4096;
/// Bytes before the zeroes.
pub const HEAD_BYTES: usize = 24;

/// The first bytes of a log's file.
pub fn head(identity: u64) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&identity.to_le_bytes());
    let mut hasher = XxHash64::with_seed(MAGIC);
    hasher.write(&bytes[..16]);
    bytes[16..].copy_from_slice(&hasher.finish().to_le_bytes());
    bytes
}

/// Whether the first bytes of a file are those of the log of an image. False: the file is empty.
///
/// # Errors
/// [`Fault::NotALog`], [`Fault::Foreign`], [`Fault::Damaged`].
pub fn parse_head(bytes: &[u8], identity: u64) -> Result<bool, Fault> {
    if bytes.is_empty() {
        return Ok(false);
    }
    if word(bytes) != MAGIC || bytes.len() < HEAD_BYTES {
        return Err(Fault::NotALog);
    }
    let of = word(bytes.get(8..).unwrap_or(&[]));
    if *bytes != head(of) {
        return Err(Fault::Damaged);
    }
    if of == identity { Ok(true) } else { Err(Fault::Foreign) }
}

/// How a log's records stand to the state of its image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// There is nothing in them that the image does not have.
    Nothing,
    /// They continue it, or are those that are being written to it: all are to be written to the image.
    Continues,
}

/// A log that records can be added to.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    identity: u64,
    /// The state that the first record continues.
    base: Point,
    /// The state after the last record; `None`: there is no record.
    last: Option<Point>,
    /// Where the last record begins, and where the next one does.
    last_at: u64,
    end: u64,
    /// What the image has after the last record; `None`: there is no record.
    image_bytes: Option<u64>,
    /// A record of the same epoch lies behind the last whole one that was found: some between them is missing.
    is_broken: bool,
    /// There is something where records lie, whole or not.
    is_any: bool,
}

impl Log {
    fn empty(identity: u64) -> Self {
        let base = Point::default();
        Self {
            identity,
            base,
            last: None,
            last_at: FIRST,
            end: FIRST,
            image_bytes: None,
            is_broken: false,
            is_any: false,
        }
    }

    /// Reads the log of an image from the beginning, as far as its records are whole. `state` is what the image says of itself.
    ///
    /// # Errors
    /// As for [`parse_head`].
    pub fn open<S: Storage>(
        storage: &S,
        identity: u64,
        state: Point,
        buffer: &mut [u8],
    ) -> Result<Self, S::Error> {
        let mut log = Self::empty(identity);
        let mut bytes = [0; HEAD_BYTES];
        let read = storage.read(0, &mut bytes)?;
        if !parse_head(bytes.get(..read).unwrap_or(&[]), identity)? {
            return Ok(log);
        }
        log.is_any = storage.bytes()? > FIRST;
        while let Some(header) = log.next(storage, buffer)? {
            if log.last.is_none() {
                log.base = header.before;
            }
            log.last = Some(header.point);
            log.last_at = log.end;
            log.end = header.behind(log.end, ALIGN_BYTES);
            log.image_bytes = Some(header.image_bytes);
        }
        // A checkpoint writes a record when the one before it is durable: the first one too, if those behind it continue this very image.
        log.is_broken = match log.last {
            Some(last) => log.has_later(storage, buffer, |header| {
                header.point.epoch == last.epoch && header.point.sequence > last.sequence
            })?,
            None => log.has_later(storage, buffer, |header| {
                header.base == state && header.point.sequence > 1
            })?,
        };
        Ok(log)
    }

    /// The header of the record that begins at the end, if it is whole and follows.
    fn next<S: Storage>(&self, storage: &S, buffer: &mut [u8]) -> Result<Option<Header>, S::Error> {
        let mut bytes = [0; HEADER_BYTES];
        if storage.read(self.end, &mut bytes)? < HEADER_BYTES {
            return Ok(None);
        }
        let follows = |header: &Header| match self.last {
            Some(last) => {
                header.point == last.next() && header.before == last && header.base == self.base
            }
            None => header.point.sequence == 1 && header.before == header.base,
        };
        // The file begins as a log of this image: a record of another one is a damaged one.
        let is_own = |header: &Header| header.identity == self.identity && follows(header);
        let Some(header) = Header::parse(&bytes).filter(is_own) else { return Ok(None) };
        Ok(header.is_whole(storage, self.end, buffer)?.then_some(header))
    }

    /// Whether a whole record of that kind lies behind the end. The buffer has whole pages, or fits a page a whole number of times.
    fn has_later<S: Storage>(
        &self,
        storage: &S,
        buffer: &mut [u8],
        is_later: impl Fn(&Header) -> bool,
    ) -> Result<bool, S::Error> {
        let bytes = storage.bytes()?;
        let mut at = self.end;
        while at < bytes {
            let read = storage.read(at, buffer)?;
            let mut heads = buffer.get(..read).unwrap_or(&[]).chunks(ALIGN_BYTES as usize);
            let is_later = |header: &Header| header.identity == self.identity && is_later(header);
            let found = heads.position(|part| Header::parse(part).is_some_and(|h| is_later(&h)));
            let Some(number) = found else {
                if read < buffer.len() {
                    break;
                }
                at += read as u64;
                continue;
            };
            let place = at + number as u64 * ALIGN_BYTES;
            let mut bytes = [0; HEADER_BYTES];
            storage.read(place, &mut bytes)?;
            if let Some(header) = Header::parse(&bytes)
                && header.is_whole(storage, place, buffer)?
            {
                return Ok(true);
            }
            at = place + ALIGN_BYTES;
        }
        Ok(false)
    }

    /// How the records stand to the state that the image says it is in.
    ///
    /// # Errors
    /// [`Fault::Stale`]: they are those of another state of the image; [`Fault::Missing`]: the image needs records, and there are
    /// none; [`Fault::Damaged`]: fewer are there than were written to the image.
    pub fn fits(&self, state: Point, is_complete: bool) -> Result<Fit, Fault> {
        let Some(last) = self.last else {
            return match (is_complete, self.is_any) {
                (true, _) if self.is_broken => Err(Fault::Damaged),
                (true, _) => Ok(Fit::Nothing),
                (false, true) => Err(Fault::Damaged),
                (false, false) => Err(Fault::Missing),
            };
        };
        if last.epoch != state.epoch {
            let continues = is_complete && self.base == state;
            return if continues { self.all() } else { Err(Fault::Stale) };
        }
        match (is_complete, last.sequence.cmp(&state.sequence)) {
            // The next epoch has overwritten some, which it does when the image is durable.
            (true, Ordering::Less) => Ok(Fit::Nothing),
            // The log was about to begin anew, or the image to be closed: the line may be durable before the rest of the image is.
            (true, Ordering::Equal) => self.all(),
            // After that no record of the epoch is written.
            (true, Ordering::Greater) => Err(Fault::Stale),
            (false, Ordering::Less) => Err(Fault::Damaged),
            (false, _) => self.all(),
        }
    }

    /// All records are to be written to the image, provided that they are all there.
    fn all(&self) -> Result<Fit, Fault> {
        if self.is_broken { Err(Fault::Damaged) } else { Ok(Fit::Continues) }
    }

    /// What the image has after the last record; `None`: there is no record.
    pub fn image_bytes(&self) -> Option<u64> {
        self.image_bytes
    }

    /// The state after the last record; `None`: there is no record.
    pub fn last(&self) -> Option<Point> {
        self.last
    }

    /// The state that the first record continues.
    pub fn base(&self) -> Point {
        self.base
    }

    /// Whether the other one has the same records, and perhaps more.
    pub fn is_continued_by(&self, other: &Self) -> bool {
        match (self.last, other.last) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(old), Some(new)) => old.epoch == new.epoch && old.sequence <= new.sequence,
        }
    }

    /// Bytes of the log's records.
    pub fn bytes(&self) -> u64 {
        self.end - FIRST
    }

    /// Hands the runs of all records out, in order: where in the image, and what. They come in parts that fit the buffer.
    ///
    /// # Errors
    /// The storage's, or that of `apply`; [`Fault::Damaged`] if the log has changed since it was opened.
    pub fn replay<S: Storage>(
        &self,
        storage: &S,
        buffer: &mut [u8],
        mut apply: impl FnMut(u64, &[u8]) -> Result<(), S::Error>,
    ) -> Result<(), S::Error> {
        let mut at = FIRST;
        while at < self.end {
            at = replay(storage, at, buffer, &mut apply)?.behind(at, ALIGN_BYTES);
        }
        Ok(())
    }

    /// As [`Log::replay`], for the last record alone, which [`Log::commit`] has made durable. `buffer` is the one that it was written from, unchanged.
    ///
    /// # Errors
    /// As for [`Log::replay`].
    pub fn replay_last<S: Storage>(
        &self,
        storage: &S,
        record: Written,
        buffer: &mut [u8],
        apply: impl FnMut(u64, &[u8]) -> Result<(), S::Error>,
    ) -> Result<(), S::Error> {
        replay_written(storage, self.last_at, record, buffer, apply)
    }

    /// Writes the last record once more, and makes it durable: one that was read may be in a cache only, of a process that did not live to see it durable. The records before it are durable.
    ///
    /// # Errors
    /// The storage's.
    pub fn write_last_again<S: Storage>(
        &self,
        storage: &S,
        buffer: &mut [u8],
    ) -> Result<(), S::Error> {
        storage.allow(self.end)?;
        write_again(storage, self.last_at..self.end, buffer)
    }

    /// Begins a record; [`Record::set_image_bytes`] belongs to it. `base` is the state of the image, and `epoch` a number that no log of it has
    /// had: for a log without records.
    pub fn record<'a, S: Storage>(
        &self,
        storage: S,
        (base, epoch): (Point, u64),
        buffer: &'a mut [u8],
    ) -> Record<'a, S> {
        let (before, base) = self.last.map_or((base, base), |last| (last, self.base));
        let point = self.last.map_or(Point { epoch, sequence: 1 }, Point::next);
        let identity = self.identity;
        let header = Header::new(identity, point, before, base);
        Record::new(storage, self.end, header, buffer)
    }

    /// Ends a record and makes it durable: from then on recovery finds it.
    ///
    /// # Errors
    /// The storage's. Recovery may find it or not.
    pub fn commit<S: Storage>(
        &mut self,
        record: Record<'_, S>,
        storage: &S,
    ) -> Result<Written, S::Error> {
        let written = record.end()?;
        storage.sync()?;
        let header = written.header;
        self.base = header.base;
        self.last = Some(header.point);
        self.image_bytes = Some(header.image_bytes);
        self.last_at = self.end;
        self.end = header.behind(self.end, ALIGN_BYTES);
        Ok(written)
    }

    /// Forgets all records: the image is complete and durable with them, and says so.
    pub fn forget(&mut self) {
        *self = Self::empty(self.identity);
    }
}
