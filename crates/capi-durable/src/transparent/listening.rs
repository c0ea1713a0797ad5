//! The socket that a server listens at.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// A socket for the user alone, from its first moment on. One that no process listens at any more is removed, and nothing else is.
///
/// # Errors
/// `EADDRINUSE`: a process listens there, or the path is no socket. Those of the system.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match bind(path) {
        Err(why) if why.kind() == io::ErrorKind::AddrInUse => {
            if !is_left(path) {
                return Err(why);
            }
            std::fs::remove_file(path)?;
            bind(path)
        }
        bound => bound,
    }
}

/// Whether a path is a socket that no process listens at. To connect to a file that is no socket is refused as well.
fn is_left(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
}

/// The same, under a number that is none of the standard streams': a program that has closed these would print to it.
pub fn own(file: OwnedFd) -> io::Result<OwnedFd> {
    let first = libc::STDERR_FILENO + 1;
    if file.as_raw_fd() >= first {
        return Ok(file);
    }
    // SAFETY: the call makes a descriptor.
    let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made by the call above, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let path = path.as_os_str().as_bytes();
    if path.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    // SAFETY: zeroes are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The last byte stays zero.
    if path.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(path) {
        *place = *byte as libc::c_char;
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1;
    let done = |number: i32| if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) };
    // SAFETY: the descriptor is this function's, and the address is as long as is said.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = own(OwnedFd::from_raw_fd(done(libc::socket(libc::AF_UNIX, kind, 0))?))?;
        let fd = socket.as_raw_fd();
        // Before it has a name: the file has these rights when it is made.
        done(libc::fchmod(fd, 0o600))?;
        done(libc::bind(fd, (&raw const address).cast(), bytes as libc::socklen_t))?;
        done(libc::listen(fd, libc::SOMAXCONN))?;
        Ok(UnixListener::from(socket))
    }
}
