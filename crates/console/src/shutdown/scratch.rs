//! Temporary files and directories, which outlive the command in no case for long.
//!
//! Each is removed when its value is dropped or a signal ends the command. Where neither happens (`kill -9`, a power
//! failure), a later command removes it: a lock on the file (`flock`) says whether its owner lives. The kernel
//! releases the lock with the owner, whatever the owner's process id and the namespace it counts in.
//!
//! Invariant: an owner uses a file only after it has locked it and found it still under its name; [`sweep`]
//! removes a file only while it holds the lock. So a file that has just been made is not lost to a
//! sweep unnoticed: its owner makes another.

use super::steady;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::{Builder, NamedTempFile, TempDir};

/// What a temporary file is for. The names begin with this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Statistics of a run's processes.
    Stats,
    /// A report, beside its place.
    Report,
    /// A profile, beside its place.
    Profile,
    /// Files of a `redis-server`.
    Redis,
    /// Steps for the worker.
    Steps,
    /// Heaps and logs that are measured.
    Bench,
    /// A heap that is loaded, beside its place.
    Load,
    /// A dump of a heap, beside its place.
    Dump,
    /// A program that writes or reads a backup, beside its place.
    Backup,
    /// A state that is compacted, in its directory.
    Compact,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Stats,
        Self::Report,
        Self::Profile,
        Self::Redis,
        Self::Steps,
        Self::Bench,
        Self::Load,
        Self::Dump,
        Self::Backup,
        Self::Compact,
    ];

    fn prefix(self) -> &'static str {
        match self {
            Self::Stats => "spandrel-stats-",
            Self::Report => ".spandrel-report-",
            Self::Profile => ".spandrel-profile-",
            Self::Redis => "spandrel-redis-",
            Self::Steps => "spandrel-steps-",
            Self::Bench => "spandrel-bench-",
            Self::Load => ".spandrel-heap-",
            Self::Dump => ".spandrel-dump-",
            Self::Backup => ".spandrel-backup-",
            Self::Compact => ".spandrel-compact-",
        }
    }

    fn builder(self) -> Builder<'static, 'static> {
        let mut builder = Builder::new();
        builder.prefix(self.prefix()).suffix(SUFFIX).rand_bytes(RANDOM);
        builder
    }
}

/// Where files in memory lie.
pub const MEMORY: &str = "/dev/shm";
/// The end of all names.
const SUFFIX: &str = ".tmp";
/// Random letters and digits in between.
const RANDOM: usize = 12;
/// Without the bits of the process's umask.
const MODE: u32 = 0o666;
/// Attempts to make a file that no sweep has removed.
const TRIES: usize = 100;

/// Temporary files of this command, for the thread that ends it.
static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn paths() -> MutexGuard<'static, Vec<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary file or directory, and what removes it. Fields are dropped in this order: the path is listed as long as there
/// may be a file.
#[derive(Debug)]
pub struct Scratch<T> {
    made: T,
    _listed: Listed,
    _lock: Option<Flock<File>>,
}

impl Scratch<TempDir> {
    /// A directory for temporary files of this process.
    pub fn directory(kind: Kind) -> io::Result<Self> {
        Self::directory_in(kind, &std::env::temp_dir())
    }

    /// A directory in another one.
    pub fn directory_in(kind: Kind, place: &Path) -> io::Result<Self> {
        Self::make(place, || kind.builder().tempdir_in(place), TempDir::path)
    }
}

impl Scratch<NamedTempFile> {
    /// A file for this user only.
    pub fn file(kind: Kind) -> io::Result<Self> {
        let place = std::env::temp_dir();
        Self::make(&place, || kind.builder().tempfile_in(&place), NamedTempFile::path)
    }

    /// A file in a directory, with the permissions of any file that a program makes.
    pub fn file_in(kind: Kind, place: &Path) -> io::Result<Self> {
        let make = || kind.builder().permissions(Permissions::from_mode(MODE)).tempfile_in(place);
        Self::make(place, make, NamedTempFile::path)
    }

    /// Gives the file its name, in the place of an earlier file.
    pub fn persist(self, path: &Path) -> io::Result<File> {
        let _steady = steady();
        self.made.persist(path).map_err(|why| why.error)
    }
}

/// Errors are the kernel's: those of `NamedTempFile` have the temporary name.
impl io::Write for Scratch<NamedTempFile> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.made.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.made.as_file_mut().flush()
    }
}

impl<T> Scratch<T> {
    fn make(
        place: &Path,
        mut one: impl FnMut() -> io::Result<T>,
        path: impl Fn(&T) -> &Path,
    ) -> io::Result<Self> {
        sweep(place);
        for common in [std::env::temp_dir(), MEMORY.into()] {
            if common != place {
                sweep(&common);
            }
        }
        let mut left = TRIES;
        loop {
            let held = steady();
            // Without the name of what could not be made, which no user knows.
            let made = one().map_err(plain)?;
            let listed = Listed::new(path(&made));
            drop(held);
            let lock = match File::open(path(&made)) {
                Ok(file) => Flock::lock(file, FlockArg::LockExclusive).ok(),
                // A sweep has just removed it.
                Err(why) if why.kind() == io::ErrorKind::NotFound && left > 0 => {
                    left -= 1;
                    continue;
                }
                Err(_) => None,
            };
            // A file system without locks has no sweeps either.
            if left == 0 || lock.as_ref().is_none_or(|lock| is_at(lock, path(&made))) {
                return Ok(Self { made, _listed: listed, _lock: lock });
            }
            left -= 1;
        }
    }
}

impl<T> Deref for Scratch<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.made
    }
}

impl<T> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.made
    }
}

/// The error without the path that `tempfile` adds to it.
fn plain(why: io::Error) -> io::Error {
    match why.to_string().split_once(" at path ") {
        Some((reason, _)) => io::Error::new(why.kind(), reason),
        None => why,
    }
}

/// A path that is removed when a signal ends the command, as long as the value lives.
#[derive(Debug)]
struct Listed(PathBuf);

impl Listed {
    /// Lists a path, for a caller that keeps the command steady from before there is a file.
    fn new(path: &Path) -> Self {
        // The process may change its directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        paths().push(path.clone());
        Self(path)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        paths().retain(|path| *path != self.0);
    }
}

/// Removes the temporary files of this command, which ends.
pub fn remove_all() {
    for path in paths().iter() {
        // Another thread may make a file in a directory meanwhile.
        for _ in 0..TRIES {
            if remove(path).is_ok() {
                break;
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let done = match path.symlink_metadata() {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(why) => Err(why),
    };
    match done {
        // Of a directory it may be a file that another thread or process has just removed.
        Err(why) if why.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            Ok(())
        }
        done => done,
    }
}

/// Removes what commands that were killed have left in a directory: it may be gigabytes of memory.
fn sweep(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(is_scratch) {
            continue;
        }
        let path = entry.path();
        let is_ours = path.symlink_metadata().is_ok_and(|about| {
            (about.is_dir() || about.is_file()) && about.uid() == geteuid().as_raw()
        });
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Some(file) = options.open(&path).ok().filter(|_| is_ours) else { continue };
        // A lock that another process holds says that the owner lives.
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            && is_at(&lock, &path)
        {
            // What cannot be removed stays for a later command.
            let _ = remove(&path);
        }
    }
}

/// Whether a name is one of those that are made here.
fn is_scratch(name: &str) -> bool {
    let random =
        Kind::ALL.iter().find_map(|kind| name.strip_prefix(kind.prefix())?.strip_suffix(SUFFIX));
    random.is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Whether an open file lies under this name.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_have_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let dead = path("spandrel-bench-abcdefABCDEF.tmp");
        let dead_file = path(".spandrel-report-0123456789ab.tmp");
        let others =
            ["spandrel-bench-results", "spandrel-bench-abcdefABCD-F.tmp", "spandrel-x.tmp"];
        for directory in others.iter().map(|name| path(name)).chain([dead.clone()]) {
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("heap"), "").unwrap();
        }
        std::fs::write(&dead_file, "").unwrap();
        std::os::unix::fs::symlink(path(others[0]), path("spandrel-stats-abcdefABCDEF.tmp"))
            .unwrap();
        let alive = Scratch::directory_in(Kind::Redis, place.path()).unwrap();
        let own = Scratch::file_in(Kind::Report, place.path()).unwrap();
        assert!(alive.path().exists() && own.path().exists());
        assert!(!dead.exists() && !dead_file.exists());
        assert!(others.iter().all(|name| path(name).join("heap").exists()));
        let paths = [alive.path().to_path_buf(), own.path().to_path_buf()];
        drop((alive, own));
        assert!(paths.iter().all(|path| !path.exists()));
        assert!(super::paths().iter().all(|path| !path.starts_with(place.path())));
    }

    #[test]
    fn a_file_gets_its_name_when_it_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("whole");
        Scratch::file_in(Kind::Profile, place.path()).unwrap().persist(&path).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        let nowhere = Path::new("/no/such/place");
        let of_directory = Scratch::directory_in(Kind::Bench, nowhere).unwrap_err();
        let of_file = Scratch::file_in(Kind::Report, nowhere).unwrap_err();
        for why in [of_directory, of_file] {
            assert_eq!(why.to_string(), "No such file or directory (os error 2)");
        }
    }
}
