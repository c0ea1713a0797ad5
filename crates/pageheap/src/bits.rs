//! 256 bits, one for each page of a huge page, and the searches for free ranges among them.

/// One bit per page of a huge page. A range that reaches beyond the end is cut there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(crate) struct Bits(pub(crate) [u64; 4]);

/// Pages of a huge page, as many as there are bits.
pub(crate) const PAGES: u32 = spandrel_pages::HEAP_PAGES_PER_HUGEPAGE;

/// Where a request fits, and the longest free range that remains once it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fit {
    pub(crate) at: u32,
    pub(crate) longest: u32,
}

impl Bits {
    pub(crate) const NONE: Self = Self([0; 4]);

    /// Bits `first` up to `first + count`.
    #[inline]
    pub(crate) fn range(first: u32, count: u32) -> Self {
        let end = first.saturating_add(count).min(PAGES);
        let mut words = [0; 4];
        for (word, base) in words.iter_mut().zip([0, 64, 128, 192]) {
            *word = below(end.saturating_sub(base)) & !below(first.saturating_sub(base));
        }
        Self(words)
    }

    #[inline]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word = f(*word, other);
        }
        Self(words)
    }

    #[inline]
    pub(crate) fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline]
    pub(crate) fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    #[inline]
    pub(crate) fn not(self) -> Self {
        Self(self.0.map(|w| !w))
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    #[inline]
    pub(crate) fn contains(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    #[inline]
    pub(crate) fn count(self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    #[inline]
    pub(crate) fn get(self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|w| w >> (at % 64) & 1 != 0)
    }

    #[inline]
    pub(crate) fn set(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// The first bit from `from` on that is set, or 256.
    #[inline]
    pub(crate) fn next(self, from: u32) -> u32 {
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in self.0.iter().enumerate().skip(from as usize / 64) {
            let word = word & mask;
            if word != 0 {
                return index as u32 * 64 + word.trailing_zeros();
            }
            mask = u64::MAX;
        }
        PAGES
    }

    /// One past the last set bit below `end`, or 0.
    #[inline]
    pub(crate) fn last_below(self, end: u32) -> u32 {
        let cut = self.and(Self::range(0, end));
        for (index, word) in cut.0.iter().enumerate().rev() {
            if *word != 0 {
                return index as u32 * 64 + 64 - word.leading_zeros();
            }
        }
        0
    }

    /// Every bit moved `by` places down, towards bit 0.
    #[inline]
    fn down(self, by: u32) -> Self {
        if by >= PAGES {
            return Self::NONE;
        }
        // Padded so that no index needs a test; the second shift in two steps, as a shift by 64
        // is none.
        let [a, b, c, d] = self.0;
        let wide = [a, b, c, d, 0, 0, 0, 0];
        let (skip, shift) = (by as usize / 64 % 4, by % 64);
        let word = |at: usize| wide[at] >> shift | wide[at + 1] << 1 << (63 - shift);
        Self([word(skip), word(skip + 1), word(skip + 2), word(skip + 3)])
    }

    /// Every bit moved one place up.
    #[inline]
    fn up_one(self) -> Self {
        let [a, b, c, d] = self.0;
        Self([a << 1, b << 1 | a >> 63, c << 1 | b >> 63, d << 1 | c >> 63])
    }

    /// Where `count` set bits in a row begin. Doubles the length that is known: each step is a
    /// shift and a conjunction.
    #[inline]
    pub(crate) fn runs_of(self, count: u32) -> Self {
        let (mut bits, mut known) = (self, 1);
        while known < count {
            let by = known.min(count - known);
            bits = bits.and(bits.down(by));
            known += by;
        }
        bits
    }

    /// Length of the longest row of set bits.
    pub(crate) fn longest(self) -> u32 {
        if self.is_empty() {
            return 0;
        }
        // Powers of two as long as they fit, then the remainder from the top.
        let mut powers = [self; 9];
        let (mut bits, mut level) = (self, 0);
        while let Some(next) = powers.get_mut(level + 1) {
            let longer = bits.and(bits.down(1 << level));
            if longer.is_empty() {
                break;
            }
            *next = longer;
            bits = longer;
            level += 1;
        }
        let mut length = 1 << level;
        for (power, row) in powers.iter().enumerate().take(level).rev() {
            let longer = bits.and(row.down(length));
            if !longer.is_empty() {
                bits = longer;
                length += 1 << power;
            }
        }
        length
    }

    /// The shortest free range (row of clear bits) that holds `count`, the first of equals.
    /// `longest` is the longest free range there is, at least `count`.
    #[inline]
    pub(crate) fn best_fit(self, count: u32, longest: u32) -> Option<Fit> {
        let free = self.not();
        let starts = free.without(free.up_one());
        let mut candidates = free.runs_of(count).and(starts);
        let mut best = (PAGES, PAGES + 1);
        let (mut seen, mut longest_seen, mut second) = (0, 0, 0);
        loop {
            let at = candidates.next(0);
            if at == PAGES {
                break;
            }
            candidates.clear(at);
            if longest == count {
                // All fit exactly.
                let longest =
                    if candidates.is_empty() { self.longest_after(at, count, 0) } else { longest };
                return Some(Fit { at, longest });
            }
            let length = self.next(at) - at;
            seen += 1;
            if length < best.1 {
                best = (at, length);
            }
            if length > longest_seen {
                (second, longest_seen) = (longest_seen, length);
            } else {
                second = second.max(length);
            }
        }
        let (at, length) = best;
        if seen == 0 {
            return None;
        }
        let others = if length == longest_seen { second } else { longest_seen };
        let rest = length - count;
        let longest =
            if seen == 1 { self.longest_after(at, count, rest) } else { others.max(rest) };
        Some(Fit { at, longest })
    }

    /// The longest free range once the only one that held `count` has `rest` left.
    #[inline]
    fn longest_after(self, at: u32, count: u32, rest: u32) -> u32 {
        // All others are shorter than `count`.
        if rest + 1 >= count { rest } else { self.or(Self::range(at, count)).not().longest() }
    }

    /// The first place for `count` clear bits at a multiple of `align`, a power of two.
    pub(crate) fn aligned_fit(self, count: u32, align: u32) -> Option<Fit> {
        let places = self.not().runs_of(count).and(multiples_of(align));
        let at = places.next(0);
        (at < PAGES).then(|| Fit { at, longest: self.or(Self::range(at, count)).not().longest() })
    }

    /// The rows of set bits: where they begin and how many they are.
    pub(crate) fn rows(self) -> impl Iterator<Item = (u32, u32)> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let first = self.next(from);
            if first == PAGES {
                return None;
            }
            from = self.not().next(first);
            Some((first, from - first))
        })
    }
}

/// The lowest `count` bits of a word.
#[inline]
fn below(count: u32) -> u64 {
    1u64.checked_shl(count).unwrap_or(0).wrapping_sub(1)
}

fn multiples_of(align: u32) -> Bits {
    match align {
        0..64 => {
            // 1, 2, 4 … 32: the same pattern in every word.
            let word = (0..64).step_by(align.max(1) as usize).fold(0, |w, bit| w | 1u64 << bit);
            Bits([word; 4])
        }
        64 => Bits([1; 4]),
        128 => Bits([1, 0, 1, 0]),
        _ => Bits([1, 0, 0, 0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow_longest(bits: Bits) -> u32 {
        bits.rows().map(|r| r.1).max().unwrap_or(0)
    }

    #[test]
    fn ranges_and_neighbours() {
        assert_eq!(Bits::range(0, 256).count(), 256);
        assert_eq!(Bits::range(250, 100).count(), 6);
        let bits = Bits::range(60, 10);
        assert_eq!((bits.next(0), bits.next(61), bits.next(70)), (60, 61, 256));
        assert_eq!((bits.last_below(256), bits.last_below(65), bits.last_below(60)), (70, 65, 0));
        assert_eq!(Bits::range(130, 4).down(128), Bits::range(2, 4));
        assert_eq!(Bits::range(0, 256).down(256), Bits::NONE);
        assert_eq!((Bits::range(0, 256).longest(), Bits::NONE.longest()), (256, 0));
        assert!(Bits::range(0, 256).contains(bits) && !bits.contains(Bits::range(59, 2)));
    }

    #[test]
    fn alignments() {
        let used = Bits::range(0, 1);
        assert_eq!(used.aligned_fit(1, 64).map(|f| f.at), Some(64));
        assert_eq!(used.aligned_fit(1, 128).map(|f| f.at), Some(128));
        assert_eq!(used.aligned_fit(1, 256), None);
        assert_eq!(used.aligned_fit(3, 2).map(|f| f.at), Some(2));
    }

    proptest! {
        #[test]
        fn searches_agree_with_slow_ones(words in any::<[u64; 4]>(), mask in any::<[u64; 4]>(), thin in any::<bool>(), count in 1..40u32) {
            let mut used = Bits(words);
            used = if thin { used.and(Bits(mask)) } else { used.or(Bits(mask)) };
            let free = used.not();
            let longest = slow_longest(free);
            prop_assert_eq!(free.longest(), longest);
            let best = free.rows().filter(|r| r.1 >= count).min_by_key(|r| r.1);
            let fit = if longest >= count { used.best_fit(count, longest) } else { None };
            prop_assert_eq!(fit.map(|f| f.at), best.map(|b| b.0));
            if let Some(fit) = fit {
                let after = used.or(Bits::range(fit.at, count));
                prop_assert_eq!(fit.longest, slow_longest(after.not()));
            }
            for align in [1, 2, 8, 64] {
                let slow = (0..=256 - count).step_by(align).find(|&at| free.contains(Bits::range(at, count)));
                prop_assert_eq!(used.aligned_fit(count, align as u32).map(|f| f.at), slow);
            }
        }
    }
}
