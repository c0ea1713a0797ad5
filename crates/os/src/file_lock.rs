//! The lock of a whole file, for one writer or for many readers (`flock`).

use core::sync::atomic::Ordering::Relaxed;

use rustix::fd::AsRawFd;
use rustix::fs::{self, FlockOperation};

use crate::image::{Access, Image, retry};
use crate::locks;

impl Image {
    /// Locks the file, for one writer or for many readers, until the image is dropped or unlocked.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if the lock of another image excludes this one.
    pub fn lock(&self, access: Access) -> Result<(), i32> {
        let operation = match access {
            Access::Write => FlockOperation::NonBlockingLockExclusive,
            Access::Read => FlockOperation::NonBlockingLockShared,
        };
        let file = self.checked()?;
        locks::note(file.as_raw_fd());
        if let Err(why) = retry(|| fs::flock(file, operation)) {
            if !self.is_locked() {
                locks::forget(self.file.as_raw_fd());
            }
            return Err(why.raw_os_error());
        }
        self.locked_by.store(crate::env::pid(), Relaxed);
        Ok(())
    }

    /// Whether this process has locked the file. False in a forked child of the process that has.
    pub fn is_locked(&self) -> bool {
        self.locked_by.load(Relaxed) == crate::env::pid()
    }

    /// Unlocks the file before the image is dropped.
    pub fn unlock(&self) {
        locks::forget(self.file.as_raw_fd());
        let _ = self.checked().map(|file| fs::flock(file, FlockOperation::Unlock));
        self.locked_by.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    #[test]
    fn one_writes_or_many_read() {
        let directory = Directory::new();
        let path = directory.path("image");
        let first = Image::create(&path).unwrap();
        let second = Image::open(&path, Access::Read).unwrap();
        let third = Image::open(&path, Access::Read).unwrap();
        first.lock(Access::Write).unwrap();
        assert_eq!(second.lock(Access::Read), Err(libc::EWOULDBLOCK));
        drop(first);
        second.lock(Access::Read).unwrap();
        third.lock(Access::Read).unwrap();
        let writer = Image::open(&path, Access::Write).unwrap();
        assert_eq!(writer.lock(Access::Write), Err(libc::EWOULDBLOCK));
        second.unlock();
        assert_eq!(writer.lock(Access::Write), Err(libc::EWOULDBLOCK));
        third.unlock();
        writer.lock(Access::Write).unwrap();
    }
}
