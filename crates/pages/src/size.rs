//! Byte counts: rounding, parsing, and the way they are written for people.

use core::fmt;

use crate::{GIB, KIB, MIB, TIB};

/// `value` rounded down to a multiple of `align`, a power of two.
#[inline(always)]
pub const fn align_down(value: usize, align: usize) -> usize {
    value & !(align - 1)
}

/// `value` rounded up to a multiple of `align`, a power of two; `None` when the
/// result does not fit.
#[inline(always)]
pub const fn align_up(value: usize, align: usize) -> Option<usize> {
    match value.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct ByteSize(pub usize);

/// Why a byte count was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseSizeError {
    /// There is no digit.
    NoNumber,
    /// What follows the digits is not a known unit.
    UnknownUnit,
    /// The value exceeds 2^64 - 1 bytes.
    TooLarge,
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "a size begins with digits, as in 64KiB",
            Self::UnknownUnit => "the unit of a size is B, K, KiB, M, MiB, G, GiB, T or TiB",
            Self::TooLarge => "the size does not fit into 64 bits",
        })
    }
}

impl core::error::Error for ParseSizeError {}

impl ByteSize {
    /// Parses digits with an optional unit. Every unit is a power of 1024,
    /// whether written `K`, `KB` or `KiB`; case does not matter.
    ///
    /// # Errors
    /// No digits, an unknown unit, or a value beyond 64 bits.
    pub fn parse(text: &str) -> Result<Self, ParseSizeError> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(ParseSizeError::NoNumber);
        }
        let (number, unit) = text.split_at(digits);
        let number: usize = number.parse().map_err(|_| ParseSizeError::TooLarge)?;
        let unit = unit.trim();
        let is = |names: [&str; 3]| names.iter().any(|n| n.eq_ignore_ascii_case(unit));
        let scale = if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
            1
        } else if is(["k", "kb", "kib"]) {
            KIB
        } else if is(["m", "mb", "mib"]) {
            MIB
        } else if is(["g", "gb", "gib"]) {
            GIB
        } else if is(["t", "tb", "tib"]) {
            TIB
        } else {
            return Err(ParseSizeError::UnknownUnit);
        };
        number.checked_mul(scale).map(ByteSize).ok_or(ParseSizeError::TooLarge)
    }
}

impl fmt::Display for ByteSize {
    /// The shortest exact form up to bytes: `64KiB`, `10KiB`, `1000B`, `0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (scale, unit) in [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{}{unit}", self.0 / scale);
            }
        }
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{}B", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn every_unit_is_a_power_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("4K", 4096),
            ("4 KiB", 4096),
            ("4kb", 4096),
            ("2MiB", 2 << 20),
            ("1G", 1 << 30),
            ("1tib", 1 << 40),
        ] {
            assert_eq!(ByteSize::parse(text), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(ByteSize::parse(""), Err(ParseSizeError::NoNumber));
        assert_eq!(ByteSize::parse("KiB"), Err(ParseSizeError::NoNumber));
        assert_eq!(ByteSize::parse("4 apples"), Err(ParseSizeError::UnknownUnit));
        assert_eq!(ByteSize::parse("99999999999T"), Err(ParseSizeError::TooLarge));
        assert_eq!(ByteSize::parse("99999999999999999999999"), Err(ParseSizeError::TooLarge));
    }

    #[test]
    fn what_is_printed_parses_back() {
        for bytes in [0, 1, 1000, 1024, 10 * 1024, 3 << 20, 1 << 30, (1 << 30) + 1, 1 << 40] {
            assert_eq!(ByteSize::parse(&ByteSize(bytes).to_string()), Ok(ByteSize(bytes)));
        }
    }

    #[test]
    fn rounding_is_total() {
        assert_eq!(align_up(usize::MAX, 4096), None);
        assert_eq!(align_up(1, 4096), Some(4096));
        assert_eq!(align_down(8191, 4096), 4096);
    }
}
