//! The proof that the library is loaded: it writes one line into a pipe that the
//! program inherits, and says which mode is in force.

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::stat::fstat;
use nix::unistd::pipe2;
use spandrel_console::Failure;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The pipe gets a high number: programs and scripts like the low ones.
const FD_MIN: i32 = 100;
/// An answer is one short line.
const ANSWER_BYTES_MAX: usize = 4096;

/// A pipe that waits for the library's line.
pub struct Handshake {
    reader: std::fs::File,
    writer: Option<OwnedFd>,
    line: Vec<u8>,
    closed: bool,
}

/// What is known so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    Waiting,
    /// The library is loaded; its line.
    Loaded(String),
    /// Every process that could have answered has closed the pipe.
    Never,
}

impl Handshake {
    /// Lets `command` inherit the pipe and tells it where it is.
    pub fn prepare(command: &mut Command) -> Result<Self, Failure> {
        Self::open(command)
            .map_err(|why| Failure::new(format!("no pipe to hear the library: {why}")))
    }

    fn open(command: &mut Command) -> nix::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let writer = match fcntl(&writer, FcntlArg::F_DUPFD_CLOEXEC(FD_MIN)) {
            // SAFETY: the descriptor is new and has no other owner.
            Ok(high) => unsafe { OwnedFd::from_raw_fd(high) },
            // A low limit of open files: then the low number must do.
            Err(_) => writer,
        };
        let fd = writer.as_raw_fd();
        command.env("SPANDREL_HANDSHAKE", format!("{fd}:{}", fstat(&writer)?.st_ino));
        // SAFETY: between fork and exec, `fcntl` on a descriptor that is open in the child.
        unsafe {
            command.pre_exec(move || {
                let fd = BorrowedFd::borrow_raw(fd);
                fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
                Ok(())
            });
        }
        Ok(Self { reader: reader.into(), writer: Some(writer), line: Vec::new(), closed: false })
    }

    /// The program has inherited its end.
    pub fn started(&mut self) {
        self.writer = None;
    }

    /// Reads what is there, without waiting.
    pub fn hear(&mut self) -> Answer {
        let mut some = [0; 256];
        while !self.closed && self.line.len() < ANSWER_BYTES_MAX && !self.line.contains(&b'\n') {
            match self.reader.read(&mut some) {
                Ok(0) => self.closed = true,
                Ok(length) => self.line.extend_from_slice(&some[..length]),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        match self.line.iter().position(|byte| *byte == b'\n') {
            Some(end) => Answer::Loaded(String::from_utf8_lossy(&self.line[..end]).into_owned()),
            None if self.closed => Answer::Never,
            None => Answer::Waiting,
        }
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(script: &str) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut handshake = Handshake::prepare(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        handshake.started();
        child.wait().unwrap();
        handshake.hear()
    }

    #[test]
    fn heard_and_not_heard() {
        let say =
            "exec 3>/proc/self/fd/${SPANDREL_HANDSHAKE%%:*}; echo spandrel 0.1.0 mode auto >&3";
        assert_eq!(answer(say), Answer::Loaded("spandrel 0.1.0 mode auto".into()));
        assert_eq!(answer("true"), Answer::Never);
    }

    #[test]
    fn the_inode_is_that_of_the_pipe() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "readlink /proc/$$/fd/${SPANDREL_HANDSHAKE%%:*}; echo $SPANDREL_HANDSHAKE",
        ]);
        let mut handshake = Handshake::prepare(&mut command).unwrap();
        let output = command.output().unwrap();
        handshake.started();
        let text = String::from_utf8(output.stdout).unwrap();
        let (link, variable) = text.trim().split_once('\n').unwrap();
        let inode = variable.split_once(':').unwrap().1;
        assert_eq!(link, format!("pipe:[{inode}]"));
    }
}
