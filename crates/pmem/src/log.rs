//! The write-ahead log of an image on an ordinary file.
//!
//! A checkpoint is one record: runs of the image's bytes, and a checksum. Once the record is durable the runs are written
//! to the image, whose own durability can wait until the log begins anew: until then recovery writes them again. So a
//! checkpoint waits for the disk once.
//!
//! ```text
//! record, at a multiple of 4096        all numbers are little-endian
//!  0  magic "SPNDLOG1"
//!  8  salt         drawn when the log began anew: what an older one has left is of no record
//! 16  sequence     one more than that of the record before
//! 24  identity     of the image
//! 32  bytes that the image has from this record on
//! 40  bytes of the runs behind this header
//! 48  checksum     XXH64, seeded with the salt, of the runs and of the 48 bytes before it
//! 56  zero
//! 64  runs: offset, length, bytes
//! ```
//!
//! Recovery takes records from the beginning as long as each is whole and follows the one before. Before the log begins
//! anew the image is made durable, and then the first header zero: a record that is left alone while those behind it are
//! overwritten would take its pages back in time.

use core::hash::Hasher;

use twox_hash::XxHash64;

use crate::medium::Failed;

/// The two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// What is kept.
    Image,
    /// The log of its changes.
    Log,
}

/// Files as a disk has them: what was written is durable after [`Disk::sync`], in whole sectors, and perhaps before.
pub trait Disk {
    /// Reads from an offset on; how many bytes, fewer than there is room for at the end only.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed>;

    /// Writes all of these bytes.
    ///
    /// # Errors
    /// The disk's: some may be written.
    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed>;

    /// Waits until all that was written to the file is durable.
    ///
    /// # Errors
    /// The disk's: what was written may be lost, and to ask again does not help.
    fn sync(&self, which: Which) -> Result<(), Failed>;
}

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDLOG1");
const HEADER_BYTES: usize = 64;
const RUN_BYTES: usize = 16;
/// Records begin at multiples of this: no sector has parts of two.
const ALIGN_BYTES: u64 = 4096;
/// The least that a buffer must hold.
pub const BUFFER_BYTES: usize = 64 << 10;

/// A record's header.
#[derive(Clone, Copy, Debug)]
struct Header {
    salt: u64,
    sequence: u64,
    identity: u64,
    image_bytes: u64,
    payload: u64,
    checksum: u64,
}

impl Header {
    fn words(&self) -> [u64; 7] {
        let Self { salt, sequence, identity, image_bytes, payload, checksum } = *self;
        [MAGIC, salt, sequence, identity, image_bytes, payload, checksum]
    }

    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.get(..HEADER_BYTES)?.chunks_exact(8).map(word);
        let [magic, salt, sequence, identity, image_bytes, payload, checksum, zero] =
            core::array::from_fn(|_| words.next().unwrap_or(0));
        let header = Self { salt, sequence, identity, image_bytes, payload, checksum };
        (magic == MAGIC && zero == 0).then_some(header)
    }

    /// The checksum, of a hasher that has seen the runs.
    fn sealed(&self, mut hasher: XxHash64) -> u64 {
        self.words().iter().take(6).for_each(|word| hasher.write(&word.to_le_bytes()));
        hasher.finish()
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A log that records can be added to.
#[derive(Debug)]
pub struct Log {
    identity: u64,
    salt: u64,
    /// Of the next record.
    sequence: u64,
    /// Where the next record begins.
    end: u64,
    /// What the image has after the last record; `None`: there is no record.
    image_bytes: Option<u64>,
}

impl Log {
    /// Reads a log from the beginning; it has the records that are whole. `salt` is one that no log of this image
    /// has had, for when it begins anew.
    ///
    /// # Errors
    /// The disk's; `EBADMSG`: the log is that of another image.
    pub fn open(
        disk: &impl Disk,
        identity: u64,
        salt: u64,
        buffer: &mut [u8],
    ) -> Result<Self, Failed> {
        let mut log = Self { identity, salt, sequence: 1, end: 0, image_bytes: None };
        while let Some(header) = log.next(disk, buffer)? {
            if header.identity != identity {
                return Err(Failed(libc::EBADMSG));
            }
            (log.salt, log.sequence) = (header.salt, header.sequence + 1);
            log.end = behind(log.end, header.payload);
            log.image_bytes = Some(header.image_bytes);
        }
        Ok(log)
    }

    /// What the image has after the last record; `None`: there is no record, and the image is as it is.
    pub fn image_bytes(&self) -> Option<u64> {
        self.image_bytes
    }

    /// Whether both have the same records.
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |log: &Self| (log.end, log.image_bytes, log.sequence);
        let is_empty = self.image_bytes.is_none();
        of(self) == of(other) && (is_empty || self.salt == other.salt)
    }

    /// Bytes of the log.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// The header of the record that begins at the end, if it is whole and follows.
    fn next(&self, disk: &impl Disk, buffer: &mut [u8]) -> Result<Option<Header>, Failed> {
        let mut bytes = [0; HEADER_BYTES];
        if disk.read(Which::Log, self.end, &mut bytes)? < HEADER_BYTES {
            return Ok(None);
        }
        let is_first = self.image_bytes.is_none();
        let follows = |header: &Header| {
            is_first || header.salt == self.salt && header.sequence == self.sequence
        };
        let Some(header) = Header::parse(&bytes).filter(follows) else { return Ok(None) };
        let mut hasher = XxHash64::with_seed(header.salt);
        let mut at = self.end + HEADER_BYTES as u64;
        let mut rest = header.payload;
        while rest > 0 {
            let most = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            let read = disk.read(Which::Log, at, &mut buffer[..most])?;
            if read < most {
                return Ok(None);
            }
            hasher.write(&buffer[..most]);
            (at, rest) = (at + most as u64, rest - most as u64);
        }
        Ok((header.sealed(hasher) == header.checksum).then_some(header))
    }

    /// Hands the runs of all records out, in order: where in the image, and what. They come in parts that fit the buffer.
    ///
    /// # Errors
    /// The disk's, or that of `apply`; `EBADMSG` if a run lies beyond the image, or the log was changed since it was opened.
    pub fn replay(
        &self,
        disk: &impl Disk,
        buffer: &mut [u8],
        mut apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut at = 0;
        let wrong = Failed(libc::EBADMSG);
        while at < self.end {
            let mut bytes = [0; HEADER_BYTES];
            disk.read(Which::Log, at, &mut bytes)?;
            let header = Header::parse(&bytes).ok_or(wrong)?;
            let mut run_at = at + HEADER_BYTES as u64;
            at = behind(at, header.payload);
            let end = run_at + header.payload;
            while run_at < end {
                let mut run = [0; RUN_BYTES];
                if disk.read(Which::Log, run_at, &mut run)? < RUN_BYTES {
                    return Err(wrong);
                }
                let (mut offset, mut rest) = (word(&run), word(&run[8..]));
                run_at += RUN_BYTES as u64;
                let fits = offset.checked_add(rest).is_some_and(|to| to <= header.image_bytes)
                    && run_at.checked_add(rest).is_some_and(|to| to <= end);
                if !fits {
                    return Err(wrong);
                }
                while rest > 0 {
                    let most =
                        usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
                    if disk.read(Which::Log, run_at, &mut buffer[..most])? < most {
                        return Err(wrong);
                    }
                    apply(offset, &buffer[..most])?;
                    let most = most as u64;
                    (offset, run_at, rest) = (offset + most, run_at + most, rest - most);
                }
            }
        }
        Ok(())
    }

    /// Begins a record.
    pub fn record<'a, D: Disk>(
        &'a mut self,
        disk: &'a D,
        image_bytes: u64,
        buffer: &'a mut [u8],
    ) -> Record<'a, D> {
        let header = Header {
            salt: self.salt,
            sequence: self.sequence,
            identity: self.identity,
            image_bytes,
            payload: 0,
            checksum: 0,
        };
        let at = self.end + HEADER_BYTES as u64;
        let hasher = XxHash64::with_seed(self.salt);
        Record { log: self, disk, buffer, filled: 0, at, header, hasher }
    }

    /// Begins anew: all records are in the image, which is made durable first. `salt` is one that no log of this image has
    /// had.
    ///
    /// # Errors
    /// The disk's. The log is as it was, or empty.
    pub fn begin_anew(&mut self, disk: &impl Disk, salt: u64) -> Result<(), Failed> {
        if self.image_bytes.is_none() {
            return Ok(());
        }
        disk.sync(Which::Image)?;
        disk.write(Which::Log, 0, &[0; HEADER_BYTES])?;
        disk.sync(Which::Log)?;
        (self.salt, self.sequence, self.end, self.image_bytes) = (salt, 1, 0, None);
        Ok(())
    }
}

/// Where the record behind one at `at` begins.
fn behind(at: u64, payload: u64) -> u64 {
    (at + HEADER_BYTES as u64).saturating_add(payload).next_multiple_of(ALIGN_BYTES)
}

/// A record that is being written. Dropped without [`Record::commit`], it never was.
pub struct Record<'a, D> {
    log: &'a mut Log,
    disk: &'a D,
    buffer: &'a mut [u8],
    filled: usize,
    /// Where in the log what is in the buffer belongs.
    at: u64,
    header: Header,
    hasher: XxHash64,
}

impl<D: Disk> Record<'_, D> {
    /// Adds a run: bytes of the image.
    ///
    /// # Errors
    /// The disk's. The record can only be dropped then.
    pub fn run(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        self.put(&at.to_le_bytes())?;
        self.put(&(bytes.len() as u64).to_le_bytes())?;
        self.put(bytes)
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Failed> {
        self.header.payload += bytes.len() as u64;
        self.hasher.write(bytes);
        while !bytes.is_empty() {
            if self.filled == self.buffer.len() {
                self.flush()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.buffer.len() - self.filled));
            self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failed> {
        self.disk.write(Which::Log, self.at, &self.buffer[..self.filled])?;
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Makes it durable: from now on recovery finds it.
    ///
    /// # Errors
    /// The disk's. Recovery may find it or not.
    pub fn commit(mut self) -> Result<(), Failed> {
        self.flush()?;
        self.header.checksum = self.header.sealed(self.hasher.clone());
        self.disk.write(Which::Log, self.log.end, &self.header.bytes())?;
        self.disk.sync(Which::Log)?;
        self.log.sequence += 1;
        self.log.image_bytes = Some(self.header.image_bytes);
        self.log.end = behind(self.log.end, self.header.payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::{Bounds, Disk as Simulated, Outcome, Point, Unit};
    use std::cell::RefCell;
    use std::prelude::v1::*;

    const IMAGE_BYTES: u64 = 4 * 4096;

    /// An image as it is open: its bytes, and the log.
    struct Store {
        log: Log,
        image: Vec<u8>,
    }

    impl Store {
        fn open(disk: &Simulated, salt: u64) -> Result<Self, Failed> {
            let mut buffer = vec![0; 1000];
            let mut log = Log::open(disk, 77, salt, &mut buffer)?;
            log.replay(disk, &mut buffer, |at, bytes| disk.write(Which::Image, at, bytes))?;
            log.begin_anew(disk, salt)?;
            let mut image = vec![0; IMAGE_BYTES as usize];
            disk.read(Which::Image, 0, &mut image)?;
            Ok(Self { log, image })
        }

        /// Every page that `round` changes, of which it is then full.
        fn change(&mut self, round: u8) -> Vec<u64> {
            // A record that is longer than the one in its place before begins to overwrite the one behind it.
            let pages: Vec<u64> = if round == 1 { vec![0] } else { (0..4).collect() };
            for page in &pages {
                self.image[*page as usize * 4096..][..4096].fill(round);
            }
            pages
        }

        fn checkpoint(&mut self, disk: &Simulated, pages: &[u64]) -> Result<(), Failed> {
            let mut buffer = vec![0; 1000];
            let page = |at: u64| &self.image[at as usize * 4096..][..4096];
            let mut record = self.log.record(disk, IMAGE_BYTES, &mut buffer);
            pages.iter().try_for_each(|at| record.run(at * 4096, page(*at)))?;
            record.commit()?;
            pages.iter().try_for_each(|at| disk.write(Which::Image, at * 4096, page(*at)))
        }
    }

    /// The image after each round: what recovery may find.
    fn states(rounds: u8) -> Vec<Vec<u8>> {
        let disk = Simulated::new(Unit::Sector, IMAGE_BYTES as usize, 1 << 20);
        let mut store = Store::open(&disk, 1).unwrap();
        let mut states = vec![store.image.clone()];
        for round in 1..=rounds {
            store.change(round);
            states.push(store.image.clone());
        }
        states
    }

    fn every_failure_is_survived(unit: Unit) {
        const ROUNDS: u8 = 6;
        let states = states(ROUNDS);
        let disk = Simulated::new(unit, IMAGE_BYTES as usize, 128 << 10);
        let mut store = Store::open(&disk, 1).unwrap();
        for round in 1..=ROUNDS {
            let pages = store.change(round);
            store.checkpoint(&disk, &pages).unwrap();
            disk.note(round.into());
            if round % 3 == 0 {
                store.log.begin_anew(&disk, round.into()).unwrap();
            }
        }
        let seen = RefCell::new(vec![0; states.len()]);
        let check = |image: &[u8], point: &Point<'_>| {
            let least = point.notes.last().map_or(0, |round| *round as usize);
            let after = Simulated::from_image(unit, IMAGE_BYTES as usize, image);
            let store = Store::open(&after, 99).map_err(|why| format!("{why:?}"))?;
            let found = states.iter().position(|state| *state == store.image);
            let found = found.ok_or("a state that never was")?;
            seen.borrow_mut()[found] += 1;
            if found < least {
                return Err(format!("round {found} after {least}"));
            }
            // And a failure while it recovers.
            let bounds = Bounds { drawn: 2, ..Bounds::default() };
            let again = |image: &[u8], _: &Point<'_>| {
                let after = Simulated::from_image(unit, IMAGE_BYTES as usize, image);
                let store = Store::open(&after, 100).map_err(|why| format!("{why:?}"))?;
                if store.image == states[found] {
                    Ok(())
                } else {
                    Err("recovery that was cut off".into())
                }
            };
            after.journal().images(&bounds, again).map(|_| ()).map_err(|found| found.to_string())
        };
        let bounds = Bounds { drawn: 64, ..Bounds::default() };
        let outcome =
            disk.journal().images(&bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
        assert!(matches!(outcome, Outcome { points: 11.., images: 500.., .. }), "{outcome:?}");
        assert!(seen.borrow().iter().all(|seen| *seen > 0), "{seen:?}");
    }

    #[test]
    fn every_failure_leaves_the_last_checkpoint_or_the_next() {
        every_failure_is_survived(Unit::Sector);
    }

    #[test]
    fn also_where_sectors_are_torn() {
        every_failure_is_survived(Unit::TornSector);
    }

    #[test]
    fn a_log_of_another_image_and_any_bytes_are_no_records() {
        let disk = Simulated::new(Unit::Sector, IMAGE_BYTES as usize, 1 << 20);
        let mut store = Store::open(&disk, 1).unwrap();
        let pages = store.change(5);
        store.checkpoint(&disk, &pages).unwrap();
        let mut buffer = vec![0; 1000];
        assert_eq!(Log::open(&disk, 77, 2, &mut buffer).unwrap().image_bytes(), Some(IMAGE_BYTES));
        assert_eq!(Log::open(&disk, 78, 2, &mut buffer).err(), Some(Failed(libc::EBADMSG)));
        for byte in (0..200).chain([4096, 9000]) {
            let mut image = disk.journal().last();
            image[IMAGE_BYTES as usize + byte] ^= 0x10;
            let damaged = Simulated::from_image(Unit::Sector, IMAGE_BYTES as usize, &image);
            let log = Log::open(&damaged, 77, 2, &mut buffer).unwrap();
            assert_eq!(log.image_bytes(), None, "byte {byte}");
        }
    }
}
