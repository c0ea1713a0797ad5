//! Is the program on Spandrel, and in the mode that was asked for? Says so on
//! standard error if not; otherwise nothing.

use super::handshake::{Answer, Handshake};
use nix::unistd::Pid;
use spandrel_console::say;
use spandrel_policy::{Mode, parse_mode};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The library answers while the program is being loaded; later it never will.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Waits for the library's line.
pub struct Watch {
    handshake: Handshake,
    /// What the user calls the program.
    name: String,
    /// The mode that was asked for, if any was.
    mode: Option<Mode>,
    until: Instant,
}

impl Watch {
    /// Begins to wait when the program is about to be started.
    pub fn new(handshake: Handshake, name: String, mode: Option<Mode>) -> Self {
        Self { handshake, name, mode, until: Instant::now() + ANSWER_WITHIN }
    }

    /// The program has been started.
    pub fn started(&mut self) {
        self.handshake.started();
    }

    /// How long it makes sense to wait.
    pub fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Whether there is nothing left to wait for.
    pub fn is_over(&mut self, child: Pid) -> bool {
        match self.handshake.hear() {
            Answer::Loaded(line) => self.check_mode(&line),
            Answer::Waiting if Instant::now() < self.until => return false,
            Answer::Waiting | Answer::Never => self.warn(if is_mapped(child) {
                "it is loaded, but gives no sign: is it a libspandrel.so of this version?"
            } else {
                "the dynamic linker did not load it: its message, if there is one, says why"
            }),
        }
        true
    }

    /// The program has ended; the line may still lie in the pipe.
    pub fn at_end(mut self) {
        match self.handshake.hear() {
            Answer::Loaded(line) => self.check_mode(&line),
            _ => self.warn(
                "the program ended without a sign of it: the dynamic linker's message, if there \
                 is one, says why",
            ),
        }
    }

    fn check_mode(&self, line: &str) {
        if line.ends_with(" elsewhere") {
            return self.warn("it has a malloc of its own, which serves it");
        }
        let said = line.rsplit_once(" mode ").map_or("", |(_, mode)| mode);
        if let Some(asked) = &self.mode
            && parse_mode(said).as_ref() != Ok(asked)
        {
            say::err(format_args!(
                "spandrel: '{}' runs in mode {said}, not {asked} as asked for",
                self.name
            ));
        }
    }

    fn warn(&self, why: &str) {
        say::err(format_args!("spandrel: '{}' does not seem to run on Spandrel: {why}", self.name));
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handshake.as_fd()
    }
}

/// Whether the library is in the process.
fn is_mapped(child: Pid) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).unwrap_or_default();
    maps.lines().any(|line| line.ends_with("/libspandrel.so"))
}
