//! Media whose stores are the file's: persistent memory mapped past the page cache (DAX), or memory that outlives the
//! process and not the machine (tmpfs, and any file as far as a crash of the process goes).

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::image::{Access, Image, Mapping};
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::medium::{Failed, Medium};
use crate::persist;

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
    /// Makes a file of `bytes` zeroes, with room to grow to `limit`; both are rounded up to whole pages.
    ///
    /// # Errors
    /// The error's number: `EEXIST`, `ENOSPC`, `ENOMEM` if there is no address space, ...
    pub fn create(path: &CStr, bytes: usize, limit: usize) -> Result<Self, Failed> {
        let image = Image::create(path).map_err(Failed)?;
        image.lock(Access::Write).map_err(Failed)?;
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        image.grow(0, bytes as u64).map_err(Failed)?;
        Self::map(image, bytes, limit, None)
    }

    /// Maps a file as it is, at `base` if that is given.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if somebody else has it open, `EEXIST` if something lies at `base` already, ...
    pub fn open(path: &CStr, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        let image = Image::open(path, Access::Write).map_err(Failed)?;
        image.lock(Access::Write).map_err(Failed)?;
        let bytes =
            usize::try_from(image.bytes().map_err(Failed)?).map_err(|_| Failed(libc::EFBIG))?;
        Self::map(image, bytes / PAGE_BYTES * PAGE_BYTES, limit, base)
    }

    fn map(image: Image, bytes: usize, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        let reserved = limit.max(bytes).max(1).next_multiple_of(PAGE_BYTES);
        let (at, why) = match base {
            Some(base) => (vm::reserve_at(base, reserved), libc::EEXIST),
            None => (vm::reserve(reserved), libc::ENOMEM),
        };
        let base = at.ok_or(Failed(why))?;
        let mut mapped =
            Self { image, base, reserved, bytes: AtomicUsize::new(0), kind: Kind::Dax };
        // SAFETY: the reservation is nobody else's.
        let map = |how| unsafe { mapped.image.map(base.as_ptr(), 0, bytes, how) };
        if bytes > 0 && map(Mapping::Synchronous).is_err() {
            map(Mapping::Shared).map_err(Failed)?;
            mapped.kind = Kind::Memory;
        }
        mapped.bytes.store(bytes, Release);
        Ok(mapped)
    }

    /// What its stores survive.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes it longer, to `bytes` at least; the new ones are zero.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if the medium is full, `ENOMEM` beyond the limit. It is as it was then.
    pub fn grow(&self, bytes: usize) -> Result<(), Failed> {
        let from = self.bytes.load(Acquire);
        let to = bytes.checked_next_multiple_of(PAGE_BYTES).filter(|to| *to <= self.reserved);
        let to = to.ok_or(Failed(libc::ENOMEM))?;
        if to <= from {
            return Ok(());
        }
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
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: who stored to it borrowed it.
        unsafe { vm::release(self.base.as_ptr(), self.reserved) };
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::path::PathBuf;
    use std::prelude::v1::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("spandrel-mapped-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            Self(path)
        }

        fn path(&self) -> CString {
            CString::new(self.0.to_str().unwrap()).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn what_is_stored_is_in_the_file_and_grows_where_it_is() {
        let place = Place::new("grow");
        let mapped = Mapped::create(&place.path(), 5000, 1 << 20).unwrap();
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
        let bytes = std::fs::read(&place.0).unwrap();
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
        let place = Place::new("base");
        let first = Mapped::create(&place.path(), 4096, 4096).unwrap();
        let at = first.base().as_ptr() as usize;
        drop(first);
        let second = Mapped::open(&place.path(), 4096, Some(at)).unwrap();
        assert_eq!(second.base().as_ptr() as usize, at);
        let other = Place::new("base-other");
        drop(Mapped::create(&other.path(), 4096, 4096).unwrap());
        let refused = Mapped::open(&other.path(), 4096, Some(at)).err();
        assert_eq!(refused, Some(Failed(libc::EEXIST)));
    }

    #[test]
    fn a_full_medium_is_an_error() {
        let place = Place::new("full");
        // Beyond what file systems have for one file, so that nothing is filled.
        let mapped = Mapped::create(&place.path(), 4096, 1 << 45).unwrap();
        let refused = mapped.grow(1 << 45);
        assert!(matches!(refused, Err(Failed(libc::ENOSPC | libc::EFBIG))), "{refused:?}");
        assert_eq!(mapped.bytes(), 4096);
    }
}
