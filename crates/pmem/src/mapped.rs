//! Media whose stores are the file's: persistent memory mapped past the page cache (DAX), or memory that outlives the
//! process and not the machine (tmpfs, and any file as far as a crash of the process goes).

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::image::{Image, Mapping};
use spandrel_pages::PAGE_BYTES;
use spandrel_sync::Lock;

use crate::files::drawn;
use crate::line::LINE_BYTES;
use crate::loan;
use crate::medium::{Failed, Medium};
use crate::named::{FileNames, Named};
use crate::persist;
use crate::room;
use crate::tie::Ties;
use crate::unmap;

/// What stores survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Crashes of the process and of the kernel, and loss of power, once they are written back.
    Dax,
    /// Crashes of the process. Lines are written back all the same, so that what is tested here holds there.
    Memory,
}

/// A file that is mapped so.
pub struct Mapped {
    image: Image,
    base: NonNull<u8>,
    reserved: usize,
    bytes: AtomicUsize,
    growth: Lock<()>,
    kind: Kind,
    names: Option<FileNames>,
}

// SAFETY: the mapping is its own, and threads that store to it store to disjoint bytes (`Medium::store`).
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a file that was locked, with room to grow to `limit`, rounded up to whole pages, at `base` if that is given.
    ///
    /// # Errors
    /// The error's number: `EADDRINUSE` if something is mapped at `base`, `ENOMEM` if there is no address space, or that of the file
    /// system.
    pub fn of(image: Image, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        let bytes =
            usize::try_from(image.bytes().map_err(Failed)?).map_err(|_| Failed(libc::EFBIG))?;
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        let (base, reserved) = room::reserve(limit.max(bytes), base)?;
        let (growth, kind, names) = (Lock::new(()), Kind::Dax, None);
        let bytes_now = AtomicUsize::new(0);
        let mut mapped = Self { image, base, reserved, bytes: bytes_now, growth, kind, names };
        // SAFETY: the reservation is this medium's alone.
        let map = |how| unsafe { mapped.image.map(base.as_ptr(), 0, bytes, how) };
        if bytes > 0 && map(Mapping::Synchronous).is_err() {
            map(Mapping::Shared).map_err(Failed)?;
            mapped.kind = Kind::Memory;
        }
        mapped.bytes.store(bytes, Release);
        loan::mark(&mapped.image);
        Ok(mapped)
    }

    /// Has checkpoints look whether the file still has that path: stores to a file without a name are lost with the process.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, `ENOMEM`.
    pub(crate) fn watch_name(&mut self, path: &CStr) -> Result<(), Failed> {
        self.names = Some(FileNames::of((path, &self.image), None)?);
        Ok(())
    }

    /// Whether a file can be mapped so that its stores survive a loss of power.
    pub fn is_persistent(image: &Image) -> bool {
        image.try_map(Mapping::Synchronous).is_ok()
    }

    /// Writes lines to the image that say that no log continues its state, as no log records the stores to a mapping. One line after the
    /// other becomes durable, so that one is whole at any time.
    pub(crate) fn forget_logs(&self, tie: u64, identity: u64) {
        let lines = Ties::fresh(identity, drawn(), 0);
        let Ok(at) = usize::try_from(tie) else { return };
        if at + lines.len() > self.bytes() {
            return;
        }
        for (number, line) in lines.chunks_exact(LINE_BYTES).enumerate() {
            let at = at + number * LINE_BYTES;
            if line.iter().any(|byte| *byte != 0) {
                // SAFETY: the line is within the medium, and no other code stores to the two pages of the tie.
                unsafe { self.store(at, line) };
                self.write_back(at, LINE_BYTES);
                self.fence();
            }
        }
    }

    /// The address of the line in which another process may ask for a copy.
    #[inline]
    fn line(&self, at: usize) -> Option<NonNull<u8>> {
        let is_within = at.is_multiple_of(8) && at + loan::LINE_BYTES <= self.bytes();
        // SAFETY: within the mapping.
        is_within.then(|| unsafe { self.base.add(at) })
    }

    /// What its stores survive.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `drop` has the medium exclusively, so that no store to the mapping is under way.
        unsafe { unmap::release(self.base.as_ptr(), self.reserved, self.bytes()) };
    }
}

// SAFETY: the mapping stays where it is as long as this lives; the file cannot be made shorter through it.
unsafe impl Medium for Mapped {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Acquire)
    }

    fn limit(&self) -> usize {
        self.reserved
    }

    fn present(&self) -> Result<usize, Failed> {
        room::present(&self.image, self.bytes())
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        let _growth = self.growth.lock();
        let from = self.bytes.load(Acquire);
        let Some(to) = room::grown(from, bytes, self.reserved)? else { return Ok(()) };
        self.image.grow(from as u64, to as u64).map_err(Failed)?;
        let how = if self.kind == Kind::Dax { Mapping::Synchronous } else { Mapping::Shared };
        // SAFETY: within the reservation, behind what is in use.
        unsafe {
            let at = self.base.as_ptr().add(from);
            self.image.map(at, from as u64, to - from, how).map_err(Failed)?;
        }
        if self.kind == Kind::Dax {
            // What says how long the image is lies in lines that are durable before the file system's own record of its length.
            self.image.sync().map_err(Failed)?;
        }
        self.bytes.store(to, Release);
        Ok(())
    }

    #[inline]
    fn write_back(&self, at: usize, len: usize) {
        // SAFETY: within the mapping.
        unsafe { persist::write_back(self.base.as_ptr().add(at), len) };
    }

    #[inline]
    fn fence(&self) {
        persist::fence();
    }

    #[inline]
    fn checkpoint_still(&self, _: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        persist::fence();
        let standing = self.names.as_ref().map(|names| names.standing(&self.image, None));
        if standing == Some(Named::Replaced) { Err(Failed::REPLACED) } else { Ok(()) }
    }

    #[inline]
    fn is_asked(&self, at: usize) -> bool {
        // SAFETY: `line` has checked that the words are within the mapping.
        self.line(at).is_some_and(|line| unsafe { loan::is_asked(line) })
    }

    fn lend(&self, at: usize) {
        if let Some(line) = self.line(at) {
            // SAFETY: the line is within the mapping of the image.
            unsafe { loan::lend(&self.image, line) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::locked;
    use crate::testing::{Directory, FIRST};
    use std::prelude::v1::*;

    fn open(place: &Directory) -> Result<Mapped, Failed> {
        let place = place.place();
        Mapped::of(locked(&place)?, place.limit, place.base)
    }

    #[test]
    fn what_is_stored_is_in_the_file_and_grows_where_it_is() {
        let mut place = Directory::new();
        place.limit = 1 << 20;
        place.make(30_000).unwrap();
        let mapped = open(&place).unwrap();
        assert_eq!(mapped.bytes(), 32_768);
        let base = mapped.base();
        mapped.grow(100_000).unwrap();
        assert_eq!((mapped.base(), mapped.bytes()), (base, 102_400));
        // SAFETY: the test owns the mapping.
        unsafe {
            mapped.store_word(FIRST, 7);
            mapped.store(102_390, b"the end");
        }
        mapped.write_back(FIRST, 8);
        mapped.checkpoint().unwrap();
        assert_eq!(mapped.grow(2 << 20), Err(Failed(libc::ENOMEM)));
        assert_eq!(open(&place).err(), Some(Failed(libc::EWOULDBLOCK)));
        drop(mapped);
        let bytes = std::fs::read(place.path("image")).unwrap();
        assert_eq!(
            (bytes.len(), bytes[FIRST], &bytes[102_390..102_397]),
            (102_400, 7, &b"the end"[..])
        );
        let again = open(&place).unwrap();
        assert_eq!((again.bytes(), again.kind()), (102_400, Kind::Memory));
        // SAFETY: it is mapped.
        assert_eq!(unsafe { again.base().as_ptr().add(FIRST).read() }, 7);
    }

    #[test]
    fn a_base_that_is_taken_is_refused() {
        let mut place = Directory::new();
        place.make(32 << 10).unwrap();
        let first = open(&place).unwrap();
        let at = first.base().as_ptr() as usize;
        drop(first);
        place.base = Some(at);
        let second = open(&place).unwrap();
        assert_eq!(second.base().as_ptr() as usize, at);
        let mut other = Directory::new();
        other.make(32 << 10).unwrap();
        other.base = Some(at);
        assert_eq!(open(&other).err(), Some(Failed(libc::EADDRINUSE)));
    }

    #[test]
    fn a_full_medium_is_an_error() {
        let mut place = Directory::new();
        // Beyond what file systems have for one file, so that nothing is filled.
        place.limit = 1 << 45;
        place.make(32 << 10).unwrap();
        let mapped = open(&place).unwrap();
        let refused = mapped.grow(1 << 45);
        assert!(matches!(refused, Err(Failed(libc::ENOSPC | libc::EFBIG))), "{refused:?}");
        assert_eq!(mapped.bytes(), 32 << 10);
    }

    #[test]
    fn no_log_continues_what_was_stored_to_a_mapping() {
        let place = Directory::new();
        place.make(64 << 10).unwrap();
        let log = {
            let file = crate::File::open(&place.place()).unwrap();
            file.checkpoint().unwrap();
            // SAFETY: the test owns the mapping.
            unsafe { file.store_word(FIRST, 1) };
            file.checkpoint().unwrap();
            let log = std::fs::read(place.path("image.wal")).unwrap();
            file.settle().unwrap();
            log
        };
        let mapped = open(&place).unwrap();
        mapped.forget_logs(crate::testing::TIE as u64, crate::testing::IDENTITY);
        drop(mapped);
        std::fs::write(place.path("image.wal"), log).unwrap();
        let opened = crate::File::open(&place.place());
        assert_eq!(opened.err(), Some(Failed::STALE_LOG));
    }
}
