//! Numbers and counts of heap pages and huge pages, relative to the base of a slice.
//!
//! A slice of 32 TiB is the largest that 32 bits can number.

/// Bytes in a page of the heap: TCMalloc's page, two base pages (TEMERAIRE, section 3, note 3).
pub const HEAP_PAGE_BYTES: usize = 8 << 10;
/// Heap pages in a huge page.
pub const HEAP_PAGES_PER_HUGEPAGE: u32 = (crate::HUGEPAGE_BYTES / HEAP_PAGE_BYTES) as u32;

/// The number of a heap page, from the base of its slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PageId(pub u32);

/// The number of a huge page, from the base of its slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct HugePageId(pub u32);

/// A number of heap pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Length(pub u32);

/// A number of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct HugeLength(pub u32);

impl PageId {
    /// The huge page that this page lies on.
    #[inline(always)]
    pub const fn hugepage(self) -> HugePageId {
        HugePageId(self.0 / HEAP_PAGES_PER_HUGEPAGE)
    }

    /// Its place on that huge page, 0 to 255.
    #[inline(always)]
    pub const fn offset(self) -> u32 {
        self.0 % HEAP_PAGES_PER_HUGEPAGE
    }

    /// The page that lies `pages` further; the last one that has a number if there is none.
    #[inline(always)]
    pub const fn after(self, pages: Length) -> Self {
        Self(self.0.saturating_add(pages.0))
    }

    /// Pages from the slice's base up to this one, in bytes.
    #[inline(always)]
    pub const fn offset_bytes(self) -> u64 {
        self.0 as u64 * HEAP_PAGE_BYTES as u64
    }
}

impl HugePageId {
    /// Its first page.
    #[inline(always)]
    pub const fn first_page(self) -> PageId {
        PageId(self.0.saturating_mul(HEAP_PAGES_PER_HUGEPAGE))
    }

    /// The huge page that lies `count` further; the last one that has a number if there is none.
    #[inline(always)]
    pub const fn after(self, count: HugeLength) -> Self {
        Self(self.0.saturating_add(count.0))
    }
}

impl Length {
    /// No pages.
    pub const ZERO: Self = Self(0);
    /// As many as can be said: "all there are".
    pub const MAX: Self = Self(u32::MAX);
    /// One huge page.
    pub const HUGEPAGE: Self = Self(HEAP_PAGES_PER_HUGEPAGE);

    /// Pages that hold `bytes`; `None` if 32 bits cannot count them.
    pub const fn of_bytes(bytes: usize) -> Option<Self> {
        let pages = bytes.div_ceil(HEAP_PAGE_BYTES);
        if pages > u32::MAX as usize { None } else { Some(Self(pages as u32)) }
    }

    /// In bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * HEAP_PAGE_BYTES as u64
    }

    /// Huge pages that hold these pages.
    #[inline(always)]
    pub const fn hugepages_up(self) -> HugeLength {
        HugeLength(self.0.div_ceil(HEAP_PAGES_PER_HUGEPAGE))
    }

    /// Huge pages that these pages fill.
    #[inline(always)]
    pub const fn hugepages_down(self) -> HugeLength {
        HugeLength(self.0 / HEAP_PAGES_PER_HUGEPAGE)
    }

    /// Pages beyond the last whole huge page.
    #[inline(always)]
    pub const fn beyond_hugepages(self) -> Self {
        Self(self.0 % HEAP_PAGES_PER_HUGEPAGE)
    }

    /// The sum, or as many as can be said.
    #[inline(always)]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or none.
    #[inline(always)]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl HugeLength {
    /// No huge pages.
    pub const ZERO: Self = Self(0);

    /// In heap pages, or as many as can be said.
    #[inline(always)]
    pub const fn pages(self) -> Length {
        Length(self.0.saturating_mul(HEAP_PAGES_PER_HUGEPAGE))
    }

    /// The sum, or as many as can be said.
    #[inline(always)]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or none.
    #[inline(always)]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_hugepages_convert() {
        assert_eq!(HEAP_PAGES_PER_HUGEPAGE, 256);
        assert_eq!((PageId(513).hugepage(), PageId(513).offset()), (HugePageId(2), 1));
        assert_eq!(HugePageId(2).first_page(), PageId(512));
        let length = Length(600);
        assert_eq!(
            (length.hugepages_up(), length.hugepages_down()),
            (HugeLength(3), HugeLength(2))
        );
        assert_eq!(length.beyond_hugepages(), Length(88));
        assert_eq!(HugeLength(2).pages(), Length(512));
        assert_eq!(Length(3).bytes(), 24 << 10);
        assert_eq!(PageId(1).offset_bytes(), 8 << 10);
    }

    #[test]
    fn bytes_round_up() {
        assert_eq!(Length::of_bytes(0), Some(Length(0)));
        assert_eq!(Length::of_bytes(8193), Some(Length(2)));
        assert_eq!(Length::of_bytes(usize::MAX), None);
    }

    #[test]
    fn arithmetic_is_total() {
        assert_eq!(Length::MAX.saturating_add(Length(1)), Length::MAX);
        assert_eq!(Length(1).saturating_sub(Length(2)), Length::ZERO);
        assert_eq!(Length::MAX.hugepages_up(), HugeLength(1 << 24));
        assert_eq!(HugeLength(u32::MAX).pages(), Length::MAX);
        assert_eq!(HugePageId(u32::MAX).first_page(), PageId(u32::MAX));
        assert_eq!(PageId(u32::MAX).after(Length(9)), PageId(u32::MAX));
        assert_eq!(HugePageId(u32::MAX).after(HugeLength(1)), HugePageId(u32::MAX));
    }
}
