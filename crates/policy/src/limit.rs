//! Limits of the memory that our own allocators hold.

use core::{fmt, mem};

use spandrel_pages::{ByteSize, MIB};

/// Less than this no program can be meant to run in.
const LEAST_BYTES: usize = 16 * MIB;

/// A limit of memory: `2GiB`, `hard=2GiB`, `soft=1GiB` or both of these; `0`, `off` and `none` stand for
/// no limit, alone and in the place of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limit {
    /// Bytes beyond which requests fail.
    pub hard: Option<usize>,
    /// Bytes beyond which retained memory is released.
    pub soft: Option<usize>,
}

/// Why a limit was refused; the message names the part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitError<'a> {
    /// Not a size, or of no known kind.
    Unknown(&'a str),
    /// Given twice.
    Twice(&'a str),
    /// Less than 16 MiB.
    TooSmall(&'a str),
    /// The soft one is not below the hard one.
    Order,
}

impl fmt::Display for LimitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(part) => {
                write!(
                    f,
                    "'{part}' is not a limit: a size such as 2GiB, hard=SIZE or soft=SIZE, or off"
                )
            }
            Self::Twice(part) => write!(f, "'{part}': this limit was given before"),
            Self::TooSmall(part) => {
                write!(
                    f,
                    "'{part}': less than {} is no limit to run in; 0 or off for none",
                    ByteSize(LEAST_BYTES)
                )
            }
            Self::Order => f.write_str("the soft limit is not below the hard one"),
        }
    }
}

impl Limit {
    /// Parses a limit; nothing at all is none.
    pub fn parse(text: &str) -> Result<Self, LimitError<'_>> {
        let mut limit = Self::default();
        let mut given = [false; 2];
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (is_soft, size) = match part.split_once('=') {
                Some(("soft", size)) => (true, size),
                Some(("hard", size)) => (false, size),
                Some(_) => return Err(LimitError::Unknown(part)),
                None => (false, part),
            };
            let bytes = match size {
                _ if is_off(size) => None,
                _ => Some(ByteSize::parse(size).map_err(|_| LimitError::Unknown(part))?.0),
            };
            // However it is written.
            let bytes = bytes.filter(|bytes| *bytes > 0);
            if bytes.is_some_and(|bytes| bytes < LEAST_BYTES) {
                return Err(LimitError::TooSmall(part));
            }
            if mem::replace(&mut given[usize::from(is_soft)], true) {
                return Err(LimitError::Twice(part));
            }
            *(if is_soft { &mut limit.soft } else { &mut limit.hard }) = bytes;
        }
        match limit {
            Self { hard: Some(hard), soft: Some(soft) } if soft >= hard => Err(LimitError::Order),
            limit => Ok(limit),
        }
    }
}

/// Whether a word stands for no limit.
fn is_off(size: &str) -> bool {
    ["off", "none"].iter().any(|word| size.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;
    use std::string::ToString;

    fn of(hard: usize, soft: usize) -> Result<Limit, LimitError<'static>> {
        let some = |mib: usize| Some(mib * MIB).filter(|_| mib > 0);
        Ok(Limit { hard: some(hard), soft: some(soft) })
    }

    #[test]
    fn limits_as_they_are_written() {
        assert_eq!(Limit::parse("2GiB"), of(2048, 0));
        assert_eq!(Limit::parse("hard=64M"), of(64, 0));
        assert_eq!(Limit::parse("soft=64M"), of(0, 64));
        assert_eq!(Limit::parse("soft=64M, 100M"), of(100, 64));
        assert_eq!(Limit::parse(" "), of(0, 0));
    }

    #[test]
    fn no_limit_has_words_too() {
        for text in ["0", "off", "None", "OFF", "0MiB", "hard=0", "soft=off", "off,soft=none"] {
            assert_eq!(Limit::parse(text), of(0, 0), "{text}");
        }
        assert_eq!(Limit::parse("hard=off,soft=64M"), of(0, 64));
        assert_eq!(Limit::parse("64M,soft=0"), of(64, 0));
        for text in ["off,64M", "0,0", "soft=0,soft=64M"] {
            assert!(matches!(Limit::parse(text), Err(LimitError::Twice(_))), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        for part in ["much", "", "firm=1G", "hard=", "1G!", "=1G", "-1", "no"] {
            let text = format!("{part},soft=1G");
            assert_eq!(Limit::parse(&text), Err(LimitError::Unknown(part)), "{text}");
        }
        assert_eq!(Limit::parse("1G,hard=2G"), Err(LimitError::Twice("hard=2G")));
        assert_eq!(Limit::parse("soft=4K"), Err(LimitError::TooSmall("soft=4K")));
        assert_eq!(Limit::parse("1"), Err(LimitError::TooSmall("1")));
        assert_eq!(Limit::parse("soft=1G,hard=1G"), Err(LimitError::Order));
        let shown = LimitError::TooSmall("soft=4K").to_string();
        assert_eq!(shown, "'soft=4K': less than 16MiB is no limit to run in; 0 or off for none");
    }
}
