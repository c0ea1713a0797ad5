//! The protocol of an image and its write-ahead log, step by step: what is written where, what is waited for, and what recovery does about it.
//!
//! ```text
//! checkpoint   record to the log, sync of the log      it is durable
//!              line to the image: under way            the first of an epoch is synced before any page: without its log the image is refused then
//!              runs of the record to the image         no sync: recovery writes them again
//! anew         sums, if the image has any, and a sync   the log is full, or the image is closed; see `sums`
//!              sync of the image
//!              line to the image: complete
//!              sync of the image                       from here on the log's records are of no use, and the next one overwrites the first
//! ```
//!
//! A record that continues the complete state begins the next epoch.

use spandrel_redolog::{Fit, Log, Point, Record, Written};

use crate::disk::{Disk, LogOf, Which};
use crate::medium::Failed;
use crate::sums::Sums;
use crate::tie::Ties;

/// The log of an image that is open, and what ties them together.
pub struct Wal {
    log: Log,
    ties: Ties,
    /// The epoch of the log's next first record.
    epoch: u64,
    /// The image lacks some of the log's records: the file system had no room for them.
    is_behind: bool,
    /// Bytes that the image has durably.
    image_bytes: u64,
    /// The sums of the image's pages.
    sums: Option<Sums>,
}

impl Wal {
    /// Has an image hold all that its log has, durably; what it says of itself is that it is complete. The log has no record then. `epoch` is a
    /// number that no log of it has had; `lengthen` makes the image as long as its argument says. Sums that do not fit are dropped.
    ///
    /// # Errors
    /// The disk's; those of [`Log::open`] and [`Log::fits`]: nothing was written then.
    pub fn recover<D: Disk>(
        disk: &D,
        (identity, epoch): (u64, u64),
        mut ties: Ties,
        sums: Option<Sums>,
        buffer: &mut [u8],
        lengthen: impl FnOnce(u64) -> Result<(), Failed>,
    ) -> Result<Self, Failed> {
        let mut log = Log::open(&LogOf(disk), identity, ties.newest().point, buffer)?;
        let fit = log.fits(ties.newest().point, ties.newest().is_complete)?;
        // What the log continues was longer. Of an image that was closed the heap says how long it was.
        if log.last().is_some() && ties.is_cut(disk.bytes(Which::Image)?) {
            return Err(Failed::CUT_OFF);
        }
        let mut sums = sums.filter(|sums| sums.fits(&ties.newest(), &log, fit == Fit::Continues));
        match (fit, log.last()) {
            (Fit::Continues, Some(last)) => {
                // What was read is relied on from here: the last record and the newest line may be in a cache only, and a second failure may take them from there.
                log.write_last_again(&LogOf(disk), buffer)?;
                log.image_bytes().map_or(Ok(()), lengthen)?;
                allow_image(disk)?;
                ties.write_again(disk)?;
                // What the newest line says is durable before the other one is written.
                disk.sync(Which::Image)?;
                if ties.newest().is_complete {
                    let image_bytes = ties.newest().image_bytes;
                    begin(disk, &mut ties, last, image_bytes)?;
                }
                log.replay(&LogOf(disk), buffer, |at, bytes| put(disk, &mut sums, at, bytes))?;
                disk.sync(Which::Image)?;
                if let Some(sums) = &mut sums {
                    sums.write(disk, last, buffer)?;
                }
                ties.write(disk, (last, true), disk.bytes(Which::Image)?)?;
                disk.sync(Which::Image)?;
                ties.synced(disk);
            }
            // The image has all of it, perhaps not durably.
            _ => {
                allow_image(disk)?;
                ties.write_again(disk)?;
                disk.sync(Which::Image)?;
            }
        }
        log.forget();
        let image_bytes = disk.bytes(Which::Image)?;
        Ok(Self { log, ties, epoch, is_behind: false, image_bytes, sums })
    }

    /// The state that the image is in, if the log is empty.
    pub fn point(&self) -> Point {
        self.ties.newest().point
    }

    /// The sums of the image.
    pub fn sums(&self) -> Option<&Sums> {
        self.sums.as_ref()
    }

    /// The same, to be changed.
    pub fn sums_mut(&mut self) -> Option<&mut Sums> {
        self.sums.as_mut()
    }

    /// The image has these sums from now on. They are of its state, and the log is empty.
    pub fn set_sums(&mut self, sums: Option<Sums>) {
        self.sums = sums;
    }

    /// Whether the log has no record.
    pub fn is_empty(&self) -> bool {
        self.log.last().is_none()
    }

    /// Bytes of the log's records.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// What the image has after the last record; `None`: there is no record.
    pub fn image_bytes(&self) -> Option<u64> {
        self.log.image_bytes()
    }

    /// Whether the image lacks some of the log's records.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// As if the file system had no room for the records that follow.
    #[cfg(test)]
    pub fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    /// Begins a record.
    pub fn record<'a, D: Disk>(
        &self,
        disk: &'a D,
        buffer: &'a mut [u8],
    ) -> Record<'a, LogOf<'a, D>> {
        self.log.record(LogOf(disk), (self.ties.newest().point, self.epoch), buffer)
    }

    /// Ends a record and makes it durable.
    ///
    /// # Errors
    /// The disk's. Recovery may find it or not.
    pub fn commit<'a, D: Disk>(
        &mut self,
        record: Record<'a, LogOf<'a, D>>,
        disk: &'a D,
    ) -> Result<Written, Failed> {
        self.log.commit(record, &LogOf(disk))
    }

    /// Writes the record that was committed last to the image; `buffer` is the one that it was written from, unchanged. A disk without room for that
    /// is no error: the record is durable, and the image gets it before the log begins anew.
    ///
    /// # Errors
    /// The disk's.
    pub fn apply(
        &mut self,
        disk: &impl Disk,
        record: Written,
        buffer: &mut [u8],
    ) -> Result<(), Failed> {
        let Some(last) = self.log.last() else { return Ok(()) };
        // Before any page: an image with a part of a record says that it needs its log.
        let mut outcome = allow_image(disk).and_then(|()| match self.ties.newest().is_complete {
            true => begin(disk, &mut self.ties, last, self.image_bytes),
            false => self.ties.write(disk, (last, false), self.image_bytes),
        });
        if outcome.is_ok() && !self.is_behind {
            let sums = &mut self.sums;
            let write = |at: u64, bytes: &[u8]| put(disk, sums, at, bytes);
            outcome = self.log.replay_last(&LogOf(disk), record, buffer, write);
        }
        match outcome {
            Err(why) if why.is_full() => {
                self.is_behind = true;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Has the image hold all records durably; the log has none then. `epoch` as for [`Wal::recover`].
    ///
    /// # Errors
    /// The disk's.
    pub fn begin_anew(
        &mut self,
        disk: &impl Disk,
        buffer: &mut [u8],
        epoch: u64,
    ) -> Result<(), Failed> {
        let Some(last) = self.log.last() else { return Ok(()) };
        allow_image(disk)?;
        if self.is_behind {
            // The line may be what there was no room for.
            if self.ties.newest().is_complete {
                begin(disk, &mut self.ties, last, self.image_bytes)?;
            }
            let sums = &mut self.sums;
            self.log.replay(&LogOf(disk), buffer, |at, bytes| put(disk, sums, at, bytes))?;
            self.is_behind = false;
        }
        if let Some(sums) = &mut self.sums {
            sums.write(disk, last, buffer)?;
        }
        // Before the line: an image that says that it is complete is, also without its log.
        disk.sync(Which::Image)?;
        self.image_bytes = disk.bytes(Which::Image)?;
        self.ties.write(disk, (last, true), self.image_bytes)?;
        disk.sync(Which::Image)?;
        self.ties.synced(disk);
        self.log.forget();
        self.epoch = epoch;
        Ok(())
    }
}

/// Writes what a record has to the image, and notes the sums of these pages.
#[inline]
fn put(disk: &impl Disk, sums: &mut Option<Sums>, at: u64, bytes: &[u8]) -> Result<(), Failed> {
    if let Some(sums) = sums {
        sums.note(at, bytes);
    }
    disk.write(Which::Image, at, bytes)
}

/// Has an image that is complete say that it is not any more, durably, before a page of it changes.
fn begin(disk: &impl Disk, ties: &mut Ties, last: Point, image_bytes: u64) -> Result<(), Failed> {
    ties.write(disk, (last, false), image_bytes)?;
    disk.sync(Which::Image)?;
    ties.synced(disk);
    Ok(())
}

/// Refuses an image that is longer than the process may write.
fn allow_image(disk: &impl Disk) -> Result<(), Failed> {
    disk.allow(Which::Image, disk.bytes(Which::Image)?)
}

#[cfg(test)]
#[path = "wal_sums_tests.rs"]
mod sums_tests;

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
