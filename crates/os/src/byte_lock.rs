//! Locks of single bytes of images, which may lie beyond the end of the file: signs between processes. The kernel removes a lock when the
//! last process that has the open file ends or closes it.
//!
//! A lock belongs to the open file (`F_OFD_SETLK`), not to the process: two images of one file exclude each other also within a process,
//! and a forked child shares the locks of the images that it has inherited.

use rustix::fd::AsRawFd;

use crate::image::Image;

/// The first of the bytes that are locked: beyond the end of every file.
pub const FAR: u64 = 1 << 62;

impl Image {
    /// Locks a byte exclusively. The image is open for writing. False: another image has locked the byte.
    ///
    /// An image that has locked the whole file ([`Image::lock`]) unlocks its bytes when it is dropped. Another one calls
    /// [`Image::unlock_byte`]: a forked child would keep the lock.
    ///
    /// # Errors
    /// The error's number: the file system has no such locks.
    pub fn try_lock_byte(&self, at: u64) -> Result<bool, i32> {
        self.try_lock_as(libc::F_WRLCK, at)
    }

    /// Locks a byte together with other images that share it. The image is open for reading. False: another image has locked the byte
    /// exclusively. The lock ends as that of [`Image::try_lock_byte`].
    ///
    /// # Errors
    /// As for [`Image::try_lock_byte`].
    pub fn share_byte(&self, at: u64) -> Result<bool, i32> {
        self.try_lock_as(libc::F_RDLCK, at)
    }

    fn try_lock_as(&self, kind: i32, at: u64) -> Result<bool, i32> {
        match self.control(libc::F_OFD_SETLK, &mut lock(kind, at)) {
            Err(libc::EAGAIN | libc::EACCES) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Unlocks a byte. Does nothing if another image has locked it.
    pub fn unlock_byte(&self, at: u64) {
        let _ = self.control(libc::F_OFD_SETLK, &mut lock(libc::F_UNLCK, at));
    }

    /// Whether another image has locked a byte. False where the file system has no such locks.
    pub fn is_byte_locked(&self, at: u64) -> bool {
        let mut lock = lock(libc::F_WRLCK, at);
        self.control(libc::F_OFD_GETLK, &mut lock).is_ok()
            && i32::from(lock.l_type) != libc::F_UNLCK
    }

    /// Unlocks all bytes from [`FAR`] on.
    pub(crate) fn unlock_bytes(&self) {
        // A length of 0: to the end.
        let _ = self
            .control(libc::F_OFD_SETLK, &mut libc::flock { l_len: 0, ..lock(libc::F_UNLCK, FAR) });
    }

    fn control(&self, command: i32, lock: &mut libc::flock) -> Result<(), i32> {
        let errno = crate::env::errno();
        // SAFETY: the argument of these commands is a `flock`, which the kernel reads and writes.
        let done = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut *lock) };
        let outcome = if done == -1 { Err(crate::env::errno()) } else { Ok(()) };
        crate::env::set_errno(errno);
        outcome
    }
}

fn lock(kind: i32, at: u64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: at as i64,
        l_len: 1,
        // The kernel demands 0 for locks of open files.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Access;
    use crate::testing::Directory;

    #[test]
    fn a_byte_has_one_owner_also_within_a_process() {
        let directory = Directory::new();
        let path = directory.path("image");
        let first = Image::create(&path).unwrap();
        let second = Image::open(&path, Access::Write).unwrap();
        first.lock(Access::Write).unwrap();
        assert!(!second.is_byte_locked(FAR));
        assert_eq!(first.try_lock_byte(FAR), Ok(true));
        assert_eq!((second.is_byte_locked(FAR), first.is_byte_locked(FAR)), (true, false));
        assert_eq!(
            (second.try_lock_byte(FAR), second.try_lock_byte(FAR + 1)),
            (Ok(false), Ok(true))
        );
        second.unlock_byte(FAR);
        assert!(second.is_byte_locked(FAR), "it was not its own");
        first.unlock_byte(FAR);
        assert_eq!(second.try_lock_byte(FAR), Ok(true));
        drop(second);
        assert_eq!(first.try_lock_byte(FAR + 1), Ok(true));
    }
}
