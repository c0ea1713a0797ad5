//! The replica: brings the ring's records into the state's file, and moves the head behind them.
//!
//! Order:
//! - The tie says durably that parts of later records may be in the file, before the first record is brought there.
//! - What records store is gathered ([`WriteBuffer`]), where a write to the file takes a system call. It is in the file before the file is synced.
//! - The file is synced before the tie names a later state, and the tie is durable before the head moves.
//!
//! So a failure at any time leaves a file that the ring completes: recovery begins with the state that the tie names.

use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::tie::Ties;
use spandrel_pmem::{Buffer, Failed};
use spandrel_redolog::{Header, Reader, Ring};

use crate::copy::{Copy, Whole};
use crate::write_buffer::{self, WriteBuffer};

/// Makes the state's file longer; the argument is the number of bytes that it has at least.
pub type Lengthen<'a> = &'a dyn Fn(u64) -> Result<(), Failed>;

/// See the head of this file.
pub struct Replica<'a, D: Disk> {
    disk: &'a D,
    ties: Ties,
    reader: Reader,
    /// Bytes that the file has.
    bytes: u64,
    buffer: Buffer,
    /// `None`: the file is mapped.
    gathered: Option<WriteBuffer>,
    /// The position behind the records that the file has.
    in_file: u64,
}

impl<'a, D: Disk> Replica<'a, D> {
    /// Of a file whose tie is `ties`, from the first record of the ring on that it lacks.
    ///
    /// # Errors
    /// The disk's.
    pub fn new(disk: &'a D, ring: &Ring, ties: Ties) -> Result<Self, Failed> {
        // Where memory is short, in less or in none.
        let gathered = || {
            let all = WriteBuffer::new(write_buffer::PAGES);
            all.or_else(|_| WriteBuffer::new(write_buffer::PAGES / 64)).ok()
        };
        let gathered = if disk.is_mapped() { None } else { gathered() };
        Self::gathering(disk, ring, ties, gathered)
    }

    /// The same, with a buffer or none.
    pub(crate) fn gathering(
        disk: &'a D,
        ring: &Ring,
        ties: Ties,
        gathered: Option<WriteBuffer>,
    ) -> Result<Self, Failed> {
        let reader = Reader::new(ring, ties.newest().point);
        let buffer = Buffer::new(spandrel_redolog::BUFFER_BYTES)?;
        let (bytes, in_file) = (disk.bytes(Which::Image)?, reader.at());
        Ok(Self { disk, ties, reader, bytes, buffer, gathered, in_file })
    }

    /// The position behind the records that were brought into the file, or are gathered.
    pub fn at(&self) -> u64 {
        self.reader.at()
    }

    /// The position behind the records that the file has.
    pub fn in_file(&self) -> u64 {
        self.in_file
    }

    fn sync(&self) -> Result<(), Failed> {
        self.disk.sync(Which::Image)
    }

    /// Bytes that the file has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the file says of itself.
    pub fn ties(&self) -> &Ties {
        &self.ties
    }

    /// Brings the next record into the file, or gathers what it stores; the record lies before the ring's end. `copy`: a copy that is being made.
    ///
    /// # Errors
    /// The disk's; [`Failed::DAMAGED_LOG`]: the record is not whole. The file may have parts of the record then.
    pub fn step(
        &mut self,
        lengthen: Lengthen<'_>,
        mut copy: Option<&mut Copy>,
    ) -> Result<Header, Failed> {
        if self.ties.newest().is_complete {
            self.disk.allow(Which::Image, self.bytes)?;
            self.ties.write(self.disk, (self.reader.point(), false), self.bytes)?;
            self.sync()?;
            self.ties.synced(self.disk);
        }
        let (disk, bytes, gathered) = (self.disk, self.bytes, &mut self.gathered);
        let begin = |header: &Header| {
            if header.image_bytes > bytes {
                lengthen(header.image_bytes)?;
            }
            disk.allow(Which::Image, header.image_bytes.max(bytes))
        };
        let apply = |at: u64, part: &[u8]| {
            match gathered {
                Some(gathered) => gathered.write(disk, at, part)?,
                None => disk.write(Which::Image, at, part)?,
            }
            copy.iter_mut().for_each(|copy| copy.note(at, part));
            Ok(())
        };
        let header = self.reader.next(&LogOf(disk), self.buffer.bytes(), begin, apply)?;
        self.bytes = bytes.max(header.image_bytes);
        if self.gathered.as_ref().is_none_or(WriteBuffer::is_empty) {
            self.in_file = self.reader.at();
        }
        Ok(header)
    }

    /// Has the file have all records that were read.
    ///
    /// # Errors
    /// The disk's: the file may have some of what they store.
    pub fn flush(&mut self) -> Result<(), Failed> {
        if let Some(gathered) = &mut self.gathered {
            gathered.flush(self.disk)?;
        }
        self.in_file = self.reader.at();
        Ok(())
    }

    /// Gives memory back that is of use where records come one after the other.
    pub fn rest(&mut self) {
        self.gathered.iter_mut().for_each(WriteBuffer::rest);
    }

    /// Copies another piece of the file, which has all records that were read; false: the copy has all of it, or has failed. What cannot be read ends the copy, and not the replica.
    pub fn copy(&self, copy: &mut Copy) -> bool {
        match copy.advance(self.disk, self.bytes) {
            Ok(more) => more.is_continue(),
            Err(why) => {
                copy.fail(why);
                false
            }
        }
    }

    /// A copy that has all of the file.
    pub fn whole(&self, copy: Copy) -> Whole {
        Whole::new(copy, self.ties, self.reader.point(), self.bytes)
    }

    /// Has the file hold durably what was brought into it. The ring's head may move to the position that is returned. `is_complete`: the ring
    /// has no other record, and gets none.
    ///
    /// # Errors
    /// The disk's: the head stays.
    pub fn settle(&mut self, is_complete: bool) -> Result<u64, Failed> {
        self.flush()?;
        let newest = self.ties.newest();
        let point = self.reader.point();
        // A complete state that no record was brought to stays one: a tie that has parts of an epoch's records in the file, of an epoch that has none, is damaged.
        if newest.point != point || is_complete && !newest.is_complete {
            self.sync()?;
            self.disk.allow(Which::Image, self.bytes)?;
            self.ties.write(self.disk, (point, is_complete), self.bytes)?;
            self.sync()?;
            self.ties.synced(self.disk);
        }
        Ok(self.reader.at())
    }
}
