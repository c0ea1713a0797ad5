//! Decision classes: the log-linear buckets that a policy table is indexed by.

/// Linear steps within one power of two.
const STEPS: usize = 8;
const STEP_BITS: u32 = 3;
/// Number of decision classes: one for each size below 8, then eight for each
/// octave from 2^3 to 2^63.
pub const CLASS_COUNT: usize = (65 - STEP_BITS as usize) * STEPS;

/// A bucket of request sizes, at most 1/8 wide relative to its lower end.
///
/// Every boundary of the form `m * 2^k` with `m < 16` is exact, so `10 KiB` or
/// `128 KiB` begin a class of their own; a policy resolves other boundaries by
/// looking at the size itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SizeClass(u16);

impl SizeClass {
    /// The class of a request of `size` bytes. Total and branch-free.
    #[inline(always)]
    pub const fn of(size: usize) -> Self {
        let octave = usize::BITS - 1 - (size | STEPS).leading_zeros();
        let shift = octave - STEP_BITS;
        // `size >> shift` is the size itself below 8, else in 8..16: the leading
        // one adds the eight classes below the first octave.
        SizeClass(((shift as usize) * STEPS + (size >> shift)) as u16)
    }

    /// Index into a table of [`CLASS_COUNT`] entries.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The class with this index, if there is one.
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < CLASS_COUNT { Some(SizeClass(index as u16)) } else { None }
    }

    /// Smallest size of the class in bytes.
    pub const fn first(self) -> usize {
        let octave = self.0 as usize / STEPS;
        let step = self.0 as usize % STEPS;
        if octave == 0 { step } else { (STEPS + step) << (octave - 1) }
    }

    /// Largest size of the class in bytes.
    pub const fn last(self) -> usize {
        if self.0 as usize == CLASS_COUNT - 1 {
            return usize::MAX;
        }
        SizeClass(self.0 + 1).first() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_tile_the_sizes_without_gap_or_overlap() {
        let mut next = 0usize;
        for index in 0..CLASS_COUNT {
            let class = SizeClass::from_index(index).unwrap();
            assert_eq!(class.first(), next);
            assert_eq!(SizeClass::of(class.first()), class);
            assert_eq!(SizeClass::of(class.last()), class);
            next = class.last().wrapping_add(1);
        }
        assert_eq!(next, 0, "the last class ends at usize::MAX");
        assert_eq!(SizeClass::from_index(CLASS_COUNT), None);
    }

    #[test]
    fn policy_boundaries_begin_a_class() {
        for boundary in [16, 4096, 10 * 1024, 64 * 1024, 128 * 1024, 7 << 20, 1 << 40] {
            assert_eq!(SizeClass::of(boundary).first(), boundary);
            assert_eq!(SizeClass::of(boundary - 1).last(), boundary - 1);
        }
    }

    #[test]
    fn a_class_is_at_most_an_eighth_wide() {
        for index in STEPS..CLASS_COUNT - 1 {
            let class = SizeClass::from_index(index).unwrap();
            let width = class.last() - class.first() + 1;
            assert!(width * 8 <= class.first(), "{class:?}");
        }
    }
}
