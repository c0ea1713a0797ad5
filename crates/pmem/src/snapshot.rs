//! A copy of what a file holds, in memory of its own: the file is read, and its log. What is done to the copy nobody keeps.
//!
//! A file with records in its log may be open meanwhile: whoever has it writes a record to the log before it writes anything of it to the file.
//! So the file as it is read, whatever was being written to it, with all records of the log after it is the image of the last of them, if the log
//! is still the same afterwards. Without a record it is read only if nobody has it: whoever maps a file may have left an empty log beside it.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::slice;

use spandrel_os::image::{Access, Image};
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::log::{BUFFER_BYTES, Disk, Log, Which};
use crate::medium::{Failed, Medium};
use crate::room;

/// How often a file is read anew that changes meanwhile.
const TRIES: usize = 100;

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

impl Snapshot {
    /// Copies a file, at `base` if that is given.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if somebody writes to it who keeps no log, or it never stays the same; `EEXIST` if something lies at
    /// `base`; `EBADMSG` if the log is another file's; `ENOMEM`.
    pub fn take(
        path: &CStr,
        log: &CStr,
        identity: u64,
        base: Option<usize>,
    ) -> Result<Self, Failed> {
        let image = Image::open(path, Access::Read).map_err(Failed)?;
        let log = match Image::open(log, Access::Read) {
            Ok(log) => Some(log),
            Err(libc::ENOENT) => None,
            Err(why) => return Err(Failed(why)),
        };
        let source = Source { image, log };
        for _ in 0..TRIES {
            if let Some(copy) = Self::read(&source, identity, base)? {
                return Ok(copy);
            }
            nap();
        }
        Err(Failed(libc::EWOULDBLOCK))
    }

    /// Reads all of it. `None`: it was changed meanwhile.
    fn read(source: &Source, identity: u64, base: Option<usize>) -> Result<Option<Self>, Failed> {
        let mut buffer = room::Buffer::new(BUFFER_BYTES)?;
        let before = Log::open(source, identity, 0, buffer.bytes())?;
        if before.image_bytes().is_none() {
            match source.image.lock(Access::Read) {
                // Whoever has it may be about to write the first record of a log that has begun anew.
                Err(libc::EWOULDBLOCK) if source.log.is_some() => return Ok(None),
                locked => locked.map_err(Failed)?,
            }
        }
        let in_file = source.image.bytes().map_err(Failed)?;
        let bytes = before.image_bytes().unwrap_or(0).max(in_file);
        let bytes = usize::try_from(bytes).map_err(|_| Failed(libc::EFBIG))?;
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        let (at, reserved) = room::reserve(bytes, base)?;
        let copy = Self { base: at, bytes, reserved };
        // SAFETY: just reserved.
        if !unsafe { vm::open(at.as_ptr(), reserved) } {
            return Err(Failed(libc::ENOMEM));
        }
        // SAFETY: its own, and open.
        let all = unsafe { slice::from_raw_parts_mut(at.as_ptr(), bytes) };
        source.image.read_at(all, 0).map_err(Failed)?;
        let replayed = before.replay(source, buffer.bytes(), |at, run| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let place = at.checked_add(run.len()).and_then(|to| all.get_mut(at..to));
            place.ok_or(Failed(libc::EBADMSG))?.copy_from_slice(run);
            Ok(())
        });
        let after = Log::open(source, identity, 0, buffer.bytes())?;
        if !before.is_same(&after) {
            return Ok(None);
        }
        replayed.map(|()| Some(copy))
    }
}

/// Until somebody else has done something.
fn nap() {
    let millisecond = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: it reads the time.
    unsafe { libc::nanosleep(&raw const millisecond, core::ptr::null_mut()) };
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: its own.
        unsafe { vm::release(self.base.as_ptr(), self.reserved) };
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
