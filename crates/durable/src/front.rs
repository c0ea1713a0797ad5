//! The front end's side of the ring: a batch becomes one record.

use core::slice;

use spandrel_os::clock;
use spandrel_pmem::disk::{Disk, LogOf};
use spandrel_pmem::{Buffer, Failed};
use spandrel_redolog::{BUFFER_BYTES, Point, RUN_BYTES, Reader, Ring};

use crate::control::Control;

/// How long a full ring is waited for before the replica is looked at again, in milliseconds.
const LOOK_MS: u32 = 100;

/// Why a batch is not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The batch is longer than the ring. Nothing was written.
    TooLong,
    /// The replica does not go on, and the ring is full; the number of [`Control::failure`]. Nothing was written.
    Full(i32),
    /// The disk refused: recovery may find the batch or not, and nothing is written any more.
    Poisoned(Failed),
}

/// See the head of this file.
pub struct Front<'a, D: Disk> {
    disk: &'a D,
    control: &'a Control,
    ring: Ring,
    buffer: Buffer,
    poison: Option<Failed>,
}

impl<'a, D: Disk> Front<'a, D> {
    /// Of a ring whose epoch has begun. Control begins at its end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(disk: &'a D, control: &'a Control, ring: Ring) -> Result<Self, Failed> {
        // What can fail is first: the front before this one stays then, with its end.
        let buffer = Buffer::new(BUFFER_BYTES)?;
        control.begin(ring.end());
        Ok(Self { disk, control, ring, buffer, poison: None })
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Bytes of the ring that one record takes at most, of `runs` runs with `bytes` bytes in all.
    pub fn bound(&self, runs: u64, bytes: u64) -> u64 {
        self.ring.bytes_of(bytes.saturating_add(runs.saturating_mul(RUN_BYTES as u64)))
    }

    /// Waits until the ring has room for that number of bytes.
    fn make_room(&self, bytes: u64) -> Result<(), Refused> {
        if !self.ring.can_hold(bytes) {
            return Err(Refused::TooLong);
        }
        let (_, head) = self.control.bells();
        loop {
            let seen = head.seen();
            if self.ring.has_room(bytes, self.control.free()) {
                return Ok(());
            }
            if let Some(why) = self.control.failure() {
                return Err(Refused::Full(why));
            }
            self.control.ask();
            head.wait(seen, LOOK_MS);
        }
    }

    /// Makes a batch durable; where the state is then, and the time that the record says: `each` calls its argument with the address and the length of each run that was stored, `runs` of them with
    /// `bytes` bytes at most. `image` is where the state begins in memory, and its length.
    ///
    /// # Errors
    /// See [`Refused`].
    ///
    /// # Safety
    /// The runs lie in the state, and no thread stores to it meanwhile.
    pub unsafe fn commit(
        &mut self,
        image: (*const u8, u64),
        (runs, bytes): (u64, u64),
        each: impl FnOnce(&mut dyn FnMut(*const u8, usize)),
    ) -> Result<(Point, u64), Refused> {
        if let Some(why) = self.poison {
            return Err(Refused::Poisoned(why));
        }
        self.make_room(self.bound(runs, bytes))?;
        let log = LogOf(self.disk);
        let mut record = self.ring.record(&log, self.buffer.bytes());
        record.set_image_bytes(image.1);
        let time = clock::calendar_nanos();
        record.set_time(time);
        let mut outcome = Ok(());
        each(&mut |at, len| {
            if outcome.is_ok() {
                let offset = (at as usize).wrapping_sub(image.0 as usize) as u64;
                // SAFETY: promised by the caller.
                let bytes = unsafe { slice::from_raw_parts(at, len) };
                outcome = record.run(offset, bytes);
            }
        });
        let committed = outcome.and_then(|()| self.ring.commit(record, &&log));
        if let Err(why) = committed {
            self.poison = Some(why);
            return Err(Refused::Poisoned(why));
        }
        self.control.publish(self.ring.end());
        Ok((self.ring.last(), time))
    }

    /// What the replica and this share.
    pub fn control(&self) -> &'a Control {
        self.control
    }

    /// The disk with both files.
    pub fn disk(&self) -> &'a D {
        self.disk
    }

    /// Waits until the state's file has all records. Durable they are in the ring.
    ///
    /// # Errors
    /// [`Refused::Full`]: the replica does not go on.
    pub fn await_applied(&self) -> Result<(), Refused> {
        let (tail, head) = self.control.bells();
        loop {
            let seen = head.seen();
            self.control.ask_applied();
            // First: what the file has after a sync that the disk has refused is not known.
            if let Some(why) = self.control.failure() {
                return Err(Refused::Full(why));
            }
            if self.control.applied_to() == self.ring.end() {
                return Ok(());
            }
            tail.ring();
            head.wait(seen, LOOK_MS);
        }
    }

    /// Calls `see` with the offset and the bytes of all that records store which the state's file may lack, in order. The replica has ended.
    ///
    /// # Errors
    /// [`Failed::DAMAGED_LOG`]: a record is not whole.
    pub fn each_pending(&mut self, see: &mut dyn FnMut(u64, &[u8])) -> Result<(), Failed> {
        let (log, at) = (LogOf(self.disk), self.control.head());
        if at == self.ring.end() {
            return Ok(());
        }
        let mut reader = Reader::from(&self.ring, at, &log)?;
        while reader.at() < self.ring.end() {
            let apply = |at, part: &[u8]| {
                see(at, part);
                Ok(())
            };
            reader.next(&log, self.buffer.bytes(), |_| Ok(()), apply)?;
        }
        Ok(())
    }
}
