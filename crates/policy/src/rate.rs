//! The rate at which memory is released to the kernel.

use core::fmt;

use spandrel_pages::{ByteSize, MIB};

/// A rate: mebibytes per second, as a number of them or as a size with its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseRate {
    /// Mebibytes per second; 0: none.
    pub mib_per_s: u32,
}

/// Why a rate was refused; the message names the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateError<'a> {
    /// Neither a number nor a size.
    Unknown(&'a str),
    /// Not whole mebibytes.
    Part(&'a str),
    /// More than 32 bits of mebibytes.
    TooLarge(&'a str),
}

impl fmt::Display for RateError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => write!(
                f,
                "'{text}' is not a rate (mebibytes per second, a size such as 256MiB, or 0)"
            ),
            Self::Part(text) => write!(f, "'{text}' is not a whole number of mebibytes per second"),
            Self::TooLarge(text) => {
                write!(
                    f,
                    "'{text}' is too much; up to {} mebibytes per second can be told",
                    u32::MAX
                )
            }
        }
    }
}

impl core::error::Error for RateError<'_> {}

impl ReleaseRate {
    /// Parses a rate: `256` and `256MiB` are the same.
    ///
    /// # Errors
    /// Neither a number nor a size, a part of a mebibyte, or too much.
    pub fn parse(text: &str) -> Result<Self, RateError<'_>> {
        let size = ByteSize::parse(text).map_err(|_| RateError::Unknown(text))?.0;
        let mebibytes = if text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
            size
        } else if size.is_multiple_of(MIB) {
            size / MIB
        } else {
            return Err(RateError::Part(text));
        };
        match mebibytes.try_into() {
            Ok(mib_per_s) => Ok(Self { mib_per_s }),
            Err(_) => Err(RateError::TooLarge(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn rates_with_and_without_a_unit() {
        for (text, mib_per_s) in
            [("0", 0), ("256", 256), ("256MiB", 256), (" 1 GiB", 1024), ("2M", 2), ("0KiB", 0)]
        {
            assert_eq!(ReleaseRate::parse(text), Ok(ReleaseRate { mib_per_s }), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        for text in ["", "fast", "-1", "1.5GiB", "256MB/h", "99999999999999999999999"] {
            assert_eq!(ReleaseRate::parse(text), Err(RateError::Unknown(text)));
        }
        for text in ["512KiB", "1B", "1025K"] {
            assert_eq!(ReleaseRate::parse(text), Err(RateError::Part(text)));
        }
        for text in ["4294967296", "4096TiB"] {
            assert_eq!(ReleaseRate::parse(text), Err(RateError::TooLarge(text)));
        }
        assert!(RateError::Unknown("fast").to_string().contains("'fast'"));
        assert!(ReleaseRate::parse("4294967295").is_ok());
    }
}
