//! Why a command could not do what was asked, and the exit code that says so.

use std::fmt::Display;

/// The message names the input, the reason and the way out.
#[derive(Debug)]
pub struct Failure {
    /// Exit code of the command.
    pub code: u8,
    /// What the user reads.
    pub message: String,
}

impl Failure {
    /// Something failed that no input has caused: a file could not be read, a
    /// process could not be started.
    pub fn new(message: impl Display) -> Self {
        Self { code: 1, message: message.to_string() }
    }

    /// What was asked cannot be done.
    pub fn refused(message: impl Display) -> Self {
        Self { code: 2, message: message.to_string() }
    }

    /// What the command prints has no reader any more: it ends as SIGPIPE ends others,
    /// without a word.
    pub fn unread() -> Self {
        Self { code: 141, message: String::new() }
    }

    /// As shells have it: the program exists but cannot be executed.
    pub fn not_executable(message: impl Display) -> Self {
        Self { code: 126, message: message.to_string() }
    }

    /// As shells have it: there is no such program.
    pub fn not_found(message: impl Display) -> Self {
        Self { code: 127, message: message.to_string() }
    }
}
