//! What another process asks of the one that has a state open: by a socket in the state's directory.
//!
//! A request is a word and a path, with a zero byte behind each. Lines answer it: see [`Answer`].

use core::ffi::CStr;
use core::fmt;

use rustix::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use spandrel_os::cpath::CPath;
use spandrel_os::descriptors::{Kept, own};
use spandrel_os::locks;

use crate::directory::Paths;
use crate::error::Error;

/// The request for a copy in the directory of the path, which is absolute.
pub const COPY: &[u8] = b"copy";
/// Requests that wait to be accepted, at most.
const BACKLOG: i32 = 8;
/// Rights of the socket: its owner's.
const MODE: Mode = Mode::from_raw_mode(0o600);

/// One line of what a process answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// Bytes that the copy has, and all.
    At(u64, u64),
    /// The copy survives a loss of power.
    Done,
    /// There is no copy, for that reason.
    Refused(&'a str),
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(done, all) => writeln!(f, "at {done} {all}"),
            Self::Done => writeln!(f, "done"),
            Self::Refused(why) => writeln!(f, "refused {why}"),
        }
    }
}

impl<'a> Answer<'a> {
    /// Of a line without its end. `None`: it is no answer.
    pub fn parse(line: &'a str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "done" => Some(Self::Done),
            Some(("refused", why)) => Some(Self::Refused(why)),
            Some(("at", numbers)) => {
                let (done, all) = numbers.split_once(' ')?;
                Some(Self::At(done.parse().ok()?, all.parse().ok()?))
            }
            _ => None,
        }
    }
}

/// The path of a request, without the zero bytes. `None`: it is no such request.
pub fn path_of_copy(request: &[u8]) -> Option<&[u8]> {
    let path = request.strip_prefix(COPY)?.strip_prefix(b"\0")?.strip_suffix(b"\0")?;
    (path.first() == Some(&b'/') && !path.contains(&0)).then_some(path)
}

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | SocketFlags::CLOEXEC;
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).and_then(own)
}

/// The socket of an open state.
#[derive(Debug)]
pub struct Listener {
    socket: Kept,
    path: CPath,
}

impl Listener {
    /// Of a directory that this process has locked. A socket that a killed process has left is removed.
    ///
    /// # Errors
    /// The system's: a path that is too long for a socket, a file of another kind with its name, a file system without sockets.
    pub fn new(paths: &Paths) -> Result<Self, Error> {
        let path = paths.socket.as_c();
        let make = || {
            remove(path)?;
            let socket = socket(SocketFlags::NONBLOCK)?;
            // The file gets these rights: it has no others at any time.
            fs::fchmod(&socket, MODE)?;
            net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            net::listen(&socket, BACKLOG)?;
            Kept::new(socket)
        };
        let socket = make().map_err(|why: Errno| Error::System(why.raw_os_error()))?;
        // A child that outlives this process must not have others wait for it.
        locks::note(socket.as_raw_fd());
        Ok(Self { socket, path: paths.socket.clone() })
    }

    /// The next request, if one waits: a stream, which blocks. The caller owns it.
    pub fn accept(&self) -> Option<RawFd> {
        net::accept_with(&*self.socket, SocketFlags::CLOEXEC)
            .and_then(own)
            .ok()
            .map(OwnedFd::into_raw_fd)
    }

    /// No request is accepted any more. Not in the child of a fork: the file is its parent's.
    pub fn close(&self) {
        let _ = self.socket.checked().map(|socket| net::shutdown(socket, net::Shutdown::Both));
        let _ = remove(self.path.as_c());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        locks::forget(self.socket.as_raw_fd());
    }
}

/// Removes the file of the socket, if it is one.
fn remove(path: &CStr) -> Result<(), Errno> {
    match fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Socket => {
            fs::unlinkat(CWD, path, AtFlags::empty())
        }
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(why),
    }
}

/// A stream to the process that has the state open. The caller owns it.
///
/// # Errors
/// [`Error::System`]: with `ENOENT` and `ECONNREFUSED`, that process accepts no requests.
pub fn connect(paths: &Paths) -> Result<RawFd, Error> {
    let connect = || {
        let stream = socket(SocketFlags::empty())?;
        net::connect(&stream, &SocketAddrUnix::new(paths.socket.as_c())?)?;
        Ok(stream.into_raw_fd())
    };
    connect().map_err(|why: Errno| Error::System(why.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn answers_are_what_was_written() {
        for answer in [Answer::At(0, u64::MAX), Answer::Done, Answer::Refused("no room: 7")] {
            let line = answer.to_string();
            assert_eq!(Answer::parse(line.strip_suffix('\n').unwrap()), Some(answer));
        }
        for line in ["", "done ", "at", "at 1", "at 1 x", "at 1 2 3", "refused", "Done"] {
            assert_eq!(Answer::parse(line), None, "{line}");
        }
    }

    #[test]
    fn requests_have_one_absolute_path() {
        assert_eq!(path_of_copy(b"copy\0/a b\0"), Some(&b"/a b"[..]));
        for request in ["", "copy", "copy\0", "copy\0\0", "copy\0a\0", "copy\0/a", "copy\0/a\0b\0"]
        {
            assert_eq!(path_of_copy(request.as_bytes()), None, "{request:?}");
        }
    }

    #[test]
    fn a_socket_is_its_owners_and_replaces_what_a_killed_process_left() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let paths = Paths::new(place.path().to_str().unwrap().as_bytes()).unwrap();
        let path = place.path().join("socket");
        assert_eq!(connect(&paths).err(), Some(Error::System(libc::ENOENT)));
        let left = Listener::new(&paths).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(left);
        assert_eq!(connect(&paths).err(), Some(Error::System(libc::ECONNREFUSED)));
        let listener = Listener::new(&paths).unwrap();
        assert!(listener.accept().is_none());
        // SAFETY: each belongs to the caller.
        let own = |fd| unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(fd) };
        let asked = own(connect(&paths).unwrap());
        let stream = own(listener.accept().unwrap());
        rustix::io::write(&asked, b"copy\0/x\0").unwrap();
        let mut request = [0; 16];
        let len = rustix::io::read(&stream, &mut request).unwrap();
        assert_eq!(path_of_copy(request.get(..len).unwrap()), Some(&b"/x"[..]));
        listener.close();
        assert!(!path.exists());
        std::fs::write(&path, "a user's file").unwrap();
        assert_eq!(Listener::new(&paths).err(), Some(Error::System(libc::EEXIST)));
        assert_eq!(format!("{:?}", std::fs::read_to_string(&path).unwrap()), "\"a user's file\"");
    }
}
