//! Files that hold what outlives the process: opened, locked, grown, mapped.
//!
//! The descriptor stays open as long as the image: it holds the lock.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use spandrel_pages::PAGE_BYTES;

use crate::descriptors::Kept;
use crate::file::{fill, write_at};
use crate::{locks, vm};

/// What an image is opened or locked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading and writing; a lock excludes all others.
    Write,
    /// Reading; a lock excludes those for writing.
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
    /// The mapping allows no stores.
    ReadOnly,
}

impl Mapping {
    fn flags(self) -> (ProtFlags, MapFlags) {
        let (access, flags) = match self {
            Self::Synchronous => (ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC),
            Self::Shared => (ProtFlags::WRITE, MapFlags::SHARED),
            Self::Private => (ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE),
            Self::ReadOnly => (ProtFlags::empty(), MapFlags::SHARED),
        };
        (access | ProtFlags::READ, flags)
    }

    /// Whether stores are the file's.
    fn is_shared(self) -> bool {
        matches!(self, Self::Synchronous | Self::Shared)
    }
}

/// Two numbers that no other file has: 128 random bits.
pub fn unique() -> [u64; 2] {
    let mut bytes = [0u8; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK);
    let half = |at: usize| u64::from_ne_bytes(core::array::from_fn(|byte| bytes[at + byte]));
    if drawn == Ok(16) {
        return [half(0), half(8)];
    }
    // Early in the boot the kernel has no random bits yet: the time, the process and the address of the stack differ.
    let place = &raw const bytes as u64;
    [crate::clock::nanos() ^ place << 20, crate::env::pid() as u64 ^ place.rotate_left(32)]
}

/// Repeats a system call as often as a signal interrupts it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Removes the name of a file.
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
    let renamed = match retry(|| fs::renameat_with(fs::CWD, from, fs::CWD, to, flags)) {
        // File systems without the flag, such as NFS: a link does not replace a file either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            retry(|| fs::link(from, to)).and_then(|()| retry(|| fs::unlink(from)))
        }
        renamed => renamed,
    };
    renamed.map_err(Errno::raw_os_error)
}

fn try_map(file: &OwnedFd, how: Mapping) -> Result<(), i32> {
    let (access, flags) = how.flags();
    // SAFETY: the kernel chooses where the mapping lies, and only this function knows of it.
    unsafe {
        let at = mm::mmap(core::ptr::null_mut(), PAGE_BYTES, access, flags, file, 0)
            .map_err(Errno::raw_os_error)?;
        vm::release(at.cast(), PAGE_BYTES);
    }
    Ok(())
}

/// An open image.
#[derive(Debug)]
pub struct Image {
    pub(crate) file: Kept,
    /// The process that has locked the file (`flock`); 0: none.
    pub(crate) locked_by: AtomicI32,
}

impl Drop for Image {
    fn drop(&mut self) {
        locks::forget(self.file.as_raw_fd());
        if self.file.status().is_err() {
            return;
        }
        // A lock belongs to the open file, which a child may share that was not made by the C library's `fork`. So closing alone would keep the
        // file locked until the child ends, and the child must not unlock the file of its parent.
        if self.locked_by.load(Relaxed) == crate::env::pid() {
            let _ = fs::flock(&*self.file, FlockOperation::Unlock);
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
        Self::of(retry(open).map_err(Errno::raw_os_error)?)
    }

    /// The image of an open file.
    ///
    /// # Errors
    /// The error's number.
    pub(crate) fn of(file: OwnedFd) -> Result<Self, i32> {
        let file = Kept::new(file).map_err(Errno::raw_os_error)?;
        Ok(Self { file, locked_by: AtomicI32::new(0) })
    }

    /// The descriptor, if it is still the file's.
    pub(crate) fn checked(&self) -> Result<&OwnedFd, i32> {
        self.file.checked().map_err(Errno::raw_os_error)
    }

    /// Whether the descriptor is still the file's: a system call.
    ///
    /// # Errors
    /// `EBADF`: the program has closed it; `ESTALE`: it is another file's.
    pub fn check(&self) -> Result<(), i32> {
        self.checked().map(drop)
    }

    fn status(&self) -> Result<fs::Stat, i32> {
        self.file.status().map_err(Errno::raw_os_error)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The error's number: `ELOOP` if it is a symbolic link, `EINVAL` if it is not a regular file, `EISDIR` if it is a directory to write
    /// to.
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
            FileType::RegularFile => Self::of(file),
            _ => Err(libc::EINVAL),
        }
    }

    /// Opens the file once more, past the page cache if the file system can do that: what is written is durable when the write returns
    /// (`O_DSYNC`). Returns whether offsets, lengths and addresses of reads and writes must be multiples of 4 KiB (`O_DIRECT`).
    ///
    /// # Errors
    /// The error's number: also where `/proc` is missing.
    pub fn reopen_durable(&self) -> Result<(Self, bool), i32> {
        let path = crate::draft::descriptor_of(self)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DSYNC;
        let open = |flags| retry(|| fs::open(path.text(), flags, Mode::empty()));
        match open(flags | OFlags::DIRECT) {
            Ok(file) => Ok((Self::of(file)?, true)),
            Err(Errno::INVAL) => {
                let file = open(flags).map_err(Errno::raw_os_error)?;
                Ok((Self::of(file)?, false))
            }
            Err(why) => Err(why.raw_os_error()),
        }
    }

    /// Whether the path is this file's name: another file may have taken the name since, or none has it.
    ///
    /// # Errors
    /// The error's number.
    pub fn is_named(&self, path: &CStr) -> Result<bool, i32> {
        let named = match retry(|| fs::lstat(path)) {
            Err(Errno::NOENT) => return Ok(false),
            named => named.map_err(Errno::raw_os_error)?,
        };
        let is = self.status()?;
        Ok((named.st_dev, named.st_ino) == (is.st_dev, is.st_ino))
    }

    /// Whether the file has a name at all.
    ///
    /// # Errors
    /// The error's number.
    pub fn has_names(&self) -> Result<bool, i32> {
        let is = self.status()?;
        Ok(is.st_nlink > 0)
    }

    /// Has this image be the file of another one from now on, with the lock of that one. Other threads may use the image meanwhile: each
    /// call of theirs is of one of the two files.
    ///
    /// # Errors
    /// The error's number. The image is what it was then.
    pub fn become_file_of(&self, other: Self) -> Result<(), i32> {
        self.file.become_file_of(&other.file).map_err(Errno::raw_os_error)?;
        // The lock belongs to the open file, and the drop of the other image keeps it.
        let locked_by = other.locked_by.swap(0, Relaxed);
        if locked_by == crate::env::pid() {
            locks::note(self.file.as_raw_fd());
        }
        self.locked_by.store(locked_by, Relaxed);
        Ok(())
    }

    /// Makes the file shorter: `bytes` bytes at most.
    ///
    /// # Errors
    /// The error's number.
    pub fn shorten(&self, bytes: u64) -> Result<(), i32> {
        if bytes < self.bytes()? {
            retry(|| fs::ftruncate(&*self.file, bytes)).map_err(Errno::raw_os_error)?;
        }
        Ok(())
    }

    /// The user that the file belongs to, and its mode.
    ///
    /// # Errors
    /// The error's number.
    pub fn owner(&self) -> Result<(u32, u32), i32> {
        let status = self.status()?;
        Ok((status.st_uid, status.st_mode & 0o7777))
    }

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// The error's number.
    pub fn bytes(&self) -> Result<u64, i32> {
        let status = self.status()?;
        Ok(u64::try_from(status.st_size).unwrap_or(0))
    }

    /// Refuses a write that would end beyond the process's limit of the size of files (`RLIMIT_FSIZE`): the kernel would send a signal
    /// that ends the program (`SIGXFSZ`).
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn check_limit(&self, end: u64) -> Result<(), i32> {
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|most| most < end) { Err(libc::EFBIG) } else { Ok(()) }
    }

    /// Allocates room on the medium for every byte of the file: a store to a hole needs none then. For a file in memory without holes
    /// this is one system call.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room. The file holds what it held.
    pub fn take_all_room(&self, in_memory: bool) -> Result<(), i32> {
        let status = self.status()?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        let has = u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512);
        // On a disk the blocks of a file include those that say where the others are.
        if bytes == 0 || in_memory && has >= bytes {
            return Ok(());
        }
        match self.allocate(FallocateFlags::empty(), 0, bytes) {
            Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => self.fill_holes(bytes),
            // Some file systems demand room for the whole range before they look which of it is allocated already.
            Err(libc::ENOSPC | libc::EDQUOT) if self.has_room_for(bytes) => Ok(()),
            taken => taken,
        }
    }

    /// Allocates room on the medium for the first `bytes` bytes; the length of the file stays. Does nothing where the file system has no
    /// such call.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room, `EFBIG` if a limit of the process forbids it.
    pub fn reserve(&self, bytes: u64) -> Result<(), i32> {
        self.check_limit(bytes)?;
        match self.allocate(FallocateFlags::KEEP_SIZE, 0, bytes) {
            Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => Ok(()),
            reserved => reserved,
        }
    }

    /// As [`Image::take_all_room`], on file systems that cannot allocate: writes zeroes to the holes.
    fn fill_holes(&self, bytes: u64) -> Result<(), i32> {
        self.check_limit(bytes)?;
        let mut at = 0;
        while at < bytes {
            let (data, end) = self.next_data(at)?.unwrap_or((bytes, bytes));
            let hole = usize::try_from(data.min(bytes) - at).unwrap_or(usize::MAX);
            fill(self.checked()?.as_fd(), at, hole)?;
            at = end.max(at + hole as u64);
        }
        Ok(())
    }

    /// Allocates `len` bytes from an offset on. A signal interrupts the call, and the kernel may release what the call has allocated. Each
    /// interrupted call is followed by one for a smaller piece, so that frequent signals (a profiler's timer) do not stop the progress.
    fn allocate(&self, flags: FallocateFlags, from: u64, len: u64) -> Result<(), i32> {
        const LEAST_BYTES: u64 = 64 << 10;
        let file = self.checked()?;
        let (mut at, end) = (from, from.saturating_add(len));
        let mut piece = len;
        while at < end {
            let now = piece.min(end - at);
            match fs::fallocate(file, flags, at, now) {
                Ok(()) => at += now,
                Err(Errno::INTR) => piece = (now / 2).max(LEAST_BYTES),
                Err(why) => return Err(why.raw_os_error()),
            }
        }
        Ok(())
    }

    /// Makes the file longer, from `from` to `to` bytes, with room on the medium for all of them: later stores need none. The new bytes
    /// are zero.
    ///
    /// # Errors
    /// The error's number: `ENOSPC` if there is no room, `EFBIG` if a limit of the process forbids it.
    pub fn grow(&self, from: u64, to: u64) -> Result<(), i32> {
        self.check_limit(to)?;
        let len = to.saturating_sub(from);
        let grown = match self.allocate(FallocateFlags::empty(), from, len) {
            // File systems that know no such call.
            Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
                fill(self.checked()?.as_fd(), from, usize::try_from(len).unwrap_or(usize::MAX))
            }
            grown => grown,
        };
        if grown.is_err() {
            // The file may have become longer by a part of it.
            let _ = self.checked().map(|file| retry(|| fs::ftruncate(file, from)));
        }
        grown
    }

    /// Maps `len` bytes from `offset` on, whole pages, at `at`.
    ///
    /// # Errors
    /// The error's number: `EOPNOTSUPP` if the file system has no such mapping.
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
        // A mapping has the open file, as a descriptor has: a child of a fork would keep the lock by it.
        let own = self.checked()?;
        let other = self.is_locked().then(|| locks::open_anew(own, how.is_shared()));
        let other = other.flatten();
        let file = other.as_ref().unwrap_or(own);
        // A call that replaces a mapping unmaps it before the file system is asked. If that refuses, a hole is left in the reservation, where
        // another thread's mapping may come to lie: so the file system is asked first.
        try_map(file, how)?;
        let (access, flags) = how.flags();
        let flags = flags | MapFlags::FIXED;
        // SAFETY: promised by the caller.
        unsafe { mm::mmap(at.cast(), len, access, flags, file, offset) }
            .map(|_| ())
            .map_err(Errno::raw_os_error)
    }

    /// Whether the file system has such a mapping of the file. No other mapping of the process changes meanwhile.
    ///
    /// # Errors
    /// As for [`Image::map`].
    pub fn try_map(&self, how: Mapping) -> Result<(), i32> {
        try_map(self.checked()?, how)
    }

    /// Writes bytes at an offset. The caller has checked the limit of the process ([`Image::check_limit`]).
    ///
    /// # Errors
    /// The error's number.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), i32> {
        self.check()?;
        self.write_at_known(bytes, offset)
    }

    /// The same, of a descriptor that was found to be the file's a moment ago ([`Image::check`]).
    ///
    /// # Errors
    /// The error's number.
    pub fn write_at_known(&self, bytes: &[u8], offset: u64) -> Result<(), i32> {
        write_at(self.file.as_fd(), bytes, offset)
    }

    /// Whether the file is read from its front to its end, or here and there: the kernel reads ahead, or it does not.
    pub fn expect_reads(&self, in_order: bool) {
        let advice = if in_order { fs::Advice::Sequential } else { fs::Advice::Random };
        // A refusal changes no more than the time that reads take.
        let _ = fs::fadvise(&*self.file, 0, None, advice);
    }

    /// Reads bytes from an offset on until the buffer is full or the file ends. Returns their number.
    ///
    /// # Errors
    /// The error's number.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, i32> {
        self.check()?;
        self.read_at_known(bytes, offset)
    }

    /// The same, of a descriptor that was found to be the file's a moment ago ([`Image::check`]).
    ///
    /// # Errors
    /// The error's number.
    pub fn read_at_known(&self, bytes: &mut [u8], offset: u64) -> Result<usize, i32> {
        let (file, mut read) = (&*self.file, 0);
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(file, rest, offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.raw_os_error()),
            }
        }
        Ok(read)
    }

    /// The offsets at which the next bytes from an offset on that are not a hole begin and end. `None`: all bytes from the offset on are
    /// zero.
    ///
    /// # Errors
    /// The error's number.
    pub fn next_data(&self, from: u64) -> Result<Option<(u64, u64)>, i32> {
        let file = self.checked()?;
        match fs::seek(file, SeekFrom::Data(from)) {
            Ok(start) => match fs::seek(file, SeekFrom::Hole(start)) {
                // Another process has truncated the file in between.
                Err(Errno::NXIO) => Ok(None),
                end => end.map(|end| Some((start, end))).map_err(Errno::raw_os_error),
            },
            Err(Errno::NXIO) => Ok(None),
            // File systems that do not report holes.
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
    /// The error's number. What was written before may be lost then, and a later call does not report that again.
    pub fn sync(&self) -> Result<(), i32> {
        let file = self.checked()?;
        retry(|| fs::fdatasync(file)).map_err(Errno::raw_os_error)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::testing::Directory;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn an_image_is_its_owners_and_made_once() {
        let directory = Directory::new();
        let path = directory.path("image");
        let image = Image::create(&path).unwrap();
        let mode = std::fs::metadata(directory.at("image")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Image::create(&path).unwrap_err(), libc::EEXIST);
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
        let directory = Directory::new();
        let [target, link, pipe] = ["target", "link", "pipe"].map(|name| directory.path(name));
        Image::create(&target).unwrap();
        symlink(directory.at("target"), directory.at("link")).unwrap();
        assert_eq!(Image::open(&link, Access::Write).unwrap_err(), libc::ELOOP);
        assert_eq!(Image::create(&link).unwrap_err(), libc::EEXIST);
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert_eq!(Image::open(&pipe, Access::Read).unwrap_err(), libc::EINVAL);
    }

    #[test]
    fn a_new_name_replaces_no_file_and_room_adds_no_length() {
        let directory = Directory::new();
        let [path, other] = ["image", "other"].map(|name| directory.path(name));
        let image = Image::create(&path).unwrap();
        image.reserve(1 << 20).unwrap();
        assert_eq!(image.bytes(), Ok(0));
        Image::create(&other).unwrap();
        assert_eq!(rename(&path, &other), Err(libc::EEXIST));
        remove(&other).unwrap();
        rename(&path, &other).unwrap();
        assert_eq!(directory.names(), ["other"]);
    }

    /// Another thread's mapping may come to lie in a hole, and be unmapped with the reservation.
    #[test]
    fn a_mapping_that_the_file_system_refuses_leaves_no_hole() {
        let directory = Directory::new();
        let image = Image::create(&directory.path("image")).unwrap();
        image.grow(0, 8192).unwrap();
        let at = vm::reserve(8192).unwrap();
        for how in [Mapping::Synchronous, Mapping::Shared, Mapping::Private, Mapping::ReadOnly] {
            // SAFETY: reserved above, and used by no other code.
            let mapped = unsafe { image.map(at.as_ptr(), 0, 8192, how) };
            assert!(how == Mapping::Synchronous || mapped.is_ok(), "{how:?}: {mapped:?}");
            assert_eq!(image.try_map(how), mapped);
            assert!(vm::is_mapped(at.as_ptr()) && vm::is_mapped(at.as_ptr().wrapping_add(4096)));
        }
        // SAFETY: as above.
        unsafe { vm::release(at.as_ptr(), 8192) };
    }

    #[test]
    fn a_name_is_that_of_one_file() {
        let directory = Directory::new();
        let (path, other) = (directory.path("image"), directory.path("other"));
        let (first, second) = (Image::create(&path).unwrap(), Image::create(&other).unwrap());
        assert_eq!((first.is_named(&path), second.is_named(&path)), (Ok(true), Ok(false)));
        remove(&path).unwrap();
        assert_eq!(first.is_named(&path), Ok(false));
        rename(&other, &path).unwrap();
        assert_eq!((first.is_named(&path), second.is_named(&path)), (Ok(false), Ok(true)));
    }
}
