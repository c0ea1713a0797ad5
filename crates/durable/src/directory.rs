//! The directory of a durable state: the files `state`, `log`, `figures` and `socket`, for one process of one user.

use core::ffi::CStr;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use spandrel_os::cpath::CPath;
use spandrel_os::descriptors::Kept;
use spandrel_os::image::Image;
use spandrel_os::{draft, env, locks};

use crate::error::Error;

/// Rights of a new directory: its owner's.
const MODE: u32 = 0o700;
/// Rights that no directory of a state may give: to write, for the group and for others.
const FORBIDDEN: u32 = 0o022;

/// How often processes that only read are looked for, and the time in between: a scrape of figures reads the log, for some tenths of a second.
const READERS_TURNS: u32 = 1000;
const READERS_MICROS: u32 = 10_000;
/// How often a process that has the directory for itself is looked for, and the time in between.
const LOCKED_TURNS: u32 = 100;
const LOCKED_MICROS: u32 = 1000;

/// A directory that this process has locked. The lock ends when this is dropped, or with the process, though children of forks go on. A directory that was made for it is
/// removed then if it is empty: what was to lie there could not be made.
#[derive(Debug)]
pub struct Directory {
    file: Kept,
    /// The path by which it was made.
    made: Option<CPath>,
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

fn try_lock(file: &OwnedFd, how: FlockOperation) -> Result<(), Error> {
    retry(|| fs::flock(file, how)).map_err(|why| match why {
        Errno::WOULDBLOCK => Error::Locked,
        why => system(why),
    })
}

/// Tries to lock until that is not refused any more because of another process, for a tenth of a second: one that was killed may be about to end, or a child of its about to give its lock up.
pub(crate) fn patiently(mut lock: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for _ in 0..LOCKED_TURNS {
        let locked = lock();
        if locked != Err(Error::Locked) {
            return locked;
        }
        // SAFETY: no preconditions.
        unsafe { libc::usleep(LOCKED_MICROS) };
    }
    lock()
}

/// Locks a directory for this process alone.
fn lock(file: &OwnedFd) -> Result<(), Error> {
    for _ in 0..READERS_TURNS {
        let locked = try_lock(file, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(Error::Locked) {
            return locked;
        }
        // Refused where a process has it for itself.
        patiently(|| try_lock(file, FlockOperation::NonBlockingLockShared))?;
        retry(|| fs::flock(file, FlockOperation::Unlock)).map_err(system)?;
        // SAFETY: no preconditions.
        unsafe { libc::usleep(READERS_MICROS) };
    }
    Err(Error::Locked)
}

impl Directory {
    /// Opens a directory and locks it; `makes`: a missing one is made, for its owner alone. Processes that only read it ([`Directory::read`]) are waited for, for some seconds.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NotOwned`], [`Error::Shared`], [`Error::Locked`]; [`Error::System`] with `ENOENT` and others.
    pub fn open(path: &CStr, makes: bool) -> Result<Self, Error> {
        /// Processes that make it in vain and remove it, one after the other, before it is locked here.
        const TURNS: usize = 100;
        for _ in 0..if makes { TURNS } else { 1 } {
            if let Some(directory) = Self::try_open(path, makes, lock)? {
                return Ok(directory);
            }
        }
        // Also a link that leads nowhere.
        Err(Error::System(libc::ENOENT))
    }

    /// Opens a directory whose files this process only reads: others may read them beside it.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn read(path: &CStr) -> Result<Self, Error> {
        let share = |file: &OwnedFd| try_lock(file, FlockOperation::NonBlockingLockShared);
        Self::try_open(path, false, share)?.ok_or(Error::System(libc::ENOENT))
    }

    /// `None`: it was removed meanwhile.
    fn try_open(
        path: &CStr,
        makes: bool,
        lock: impl FnOnce(&OwnedFd) -> Result<(), Error>,
    ) -> Result<Option<Self>, Error> {
        let mut made = None;
        if makes {
            match retry(|| fs::mkdirat(CWD, path, Mode::from_raw_mode(MODE))) {
                Ok(()) => made = CPath::new(path.to_bytes(), b"").ok(),
                Err(Errno::EXIST) => {}
                Err(why) => return Err(system(why)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match retry(|| fs::open(path, flags, Mode::empty())) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Error::NotADirectory),
            Err(Errno::NOENT) if makes => return Ok(None),
            opened => opened.and_then(Kept::new).map_err(system)?,
        };
        let status = file.status().map_err(system)?;
        check_owner(status.st_uid, status.st_mode & 0o7777)?;
        locks::note(file.as_raw_fd());
        lock(&file).inspect_err(|_| locks::forget(file.as_raw_fd()))?;
        let directory = Self { file, made, process: env::pid() };
        if directory.file.status().map_err(system)?.st_nlink == 0 {
            return Ok(None);
        }
        let has_state =
            || fs::statat(&*directory.file, c"state", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if directory.made.is_some() {
            draft::sync_directory_of(path).map_err(Error::System)?;
        } else if makes && !has_state() {
            // Of a process that was killed behind the making. The directory above may be one that this user only may enter.
            let _ = draft::sync_directory_of(path);
        }
        Ok(Some(directory))
    }

    /// The paths of the files in this directory. They lead there also when the directory has got another name, or the process another working directory. Without
    /// `/proc` they are those that were given.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn paths(&self, given: Paths) -> Result<Paths, Error> {
        let path = CPath::of_descriptor(self.file.as_raw_fd());
        let paths = Paths::new(path.as_c().to_bytes())?;
        Ok(if self.is_at(paths.directory.as_c()) { paths } else { given })
    }

    /// Whether a path leads there.
    fn is_at(&self, path: &CStr) -> bool {
        let is = self.file.status();
        let found = retry(|| fs::stat(path));
        is.and_then(|is| Ok((is, found?)))
            .is_ok_and(|(is, found)| (found.st_dev, found.st_ino) == (is.st_dev, is.st_ino))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        locks::forget(self.file.as_raw_fd());
        // A child may share the open file that was not made by the C library's `fork`: it must not unlock the directory of its parent.
        if self.process == env::pid() {
            // While it is locked: another process may be about to use it.
            if let Some(path) = self.made.as_ref().map(CPath::as_c)
                && self.is_at(path)
            {
                let _ = fs::rmdir(path);
            }
            let _ = self.file.checked().map(|file| fs::flock(file, FlockOperation::Unlock));
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
    fn a_directory_that_was_made_for_nothing_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("made");
        let paths = Paths::new(path.to_str().unwrap().as_bytes()).unwrap();
        let open = || Directory::open(paths.directory.as_c(), true).unwrap();
        drop(open());
        assert!(!path.exists());
        // One that has a file stays, as does one that was there, and one that has got another directory's name.
        let opened = open();
        std::fs::write(path.join("state"), "").unwrap();
        drop(opened);
        std::fs::remove_file(path.join("state")).unwrap();
        drop(open());
        assert!(path.exists());
        std::fs::remove_dir(&path).unwrap();
        let opened = open();
        std::fs::rename(&path, place.path().join("moved")).unwrap();
        std::fs::create_dir(&path).unwrap();
        drop(opened);
        assert!(path.exists() && place.path().join("moved").exists());
    }

    /// Of several that make it, and remove it in vain, none has one that has no name any more.
    #[test]
    fn a_directory_that_was_opened_is_there() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("made");
        let paths = Paths::new(path.to_str().unwrap().as_bytes()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let _ = scope.spawn(|| {
                    for _ in 0..5000 {
                        match Directory::open(paths.directory.as_c(), true) {
                            Ok(opened) => assert!(opened.is_at(paths.directory.as_c())),
                            Err(why) => assert_eq!(why, Error::Locked),
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn what_only_reads_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let paths = Paths::new(place.path().to_str().unwrap().as_bytes()).unwrap();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let name = paths.directory.as_c();
        let (first, second) = (Directory::read(name).unwrap(), Directory::read(name).unwrap());
        std::thread::scope(|scope| {
            let _ = scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(300));
                drop((first, second));
            });
            let opened = Directory::open(name, true).unwrap();
            assert_eq!(Directory::read(name).err(), Some(Error::Locked));
            drop(opened);
        });
        drop(Directory::read(name).unwrap());
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
        std::fs::write(path.join("state"), "").unwrap();
        drop(opened);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o720)).unwrap();
        assert_eq!(Directory::open(name, true).err(), Some(Error::Shared(0o720)));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        drop(Directory::open(name, false).unwrap());
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let link = Paths::new(link.to_str().unwrap().as_bytes()).unwrap();
        assert_eq!(Directory::open(link.directory.as_c(), false).err(), Some(Error::NotADirectory));
        let nowhere = place.path().join("nowhere");
        std::os::unix::fs::symlink(place.path().join("none"), &nowhere).unwrap();
        let nowhere = Paths::new(format!("{}/", nowhere.display()).as_bytes()).unwrap();
        assert!(Directory::open(nowhere.directory.as_c(), true).is_err());
        assert_eq!(Paths::new(b"a\0b").err(), Some(Error::Path));
        assert_eq!(Paths::new(&[b'x'; 4096]).err(), Some(Error::Path));
    }
}
