//! Sets of huge pages, each an array of lists in order of preference with a bitmap of those that
//! are not empty (4.4).

use spandrel_pages::HugePageId;

use crate::tracker::{Link, Table};

/// Chunks of fullness per longest free range (4.4: eight suffice).
pub(crate) const CHUNKS: u32 = 8;
/// Longest free ranges: none to a whole huge page.
pub(crate) const RANGES: u32 = crate::bits::PAGES + 1;
/// Lists of a set.
pub(crate) const LISTS: u32 = CHUNKS * RANGES;

const WORDS: usize = LISTS.div_ceil(64) as usize;
const _: () = assert!(WORDS <= 64, "one word sums up the bitmap");

/// One set.
#[derive(Debug)]
pub(crate) struct Lists {
    heads: [Link; LISTS as usize],
    /// A bit per list that is not empty.
    filled: [u64; WORDS],
    /// A bit per word of `filled` that is not zero.
    summary: u64,
    /// Huge pages on all lists.
    pub(crate) members: u32,
}

impl Lists {
    pub(crate) const fn new() -> Self {
        Self { heads: [Link::NONE; LISTS as usize], filled: [0; WORDS], summary: 0, members: 0 }
    }

    pub(crate) fn head(&self, list: u32) -> Link {
        self.heads.get(list as usize).copied().unwrap_or(Link::NONE)
    }

    /// The first list from `from` on that is not empty.
    #[inline]
    pub(crate) fn first_from(&self, from: u32) -> Option<u32> {
        let index = from as usize / 64;
        let word = self.filled.get(index)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(index as u32 * 64 + word.trailing_zeros());
        }
        let words = self.summary & u64::MAX.checked_shl(index as u32 + 1)?;
        let index = words.trailing_zeros();
        let word = self.filled.get(index as usize)?;
        Some(index * 64 + word.trailing_zeros())
    }

    /// The last list below `end` that is not empty.
    pub(crate) fn last_below(&self, end: u32) -> Option<u32> {
        let index = end as usize / 64;
        let word = self.filled.get(index).copied().unwrap_or(0) & !(u64::MAX << (end % 64));
        if word != 0 {
            return Some(index as u32 * 64 + 63 - word.leading_zeros());
        }
        let words = self.summary & 1u64.checked_shl(index as u32).unwrap_or(0).wrapping_sub(1);
        let index = 63u32.checked_sub(words.leading_zeros())?;
        let word = self.filled.get(index as usize)?;
        Some(index * 64 + 63u32.checked_sub(word.leading_zeros())?)
    }

    /// Puts a huge page in front of a list.
    #[inline]
    pub(crate) fn push(&mut self, table: &mut Table, list: u32, page: HugePageId) {
        let Some(head) = self.heads.get_mut(list as usize) else { return };
        let old = core::mem::replace(head, Link::to(page));
        table[page].next = old;
        table[page].previous = Link::NONE;
        if let Some(old) = old.get() {
            table[old].previous = Link::to(page);
        }
        if let Some(word) = self.filled.get_mut(list as usize / 64) {
            *word |= 1 << (list % 64);
        }
        self.summary |= 1 << (list / 64);
        self.members += 1;
    }

    /// Takes a huge page off the list that it is on.
    #[inline]
    pub(crate) fn remove(&mut self, table: &mut Table, list: u32, page: HugePageId) {
        let (next, previous) = (table[page].next, table[page].previous);
        if let Some(next) = next.get() {
            table[next].previous = previous;
        }
        match previous.get() {
            Some(previous) => table[previous].next = next,
            None => {
                if let Some(head) = self.heads.get_mut(list as usize) {
                    *head = next;
                }
                if next == Link::NONE
                    && let Some(word) = self.filled.get_mut(list as usize / 64)
                {
                    *word &= !(1 << (list % 64));
                    if *word == 0 {
                        self.summary &= !(1 << (list / 64));
                    }
                }
            }
        }
        self.members = self.members.saturating_sub(1);
    }

    /// The huge pages of a list.
    pub(crate) fn iter<'t>(
        &self,
        table: &'t Table<'_>,
        list: u32,
    ) -> impl Iterator<Item = HugePageId> + 't {
        let mut at = self.head(list);
        core::iter::from_fn(move || {
            let page = at.get()?;
            at = table[page].next;
            Some(page)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracker;
    extern crate std;
    use std::vec;

    #[test]
    fn lists_are_found_from_both_ends() {
        let mut records = vec![Tracker::default(); 8];
        let mut table = Table::new(&mut records);
        let mut lists = Lists::new();
        assert_eq!((lists.first_from(0), lists.last_below(LISTS)), (None, None));
        for (page, list) in [(0, 5), (1, 5), (2, 63), (3, 700), (4, LISTS - 1)] {
            lists.push(&mut table, list, HugePageId(page));
        }
        let all: vec::Vec<_> =
            core::iter::successors(lists.first_from(0), |l| lists.first_from(l + 1)).collect();
        assert_eq!(all, [5, 63, 700, LISTS - 1]);
        let all: vec::Vec<_> =
            core::iter::successors(lists.last_below(LISTS), |l| lists.last_below(*l)).collect();
        assert_eq!(all, [LISTS - 1, 700, 63, 5]);
        assert_eq!(lists.iter(&table, 5).count(), 2);
        lists.remove(&mut table, 5, HugePageId(0));
        assert_eq!(lists.first_from(0), Some(5));
        lists.remove(&mut table, 5, HugePageId(1));
        lists.remove(&mut table, LISTS - 1, HugePageId(4));
        assert_eq!((lists.first_from(0), lists.last_below(LISTS)), (Some(63), Some(700)));
        assert_eq!(lists.members, 2);
    }
}
