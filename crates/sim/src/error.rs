//! What can be wrong with a request for a simulation.

use std::fmt;

/// Why a simulation cannot be had. The message says what was wrong and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The line of the input, from 1, if it was a text of several lines.
    pub line: Option<usize>,
    /// The reason and the way out.
    pub message: String,
}

impl Error {
    /// An error that is not one of a line.
    pub fn new(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }

    pub(crate) fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}
