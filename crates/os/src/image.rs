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

/// Calls again what a signal has interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Takes the name of a file away.
///
/// # Errors
/// The error's number.
pub fn remove(path: &CStr) -> Result<(), i32> {
    retry(|| fs::unlink(path)).map_err(Errno::raw_os_error)
}

/// Gives a file another name, which no file has.
///
/// # Errors
/// The error's number: `EEXIST` if there is a file of that name.
pub fn rename(from: &CStr, to: &CStr) -> Result<(), i32> {
    let flags = fs::RenameFlags::NOREPLACE;
    retry(|| fs::renameat_with(fs::CWD, from, fs::CWD, to, flags)).map_err(Errno::raw_os_error)
}

/// An open image.
#[derive(Debug)]
pub struct Image {
    pub(crate) file: OwnedFd,
    /// The process that has locked it; 0: none.
    locked_by: AtomicI32,
}

impl From<OwnedFd> for Image {
    fn from(file: OwnedFd) -> Self {
        Self { file, locked_by: AtomicI32::new(0) }
    }
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
        let open = || fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        Ok(Self::of(retry(open).map_err(Errno::raw_os_error)?))
    }

    /// Of an open file.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self { file, locked_by: AtomicI32::new(0) }
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
        // Without `NONBLOCK`, opening a pipe without a writer would block.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = || fs::open(path, flags, Mode::empty());
        let file = retry(open).map_err(Errno::raw_os_error)?;
        let status = retry(|| fs::fstat(&file)).map_err(Errno::raw_os_error)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(Self::of(file)),
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
        retry(|| fs::flock(&self.file, operation)).map_err(Errno::raw_os_error)?;
        self.locked_by.store(crate::env::pid(), Relaxed);
        Ok(())
    }

    /// Whether this process has locked it, and not one that this one is the child of.
    pub fn is_locked(&self) -> bool {
        self.locked_by.load(Relaxed) == crate::env::pid()
    }

    /// Makes it shorter.
    ///
    /// # Errors
    /// The error's number.
    pub fn shorten(&self, bytes: u64) -> Result<(), i32> {
        if bytes < self.bytes()? {
            retry(|| fs::ftruncate(&self.file, bytes)).map_err(Errno::raw_os_error)?;
        }
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
        let status = retry(|| fs::fstat(&self.file)).map_err(Errno::raw_os_error)?;
        Ok(u64::try_from(status.st_size).unwrap_or(0))
    }

    /// Refuses what would end at an offset beyond the limit of the process for files (`RLIMIT_FSIZE`): the kernel would end the program by a
    /// signal.
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn check_limit(&self, end: u64) -> Result<(), i32> {
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|most| most < end) { Err(libc::EFBIG) } else { Ok(()) }
    }

    /// Has room on the medium for every byte of the file: what is stored to its holes needs none then. A file in memory that has no holes costs
    /// one look.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room. The file holds what it held.
    pub fn take_all_room(&self, in_memory: bool) -> Result<(), i32> {
        let status = retry(|| fs::fstat(&self.file)).map_err(Errno::raw_os_error)?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        let has = u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512);
        // On a disk the blocks of a file include those that say where the others are.
        if bytes == 0 || in_memory && has >= bytes {
            return Ok(());
        }
        match self.allocate(0, bytes) {
            Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => self.fill_holes(bytes),
            // Some file systems want room for all of it before they look.
            Err(libc::ENOSPC | libc::EDQUOT) if self.has_room_for(bytes) => Ok(()),
            taken => taken,
        }
    }

    /// Has room on the medium for its first bytes, and becomes no longer by that. Where the file system cannot do that nothing happens.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room, `EFBIG` if a limit of the process forbids it.
    pub fn reserve(&self, bytes: u64) -> Result<(), i32> {
        self.check_limit(bytes)?;
        match retry(|| fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            reserved => reserved.map_err(Errno::raw_os_error),
        }
    }

    /// As [`Image::take_all_room`], on file systems that cannot take room: zeroes are written to what holds none.
    fn fill_holes(&self, bytes: u64) -> Result<(), i32> {
        self.check_limit(bytes)?;
        let mut at = 0;
        while at < bytes {
            let (data, end) = self.next_data(at)?.unwrap_or((bytes, bytes));
            let hole = usize::try_from(data.min(bytes) - at).unwrap_or(usize::MAX);
            fill(self.file.as_fd(), at, hole)?;
            at = end.max(at + hole as u64);
        }
        Ok(())
    }

    /// Takes room from an offset on. A signal interrupts it, and the kernel may release what was taken then: so smaller and smaller pieces are
    /// taken, which signals that come all the time do not keep from being whole.
    fn allocate(&self, from: u64, len: u64) -> Result<(), i32> {
        const LEAST: u64 = 64 << 10;
        let (mut at, end) = (from, from.saturating_add(len));
        let mut piece = len;
        while at < end {
            let now = piece.min(end - at);
            match fs::fallocate(&self.file, FallocateFlags::empty(), at, now) {
                Ok(()) => at += now,
                Err(Errno::INTR) => piece = (now / 2).max(LEAST),
                Err(why) => return Err(why.raw_os_error()),
            }
        }
        Ok(())
    }

    /// Makes it longer, with room on the medium for all of it: what is stored there later needs none.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room, `EFBIG` if a limit of the process forbids it.
    pub fn grow(&self, from: u64, to: u64) -> Result<(), i32> {
        self.check_limit(to)?;
        let len = to.saturating_sub(from);
        let grown = match self.allocate(from, len) {
            // File systems that know no such call.
            Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
                fill(self.file.as_fd(), from, usize::try_from(len).unwrap_or(usize::MAX))
            }
            grown => grown,
        };
        if grown.is_err() {
            // Some of it may be there.
            let _ = retry(|| fs::ftruncate(&self.file, from));
        }
        grown
    }

    /// Maps `len` bytes from `offset` on, whole pages, at `at`.
    ///
    /// # Errors
    /// The error's number: `EOPNOTSUPP` if it cannot be mapped so.
    ///
    /// # Safety
    /// The range lies in a reservation of the caller's, and no thread uses it.
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

    /// Writes bytes at an offset. A limit of the process is the caller's to look at ([`Image::check_limit`]).
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
        retry(|| fs::fdatasync(&self.file)).map_err(Errno::raw_os_error)
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
