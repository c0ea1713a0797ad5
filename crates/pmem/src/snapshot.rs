//! A copy in memory of a file and its log.
//!
//! Another process, the owner, may have the file open meanwhile:
//!
//! - An owner that keeps a log writes each record to the log before it writes the runs of the record to the file. So the file as it is
//!   read, whatever the owner writes to it meanwhile, together with all records that the log has after the reading, is the image of the
//!   last record, provided that the log has not begun anew. A shared byte lock makes the owner lengthen the log instead, so that one
//!   reading is enough for any number of checkpoints.
//! - An owner that has the file mapped marks that, and lends the file ([`loan`](crate::loan)).
//!
//! A file without an owner is locked while it is read.

use core::ptr::NonNull;
use core::slice;

use spandrel_os::image::{Access, Image};
use spandrel_os::{clock, vm};
use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::{BUFFER_BYTES, Fit, Log};

use crate::compare::{Found, Mismatch, Standing};
use crate::disk::{Disk, LogOf, Which};
use crate::files::{check_identity, drawn, open_log};
use crate::loan::{self, Loan, Nap, READER};
use crate::media::Place;
use crate::medium::{Failed, Medium};
use crate::old_log::OldLog;
use crate::room;
use crate::sums::Sums;
use crate::sums_file;
use crate::tie::{self, Tie, Ties};
use crate::unmap;

/// Readings of a file that changes meanwhile, at least, however short the wait: the disk was full, or the file was closed and opened.
const TRIES: usize = 20;
/// Bytes of one read, each of which is a beat for an owner that lends the file.
const PIECE_BYTES: usize = 8 << 20;
/// Address space for an image that becomes longer while it is read.
const SPARE_BYTES: usize = 1 << 30;

/// See the head of this file.
pub struct Snapshot {
    base: NonNull<u8>,
    bytes: usize,
    reserved: usize,
    /// What the comparison of the pages with their sums has found.
    found: Found,
}

// SAFETY: the memory belongs to the value, and has no link to the thread that made it.
unsafe impl Send for Snapshot {}
// SAFETY: as above.
unsafe impl Sync for Snapshot {}

/// The file, and its log if there is one.
struct Source {
    image: Image,
    log: Option<Image>,
    /// The file with its sums, if there is one and they are to be compared.
    sums: Option<Image>,
    standing: Standing,
}

impl Disk for Source {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        match which {
            Which::Image => self.image.read_at(into, at).map_err(Failed),
            Which::Log => {
                self.log.as_ref().map_or(Ok(0), |log| log.read_at(into, at).map_err(Failed))
            }
            Which::Sums => {
                self.sums.as_ref().map_or(Ok(0), |sums| sums.read_at(into, at).map_err(Failed))
            }
        }
    }

    fn write(&self, _: Which, _: u64, _: &[u8]) -> Result<(), Failed> {
        Err(Failed(libc::EROFS))
    }

    fn allow(&self, _: Which, _: u64) -> Result<(), Failed> {
        Err(Failed(libc::EROFS))
    }

    fn sync(&self, _: Which) -> Result<(), Failed> {
        Err(Failed(libc::EROFS))
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        match which {
            Which::Image => self.image.bytes().map_err(Failed),
            Which::Log => self.log.as_ref().map_or(Ok(0), |log| log.bytes().map_err(Failed)),
            Which::Sums => self.sums.as_ref().map_or(Ok(0), |sums| sums.bytes().map_err(Failed)),
        }
    }
}

/// The outcome of an attempt.
enum Read {
    Copied(Snapshot),
    /// The file was changed meanwhile.
    Changed,
    /// Another process has the file, and keeps no log.
    Held,
}

impl Drop for Source {
    fn drop(&mut self) {
        // A child that is forked meanwhile shares the lock. With it the log of the owner would become longer until the child ends.
        self.image.unlock_byte(READER);
    }
}

impl Source {
    fn open(place: &Place<'_>) -> Result<Self, Failed> {
        let image = Image::open(place.path, Access::Read).map_err(Failed)?;
        check_identity(&image, place)?;
        let log = match open_log(place.log, Access::Read) {
            Err(Failed::NOT_A_LOG) if place.forgives => None,
            opened => opened?,
        };
        let (sums, standing) = match place.compares.then(|| sums_file::open(place, Access::Read)) {
            None | Some(Ok(None)) => (None, Standing::Absent),
            Some(Ok(Some(sums))) => (Some(sums), Standing::Stale),
            Some(Err(Failed::FOREIGN_SUMS)) => (None, Standing::Foreign),
            Some(Err(why)) => return Err(why),
        };
        Ok(Self { image, log, sums, standing })
    }

    /// Whether the paths still lead to the files that were opened: an owner may have closed the image, and another one opened it.
    fn is_current(&self, place: &Place<'_>) -> Result<bool, Failed> {
        let is_log = match &self.log {
            Some(log) => log.is_named(place.log).map_err(Failed)?,
            None => match open_log(place.log, Access::Read) {
                Err(Failed::NOT_A_LOG) => place.forgives,
                found => matches!(found, Ok(None)),
            },
        };
        Ok(is_log && self.image.is_named(place.path).map_err(Failed)?)
    }

    /// The newest line of the file: the state that it is in.
    fn tie(&self, place: &Place<'_>) -> Result<Tie, Failed> {
        match Ties::read(self, place.tie, place.identity)? {
            tie::Found::Ties(ties) => Ok(ties.newest()),
            tie::Found::Nothing if place.is_old => {
                Ok(Ties::new(place.tie, place.identity, 0).newest())
            }
            tie::Found::Nothing => Err(Failed::DAMAGED_TIE),
        }
    }

    /// Reads all of a file that stays as it is, or whose owner keeps a log.
    fn read(&self, place: &Place<'_>) -> Result<Read, Failed> {
        let is_free = match self.image.lock(Access::Read) {
            Err(libc::EWOULDBLOCK) => false,
            locked => locked.map(|()| true).map_err(Failed)?,
        };
        if !is_free && (self.log.is_none() || loan::is_marked(&self.image)) {
            return Ok(Read::Held);
        }
        // Where the file system has no such locks, a log that begins anew is noticed below, and the file is read once more.
        let _ = self.image.share_byte(READER);
        let read = self.read_logged(place, is_free);
        self.judged(read, is_free, place)
    }

    /// What a read says. Only the lock (`is_free`) keeps the file and its log as they are from the first byte to the last: an error of a
    /// read without it says nothing about what they are now, also where the owner has ended since.
    fn judged(
        &self,
        read: Result<Read, Failed>,
        is_free: bool,
        place: &Place<'_>,
    ) -> Result<Read, Failed> {
        match read {
            Err(why) if is_of_state(why) && (!is_free || !self.is_current(place)?) => {
                Ok(Read::Changed)
            }
            Err(why) if place.forgives && is_of_state(why) => {
                let mut copy = Snapshot::room(&self.image, place.base)?;
                copy.fill(&self.image, &mut || ())?;
                copy.untie(place);
                copy.found.standing = self.standing;
                Ok(Read::Copied(copy))
            }
            read => read,
        }
    }

    fn read_logged(&self, place: &Place<'_>, is_free: bool) -> Result<Read, Failed> {
        let mut buffer = room::Buffer::new(BUFFER_BYTES)?;
        let mut log_of =
            |tie: &Tie| Log::open(&LogOf(self), place.identity, tie.point, buffer.bytes());
        let old = self.tie(place)?;
        let old_log = log_of(&old)?;
        let mut copy = Snapshot::room(&self.image, place.base)?;
        copy.fill(&self.image, &mut || ())?;
        let tie = self.tie(place)?;
        let log = log_of(&tie)?;
        // The log has begun anew, or the file was closed and opened.
        let is_same = old_log.is_continued_by(&log)
            && (tie.point == old.point
                || Some(tie.point.epoch) == log.last().map(|last| last.epoch));
        if !is_same {
            return Ok(Read::Changed);
        }
        if place.is_old && old.point == Ties::new(place.tie, place.identity, 0).newest().point {
            copy.absorb_old(place, buffer.bytes())?;
        }
        let is_replayed = log.fits(old.point, old.is_complete)? == Fit::Continues;
        // Of one that was closed the heap says how long it was.
        if is_replayed && self.bytes(Which::Image)? < old.image_bytes {
            return Err(Failed::CUT_OFF);
        }
        if is_replayed {
            let bytes = room_for(log.image_bytes());
            // The file has become much longer since: another attempt sets more aside, unless the process has no more.
            if bytes > copy.reserved && copy.reserved >= copy.bytes.saturating_mul(2) {
                return Ok(Read::Changed);
            }
            copy.ensure(bytes)?;
            let mut found = Found::default();
            if self.sums.is_some() {
                found.make_room(copy.bytes)?;
            }
            let all = copy.bytes_mut();
            log.replay(&LogOf(self), buffer.bytes(), |at, run| {
                found.note_replayed(at, run.len());
                put(all, at, run)
            })?;
            copy.found = found;
            // What was replayed is still there.
            let again = Log::open(&LogOf(self), place.identity, tie.point, buffer.bytes())?;
            if !log.is_continued_by(&again) {
                return Ok(Read::Changed);
            }
        }
        copy.found.standing = self.standing;
        if self.sums.is_some() {
            copy.found.standing = match is_free {
                true => self.compare(place, &mut copy, (&old, &log, is_replayed))?,
                false => Standing::Busy,
            };
        }
        copy.untie(place);
        Ok(Read::Copied(copy))
    }

    /// Compares the pages of a copy with their sums, except those that the log has: these are what its checksums say.
    fn compare(
        &self,
        place: &Place<'_>,
        copy: &mut Snapshot,
        (tie, log, is_replayed): (&Tie, &Log, bool),
    ) -> Result<Standing, Failed> {
        let places = (place.tie, place.asking as u64);
        let Some(mut sums) = Sums::read(self, place.identity, places)? else {
            return Ok(Standing::Foreign);
        };
        // An image of the first version does not say which state it is in.
        if place.is_old || !sums.fits(tie, log, is_replayed) {
            return Ok(Standing::Stale);
        }
        sums.limit((copy.bytes / PAGE_BYTES) as u64);
        let mut found = core::mem::take(&mut copy.found);
        found.make_room(copy.bytes)?;
        found.compare(self, &sums, copy.bytes_mut())?;
        copy.found = found;
        Ok(Standing::Compared)
    }

    /// Reads all of a file that its owner lends: the file that the loan is of, which another one may have replaced since.
    fn read_lent(place: &Place<'_>, loan: &Loan) -> Result<Read, Failed> {
        let mut copy = Snapshot::room(loan.image(), place.base)?;
        copy.fill(loan.image(), &mut || loan.beat())?;
        if !loan.is_kept() {
            return Ok(Read::Changed);
        }
        copy.untie(place);
        // The copy has no asker.
        if let Some(line) = copy
            .bytes_mut()
            .get_mut(place.asking..)
            .and_then(|rest| rest.get_mut(..loan::LINE_BYTES))
        {
            line.fill(0);
        }
        Ok(Read::Copied(copy))
    }
}

/// Whether the error says that a log does not fit the image.
fn is_of_state(why: Failed) -> bool {
    why.is_of_log() || why == Failed::DAMAGED_TIE
}

/// The length in memory of an image that a record gives the length of.
fn room_for(image_bytes: Option<u64>) -> usize {
    usize::try_from(image_bytes.unwrap_or(0)).unwrap_or(usize::MAX)
}

/// Copies bytes to an offset.
///
/// # Errors
/// [`Failed::DAMAGED_LOG`]: they do not fit.
fn put(all: &mut [u8], at: u64, bytes: &[u8]) -> Result<(), Failed> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let place = at.checked_add(bytes.len()).and_then(|to| all.get_mut(at..to));
    place.ok_or(Failed::DAMAGED_LOG)?.copy_from_slice(bytes);
    Ok(())
}

impl Snapshot {
    /// Copies a file, at its base if it has one.
    ///
    /// # Errors
    /// - `EWOULDBLOCK`: another process has the file mapped, and this one may not write to the file or is not to wait; or the file
    ///   changed during every reading;
    /// - `ETIMEDOUT`: the owner did not lend the file within the wait;
    /// - `EADDRINUSE`: something is mapped at the base;
    /// - `ENOMEM`;
    /// - the errors of a log that does not fit (see [`Failed`]);
    /// - other numbers: the file system's.
    pub fn take(place: &Place<'_>) -> Result<Self, Failed> {
        let until = u128::from(clock::nanos()) + place.wait.as_nanos();
        let is_over = || u128::from(clock::nanos()) >= until;
        let (mut loan, mut tries, mut nap) = (None, 0, Nap::new());
        loop {
            let source = Source::open(place)?;
            let read = match (source.read(place)?, &mut loan) {
                (Read::Held, None) if is_over() => return Err(Failed(libc::EWOULDBLOCK)),
                (Read::Held, None) => {
                    loan = Loan::ask(place.path, place.asking).ok();
                    // A request needs the right to write to the file.
                    if loan.is_none() {
                        return Err(Failed(libc::EWOULDBLOCK));
                    }
                    continue;
                }
                (Read::Held, Some(loan)) => match loan.is_granted() {
                    true => Source::read_lent(place, loan)?,
                    false => Read::Held,
                },
                (read, _) => read,
            };
            match read {
                Read::Copied(copy) => return Ok(copy),
                Read::Held if is_over() => return Err(Failed(libc::ETIMEDOUT)),
                Read::Changed if is_over() && tries >= TRIES => {
                    return Err(Failed(libc::EWOULDBLOCK));
                }
                Read::Changed => tries += 1,
                Read::Held => {}
            }
            nap.take();
        }
    }

    /// An empty copy: zeroes for the file, and address space for what the log may have behind the file's end.
    fn room(image: &Image, base: Option<usize>) -> Result<Self, Failed> {
        let bytes = usize::try_from(image.bytes().map_err(Failed)?);
        let bytes = bytes.map_err(|_| Failed(libc::EFBIG))? / PAGE_BYTES * PAGE_BYTES;
        let spare = bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
        let room = room::reserve(spare, base).or_else(|_| room::reserve(bytes, base));
        let (at, reserved) = room?;
        let mut copy = Self { base: at, bytes: 0, reserved, found: Found::default() };
        copy.ensure(bytes)?;
        Ok(copy)
    }

    /// Lengthens the copy to `bytes` bytes at least: a record may be of a longer image than the file was.
    ///
    /// # Errors
    /// `ENOMEM`: also if that is more than the address space that was set aside.
    fn ensure(&mut self, bytes: usize) -> Result<(), Failed> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let to = bytes.checked_next_multiple_of(PAGE_BYTES).filter(|to| *to <= self.reserved);
        let to = to.ok_or(Failed(libc::ENOMEM))?;
        let at = self.base.as_ptr().wrapping_add(self.bytes);
        // SAFETY: within the reservation, behind what is open.
        unsafe {
            if !vm::open(at, to - self.bytes) {
                return Err(Failed(libc::ENOMEM));
            }
            // Most of it is filled at once, while an owner may stand still: huge pages save faults.
            vm::advise_huge(at, to - self.bytes);
        }
        self.bytes = to;
        Ok(())
    }

    /// Writes lines to the copy that say that it is complete, in a state that no log continues.
    fn untie(&mut self, place: &Place<'_>) {
        let lines = Ties::fresh(place.identity, drawn(), 0);
        // A copy that is too short for the lines is refused by its reader, as a damaged image.
        let _ = put(self.bytes_mut(), place.tie, &lines);
    }

    /// Writes the records of a log of the first version to the copy.
    fn absorb_old(&mut self, place: &Place<'_>, buffer: &mut [u8]) -> Result<(), Failed> {
        let Ok(file) = Image::open(place.old_log, Access::Read) else { return Ok(()) };
        let Some(old) = OldLog::of(&file, place.identity)? else { return Ok(()) };
        // A first pass finds the length of the image.
        if let Some(bytes) = old.replay(buffer, |_, _| Ok(()))? {
            self.ensure(room_for(Some(bytes)))?;
            let all = self.bytes_mut();
            old.replay(buffer, |at, run| put(all, at, run))?;
        }
        Ok(())
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `bytes` bytes of the reservation are open, and the copy is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Reads a file, up to the length of the copy. Holes take no memory. Calls `beat` after each piece.
    fn fill(&mut self, image: &Image, beat: &mut dyn FnMut()) -> Result<(), Failed> {
        let (mut at, all) = (0, self.bytes_mut());
        // The file may have become longer meanwhile.
        while at < all.len() {
            let Some((start, end)) = image.next_data(at as u64).map_err(Failed)? else { break };
            let end = usize::try_from(end).unwrap_or(usize::MAX).min(all.len());
            at = usize::try_from(start).unwrap_or(usize::MAX);
            let Some(data) = all.get_mut(at..end) else { break };
            for piece in data.chunks_mut(PIECE_BYTES) {
                let read = image.read_at(piece, at as u64).map_err(Failed)?;
                // The file was cut off meanwhile.
                if read < piece.len() {
                    return Ok(());
                }
                at += read;
                beat();
            }
        }
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: `drop` has the copy exclusively, and the reservation belongs to it.
        unsafe { unmap::release(self.base.as_ptr(), self.reserved, self.bytes) };
    }
}

// SAFETY: the memory is mapped as long as this lives.
unsafe impl Medium for Snapshot {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_private(&self) -> bool {
        true
    }

    fn write_back(&self, _: usize, _: usize) {}

    fn fence(&self) {}

    fn checkpoint_still(&self, _: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        Ok(())
    }

    fn compare_sums(&self, see: &mut dyn FnMut(u64, Mismatch)) -> Result<Standing, Failed> {
        self.found.each(see);
        Ok(self.found.standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use std::prelude::v1::*;

    /// The owner writes between the reads of a copy, and ends before the copy looks for it.
    #[test]
    fn an_error_of_a_read_without_the_lock_is_no_verdict_on_the_file() {
        let place = Directory::new();
        place.make(64 << 10).unwrap();
        let file = crate::File::open(&place.place()).unwrap();
        let owned = Source::open(&place.place()).unwrap();
        assert_eq!(owned.image.lock(Access::Read), Err(libc::EWOULDBLOCK));
        drop(file);
        let source = Source::open(&place.place()).unwrap();
        for why in
            [Failed::STALE_LOG, Failed::DAMAGED_LOG, Failed::MISSING_LOG, Failed::DAMAGED_TIE]
        {
            let judged = |is_free| source.judged(Err(why), is_free, &place.place());
            assert!(matches!(judged(false), Ok(Read::Changed)), "{why:?}");
            assert_eq!(judged(true).err(), Some(why), "under the lock it is one");
        }
        assert!(Snapshot::take(&place.place()).is_ok());
    }
}
