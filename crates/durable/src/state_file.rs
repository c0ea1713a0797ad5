//! The state's file, for the replica and for recovery.
//!
//! In memory (tmpfs) the file is mapped, and a run is a store. A system call for each run would take longer than the command that stored it: the ring would be full most of
//! the time. On a disk a run is a write to the page cache.
//!
//! Invariants:
//! - A mapped file has room for all of its bytes: a store to it needs none. The length grows by what was allocated before.
//! - One thread at a time stores.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use spandrel_os::image::{Image, Mapping};
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::Failed;

/// See the head of this file.
pub struct StateFile {
    image: Image,
    /// Address space for the file's bytes, and how much there is; none: the file is written to.
    room: Option<(NonNull<u8>, usize)>,
    /// Bytes of the file that are mapped, from its front.
    mapped: AtomicUsize,
    /// System calls that have used the descriptor; see [`StateFile::look`].
    uses: AtomicU32,
}

/// Uses of the descriptor between two looks whether it is still the file's: a look takes a tenth of what a write of a page takes.
const LOOKS: u32 = 16;

// SAFETY: the mapping belongs to the value; one thread at a time stores to it, as the callers of `write` promise by the order of the replica and recovery.
unsafe impl Send for StateFile {}
// SAFETY: as above.
unsafe impl Sync for StateFile {}

impl StateFile {
    /// Of an open file; `limit`: bytes that it may grow to. What cannot be mapped is written.
    pub fn new(image: Image, is_in_memory: bool, limit: usize) -> Self {
        let bytes = image.bytes().ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let (mapped, uses) = (AtomicUsize::new(0), AtomicU32::new(0));
        let mut file = Self { image, room: None, mapped, uses };
        // Of a file that was copied with holes the rest is allocated first.
        if is_in_memory && bytes > 0 && file.image.take_all_room(true).is_ok() {
            let len = limit.max(bytes).next_multiple_of(PAGE_BYTES);
            file.room = vm::reserve_apart(len).map(|at| (at, len));
            file.map_to(bytes);
        }
        if file.room.is_none() {
            file.image.expect_reads(false);
        }
        file
    }

    /// The file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The descriptor is about to be used: looks now and then whether the program has closed it, and has another file there.
    fn look(&self) -> Result<(), Failed> {
        if !self.uses.fetch_add(1, Relaxed).is_multiple_of(LOOKS) {
            return Ok(());
        }
        self.image.check().map_err(Failed)
    }

    /// Reads bytes at an offset; their number.
    ///
    /// # Errors
    /// The error's number.
    pub fn read(&self, into: &mut [u8], at: u64) -> Result<usize, Failed> {
        self.look()?;
        self.image.read_at_known(into, at).map_err(Failed)
    }

    /// Whether the file is mapped.
    pub fn is_mapped(&self) -> bool {
        self.mapped.load(Acquire) > 0
    }

    /// Maps the file up to that length, whose bytes are allocated.
    fn map_to(&self, bytes: usize) {
        let Some((at, room)) = self.room else { return };
        let (from, to) = (self.mapped.load(Relaxed), bytes / PAGE_BYTES * PAGE_BYTES);
        if from < to && to <= room {
            // SAFETY: within the reservation, behind what is mapped of it; no thread uses that part.
            let mapped = unsafe {
                let place = at.as_ptr().add(from);
                self.image.map(place, from as u64, to - from, Mapping::Shared)
            };
            if mapped.is_ok() {
                self.mapped.store(to, Release);
            }
        }
    }

    /// Makes the file longer, to that number of bytes.
    ///
    /// # Errors
    /// The error's number: there is no room.
    pub fn lengthen(&self, bytes: u64) -> Result<(), Failed> {
        let now = self.image.bytes().map_err(Failed)?;
        if bytes > now {
            self.image.grow(now, bytes).map_err(Failed)?;
            self.map_to(usize::try_from(bytes).unwrap_or(0));
        }
        Ok(())
    }

    /// Whether the process may write up to that length (`RLIMIT_FSIZE`): a mapped file is not written to. 0: whether the descriptor is still the file's.
    ///
    /// # Errors
    /// `EFBIG`; `EBADF`, `ESTALE`: the program has closed the descriptor.
    pub fn allow(&self, end: u64) -> Result<(), Failed> {
        if end > 0 && end <= self.mapped.load(Acquire) as u64 {
            return Ok(());
        }
        self.image.check().and_then(|()| self.image.check_limit(end)).map_err(Failed)
    }

    /// Stores bytes at an offset that [`StateFile::allow`] has allowed. No other thread does meanwhile.
    ///
    /// # Errors
    /// The error's number.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        let end = at.saturating_add(bytes.len() as u64);
        if let Some((start, _)) = self.room
            && end <= self.mapped.load(Acquire) as u64
        {
            // SAFETY: within the mapping, whose pages are allocated.
            unsafe {
                let place = start.as_ptr().add(at as usize);
                place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            return Ok(());
        }
        self.look()?;
        self.image.write_at_known(bytes, at).map_err(Failed)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if let Some((at, len)) = self.room {
            // SAFETY: the reservation and its mappings are this value's alone.
            unsafe { vm::release(at.as_ptr(), len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_os::image::Access;
    use std::ffi::CString;
    use std::prelude::v1::*;

    fn file(directory: &std::path::Path, is_in_memory: bool) -> (StateFile, CString) {
        let path = CString::new(directory.join("state").to_str().unwrap()).unwrap();
        let image = Image::create(&path).unwrap();
        image.grow(0, 8192).unwrap();
        (StateFile::new(image, is_in_memory, 1 << 20), path)
    }

    #[test]
    fn what_is_stored_is_in_the_file_mapped_or_not() {
        for (place, is_in_memory) in [("/tmp", false), ("/dev/shm", true)] {
            let directory = tempfile::tempdir_in(place).unwrap();
            let (file, path) = file(directory.path(), is_in_memory);
            assert_eq!(file.mapped.load(Relaxed) > 0, is_in_memory);
            file.write(5, b"first").unwrap();
            file.lengthen(40_960).unwrap();
            file.write(40_950, b"0123456789").unwrap();
            // Beyond the room that was reserved, and beyond the file.
            file.lengthen(2 << 20).unwrap();
            file.write((2 << 20) - 4, b"last").unwrap();
            let image = Image::open(&path, Access::Read).unwrap();
            let read = |at, len| {
                let mut bytes = vec![0; len];
                image.read_at(&mut bytes, at).unwrap();
                bytes
            };
            assert_eq!(read(5, 5), b"first");
            assert_eq!(read(40_950, 10), b"0123456789");
            assert_eq!(read((2 << 20) - 4, 4), b"last");
        }
    }

    /// On a full file system a store to a hole would end the program by SIGBUS.
    #[test]
    fn holes_are_allocated_before_the_file_is_mapped() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("state");
        let sparse = std::fs::File::create(&path).unwrap();
        sparse.set_len(1 << 20).unwrap();
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
        assert_eq!(blocks(), 0);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let image = Image::open(&name, Access::Write).unwrap();
        let file = StateFile::new(image, true, 1 << 20);
        assert_eq!((blocks(), file.mapped.load(Relaxed)), (2048, 1 << 20));
    }
}
