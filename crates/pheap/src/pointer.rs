//! Pointers that hold wherever the heap is mapped.

use core::marker::PhantomData;
use core::{cmp, fmt, hash};

/// What stands in the upper 16 bits of a pointer that is not null. No address of a process has it, and few numbers do: so a
/// pointer is recognised among bytes of unknown type.
pub const TAG: u64 = 0x50a7 << TAG_SHIFT;
const TAG_SHIFT: u32 = 48;

/// A pointer to an object of a heap: how far from the heap's beginning it is. 8 bytes; null is 0.
///
/// It says which object it is, and of which heap the program has to know.
#[repr(transparent)]
pub struct PPtr<T: ?Sized> {
    raw: u64,
    to: PhantomData<*const T>,
}

impl<T> PPtr<T> {
    /// To nothing.
    pub const NULL: Self = Self { raw: 0, to: PhantomData };

    /// To what lies at an offset, which is not 0.
    #[inline]
    pub const fn to(offset: usize) -> Self {
        Self { raw: TAG | offset as u64, to: PhantomData }
    }

    /// From the word that is stored.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self { raw, to: PhantomData }
    }

    /// The word that is stored.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.raw
    }

    /// Whether it is to nothing.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.raw == 0
    }

    /// How far from the heap's beginning; `None`: it is null, or no pointer.
    #[inline]
    pub const fn offset(self) -> Option<usize> {
        offset_of(self.raw)
    }

    /// The same to another type.
    #[inline]
    pub const fn cast<U>(self) -> PPtr<U> {
        PPtr { raw: self.raw, to: PhantomData }
    }
}

/// The offset that a word says, if it is a pointer's.
#[inline]
pub const fn offset_of(raw: u64) -> Option<usize> {
    if raw >> TAG_SHIFT == TAG >> TAG_SHIFT { Some((raw ^ TAG) as usize) } else { None }
}

// SAFETY: it is a number.
unsafe impl<T> Send for PPtr<T> {}
// SAFETY: it is a number.
unsafe impl<T> Sync for PPtr<T> {}

impl<T> Copy for PPtr<T> {}

impl<T> Clone for PPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> PartialEq for PPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for PPtr<T> {}

impl<T> PartialOrd for PPtr<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for PPtr<T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.raw.cmp(&other.raw)
    }
}

impl<T> hash::Hash for PPtr<T> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<T> Default for PPtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> fmt::Debug for PPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset() {
            Some(offset) => write!(f, "PPtr({offset:#x})"),
            None if self.is_null() => f.write_str("PPtr(null)"),
            None => write!(f, "PPtr(none: {:#x})", self.raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_no_number_and_no_address() {
        let pointer = PPtr::<u64>::to(0xa0000);
        assert_eq!(pointer.offset(), Some(0xa0000));
        assert_eq!(PPtr::<u8>::from_raw(pointer.raw()).cast::<u64>(), pointer);
        assert_eq!(PPtr::<u64>::NULL.offset(), None);
        for word in [1, 0xa0000, 0x7fff_ffff_f000, u64::MAX, TAG - 1] {
            assert_eq!(offset_of(word), None, "{word:#x}");
        }
    }
}
