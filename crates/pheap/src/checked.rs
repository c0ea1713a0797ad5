//! Values of which not all bytes are one, as they lie in a heap: a number, which is looked at when it is read.

use core::fmt;
use core::marker::PhantomData;

use crate::collections::Key;
use crate::trace::{Trace, Tracer, hash, mix};

/// A type whose values have numbers. `#[derive(Enumeration)]` writes this for an enumeration without fields that says what its numbers are
/// (`#[repr(u8)]`, `u16`, `u32` or `u64`); `bool` and `char` are some.
///
/// Such a type does not lie in a heap itself, as not all bytes are a value; [`Checked`] does, for it.
pub trait Enumeration: Copy {
    /// What its numbers are.
    type Number: Key;
    /// A number that changes when the values or their numbers do.
    const LAYOUT: u64;

    /// The number of a value.
    fn number(self) -> Self::Number;

    /// The value of a number, if it is one's.
    fn of_number(number: Self::Number) -> Option<Self>;
}

/// The number of a value of an [`Enumeration`], in a heap. Any bytes are one, and what is no number of a value is found when it is read.
///
/// ```
/// use spandrel_pheap::{Checked, collections::HashMap};
/// # let directory = tempfile::tempdir().unwrap();
/// # let heap = spandrel_pheap::Options::new().create(directory.path().join("h").to_str().unwrap())?;
/// // The value of a flag and of a character.
/// let mut marks = HashMap::<u64, (Checked<bool>, Checked<char>)>::open(&heap, "marks")?;
/// marks.insert(1, (true.into(), 'ß'.into()))?;
/// let (is_set, mark) = marks.get(&1).unwrap();
/// assert_eq!((is_set.get(), mark.get()), (Some(true), Some('ß')));
/// # Ok::<(), spandrel_pheap::Error>(())
/// ```
#[repr(transparent)]
pub struct Checked<E: Enumeration> {
    number: E::Number,
    of: PhantomData<E>,
}

impl<E: Enumeration> Checked<E> {
    /// The number of a value.
    pub fn new(value: E) -> Self {
        Self { number: value.number(), of: PhantomData }
    }

    /// The value; `None`: the number is no value's, as a damaged disk may have it.
    pub fn get(self) -> Option<E> {
        E::of_number(self.number)
    }

    /// The value, or what takes its place if the number is no value's.
    pub fn get_or(self, other: E) -> E {
        self.get().unwrap_or(other)
    }
}

impl<E: Enumeration> From<E> for Checked<E> {
    fn from(value: E) -> Self {
        Self::new(value)
    }
}

impl<E: Enumeration> Copy for Checked<E> {}

impl<E: Enumeration> Clone for Checked<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Enumeration> PartialEq for Checked<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E: Enumeration> Eq for Checked<E> {}

impl<E: Enumeration + Default> Default for Checked<E> {
    fn default() -> Self {
        Self::new(E::default())
    }
}

impl<E: Enumeration + fmt::Debug> fmt::Debug for Checked<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => value.fmt(f),
            None => f.write_str("(no value)"),
        }
    }
}

// SAFETY: a number, which holds nothing.
unsafe impl<E: Enumeration> Trace for Checked<E> {
    const LAYOUT: u64 = mix(hash("Checked", E::LAYOUT), <E::Number as Trace>::LAYOUT);
    const HAS_POINTERS: bool = false;

    fn trace(&self, _: &mut Tracer<'_>) {}
}

impl<E: Enumeration> Key for Checked<E> {
    fn code(&self) -> u64 {
        self.number.code()
    }
}

impl Enumeration for bool {
    type Number = u8;
    const LAYOUT: u64 = hash("bool", 2);

    fn number(self) -> u8 {
        self.into()
    }

    fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Enumeration for char {
    type Number = u32;
    const LAYOUT: u64 = hash("char", 4);

    fn number(self) -> u32 {
        self.into()
    }

    fn of_number(number: u32) -> Option<Self> {
        Self::from_u32(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn what_is_no_value_is_found() {
        let checked = Checked::new('ß');
        assert_eq!((checked.get(), format!("{checked:?}")), (Some('ß'), "'ß'".into()));
        let damaged = Checked::<bool> { number: 7, of: PhantomData };
        assert_eq!((damaged.get(), damaged.get_or(true)), (None, true));
        assert_eq!(format!("{damaged:?}"), "(no value)");
        assert_ne!(Checked::<bool>::LAYOUT, Checked::<char>::LAYOUT);
    }
}
