//! The directory of a durable state: the files `state`, `log`, `figures` and `socket`, for one process of one user.

use core::ffi::CStr;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use spandrel_os::cpath::CPath;
use spandrel_os::image::Image;
use spandrel_os::{draft, env};

use crate::error::Error;

/// Rights of a new directory: its owner's.
const MODE: u32 = 0o700;
/// Rights that no directory of a state may give: to write, for the group and for others.
const FORBIDDEN: u32 = 0o022;

/// A directory that this process has locked. The lock ends when this is dropped.
#[derive(Debug)]
pub struct Directory {
    file: OwnedFd,
    /// The process that has locked it.
    process: i32,
}

fn system(why: Errno) -> Error {
    Error::System(why.raw_os_error())
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

impl Directory {
    /// Opens a directory and locks it; `makes`: a missing one is made, for its owner alone.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NotOwned`], [`Error::Shared`], [`Error::Locked`]; [`Error::System`] with `ENOENT` and others.
    pub fn open(path: &CStr, makes: bool) -> Result<Self, Error> {
        if makes {
            match retry(|| fs::mkdirat(CWD, path, Mode::from_raw_mode(MODE))) {
                Ok(()) => draft::sync_directory_of(path).map_err(Error::System)?,
                Err(Errno::EXIST) => {}
                Err(why) => return Err(system(why)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match retry(|| fs::open(path, flags, Mode::empty())) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Error::NotADirectory),
            opened => opened.map_err(system)?,
        };
        let status = retry(|| fs::fstat(&file)).map_err(system)?;
        check_owner(status.st_uid, status.st_mode & 0o7777)?;
        match retry(|| fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Self { file, process: env::pid() }),
            Err(Errno::WOULDBLOCK) => Err(Error::Locked),
            Err(why) => Err(system(why)),
        }
    }

    /// The paths of the files in this directory. They lead there also when the directory has got another name, or the process another working directory. Without
    /// `/proc` they are those that were given.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn paths(&self, given: Paths) -> Result<Paths, Error> {
        let mut path = *b"/proc/thread-self/fd/0000000000";
        let mut number = self.file.as_raw_fd();
        for digit in path.iter_mut().rev().take(10) {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let (name, digits) = path.split_at(path.len() - 10);
        let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len() - 1);
        let name = CPath::new(name, digits.get(first..).unwrap_or(&[]));
        let paths = Paths::new(name.map_err(Error::System)?.as_c().to_bytes())?;
        let is = retry(|| fs::fstat(&self.file)).map_err(system)?;
        let leads_there = retry(|| fs::stat(paths.directory.as_c()))
            .is_ok_and(|found| (found.st_dev, found.st_ino) == (is.st_dev, is.st_ino));
        Ok(if leads_there { paths } else { given })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A child of a fork shares the open file: it would keep the lock, and must not unlock the directory of its parent.
        if self.process == env::pid() {
            let _ = fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Refuses what another user owns, or may write to.
fn check_owner(user: u32, mode: u32) -> Result<(), Error> {
    if user != geteuid().as_raw() {
        return Err(Error::NotOwned(user));
    }
    if mode & FORBIDDEN != 0 { Err(Error::Shared(mode)) } else { Ok(()) }
}

/// The same of a file.
///
/// # Errors
/// [`Error::NotOwned`], [`Error::Shared`], [`Error::System`].
pub fn check_file(file: &Image) -> Result<(), Error> {
    let (user, mode) = file.owner().map_err(Error::System)?;
    check_owner(user, mode)
}

/// The paths of a directory's files.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The directory.
    pub directory: CPath,
    /// The file of the state.
    pub state: CPath,
    /// The file of the log.
    pub log: CPath,
    /// The file with the figures of the process that has the state open, or had it.
    pub figures: CPath,
    /// The socket by which other processes ask something of the one that has the state open.
    pub socket: CPath,
}

impl Paths {
    /// Of the directory with that path.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub fn new(directory: &[u8]) -> Result<Self, Error> {
        let path = |suffix| CPath::new(directory, suffix).map_err(|_| Error::Path);
        let (directory, state) = (path(b"")?, path(b"/state")?);
        let (log, figures, socket) = (path(b"/log")?, path(b"/figures")?, path(b"/socket")?);
        Ok(Self { directory, state, log, figures, socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::prelude::v1::*;

    #[test]
    fn the_paths_of_a_directory_stay_whatever_its_name_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("before");
        let given = || Paths::new(path.to_str().unwrap().as_bytes()).unwrap();
        let directory = Directory::open(given().directory.as_c(), true).unwrap();
        let paths = directory.paths(given()).unwrap();
        std::fs::rename(&path, place.path().join("after")).unwrap();
        drop(Image::create(paths.state.as_c()).unwrap());
        assert!(place.path().join("after/state").exists());
    }

    #[test]
    fn a_directory_is_its_owners_and_locked() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state.dir");
        let paths = Paths::new(path.to_str().unwrap().as_bytes()).unwrap();
        let name = paths.directory.as_c();
        assert_eq!(Directory::open(name, false).err(), Some(Error::System(libc::ENOENT)));
        let opened = Directory::open(name, true).unwrap();
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o700);
        assert_eq!(Directory::open(name, true).err(), Some(Error::Locked));
        drop(opened);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o720)).unwrap();
        assert_eq!(Directory::open(name, true).err(), Some(Error::Shared(0o720)));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        drop(Directory::open(name, false).unwrap());
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let link = Paths::new(link.to_str().unwrap().as_bytes()).unwrap();
        assert_eq!(Directory::open(link.directory.as_c(), false).err(), Some(Error::NotADirectory));
        assert_eq!(Paths::new(b"a\0b").err(), Some(Error::Path));
        assert_eq!(Paths::new(&[b'x'; 4096]).err(), Some(Error::Path));
    }
}
