//! A ring of records: a log of fixed length whose beginning is used again once the image has it.
//!
//! ```text
//!    0  magic "SPNDRNG1", identity of the image, capacity, alignment, XXH64 of these: written once, when the file is made
//! 1024  a line of 64 bytes    \ of the ring's epochs, written in turns: magic, counter, epoch, epoch and sequence of the state that the epoch
//! 2048  a line of 64 bytes    / continues, position of its first record, XXH64 of these
//! 4096  records, `capacity` bytes: what has position P lies at P modulo the capacity
//! ```
//!
//! One writer appends, one reader brings records into the image and moves the head: the position before which the image needs nothing. Both
//! positions are the callers' to share; neither is written to the ring. Recovery finds the record that continues the state of the image by
//! looking at every place where one can begin: at most `capacity / align` headers.
//!
//! Invariants:
//! - Nothing before the head is needed: the writer overwrites that only.
//! - A record is written when the one before it is durable, and over none of that one. So a torn record is the last one, and a ring that has neither the record of
//!   the image's state nor the next one is older than the image.
//! - Records of another epoch than the newest line's are remains, whatever they say.
//! - An epoch begins where the chain of the one before ended: a torn record there has no header any more once the new epoch has a record.

use crate::record::{HEADER_BYTES, Header, Point, Record, Written, word};
use crate::replay::{replay, replay_written};
use crate::storage::write_again;
use crate::{Fault, Storage, checksum};

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDRNG1");
/// The version of the format: the last byte of the magic. The lines of the epochs, records and the image's tie change with it.
pub const VERSION: u8 = b'1';
const LINE_MAGIC: u64 = u64::from_le_bytes(*b"SPNDEPO1");
/// Where the records begin.
pub const FIRST: u64 = 4096;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 40;
const LINE_BYTES: usize = 64;
const LINES: [u64; 2] = [1024, 2048];

/// How long a ring is, and where records begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes for records: a multiple of 4096.
    pub capacity: u64,
    /// Records begin at multiples of this: a power of two from 64 to 4096. 64 where lines are durable by themselves, the sector where a disk writes.
    pub align: u64,
}

impl Shape {
    /// Whether a ring can have this shape.
    pub fn is_valid(&self) -> bool {
        let aligned = self.align.is_power_of_two() && (64..=4096).contains(&self.align);
        aligned
            && self.capacity >= 4096
            && self.capacity.is_multiple_of(4096)
            && self.capacity < 1 << 46
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        FIRST + self.capacity
    }
}

fn put<const BYTES: usize>(words: &[u64], seed: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(seed, bytes.get(..BYTES - 8).unwrap_or(&[]));
    if let Some(last) = bytes.last_chunk_mut() {
        *last = sum.to_le_bytes();
    }
    bytes
}

/// The first bytes of a ring's file.
pub fn head(identity: u64, shape: Shape) -> [u8; HEAD_BYTES] {
    put(&[MAGIC, identity, shape.capacity, shape.align], MAGIC)
}

/// The shape of the ring of an image, from the first bytes of its file.
///
/// # Errors
/// [`Fault::NotALog`], [`Fault::Version`], [`Fault::Foreign`], [`Fault::Damaged`].
pub fn parse_head(bytes: &[u8], identity: u64) -> Result<Shape, Fault> {
    let Some(bytes) = bytes.get(..HEAD_BYTES) else { return Err(Fault::NotALog) };
    let mut words = bytes.chunks_exact(8).map(word);
    let [magic, of, capacity, align] = core::array::from_fn(|_| words.next().unwrap_or(0));
    let shape = Shape { capacity, align };
    let [name @ .., version] = magic.to_le_bytes();
    let is_ring = MAGIC.to_le_bytes().starts_with(&name);
    match magic == MAGIC {
        // The rest is what this version writes: the byte is damaged.
        false if is_ring && bytes.get(8..) == head(of, shape).get(8..) => Err(Fault::Damaged),
        false if is_ring => Err(Fault::Version(version)),
        false => Err(Fault::NotALog),
        true if bytes != head(of, shape) || !shape.is_valid() => Err(Fault::Damaged),
        true if of != identity => Err(Fault::Foreign),
        true => Ok(shape),
    }
}

/// An epoch as its line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Line {
    counter: u64,
    epoch: u64,
    base: Point,
    start: u64,
}

impl Line {
    fn bytes(&self) -> [u8; LINE_BYTES] {
        let Self { counter, epoch, base, start } = *self;
        put(&[LINE_MAGIC, counter, epoch, base.epoch, base.sequence, start], LINE_MAGIC)
    }

    fn parse(bytes: &[u8; LINE_BYTES]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map(word);
        let [magic, counter, epoch, of, sequence, start] =
            core::array::from_fn(|_| words.next().unwrap_or(0));
        let line = Self { counter, epoch, base: Point { epoch: of, sequence }, start };
        (magic == LINE_MAGIC && line.bytes() == *bytes).then_some(line)
    }
}

/// A ring's file whose positions go on for good.
#[derive(Clone, Copy, Debug)]
pub struct Turning<S> {
    storage: S,
    capacity: u64,
}

impl<S: Storage> Turning<S> {
    /// Of a ring of that shape.
    pub fn new(storage: S, shape: Shape) -> Self {
        Self { storage, capacity: shape.capacity.max(1) }
    }

    /// Where a position lies in the file, and how many bytes follow up to the end.
    fn place(&self, at: u64) -> (u64, usize) {
        let within = at % self.capacity;
        (FIRST + within, usize::try_from(self.capacity - within).unwrap_or(usize::MAX))
    }
}

impl<S: Storage> Storage for Turning<S> {
    type Error = S::Error;

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, S::Error> {
        let (mut at, mut done) = (at, 0);
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let (place, most) = self.place(at);
            let len = rest.len().min(most);
            let read = self.storage.read(place, rest.get_mut(..len).unwrap_or(&mut []))?;
            (at, done) = (at + read as u64, done + read);
            if read < len {
                break;
            }
        }
        Ok(done)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), S::Error> {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (place, most) = self.place(at);
            let (now, later) = rest.split_at(rest.len().min(most));
            self.storage.write(place, now)?;
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    fn allow(&self, _: u64) -> Result<(), S::Error> {
        // The file has its full length from the beginning.
        Ok(())
    }

    fn sync(&self) -> Result<(), S::Error> {
        self.storage.sync()
    }

    fn bytes(&self) -> Result<u64, S::Error> {
        Ok(self.capacity)
    }
}

/// A ring that records can be added to.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    identity: u64,
    shape: Shape,
    line: Line,
    /// The state after the last record, which is that of the image if there is none.
    last: Point,
    /// The position of the first record that the image needs, and that of the next one.
    first: u64,
    end: u64,
    /// Where the last record begins: it stays until the next one is durable.
    last_at: u64,
    /// What the image has after the last record; `None`: there is no record.
    image_bytes: Option<u64>,
    /// When the last record was written; 0: not known.
    time: u64,
}

impl Ring {
    /// Makes a ring of a file of zeroes, for an image in that state. `epoch` is a number that no ring of the image has had.
    ///
    /// # Errors
    /// The storage's; [`Fault::Damaged`]: no ring can have the shape.
    pub fn create<S: Storage>(
        storage: &S,
        identity: u64,
        shape: Shape,
        (base, epoch): (Point, u64),
    ) -> Result<Self, S::Error> {
        if !shape.is_valid() {
            return Err(Fault::Damaged.into());
        }
        let line = Line { counter: 1, epoch, base, start: 0 };
        storage.allow(shape.file_bytes())?;
        storage.write(LINES[1], &line.bytes())?;
        storage.write(0, &head(identity, shape))?;
        storage.sync()?;
        Ok(Self::of(identity, shape, line, base))
    }

    fn of(identity: u64, shape: Shape, line: Line, last: Point) -> Self {
        let start = line.start;
        let (first, end, last_at) = (start, start, start);
        Self { identity, shape, line, last, first, end, last_at, image_bytes: None, time: 0 }
    }

    /// Reads the ring of an image in that state, as far as its records continue the state and are whole. `is_complete`: the image needs no record, by what it says of
    /// itself.
    ///
    /// # Errors
    /// The storage's; those of [`parse_head`]; [`Fault::Stale`]: the ring continues another state, or is older than the image; [`Fault::Damaged`]: records that were
    /// durable are missing, or both lines are.
    pub fn open<S: Storage>(
        storage: &S,
        identity: u64,
        (state, is_complete): (Point, bool),
        buffer: &mut [u8],
    ) -> Result<Self, S::Error> {
        let mut bytes = [0; HEAD_BYTES];
        let read = storage.read(0, &mut bytes)?;
        let shape = parse_head(bytes.get(..read).unwrap_or(&[]), identity)?;
        if storage.bytes()? < shape.file_bytes() {
            return Err(Fault::Damaged.into());
        }
        let mut lines = [None; 2];
        for (place, line) in LINES.iter().zip(&mut lines) {
            let mut bytes = [0; LINE_BYTES];
            storage.read(*place, &mut bytes)?;
            *line = Line::parse(&bytes);
        }
        let newest = lines.into_iter().flatten().max_by_key(|line| line.counter);
        let line = newest.ok_or(Fault::Damaged)?;
        if line.epoch != state.epoch && line.base != state {
            return Err(Fault::Stale.into());
        }
        let mut ring = Self::of(identity, shape, line, state);
        let turning = Turning::new(storage, shape);
        let follows = |header: &Header| header.before == state && ring.is_next(state, header);
        if let Some((at, _)) = ring.find(&turning, buffer, follows)? {
            (ring.first, ring.end) = (at, at);
            ring.follow(&turning, buffer)?;
        } else if state.epoch == line.epoch {
            let found = ring.find(&turning, buffer, |header| header.point == state)?;
            if found.is_none() && !is_complete {
                return Err(Fault::Stale.into());
            }
            if let Some((at, header)) = found {
                ring.last_at = at;
                ring.end = header.behind(at, shape.align);
            }
            ring.first = ring.end;
        }
        // Parts of a record of the epoch may be in the image, and it has none.
        let last = ring.last;
        if !is_complete && last.epoch != line.epoch {
            return Err(Fault::Damaged.into());
        }
        // Or of another epoch that continues the last state: the line of that epoch is lost.
        let is_later = |header: &Header| match header.point.epoch == line.epoch {
            true => last.epoch != line.epoch || header.point.sequence > last.sequence,
            false => header.before == last,
        };
        if ring.find(&turning, buffer, is_later)?.is_some() {
            return Err(Fault::Damaged.into());
        }
        Ok(ring)
    }

    /// Whether a record of the ring's epoch comes after that state.
    fn is_next(&self, state: Point, header: &Header) -> bool {
        let next = match state.epoch == self.line.epoch {
            true => state.next(),
            false => Point { epoch: self.line.epoch, sequence: 1 },
        };
        header.identity == self.identity && header.point == next && header.base == self.line.base
    }

    /// Follows the chain from the end on.
    fn follow<S: Storage>(
        &mut self,
        turning: &Turning<&S>,
        buffer: &mut [u8],
    ) -> Result<(), S::Error> {
        loop {
            let mut bytes = [0; HEADER_BYTES];
            turning.read(self.end, &mut bytes)?;
            let last = self.last;
            let header = Header::parse(&bytes);
            let header = header.filter(|head| head.before == last && self.is_next(last, head));
            let Some(header) = header else { return Ok(()) };
            // A chain that is longer than the ring has records that overwrote each other.
            let behind = header.behind(self.end, self.shape.align);
            if behind.saturating_sub(self.first) > self.shape.capacity
                || !header.is_whole(turning, self.end, buffer)?
            {
                return Ok(());
            }
            self.pass(&header, behind);
        }
    }

    fn pass(&mut self, header: &Header, behind: u64) {
        self.last = header.point;
        self.last_at = self.end;
        self.end = behind;
        self.image_bytes = Some(header.image_bytes);
        self.time = header.time;
    }

    /// The first whole record of that kind, by its place in the file. The buffer has room for 4 KiB.
    fn find<S: Storage>(
        &self,
        turning: &Turning<&S>,
        buffer: &mut [u8],
        is_kind: impl Fn(&Header) -> bool,
    ) -> Result<Option<(u64, Header)>, S::Error> {
        let (align, capacity) = (self.shape.align, self.shape.capacity);
        let is_kind = |header: &Header| header.identity == self.identity && is_kind(header);
        let most = buffer.len() as u64 / align * align;
        if most == 0 {
            return Err(Fault::Buffer.into());
        }
        let mut at = 0;
        while at < capacity {
            let len = usize::try_from(most.min(capacity - at)).unwrap_or(0);
            let part = buffer.get_mut(..len).unwrap_or(&mut []);
            if turning.read(at, part)? < len {
                return Err(Fault::Damaged.into());
            }
            let step = usize::try_from(align).unwrap_or(4096);
            let mut heads = (0..len).step_by(step);
            let is_candidate = |from: &usize| {
                let rest = part.get(*from..).unwrap_or(&[]);
                // One that lies across the end of the part is read below.
                Header::begins(rest) && Header::parse(rest).is_none_or(|header| is_kind(&header))
            };
            let Some(from) = heads.find(is_candidate) else {
                at += len as u64;
                continue;
            };
            at += from as u64;
            let mut bytes = [0; HEADER_BYTES];
            turning.read(at, &mut bytes)?;
            if let Some(header) = Header::parse(&bytes).filter(is_kind)
                && header.payload <= capacity
                && header.is_whole(turning, at, buffer)?
            {
                return Ok(Some((at, header)));
            }
            at += align;
        }
        Ok(None)
    }

    /// Begins an epoch, of an image that has all of the ring's records and says so durably. `epoch` is a number that no ring of the image has had.
    ///
    /// # Errors
    /// The storage's.
    pub fn begin<S: Storage>(&mut self, storage: &S, epoch: u64) -> Result<(), S::Error> {
        let counter = self.line.counter.wrapping_add(1);
        let line = Line { counter, epoch, base: self.last, start: self.end };
        let place = LINES.get((counter % 2) as usize).copied().unwrap_or(LINES[0]);
        storage.write(place, &line.bytes())?;
        storage.sync()?;
        // The line names the state that the epoch continues: the last record is of no use.
        *self = Self::of(self.identity, self.shape, line, self.last);
        Ok(())
    }

    /// The shape of the ring.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The state after the last record: that of the image, if there is none.
    pub fn last(&self) -> Point {
        self.last
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
        write_again(&Turning::new(storage, self.shape), self.last_at..self.end, buffer)
    }

    /// The position of the first record that the image needs: the head, at first.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The position of the next record: the tail.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether a record of that number of bytes ([`Ring::bytes_of`]) has room, if the image needs nothing before `head`. The last record is not overwritten.
    pub fn has_room(&self, bytes: u64, head: u64) -> bool {
        let kept = head.min(self.last_at);
        (self.end - kept).saturating_add(bytes) <= self.shape.capacity
    }

    /// Whether such a record ever has room, when the image has all others.
    pub fn can_hold(&self, bytes: u64) -> bool {
        self.has_room(bytes, self.end)
    }

    /// What the image has after the last record; `None`: there is no record that it needs.
    pub fn image_bytes(&self) -> Option<u64> {
        self.image_bytes
    }

    /// When the last record was written, in nanoseconds since 1970; 0: not known.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Bytes that a record with such a payload takes.
    pub fn bytes_of(&self, payload: u64) -> u64 {
        (HEADER_BYTES as u64).saturating_add(payload).saturating_add(self.shape.align - 1)
            / self.shape.align
            * self.shape.align
    }

    /// Begins a record. The caller has made sure that there is room for all of it before the head, and sets the length of the image.
    pub fn record<'a, S: Storage>(
        &self,
        storage: S,
        buffer: &'a mut [u8],
    ) -> Record<'a, Turning<S>> {
        let point = match self.last.epoch == self.line.epoch {
            true => self.last.next(),
            false => Point { epoch: self.line.epoch, sequence: 1 },
        };
        let header = Header::new(self.identity, point, self.last, self.line.base);
        Record::new(Turning::new(storage, self.shape), self.end, header, buffer)
    }

    /// Ends a record and makes it durable: from then on recovery finds it.
    ///
    /// # Errors
    /// The storage's. Recovery may find it or not: nothing may be added any more.
    pub fn commit<S: Storage>(
        &mut self,
        record: Record<'_, Turning<S>>,
        storage: &S,
    ) -> Result<Written, S::Error> {
        let written = record.end()?;
        storage.sync()?;
        let behind = written.header.behind(self.end, self.shape.align);
        self.pass(&written.header, behind);
        Ok(written)
    }
}

/// Reads a ring's records one after the other, behind the writer.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    shape: Shape,
    at: u64,
    point: Point,
}

impl Reader {
    /// From the first record on that the image in that state needs.
    pub fn new(ring: &Ring, state: Point) -> Self {
        Self { shape: ring.shape, at: ring.first, point: state }
    }

    /// From the record at that position on, which lies before the ring's end.
    ///
    /// # Errors
    /// The storage's; [`Fault::Damaged`]: there is no record.
    pub fn from<S: Storage>(ring: &Ring, at: u64, storage: &S) -> Result<Self, S::Error> {
        let mut bytes = [0; HEADER_BYTES];
        Turning::new(storage, ring.shape).read(at, &mut bytes)?;
        let header = Header::parse(&bytes).ok_or(Fault::Damaged)?;
        Ok(Self { shape: ring.shape, at, point: header.before })
    }

    /// The position of the next record.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The state after the records that were read.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Calls `apply` with the runs of the next record: the offset in the image, and the bytes. Nothing is called for a record that is not whole.
    /// The writer has made it durable: it lies before the ring's end.
    ///
    /// # Errors
    /// The storage's, or that of `apply`; [`Fault::Damaged`]: it is not whole, or does not follow.
    pub fn next<S: Storage>(
        &mut self,
        storage: &S,
        buffer: &mut [u8],
        begin: impl FnOnce(&Header) -> Result<(), S::Error>,
        apply: impl FnMut(u64, &[u8]) -> Result<(), S::Error>,
    ) -> Result<Header, S::Error> {
        let turning = Turning::new(storage, self.shape);
        let mut bytes = [0; HEADER_BYTES];
        turning.read(self.at, &mut bytes)?;
        let header = Header::parse(&bytes).filter(|header| header.before == self.point);
        let header = header.ok_or(Fault::Damaged)?;
        if header.payload > self.shape.capacity || !header.is_whole(&turning, self.at, buffer)? {
            return Err(Fault::Damaged.into());
        }
        begin(&header)?;
        // A record that fits the buffer is there, as its checksum was computed of it.
        match usize::try_from(header.payload).is_ok_and(|bytes| bytes <= buffer.len()) {
            true => {
                let written = Written { header, is_kept: true };
                replay_written(&turning, self.at, written, buffer, apply)?;
            }
            false => drop(replay(&turning, self.at, buffer, apply)?),
        }
        self.at = header.behind(self.at, self.shape.align);
        self.point = header.point;
        Ok(header)
    }
}

#[path = "held.rs"]
mod held;
#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
