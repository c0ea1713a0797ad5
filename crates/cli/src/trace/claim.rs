//! The name of a recording, from the start of the program on.
//!
//! The recording gets its name when it is complete, minutes after the name was looked at. Meanwhile a socket with an abstract
//! address, which is no file and goes with the process however that ends, says that the name is taken: another recording of
//! that name is refused at its start. Other network namespaces have other addresses; at the end no file is replaced, wherever it
//! comes from.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

const IS_THERE: &str = "is there already; remove it, or name another file";

/// A name that is taken.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// None where there are no sockets.
    _socket: Option<UnixDatagram>,
}

impl Claim {
    /// Takes a name, or says why it cannot be taken.
    pub fn new(path: &Path) -> Result<Self, String> {
        if path.symlink_metadata().is_ok() {
            return Err(IS_THERE.into());
        }
        let socket = match address(path).and_then(|address| UnixDatagram::bind_addr(&address)) {
            Err(why) if why.kind() == ErrorKind::AddrInUse => {
                let why = "is where another recording goes; wait for its end, or name another file";
                return Err(why.into());
            }
            bound => bound.ok(),
        };
        // The other recording may have come to its end in between.
        if path.symlink_metadata().is_ok() {
            return Err(IS_THERE.into());
        }
        Ok(Self { path: path.to_path_buf(), _socket: socket })
    }

    /// The name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the name to a file in the same directory.
    pub fn give_to(&self, file: &Path) -> io::Result<()> {
        match renameat2(AT_FDCWD, file, AT_FDCWD, &self.path, RenameFlags::RENAME_NOREPLACE) {
            // A file system that cannot tell.
            Err(Errno::EINVAL | Errno::ENOSYS) if self.path.symlink_metadata().is_err() => {
                std::fs::rename(file, &self.path)
            }
            done => done.map_err(Into::into),
        }
    }
}

/// The address that stands for a name: the directory's identity, and the name in it.
fn address(path: &Path) -> io::Result<SocketAddr> {
    let directory = path.parent().unwrap_or(Path::new(".")).metadata()?;
    let mut hasher = DefaultHasher::new();
    path.file_name().hash(&mut hasher);
    let (device, inode, name) = (directory.dev(), directory.ino(), hasher.finish());
    SocketAddr::from_abstract_name(format!("spandrel-trace-{device:x}-{inode:x}-{name:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once_and_no_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, made) = (directory.path().join("x.trace"), directory.path().join("x.7.trace"));
        std::fs::write(&made, "recorded").unwrap();
        let first = Claim::new(&path).unwrap();
        assert!(Claim::new(&path).unwrap_err().contains("another recording"));
        assert!(Claim::new(&directory.path().join("y.trace")).is_ok());
        drop(first);
        let second = Claim::new(&path).unwrap();
        second.give_to(&made).unwrap();
        assert!(!made.exists() && std::fs::read(&path).unwrap() == b"recorded");
        std::fs::write(&made, "another").unwrap();
        assert_eq!(second.give_to(&made).unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(second);
        assert!(Claim::new(&path).unwrap_err().contains("is there already"));
        assert!(Claim::new(directory.path()).unwrap_err().contains("is there already"));
    }
}
