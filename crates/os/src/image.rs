//! Files that hold what outlives the process: opened, locked, grown, mapped.
//!
//! The descriptor stays open as long as the image: it holds the lock.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::file::{fill, write_at};

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// By one.
    Write,
    /// By many.
    Read,
}

/// How an image is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// Stores are the file's, and durable once the processor has written them back: `MAP_SYNC`.
    Synchronous,
    /// Stores are the file's, and durable when the kernel has written them.
    Shared,
    /// Stores stay in this process.
    Private,
    /// There are none.
    ReadOnly,
}

/// A number that no other file has, as good as certain.
pub fn unique() -> [u64; 2] {
    let mut bytes = [0u8; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK);
    let half = |at: usize| u64::from_ne_bytes(core::array::from_fn(|byte| bytes[at + byte]));
    if drawn == Ok(16) {
        return [half(0), half(8)];
    }
    // Time, process and where the kernel has put the stack.
    let place = &raw const bytes as u64;
    [crate::clock::nanos() ^ place << 20, crate::env::pid() as u64 ^ place.rotate_left(32)]
}

/// Takes the name of a file away.
///
/// # Errors
/// The error's number.
pub fn remove(path: &CStr) -> Result<(), i32> {
    fs::unlink(path).map_err(Errno::raw_os_error)
}

/// Takes a file away that was made here and is of no use, if that can be done.
pub fn discard(path: &CStr) {
    let _ = remove(path);
}

/// Whether a file lies in the machine's memory: on tmpfs or on huge pages.
pub fn is_in_memory(path: &CStr) -> bool {
    /// `linux/magic.h`.
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const HUGETLBFS: u64 = 0x9584_58f6;
    fs::statfs(path).is_ok_and(|status| [TMPFS, RAMFS, HUGETLBFS].contains(&(status.f_type as u64)))
}

/// An open image.
#[derive(Debug)]
pub struct Image {
    pub(crate) file: OwnedFd,
    /// The process that has locked it; 0: none.
    locked_by: AtomicI32,
}

impl Drop for Image {
    fn drop(&mut self) {
        // Children that have inherited the descriptor have the lock as well, and need not end before others may have it. Nor may
        // they give it back for their parent.
        if self.locked_by.load(Relaxed) == crate::env::pid() {
            let _ = fs::flock(&self.file, FlockOperation::Unlock);
            self.unlock_bytes();
        }
    }
}

impl Image {
    /// Makes a file for its owner alone, which must not be there yet.
    ///
    /// # Errors
    /// The error's number: `EEXIST` if there is one of that name, whatever it is.
    pub fn create(path: &CStr) -> Result<Self, i32> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(Errno::raw_os_error)?;
        Ok(Self { file, locked_by: AtomicI32::new(0) })
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The error's number: `ELOOP` if it is a symbolic link, `EINVAL` if it is none that holds bytes.
    pub fn open(path: &CStr, access: Access) -> Result<Self, i32> {
        let flags = match access {
            Access::Write => OFlags::RDWR,
            Access::Read => OFlags::RDONLY,
        };
        // A pipe that nobody writes to would be waited for.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::open(path, flags, Mode::empty()).map_err(Errno::raw_os_error)?;
        let status = fs::fstat(&file).map_err(Errno::raw_os_error)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(Self { file, locked_by: AtomicI32::new(0) }),
            _ => Err(libc::EINVAL),
        }
    }

    /// Locks it, for one writer or for many readers, until it is dropped, or closed by all processes that have inherited it.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if others have it.
    pub fn lock(&self, access: Access) -> Result<(), i32> {
        let operation = match access {
            Access::Write => FlockOperation::NonBlockingLockExclusive,
            Access::Read => FlockOperation::NonBlockingLockShared,
        };
        fs::flock(&self.file, operation).map_err(Errno::raw_os_error)?;
        self.locked_by.store(crate::env::pid(), Relaxed);
        Ok(())
    }

    /// Gives the lock back before.
    pub fn unlock(&self) {
        let _ = fs::flock(&self.file, FlockOperation::Unlock);
        self.locked_by.store(0, Relaxed);
    }

    /// Its length.
    ///
    /// # Errors
    /// The error's number.
    pub fn bytes(&self) -> Result<u64, i32> {
        let status = fs::fstat(&self.file).map_err(Errno::raw_os_error)?;
        Ok(u64::try_from(status.st_size).unwrap_or(0))
    }

    /// Makes it longer, with room on the medium for all of it: what is stored there later needs none.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room, `EFBIG` if a limit of the process forbids it.
    pub fn grow(&self, from: u64, to: u64) -> Result<(), i32> {
        // Beyond it the kernel would end the program by a signal.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < to) {
            return Err(libc::EFBIG);
        }
        let len = to.saturating_sub(from);
        let grown = match fs::fallocate(&self.file, FallocateFlags::empty(), from, len) {
            // File systems that know no such call.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                fill(self.file.as_fd(), from, usize::try_from(len).unwrap_or(usize::MAX))
            }
            grown => grown.map_err(Errno::raw_os_error),
        };
        if grown.is_err() {
            // Some of it may be there.
            let _ = fs::ftruncate(&self.file, from);
        }
        grown
    }

    /// Makes it empty.
    ///
    /// # Errors
    /// The error's number.
    pub fn clear(&self) -> Result<(), i32> {
        fs::ftruncate(&self.file, 0).map_err(Errno::raw_os_error)
    }

    /// Makes it shorter: the bytes behind `bytes` are given back.
    ///
    /// # Errors
    /// The error's number.
    pub fn cut(&self, bytes: u64) -> Result<(), i32> {
        fs::ftruncate(&self.file, bytes).map_err(Errno::raw_os_error)
    }

    /// Maps `len` bytes from `offset` on, whole pages, at `at`.
    ///
    /// # Errors
    /// The error's number: `EOPNOTSUPP` if it cannot be mapped so.
    ///
    /// # Safety
    /// The range lies in a reservation of the caller's that nobody uses.
    pub unsafe fn map(
        &self,
        at: *mut u8,
        offset: u64,
        len: usize,
        how: Mapping,
    ) -> Result<(), i32> {
        let (access, flags) = match how {
            Mapping::Synchronous => (ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC),
            Mapping::Shared => (ProtFlags::WRITE, MapFlags::SHARED),
            Mapping::Private => (ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE),
            Mapping::ReadOnly => (ProtFlags::empty(), MapFlags::SHARED),
        };
        let (access, flags) = (access | ProtFlags::READ, flags | MapFlags::FIXED);
        // SAFETY: promised by the caller.
        unsafe { mm::mmap(at.cast(), len, access, flags, &self.file, offset) }
            .map(|_| ())
            .map_err(Errno::raw_os_error)
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// The error's number.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), i32> {
        write_at(self.file.as_fd(), bytes, offset)
    }

    /// Reads as many bytes as there are from an offset on, up to those that fit; how many.
    ///
    /// # Errors
    /// The error's number.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, i32> {
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&self.file, rest, offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.raw_os_error()),
            }
        }
        Ok(read)
    }

    /// The next bytes from an offset on that are not a hole: where they begin and end. `None`: behind it all is zero.
    ///
    /// # Errors
    /// The error's number.
    pub fn next_data(&self, from: u64) -> Result<Option<(u64, u64)>, i32> {
        match fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => {
                let end = fs::seek(&self.file, SeekFrom::Hole(start));
                end.map(|end| Some((start, end))).map_err(Errno::raw_os_error)
            }
            Err(Errno::NXIO) => Ok(None),
            // File systems that do not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let end = self.bytes()?;
                Ok((from < end).then_some((from, end)))
            }
            Err(why) => Err(why.raw_os_error()),
        }
    }

    /// Waits until all that was written is on the medium.
    ///
    /// # Errors
    /// The error's number. What was written before may be lost then, also if it is asked again.
    pub fn sync(&self) -> Result<(), i32> {
        fs::fdatasync(&self.file).map_err(Errno::raw_os_error)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::ffi::CString;
    use std::format;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("spandrel-image-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            Self(path)
        }

        fn path(&self) -> CString {
            CString::new(self.0.as_os_str().as_bytes()).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn an_image_is_its_owners_and_made_once() {
        let place = Place::new("create");
        let image = Image::create(&place.path()).unwrap();
        let mode = std::fs::metadata(&place.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Image::create(&place.path()).unwrap_err(), libc::EEXIST);
        image.grow(0, 8192).unwrap();
        assert_eq!(image.bytes(), Ok(8192));
        image.write_at(b"here", 100).unwrap();
        image.sync().unwrap();
        let mut bytes = [1; 6];
        assert_eq!(image.read_at(&mut bytes, 99), Ok(6));
        assert_eq!(&bytes, b"\0here\0");
        assert_eq!(image.read_at(&mut bytes, 8190), Ok(2));
        let (start, end) = image.next_data(0).unwrap().unwrap();
        assert!(start <= 100 && (104..=8192).contains(&end), "{start} to {end}");
        assert_eq!(image.next_data(8192), Ok(None));
    }

    #[test]
    fn links_and_pipes_are_no_images() {
        let (place, link) = (Place::new("target"), Place::new("link"));
        Image::create(&place.path()).unwrap();
        symlink(&place.0, &link.0).unwrap();
        assert_eq!(Image::open(&link.path(), Access::Write).unwrap_err(), libc::ELOOP);
        assert_eq!(Image::create(&link.path()).unwrap_err(), libc::EEXIST);
        let pipe = Place::new("pipe");
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(pipe.path().as_ptr(), 0o600) }, 0);
        assert_eq!(Image::open(&pipe.path(), Access::Read).unwrap_err(), libc::EINVAL);
    }

    #[test]
    fn one_writes_or_many_read() {
        let place = Place::new("lock");
        let first = Image::create(&place.path()).unwrap();
        let second = Image::open(&place.path(), Access::Read).unwrap();
        let third = Image::open(&place.path(), Access::Read).unwrap();
        first.lock(Access::Write).unwrap();
        assert_eq!(second.lock(Access::Read), Err(libc::EWOULDBLOCK));
        drop(first);
        second.lock(Access::Read).unwrap();
        third.lock(Access::Read).unwrap();
        let writer = Image::open(&place.path(), Access::Write).unwrap();
        assert_eq!(writer.lock(Access::Write), Err(libc::EWOULDBLOCK));
        second.unlock();
        assert_eq!(writer.lock(Access::Write), Err(libc::EWOULDBLOCK));
        third.unlock();
        writer.lock(Access::Write).unwrap();
    }
}
