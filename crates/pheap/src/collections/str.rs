//! A short text as a value: keys of tables, fields of structures.

use core::fmt;

use super::Key;
use crate::error::Error;
use crate::trace::{Trace, Tracer, hash, mix};

/// A text of up to `N` bytes of UTF-8, none of them zero, in place.
///
/// ```
/// use spandrel_pheap::collections::{HashMap, Str};
/// # let directory = tempfile::tempdir().unwrap();
/// # let heap = spandrel_pheap::Options::new().create(directory.path().join("h").to_str().unwrap())?;
/// let mut ages = HashMap::<Str<32>, u32>::open(&heap, "ages")?;
/// ages.insert(Str::new("Grace")?, 85)?;
/// assert_eq!(ages.get(&Str::new("Grace")?), Some(85));
/// assert!(Str::<4>::new("Grace").is_err());
/// # Ok::<(), spandrel_pheap::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Str<const N: usize>([u8; N]);

// SAFETY: any bytes are a value, which has no pointers.
unsafe impl<const N: usize> Trace for Str<N> {
    const LAYOUT: u64 = mix(hash("Str", N as u64), 0);
    const HAS_POINTERS: bool = false;

    fn trace(&self, _: &mut Tracer<'_>) {}
}

impl<const N: usize> Key for Str<N> {
    fn code(&self) -> u64 {
        self.0.code()
    }
}

impl<const N: usize> Str<N> {
    /// The empty text.
    pub const EMPTY: Self = Self([0; N]);

    /// A text.
    ///
    /// # Errors
    /// [`Error::Size`]: it has more than `N` bytes, or one that is zero.
    pub fn new(text: &str) -> Result<Self, Error> {
        let mut bytes = [0; N];
        let place = bytes.get_mut(..text.len()).ok_or(Error::Size(text.len()))?;
        place.copy_from_slice(text.as_bytes());
        if text.bytes().any(|byte| byte == 0) {
            Err(Error::Size(text.len()))
        } else {
            Ok(Self(bytes))
        }
    }

    /// The longest prefix of a text that fits, up to its first zero byte.
    pub fn cut(text: &str) -> Self {
        let text = text.split('\0').next().unwrap_or("");
        let len = (0..=text.len().min(N)).rev().find(|len| text.is_char_boundary(*len));
        Self::new(&text[..len.unwrap_or(0)]).unwrap_or(Self::EMPTY)
    }

    /// The text; of bytes that a damaged disk has left without a meaning, the valid prefix.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        let bytes = &self.0[..len];
        match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(why) => core::str::from_utf8(&bytes[..why.valid_up_to()]).unwrap_or(""),
        }
    }
}

impl<const N: usize> Default for Str<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> TryFrom<&str> for Str<N> {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl<const N: usize> AsRef<str> for Str<N> {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> PartialEq<str> for Str<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const N: usize> PartialEq<&str> for Str<N> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<const N: usize> fmt::Debug for Str<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> fmt::Display for Str<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn a_text_is_what_it_was_and_has_the_order_of_texts() {
        let mut texts = ["", "a", "ab", "b", "ä", "漢字", "zz"];
        texts.sort_unstable();
        let strs = texts.map(|text| Str::<8>::new(text).unwrap());
        assert!(strs.is_sorted());
        assert!(
            strs.iter().zip(texts).all(|(one, two)| *one == two && one.to_string().as_str() == two)
        );
        assert_eq!(Str::<5>::new("漢字"), Err(Error::Size(6)));
        assert_eq!(Str::<5>::new("a\0"), Err(Error::Size(2)));
        assert_eq!(
            (Str::<5>::cut("漢字"), Str::<5>::cut("ab\0c")),
            (Str([0xe6, 0xbc, 0xa2, 0, 0]), Str(*b"ab\0\0\0"))
        );
        assert_eq!(Str([b'a', 0xe6, 0xbc]).as_str(), "a");
    }
}
