//! Ways to give memory back, by name.

use crate::error::Error;
use serde::{Serialize, Serializer};
use spandrel_pages::{ByteSize, HEAP_PAGE_BYTES, Length, MIB};
use std::fmt;

/// What is released each second by default: the allocator's rate.
const RATE: Length = Length((256 * MIB / HEAP_PAGE_BYTES) as u32);

/// When free memory is released to the kernel. Empty huge pages leave by the cache's own rule in
/// all of them: when demand's swing does not justify keeping them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Nothing else does.
    Off,
    /// The allocator's: at most this many pages a second, and none that recent demand will refill.
    Adaptive(Length),
    /// This many pages a second, whatever demand was.
    Rate(Length),
    /// Everything, each time that the work beside the program is done: what `malloc_trim` gives
    /// back, fifty times a second.
    All,
}

impl Release {
    /// The allocator's, at its rate.
    pub const ADAPTIVE: Self = Self::Adaptive(RATE);

    /// What users type: `off` or `none`; `adaptive` or `on`; `rate`; `all`; for another rate than
    /// the allocator's `adaptive=64MiB`, `rate=64MiB`. A rate alone is that of `adaptive`.
    ///
    /// # Errors
    /// There is no such way, or no such rate.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let (name, rate) = match text.split_once('=') {
            Some((name, rate)) => (name.trim(), Some(rate)),
            None if text.starts_with(|c: char| c.is_ascii_digit()) => ("adaptive", Some(text)),
            None => (text, None),
        };
        let of: Option<fn(Length) -> Self> = match name.to_ascii_lowercase().as_str() {
            "off" | "none" | "all" => None,
            "adaptive" | "on" => Some(Self::Adaptive),
            "rate" => Some(Self::Rate),
            _ => {
                return Err(Error::new(format!(
                    "there is no release policy '{text}'; there are off, adaptive, rate and all; adaptive \
                     and rate take bytes per second, as in rate=256MiB"
                )));
            }
        };
        match (of, rate) {
            (Some(of), None) => Ok(of(RATE)),
            (Some(of), Some(rate)) => Ok(match pages(text, rate)? {
                Length::ZERO => Self::Off,
                pages => of(pages),
            }),
            (None, Some(_)) => Err(Error::new(format!(
                "'{text}': {name} has no rate; leave it out, or take rate or adaptive"
            ))),
            (None, None) if name.eq_ignore_ascii_case("all") => Ok(Self::All),
            (None, None) => Ok(Self::Off),
        }
    }

    /// Pages that go back in the background each second, at most.
    pub(crate) fn per_s(self) -> Length {
        match self {
            Self::Adaptive(pages) | Self::Rate(pages) => pages,
            Self::Off | Self::All => Length::ZERO,
        }
    }
}

fn pages(text: &str, rate: &str) -> Result<Length, Error> {
    let rate = rate.trim();
    let size = ByteSize::parse(rate.strip_suffix("/s").unwrap_or(rate)).map_err(|why| {
        Error::new(format!("'{text}' has no rate in bytes per second such as 256MiB: {why}"))
    })?;
    Length::of_bytes(size.0).ok_or_else(|| {
        Error::new(format!("'{text}' is more than any heap holds; name a lower rate"))
    })
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Off => "off",
            Self::All => "all",
            Self::Adaptive(_) => "adaptive",
            Self::Rate(_) => "rate",
        };
        match self {
            Self::Adaptive(pages) | Self::Rate(pages) if *pages != RATE => {
                write!(f, "{name}={}", ByteSize(pages.bytes() as usize))
            }
            _ => f.write_str(name),
        }
    }
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_rates() {
        let mib = |n: usize| Length((n * MIB / HEAP_PAGE_BYTES) as u32);
        for (text, release, shown) in [
            ("off", Release::Off, "off"),
            ("none", Release::Off, "off"),
            ("0", Release::Off, "off"),
            ("rate=0", Release::Off, "off"),
            ("ON", Release::ADAPTIVE, "adaptive"),
            ("adaptive", Release::ADAPTIVE, "adaptive"),
            ("256MiB/s", Release::ADAPTIVE, "adaptive"),
            ("1MiB", Release::Adaptive(mib(1)), "adaptive=1MiB"),
            ("adaptive = 1GiB/s", Release::Adaptive(mib(1024)), "adaptive=1GiB"),
            (" rate", Release::Rate(RATE), "rate"),
            ("rate=64MiB", Release::Rate(mib(64)), "rate=64MiB"),
            ("1", Release::Adaptive(Length(1)), "adaptive=8KiB"),
            ("all", Release::All, "all"),
        ] {
            assert_eq!(Release::parse(text), Ok(release), "{text}");
            assert_eq!(release.to_string(), shown);
            assert_eq!(Release::parse(shown), Ok(release));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, part) in [
            ("fast", "'fast'"),
            ("", "adaptive, rate and all"),
            ("-1", "as in rate=256MiB"),
            ("rate=", "'rate=' has no rate"),
            ("rate=much", "'rate=much' has no rate"),
            ("64XiB", "'64XiB' has no rate"),
            ("all=1MiB", "all has no rate"),
            ("adaptive=1000000TiB", "a lower rate"),
        ] {
            let refused = Release::parse(text).unwrap_err();
            assert!(refused.message.contains(part), "{refused}");
        }
    }
}
