//! The size at which a recording ends.

use core::fmt;

use spandrel_pages::ByteSize;

use crate::file::Recording;
use crate::layout::{BLOCK_BYTES, HEADER_BYTES};

/// Why a limit was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitError<'a> {
    /// Not a size.
    NoSize(&'a str),
    /// No event fits into so little.
    TooSmall(&'a str),
}

impl fmt::Display for LimitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSize(text) => {
                write!(f, "'{text}' is not a size; write a number and a unit, such as 1GiB")
            }
            Self::TooSmall(text) => {
                let least = ByteSize(Recording::LEAST_BYTES as usize);
                write!(
                    f,
                    "nothing could be recorded in '{text}'; the least that is enough is {least}"
                )
            }
        }
    }
}

impl core::error::Error for LimitError<'_> {}

impl Recording<'_> {
    /// Bytes into which an event fits: the header and a block.
    pub const LEAST_BYTES: u64 = (HEADER_BYTES + BLOCK_BYTES) as u64;

    /// The limit in bytes that a text names.
    ///
    /// # Errors
    /// Not a size, or less than [`Self::LEAST_BYTES`].
    pub fn parse_limit(text: &str) -> Result<u64, LimitError<'_>> {
        match ByteSize::parse(text).map(|size| size.0 as u64) {
            Ok(bytes) if bytes >= Self::LEAST_BYTES => Ok(bytes),
            Ok(_) => Err(LimitError::TooSmall(text)),
            Err(_) => Err(LimitError::NoSize(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn a_limit_leaves_room_for_an_event() {
        assert_eq!(Recording::parse_limit("1GiB"), Ok(1 << 30));
        assert_eq!(Recording::parse_limit("68KiB"), Ok(Recording::LEAST_BYTES));
        for little in ["0", "1", "67KiB"] {
            assert_eq!(Recording::parse_limit(little), Err(LimitError::TooSmall(little)));
        }
        for text in ["", "much"] {
            assert_eq!(Recording::parse_limit(text), Err(LimitError::NoSize(text)));
        }
        let shown = LimitError::TooSmall("1").to_string();
        assert!(shown.contains("'1'") && shown.contains("68KiB"), "{shown}");
    }
}
