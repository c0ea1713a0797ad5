//! Files that are there whole or not at all: the name is given last, so that a process that is killed leaves nothing.

use core::ffi::CStr;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::image::{Image, unique};
use crate::message::Line;

/// What is written in one call, and left out where all of it is zero.
const CHUNK_BYTES: usize = 256 << 10;
const PATH_BYTES: usize = 4096;

/// Writes a new file, for its owner alone, durable when this returns. Room is taken for all of it, also for zeroes.
///
/// # Errors
/// The error's number: `EEXIST` if there is a file of that name, `ENOSPC` and `EFBIG` if there is no room. No file is left then.
pub fn write_new(path: &CStr, bytes: &[u8]) -> Result<(), i32> {
    write(path, bytes, OFlags::TMPFILE).map_err(Errno::raw_os_error)
}

/// `unnamed` is `O_TMPFILE`; tests take it away.
fn write(path: &CStr, bytes: &[u8], unnamed: OFlags) -> Result<(), Errno> {
    let mut buffer = [0; PATH_BYTES];
    let (directory, name) = split(path, &mut buffer)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(directory, flags, Mode::empty())?;
    // Before anything is written: the link at the end refuses as well.
    if fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    let access = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match fs::openat(&directory, c".", access | unnamed, mode) {
        Ok(file) => {
            let file = filled(file, bytes)?;
            link(file.as_fd(), directory.as_fd(), name)?;
        }
        // File systems without unnamed files; NFS is one.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            named(directory.as_fd(), name, bytes)?;
        }
        Err(why) => return Err(why),
    }
    fs::fsync(&directory)
}

/// The same by way of a hidden name, which a process that is killed leaves.
fn named(directory: BorrowedFd<'_>, name: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let mut line = Line::new();
    let [number, _] = unique();
    // A line has room for 30 bytes.
    let _ = core::fmt::Write::write_fmt(&mut line, format_args!(".spandrel-heap-{number:016x}"));
    let hidden = line.as_c_str().ok_or(Errno::NAMETOOLONG)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let file = fs::openat(directory, hidden, flags, Mode::RUSR | Mode::WUSR)?;
    let written = filled(file, bytes);
    let linked =
        written.and_then(|_| fs::linkat(directory, hidden, directory, name, AtFlags::empty()));
    let _ = fs::unlinkat(directory, hidden, AtFlags::empty());
    linked
}

/// Writes the bytes and waits for the medium.
fn filled(file: OwnedFd, bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let image = Image::from(file);
    let write = || {
        image.grow(0, bytes.len() as u64)?;
        for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            if chunk.iter().any(|byte| *byte != 0) {
                image.write_at(chunk, (number * CHUNK_BYTES) as u64)?;
            }
        }
        image.sync()
    };
    write().map_err(Errno::from_raw_os_error)?;
    image.file.try_clone().map_err(|_| Errno::MFILE)
}

/// Gives an unnamed file a name.
fn link(file: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let mut line = Line::new();
    // A line has room for 40 bytes.
    let number = file.as_raw_fd();
    let _ = core::fmt::Write::write_fmt(&mut line, format_args!("/proc/self/fd/{number}"));
    let path = line.as_c_str().ok_or(Errno::NAMETOOLONG)?;
    match fs::linkat(fs::CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW) {
        // No /proc: this takes a capability before Linux 6.10.
        Err(Errno::NOENT) => fs::linkat(file, c"", directory, name, AtFlags::EMPTY_PATH),
        linked => linked,
    }
}

/// The directory of a path, in `buffer`, and the name in it.
fn split<'a>(
    path: &'a CStr,
    buffer: &'a mut [u8; PATH_BYTES],
) -> Result<(&'a CStr, &'a CStr), Errno> {
    let bytes = path.to_bytes_with_nul();
    let cut = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (directory, name) = bytes.split_at_checked(cut).ok_or(Errno::INVAL)?;
    let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
    let directory = if directory.is_empty() { b"./" } else { directory };
    // A zero stays behind it.
    let room = buffer.get_mut(..PATH_BYTES - 1).and_then(|room| room.get_mut(..directory.len()));
    room.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(directory);
    let directory = CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::INVAL)?;
    Ok((directory, name))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::vec::Vec;
    use std::{format, vec};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = format!("spandrel-whole-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(path);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<std::ffi::OsString> {
            std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = vec![0; 3 * CHUNK_BYTES + 8192];
        bytes[5] = 1;
        bytes[2 * CHUNK_BYTES + 9] = 2;
        *bytes.last_mut().unwrap() = 3;
        bytes
    }

    #[test]
    fn a_file_has_all_bytes_and_is_its_owners() {
        for unnamed in [OFlags::TMPFILE, OFlags::empty()] {
            let folder = Folder::new("new");
            let path = folder.0.join("file");
            // Without the flag a directory cannot be opened for writing, as where there are no unnamed files.
            write(&c(&path), &bytes(), unnamed).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes());
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(folder.names(), ["file"]);
        }
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let folder = Folder::new("there");
        let (path, link) = (folder.0.join("file"), folder.0.join("link"));
        std::fs::write(&path, b"kept").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(write_new(&c(&path), &bytes()), Err(libc::EEXIST));
        assert_eq!(write_new(&c(&link), &bytes()), Err(libc::EEXIST));
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        assert_eq!(folder.names().len(), 2);
    }

    #[test]
    fn paths_that_cannot_be_are_refused() {
        let folder = Folder::new("paths");
        assert_eq!(write_new(&c(&folder.0.join("no/file")), b"x"), Err(libc::ENOENT));
        assert_eq!(write_new(c"", b"x"), Err(libc::ENOENT));
        let long = folder.0.join("a".repeat(300));
        assert_eq!(write_new(&c(&long), b"x"), Err(libc::ENAMETOOLONG));
        let longer = CString::new(vec![b'/'; PATH_BYTES + 9]).unwrap();
        assert_eq!(write_new(&longer, b"x"), Err(libc::ENAMETOOLONG));
        assert!(folder.names().is_empty());
    }
}
