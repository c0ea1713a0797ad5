//! Media whose stores are the file's: persistent memory mapped past the page cache (DAX), or memory that outlives the
//! process and not the machine (tmpfs, and any file as far as a crash of the process goes).

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::image::{self, Access, Image, Mapping};
use spandrel_pages::PAGE_BYTES;

use crate::files;
use crate::loan;
use crate::medium::{Failed, Medium};
use crate::persist;
use crate::room;
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
    kind: Kind,
}

// SAFETY: the mapping is its own, and who stores to it must not do so to the same bytes as others.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Makes a file of `bytes` zeroes, with room to grow to `limit`, both rounded up to whole pages, and maps it, at `base` if that is given.
    ///
    /// # Errors
    /// The error's number: `EEXIST` if there is one; `EADDRINUSE` if something lies at `base`; `ENOSPC`; `ENOMEM` if there is no address space, ... No file is
    /// left then that was not there before.
    pub fn create(
        path: &CStr,
        bytes: usize,
        limit: usize,
        base: Option<usize>,
    ) -> Result<Self, Failed> {
        let image = Image::create(path).map_err(Failed)?;
        let make = |image: Image| {
            image.lock(Access::Write).map_err(Failed)?;
            let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
            image.grow(0, bytes as u64).map_err(Failed)?;
            Self::map(image, bytes, limit, base)
        };
        make(image).inspect_err(|_| image::discard(path))
    }

    /// Maps a file as it is, at `base` if that is given.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if somebody else has it open, `EADDRINUSE` if something lies at `base` already, ...
    pub fn open(path: &CStr, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        Self::of(files::locked(path)?, limit, base)
    }

    /// Maps a file that was locked.
    ///
    /// # Errors
    /// As for [`Mapped::open`].
    pub(crate) fn of(image: Image, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        let bytes =
            usize::try_from(image.bytes().map_err(Failed)?).map_err(|_| Failed(libc::EFBIG))?;
        Self::map(image, bytes / PAGE_BYTES * PAGE_BYTES, limit, base)
    }

    fn map(image: Image, bytes: usize, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        let (base, reserved) = room::reserve(limit.max(bytes), base)?;
        let mut mapped =
            Self { image, base, reserved, bytes: AtomicUsize::new(0), kind: Kind::Dax };
        // SAFETY: the reservation is nobody else's.
        let map = |how| unsafe { mapped.image.map(base.as_ptr(), 0, bytes, how) };
        if bytes > 0 && map(Mapping::Synchronous).is_err() {
            map(Mapping::Shared).map_err(Failed)?;
            mapped.kind = Kind::Memory;
        }
        mapped.bytes.store(bytes, Release);
        loan::mark(&mapped.image);
        Ok(mapped)
    }

    /// Where the line lies in which somebody may ask.
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
        // SAFETY: who stored to it borrowed it.
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
        let from = self.bytes.load(Acquire);
        let Some(to) = room::grown(from, bytes, self.reserved)? else { return Ok(()) };
        self.image.grow(from as u64, to as u64).map_err(Failed)?;
        let how = if self.kind == Kind::Dax { Mapping::Synchronous } else { Mapping::Shared };
        // SAFETY: within the reservation, behind what is in use.
        unsafe {
            let at = self.base.as_ptr().add(from);
            self.image.map(at, from as u64, to - from, how).map_err(Failed)?;
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
    fn checkpoint(&self) -> Result<(), Failed> {
        persist::fence();
        Ok(())
    }

    #[inline]
    fn is_asked(&self, at: usize) -> bool {
        // SAFETY: on the medium, as the caller promises, which is mapped.
        self.line(at).is_some_and(|line| unsafe { loan::is_asked(line) })
    }

    fn lend(&self, at: usize) {
        if let Some(line) = self.line(at) {
            // SAFETY: mapped from the image.
            unsafe { loan::lend(&self.image, line) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::path::PathBuf;
    use std::prelude::v1::*;
    use tempfile::TempDir;

    struct Place(TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("image")
        }

        fn path(&self) -> CString {
            CString::new(self.file().to_str().unwrap()).unwrap()
        }
    }

    #[test]
    fn what_is_stored_is_in_the_file_and_grows_where_it_is() {
        let place = Place::new();
        let mapped = Mapped::create(&place.path(), 5000, 1 << 20, None).unwrap();
        assert_eq!(mapped.bytes(), 8192);
        let base = mapped.base();
        mapped.grow(100_000).unwrap();
        assert_eq!((mapped.base(), mapped.bytes()), (base, 102_400));
        // SAFETY: nobody else has it.
        unsafe {
            mapped.store_word(4096, 7);
            mapped.store(102_390, b"the end");
        }
        mapped.write_back(4096, 8);
        mapped.checkpoint().unwrap();
        assert_eq!(mapped.grow(2 << 20), Err(Failed(libc::ENOMEM)));
        assert_eq!(Mapped::open(&place.path(), 0, None).err(), Some(Failed(libc::EWOULDBLOCK)));
        drop(mapped);
        let bytes = std::fs::read(place.file()).unwrap();
        assert_eq!(
            (bytes.len(), bytes[4096], &bytes[102_390..102_397]),
            (102_400, 7, &b"the end"[..])
        );
        let again = Mapped::open(&place.path(), 0, None).unwrap();
        assert_eq!((again.bytes(), again.kind()), (102_400, Kind::Memory));
        // SAFETY: it is mapped.
        assert_eq!(unsafe { again.base().as_ptr().add(4096).read() }, 7);
    }

    #[test]
    fn a_base_that_is_taken_is_refused() {
        let place = Place::new();
        let first = Mapped::create(&place.path(), 4096, 4096, None).unwrap();
        let at = first.base().as_ptr() as usize;
        drop(first);
        let second = Mapped::open(&place.path(), 4096, Some(at)).unwrap();
        assert_eq!(second.base().as_ptr() as usize, at);
        let other = Place::new();
        drop(Mapped::create(&other.path(), 4096, 4096, None).unwrap());
        let refused = Mapped::open(&other.path(), 4096, Some(at)).err();
        assert_eq!(refused, Some(Failed(libc::EADDRINUSE)));
    }

    #[test]
    fn what_cannot_be_made_leaves_no_file() {
        let place = Place::new();
        let taken = crate::room::reserve(4096, None).unwrap().0.as_ptr() as usize;
        let made = Mapped::create(&place.path(), 4096, 4096, Some(taken));
        assert_eq!(made.err(), Some(Failed(libc::EADDRINUSE)));
        assert!(!place.file().exists());
        std::fs::write(place.file(), "somebody's").unwrap();
        let made = Mapped::create(&place.path(), 4096, 4096, None);
        assert_eq!(made.err(), Some(Failed(libc::EEXIST)));
        assert!(place.file().exists());
    }

    #[test]
    fn a_full_medium_is_an_error() {
        let place = Place::new();
        // Beyond what file systems have for one file, so that nothing is filled.
        let mapped = Mapped::create(&place.path(), 4096, 1 << 45, None).unwrap();
        let refused = mapped.grow(1 << 45);
        assert!(matches!(refused, Err(Failed(libc::ENOSPC | libc::EFBIG))), "{refused:?}");
        assert_eq!(mapped.bytes(), 4096);
    }
}
