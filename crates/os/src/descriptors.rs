//! Descriptors of this project among those of the program.
//!
//! Programs do two things with descriptors that they do not know:
//!
//! - They run with closed standard streams. The next file that is opened has the number of one, and gets what the program prints. So no file of ours has such a number ([`own`]).
//! - They close all that are open, as daemons do, and a file that is opened later has the number. So a file that outlives the process is written and read, and its descriptor is
//!   closed, only where it is still the file that was opened ([`Kept`]): one system call more, of a tenth of a microsecond.

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering::*};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{self, AtFlags, Stat, StatxFlags};
use rustix::io::{DupFlags, Errno};

use crate::image::retry;

/// The first number behind those of the standard streams.
const FIRST: RawFd = 3;

/// The same file, under a number that is none of the standard streams'.
///
/// # Errors
/// The system's: no number is free.
pub fn own(file: OwnedFd) -> Result<OwnedFd, Errno> {
    if file.as_raw_fd() >= FIRST {
        return Ok(file);
    }
    rustix::io::fcntl_dupfd_cloexec(&file, FIRST)
}

/// A device and the number of a file there.
pub(crate) type Identity = (u64, u64);

/// Where an identity is.
#[derive(Debug)]
pub(crate) struct Place([AtomicU64; 2]);

impl Place {
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 2])
    }

    pub fn set(&self, (device, inode): Identity) {
        self.0[0].store(device, Relaxed);
        self.0[1].store(inode, Release);
    }

    pub fn get(&self) -> Identity {
        let inode = self.0[1].load(Acquire);
        (self.0[0].load(Relaxed), inode)
    }
}

/// A descriptor of an open file. It is closed with the value, if it is still that file's.
#[derive(Debug)]
pub struct Kept {
    file: ManuallyDrop<OwnedFd>,
    is: Place,
    /// The file that it is about to become.
    next: Place,
}

pub(crate) fn identity(status: &Stat) -> Identity {
    (status.st_dev, status.st_ino)
}

impl Kept {
    /// Keeps an open file.
    ///
    /// # Errors
    /// The system's.
    pub fn new(file: OwnedFd) -> Result<Self, Errno> {
        let file = own(file)?;
        let status = retry(|| fs::fstat(&file))?;
        let (is, next) = (Place::new(), Place::new());
        is.set(identity(&status));
        next.set(identity(&status));
        Ok(Self { file: ManuallyDrop::new(file), is, next })
    }

    /// What the system says of the file.
    ///
    /// # Errors
    /// The system's. `EBADF`: the program has closed the descriptor; `ESTALE`: it is another file's.
    pub fn status(&self) -> Result<Stat, Errno> {
        let status = retry(|| fs::fstat(&*self.file))?;
        self.check(identity(&status))?;
        Ok(status)
    }

    /// The descriptor, if it is still the file's. Costs a system call.
    ///
    /// It does not ask for times: where a file's times were asked for, Linux 6.13 and later write a finer time with each write, and a durable write of ext4 takes a quarter longer.
    ///
    /// # Errors
    /// As for [`Kept::status`].
    pub fn checked(&self) -> Result<&OwnedFd, Errno> {
        let wanted = StatxFlags::TYPE | StatxFlags::INO;
        match retry(|| fs::statx(&*self.file, c"", AtFlags::EMPTY_PATH, wanted)) {
            Ok(found) => {
                let device = fs::makedev(found.stx_dev_major, found.stx_dev_minor);
                self.check((device, found.stx_ino))?;
            }
            Err(Errno::BADF) => return Err(Errno::BADF),
            // Older kernels, and filters of system calls that do not know it.
            Err(_) => drop(self.status()?),
        }
        Ok(&self.file)
    }

    fn check(&self, found: Identity) -> Result<(), Errno> {
        let is_it = found == self.is.get() || found == self.next.get();
        if is_it { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Has the descriptor lead to the file of another one from now on. Other threads may use it meanwhile: each call of theirs is of one of the two files.
    ///
    /// # Errors
    /// The system's. The descriptor leads where it led then.
    pub fn become_file_of(&self, other: &Self) -> Result<(), Errno> {
        let (before, after) = (identity(&self.status()?), identity(&other.status()?));
        self.next.set(after);
        // SAFETY: the descriptor is this value's, which keeps it.
        let mut file = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.file.as_raw_fd()) });
        let become_it = || rustix::io::dup3(&*other.file, &mut file, DupFlags::CLOEXEC);
        let became = retry(become_it);
        let is = if became.is_ok() { after } else { before };
        self.is.set(is);
        self.next.set(is);
        became
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.status().is_ok() {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

impl Deref for Kept {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.file
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Kept {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::image::{Access, Image};
    use crate::testing::Directory;
    use std::fs::File;
    use std::io::Read;

    /// Has the number of a descriptor be another file's, as a program does that closes all and opens its own.
    fn take_over(number: RawFd, path: &std::path::Path) -> File {
        use std::os::fd::{AsRawFd, FromRawFd};
        let other = File::options().read(true).write(true).create(true).truncate(true).open(path);
        // SAFETY: the descriptor is of the test.
        unsafe {
            assert_eq!(libc::dup2(other.unwrap().as_raw_fd(), number), number);
            File::from_raw_fd(number)
        }
    }

    #[test]
    fn a_file_of_the_program_with_the_same_number_is_neither_written_nor_closed() {
        let directory = Directory::new();
        let path = directory.path("image");
        let image = Image::create(&path).unwrap();
        image.grow(0, 8192).unwrap();
        let mut other = take_over(image.file.as_raw_fd(), &directory.at("other"));
        let refused = Err(libc::ESTALE);
        assert_eq!(image.write_at(b"bytes", 0), refused);
        assert_eq!((image.grow(8192, 1 << 20), image.shorten(0)), (refused, refused));
        assert_eq!((image.sync(), image.reserve(1 << 20)), (refused, refused));
        assert_eq!(image.read_at(&mut [0; 8], 0), Err(libc::ESTALE));
        assert_eq!(image.next_data(0), Err(libc::ESTALE));
        assert_eq!(image.lock(Access::Write), refused);
        assert_eq!(image.bytes(), Err(libc::ESTALE));
        drop(image);
        let mut text = [0; 8];
        assert_eq!(other.read(&mut text).unwrap(), 0, "as long as it was, and open");
        assert_eq!(Image::open(&path, Access::Write).unwrap().bytes(), Ok(8192));
    }

    #[test]
    fn a_descriptor_that_has_become_another_file_is_known_as_that() {
        let directory = Directory::new();
        let [first, second] = ["first", "second"].map(|name| directory.path(name));
        let image = Image::create(&first).unwrap();
        let other = Image::create(&second).unwrap();
        other.grow(0, 4096).unwrap();
        image.become_file_of(other).unwrap();
        assert_eq!(image.bytes(), Ok(4096));
        image.write_at(b"bytes", 0).unwrap();
    }

    /// In a process of its own, as others of this one print.
    #[test]
    fn no_file_has_the_number_of_a_standard_stream() {
        let directory = Directory::new();
        let path = directory.path("image");
        // SAFETY: the child makes system calls alone.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                (0..FIRST).for_each(|number| assert_eq!(libc::close(number), 0));
                let image = Image::create(&path);
                libc::_exit(i32::from(!image.is_ok_and(|image| image.file.as_raw_fd() >= FIRST)))
            }
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
}
