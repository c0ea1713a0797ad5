//! A file that the command writes: under its name when it is complete. Until then an earlier file of that name stays.

use super::directory_of;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use nix::unistd::linkat;
use spandrel_console::shutdown::{Kind, Scratch, steady};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The beginning of preliminary names.
const PREFIX: &str = ".spandrel-dump-";
/// Without the bits of the process's umask.
const MODE: u32 = 0o666;

/// See the head of this file. Dropped before [`Output::finish`] it leaves nothing.
pub enum Output {
    /// A device, a pipe, or a file in a directory that must not be written: bytes go there at once. An earlier file is emptied with the first of them.
    Direct { file: File, is_earlier: bool },
    /// The file has no name yet: it is gone when the command is killed.
    Nameless { file: File, path: PathBuf },
    /// On file systems without nameless files.
    Named { file: Scratch<NamedTempFile>, path: PathBuf },
}

impl Output {
    /// Begins a file.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let before = path.metadata().ok();
        let is_file = before.as_ref().is_none_or(|before| before.is_file());
        // `/dev/stdout` may be a file, which another process has open, and has written to.
        if !is_file || leads_through_proc(path) {
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(Self::Direct { file, is_earlier: false });
        }
        // A link stays one.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let begun = match Self::beside(target) {
            Err(why) if is_forbidden(&why) && before.is_some() => {
                let file = OpenOptions::new().write(true).open(path)?;
                Ok(Self::Direct { file, is_earlier: true })
            }
            begun => begun,
        }?;
        if let (Some(before), Some(file)) = (before, begun.hidden()) {
            let _ = fchown(file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
        }
        Ok(begun)
    }

    /// A file without a name, or with a preliminary one, in the directory of a path.
    fn beside(path: PathBuf) -> io::Result<Self> {
        let directory = directory_of(&path);
        let mut options = OpenOptions::new();
        options.write(true).mode(MODE).custom_flags(libc::O_TMPFILE);
        // The file gets its name through `/proc`, which a sandbox may lack.
        let file = options.open(directory).ok().filter(|file| descriptor(file).exists());
        if let Some(file) = file {
            return Ok(Self::Nameless { file, path });
        }
        let file = Scratch::file_in(Kind::Dump, directory)?;
        Ok(Self::Named { file, path })
    }

    /// The file, if it does not have its name yet.
    fn hidden(&self) -> Option<&File> {
        match self {
            Self::Direct { .. } => None,
            Self::Nameless { file, .. } => Some(file),
            Self::Named { file, .. } => Some(file.as_file()),
        }
    }

    /// Gives the file its name, in the place of an earlier file.
    pub fn finish(self) -> io::Result<()> {
        let path = match self {
            Self::Direct { .. } => return Ok(()),
            Self::Nameless { file, path } => {
                file.sync_all()?;
                let from = descriptor(&file);
                // A link does not replace a file, and a renaming does.
                let link = |to: &Path| {
                    let flags = AtFlags::AT_SYMLINK_FOLLOW;
                    linkat(AT_FDCWD, &from, AT_FDCWD, to, flags).map_err(io::Error::from)
                };
                // Between its two names a file is complete, and is removed by no other thread.
                let _steady = steady();
                let named =
                    tempfile::Builder::new().prefix(PREFIX).make_in(directory_of(&path), link)?;
                named.persist(&path)?;
                path
            }
            Self::Named { file, path } => {
                file.as_file().sync_all()?;
                file.persist(&path)?;
                path
            }
        };
        File::open(directory_of(&path))?.sync_all()
    }
}

/// Whether a path, or a link that it leads to, lies in `/proc`: it may name an open file, which has no directory.
fn leads_through_proc(path: &Path) -> bool {
    /// The kernel follows no more links.
    const MOST_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let directory = directory_of(&path);
        if statfs(directory).is_ok_and(|place| place.filesystem_type() == PROC_SUPER_MAGIC) {
            return true;
        }
        match path.read_link() {
            Ok(next) => path = directory.join(next),
            Err(_) => return false,
        }
    }
    false
}

/// The path of an open file in `/proc`.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn is_forbidden(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct { file, is_earlier } => {
                if std::mem::take(is_earlier) {
                    file.set_len(0)?;
                }
                file.write(bytes)
            }
            Self::Nameless { file, .. } => file.write(bytes),
            Self::Named { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(place: &Path) -> Vec<String> {
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let entries = std::fs::read_dir(place).unwrap();
        let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_earlier_file_stays_until_the_new_one_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("file"), place.path().join("link"));
        std::fs::write(&path, "earlier").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        for to in [&path, &link] {
            let mut output = Output::begin(to).unwrap();
            output.write_all(b"a part").unwrap();
            drop(output);
            assert_eq!(std::fs::read(&path).unwrap(), b"earlier");
        }
        let file = Scratch::file_in(Kind::Dump, place.path()).unwrap();
        let named = Output::Named { file, path: place.path().join("new") };
        let nameless = Output::begin(&link).unwrap();
        for mut output in [named, nameless] {
            output.write_all(b"complete").unwrap();
            output.finish().unwrap();
        }
        assert_eq!(names(place.path()), ["file", "link", "new"]);
        for file in ["file", "link", "new"] {
            assert_eq!(std::fs::read(place.path().join(file)).unwrap(), b"complete");
        }
        assert!(link.is_symlink());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn devices_and_pipes_are_written_at_once() {
        assert!(matches!(Output::begin(Path::new("/dev/null")).unwrap(), Output::Direct { .. }));
        assert!(Output::begin(Path::new("/no/such")).is_err());
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("file"), place.path().join("link"));
        let open = File::create(&path).unwrap();
        symlink(descriptor(&open), &link).unwrap();
        let number = Path::new("/dev/fd").join(open.as_raw_fd().to_string());
        for named in [descriptor(&open), link, number] {
            assert!(matches!(Output::begin(&named).unwrap(), Output::Direct { .. }), "{named:?}");
        }
    }

    #[test]
    fn a_file_in_shared_memory_is_one() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, "earlier").unwrap();
        let mut output = Output::begin(&path).unwrap();
        output.write_all(b"a part").unwrap();
        drop(output);
        assert_eq!(std::fs::read(&path).unwrap(), b"earlier");
    }
}
