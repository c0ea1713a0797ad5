//! Locks of single bytes of images, which may lie beyond all that an image holds: signs between processes. The kernel removes
//! them when the process that has set them ends.
//!
//! They belong to the open file (`F_OFD_SETLK`), not to the process: two images of one file are two also within a process.

use rustix::fd::AsRawFd;

use crate::image::Image;

/// The first of the bytes that are locked so: no file is as long.
pub const FAR: u64 = 1 << 62;

impl Image {
    /// Locks a byte, until it is unlocked or the image is dropped. The image is open for writing. False: another image has locked the byte.
    ///
    /// # Errors
    /// The error's number: the file system has no such locks.
    pub fn try_lock_byte(&self, at: u64) -> Result<bool, i32> {
        let mut lock = lock(libc::F_WRLCK, at);
        match self.control(libc::F_OFD_SETLK, &mut lock) {
            Err(libc::EAGAIN | libc::EACCES) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Locks a byte together with others that do so. The image is open for reading. False: another image has it alone.
    ///
    /// # Errors
    /// As for [`Image::try_lock_byte`].
    pub fn share_byte(&self, at: u64) -> Result<bool, i32> {
        let mut lock = lock(libc::F_RDLCK, at);
        match self.control(libc::F_OFD_SETLK, &mut lock) {
            Err(libc::EAGAIN | libc::EACCES) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Unlocks a byte.
    pub fn unlock_byte(&self, at: u64) {
        // What this image has not locked stays as it is.
        let _ = self.control(libc::F_OFD_SETLK, &mut lock(libc::F_UNLCK, at));
    }

    /// Whether another image has locked a byte. False where the file system has no such locks.
    pub fn is_byte_locked(&self, at: u64) -> bool {
        let mut lock = lock(libc::F_WRLCK, at);
        self.control(libc::F_OFD_GETLK, &mut lock).is_ok()
            && i32::from(lock.l_type) != libc::F_UNLCK
    }

    /// Unlocks all bytes that were locked so.
    pub(crate) fn unlock_bytes(&self) {
        // To the end of all files.
        let _ = self
            .control(libc::F_OFD_SETLK, &mut libc::flock { l_len: 0, ..lock(libc::F_UNLCK, FAR) });
    }

    fn control(&self, command: i32, lock: &mut libc::flock) -> Result<(), i32> {
        let errno = crate::env::errno();
        // SAFETY: a lock is read and written.
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
        // It must be so: the lock is no process's.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::image::Access;
    use std::ffi::CString;
    use std::format;

    #[test]
    fn a_byte_has_one_owner_also_within_a_process() {
        let path = std::env::temp_dir().join(format!("spandrel-bytes-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let first = Image::create(&name).unwrap();
        let second = Image::open(&name, Access::Write).unwrap();
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
        std::fs::remove_file(&path).unwrap();
    }
}
