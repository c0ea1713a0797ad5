//! A copy of what a file holds, in memory of its own: the file is read, and its log. What is done to the copy nobody keeps.
//!
//! Somebody may have the file open meanwhile. Who keeps a log writes a record to it before he writes anything of it to the file: so the
//! file as it is read, whatever was being written to it, with all records of the log after it is the image of the last of them, if the log
//! is still the same afterwards. Who has the file mapped says that, and is asked to lend it ([`loan`](crate::loan)). If nobody has it, nobody gets it as long as
//! it is read.

use core::ptr::NonNull;
use core::slice;

use spandrel_os::image::{Access, Image};
use spandrel_os::{clock, vm};
use spandrel_pages::PAGE_BYTES;

use crate::loan::{self, Loan, Nap};
use crate::log::{BUFFER_BYTES, Disk, Log, Which};
use crate::media::Place;
use crate::medium::{Failed, Medium};
use crate::room;
use crate::unmap;

/// How often a file is read anew that changes meanwhile, however short the wait.
const TRIES: usize = 100;
/// What is read in one go: whoever lends the file hears that often that it is still being read.
const PIECE_BYTES: usize = 8 << 20;

/// See the head of this file.
pub struct Snapshot {
    base: NonNull<u8>,
    bytes: usize,
    reserved: usize,
}

// SAFETY: the memory is its own.
unsafe impl Send for Snapshot {}
// SAFETY: as above.
unsafe impl Sync for Snapshot {}

/// The file, and its log if there is one.
struct Source {
    image: Image,
    log: Option<Image>,
}

impl Disk for Source {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        match which {
            Which::Image => self.image.read_at(into, at).map_err(Failed),
            Which::Log => {
                self.log.as_ref().map_or(Ok(0), |log| log.read_at(into, at).map_err(Failed))
            }
        }
    }

    fn write(&self, _: Which, _: u64, _: &[u8]) -> Result<(), Failed> {
        Err(Failed(libc::EROFS))
    }

    fn sync(&self, _: Which) -> Result<(), Failed> {
        Err(Failed(libc::EROFS))
    }
}

/// What became of an attempt.
enum Read {
    Copied(Snapshot),
    /// It was changed meanwhile.
    Changed,
    /// Somebody has it, and keeps no log.
    Held,
}

impl Source {
    fn open(place: &Place<'_>) -> Result<Self, Failed> {
        let image = Image::open(place.path, Access::Read).map_err(Failed)?;
        let log = match Image::open(place.log, Access::Read) {
            Ok(log) => Some(log),
            Err(libc::ENOENT) => None,
            Err(why) => return Err(Failed(why)),
        };
        Ok(Self { image, log })
    }

    /// Reads all of a file that stays as it is, or whose owner keeps a log.
    fn read(&self, place: &Place<'_>) -> Result<Read, Failed> {
        let mut buffer = room::Buffer::new(BUFFER_BYTES)?;
        let before = Log::open(self, place.identity, 0, buffer.bytes())?;
        let is_free = match self.image.lock(Access::Read) {
            Err(libc::EWOULDBLOCK) => false,
            locked => locked.map(|()| true).map_err(Failed)?,
        };
        if !is_free && (self.log.is_none() || loan::is_marked(&self.image)) {
            return Ok(Read::Held);
        }
        let bytes = before.image_bytes().unwrap_or(0);
        let mut copy = Snapshot::room(&self.image, bytes, place.base)?;
        copy.fill(&self.image, &mut || ())?;
        let all = copy.bytes_mut();
        let replayed = before.replay(self, buffer.bytes(), |at, run| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let place = at.checked_add(run.len()).and_then(|to| all.get_mut(at..to));
            place.ok_or(Failed(libc::EBADMSG))?.copy_from_slice(run);
            Ok(())
        });
        let after = Log::open(self, place.identity, 0, buffer.bytes())?;
        // Whoever keeps no log may have come, or have come and gone.
        let is_same = before.is_same(&after)
            && (is_free || !loan::is_marked(&self.image) && self.image.lock(Access::Read).is_err());
        if !is_same {
            return Ok(Read::Changed);
        }
        replayed.map(|()| Read::Copied(copy))
    }

    /// Reads all of a file that its owner lends.
    fn read_lent(&self, place: &Place<'_>, loan: &Loan) -> Result<Read, Failed> {
        let mut copy = Snapshot::room(&self.image, 0, place.base)?;
        copy.fill(&self.image, &mut || loan.beat())?;
        if !loan.is_kept() {
            return Ok(Read::Changed);
        }
        // Nobody asks for the copy.
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

impl Snapshot {
    /// Copies a file, at its base if it has one.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if somebody has it mapped who cannot be asked, or is not to be waited for, or it never stays the same;
    /// `ETIMEDOUT` if he was waited for and did not lend it; `EADDRINUSE` if something lies at the base; `EBADMSG` if the log is another
    /// file's; `ENOMEM`.
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
                    // Without the right to write to it nobody can ask.
                    if loan.is_none() {
                        return Err(Failed(libc::EWOULDBLOCK));
                    }
                    continue;
                }
                (Read::Held, Some(loan)) => match loan.is_granted() {
                    true => source.read_lent(place, loan)?,
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

    /// Room for a file, and for so many bytes at least: zeroes.
    fn room(image: &Image, least: u64, base: Option<usize>) -> Result<Self, Failed> {
        let bytes = least.max(image.bytes().map_err(Failed)?);
        let bytes = usize::try_from(bytes).map_err(|_| Failed(libc::EFBIG))?;
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        let (at, reserved) = room::reserve(bytes, base)?;
        let copy = Self { base: at, bytes, reserved };
        // SAFETY: just reserved.
        if !unsafe { vm::open(at.as_ptr(), reserved) } {
            return Err(Failed(libc::ENOMEM));
        }
        // Most of it is filled at once, and whoever lends the file waits for that.
        // SAFETY: its own.
        unsafe { vm::advise_huge(at.as_ptr(), reserved) };
        Ok(copy)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: its own, and open.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Reads what a file holds, and takes no memory for its holes.
    fn fill(&mut self, image: &Image, goes_on: &mut dyn FnMut()) -> Result<(), Failed> {
        let (mut at, all) = (0, self.bytes_mut());
        // It may have become longer meanwhile.
        while at < all.len() {
            let Some((start, end)) = image.next_data(at as u64).map_err(Failed)? else { break };
            let end = usize::try_from(end).unwrap_or(usize::MAX).min(all.len());
            at = usize::try_from(start).unwrap_or(usize::MAX);
            let Some(data) = all.get_mut(at..end) else { break };
            for piece in data.chunks_mut(PIECE_BYTES) {
                at += image.read_at(piece, at as u64).map_err(Failed)?;
                goes_on();
            }
            // It was cut off meanwhile.
            if at < end {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: its own.
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

    fn write_back(&self, _: usize, _: usize) {}

    fn fence(&self) {}

    fn checkpoint(&self) -> Result<(), Failed> {
        Ok(())
    }
}
