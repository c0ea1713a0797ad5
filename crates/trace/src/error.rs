//! Why a recording cannot be read.

use std::fmt;

/// What is wrong with a recording, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The byte of the file from which on it cannot be believed.
    pub offset: u64,
    /// The reason.
    pub message: String,
}

impl Error {
    pub(crate) fn at(offset: u64, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.message)
    }
}

impl std::error::Error for Error {}
