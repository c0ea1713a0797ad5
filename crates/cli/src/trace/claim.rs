//! The name of a recording, from the start of the program on.
//!
//! The recording gets its name when it is complete, minutes after the name was looked at. Meanwhile an empty file that is
//! locked stands there: another recording of that name is refused at its start, and replaces nothing at its end. A command that was
//! killed leaves an empty file without a lock, which the next one takes.

use crate::shutdown::{Listed, is_at, steady};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A name that is taken. The empty file goes with the value, unless the recording has its place.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    lock: Flock<File>,
    _listed: Listed,
}

impl Claim {
    /// Takes a name, or says why it cannot be taken.
    pub fn new(path: &Path) -> Result<Self, String> {
        let held = steady();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let is_there = || "is there already; remove it, or name another file".to_string();
        let file = match options.open(path) {
            Err(_) if path.symlink_metadata().is_ok() => return Err(is_there()),
            opened => opened.map_err(|why| format!("cannot be made: {why}"))?,
        };
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            "is where another recording goes; wait for its end, or name another file".to_string()
        })?;
        let is_empty = lock.metadata().is_ok_and(|about| about.is_file() && about.len() == 0);
        // A recording may have taken the place of the file that was opened.
        if !is_empty || !is_at(&lock, path) {
            return Err(is_there());
        }
        let listed = Listed::new(path);
        drop(held);
        Ok(Self { path: path.to_path_buf(), lock, _listed: listed })
    }

    /// The name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if is_at(&self.lock, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.trace");
        let first = Claim::new(&path).unwrap();
        assert!(Claim::new(&path).unwrap_err().contains("another recording"));
        drop(first);
        assert!(!path.exists());
        // What a killed command has left.
        std::fs::write(&path, "").unwrap();
        let second = Claim::new(&path).unwrap();
        std::fs::write(directory.path().join("whole"), "recorded").unwrap();
        std::fs::rename(directory.path().join("whole"), &path).unwrap();
        drop(second);
        assert_eq!(std::fs::read(&path).unwrap(), b"recorded");
        assert!(Claim::new(&path).unwrap_err().contains("is there already"));
        assert!(Claim::new(directory.path()).unwrap_err().contains("is there already"));
        assert!(Claim::new(Path::new("/no/such/x.trace")).unwrap_err().contains("cannot be made"));
    }
}
