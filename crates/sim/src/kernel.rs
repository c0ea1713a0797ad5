//! A kernel on paper: it does what it is asked to and counts the calls.

use serde::Serialize;
use spandrel_pageheap::{Collapse, Memory};
use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

/// What restoring a huge page takes, measured on a virtual machine: copying and mapping 2 MiB.
const COLLAPSE_MICROS: u32 = 500;

/// System calls that a real page heap would have made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Calls {
    /// Ranges of huge pages that were taken, to be faulted in.
    pub back: u64,
    /// Huge pages in them.
    pub backed_hugepages: u64,
    /// Ranges that were given back.
    pub unback: u64,
    /// Pages in them.
    pub unbacked_pages: u64,
    /// Huge pages that were made whole again.
    pub collapse: u64,
}

impl Calls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.back + self.unback + self.collapse
    }
}

/// Memory that is only counted.
#[derive(Clone, Default, Debug)]
pub struct Kernel {
    /// What it was asked so far.
    pub calls: Calls,
    /// A bit for each huge page that went back as a whole and has not been taken since.
    gone: Vec<u64>,
    gone_count: u32,
}

impl Kernel {
    /// Huge pages that went back as a whole and have not been taken since.
    pub(crate) fn gone(&self) -> HugeLength {
        HugeLength(self.gone_count)
    }

    fn set_gone(&mut self, first: HugePageId, count: HugeLength, gone: bool) {
        for page in first.0..first.0.saturating_add(count.0) {
            let (at, bit) = (page as usize / 64, 1 << (page % 64));
            if at >= self.gone.len() {
                if !gone {
                    return;
                }
                self.gone.resize(at + 1, 0);
            }
            if (self.gone[at] & bit != 0) != gone {
                self.gone[at] ^= bit;
                self.gone_count = if gone { self.gone_count + 1 } else { self.gone_count - 1 };
            }
        }
    }
}

impl Memory for Kernel {
    fn back(&mut self, first: HugePageId, count: HugeLength) -> bool {
        self.calls.back += 1;
        self.calls.backed_hugepages += u64::from(count.0);
        self.set_gone(first, count, false);
        true
    }

    fn unback(&mut self, first: PageId, count: Length) -> bool {
        self.calls.unback += 1;
        self.calls.unbacked_pages += u64::from(count.0);
        // Less than a whole one lies on a huge page that others use: the page heap counts those.
        if first.offset() == 0 && count.beyond_hugepages() == Length::ZERO {
            self.set_gone(first.hugepage(), count.hugepages_down(), true);
        }
        true
    }

    fn collapse(&mut self, _: HugePageId) -> Collapse {
        self.calls.collapse += 1;
        Collapse::Done { micros: COLLAPSE_MICROS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_back_whole_is_gone_until_it_is_taken() {
        let mut kernel = Kernel::default();
        let whole = |n: u32| HugeLength(n).pages();
        assert!(kernel.unback(HugePageId(60).first_page(), whole(10)));
        assert!(kernel.unback(HugePageId(69).first_page(), whole(2)));
        assert!(kernel.unback(HugePageId(3).first_page(), Length(255)));
        assert_eq!(kernel.gone(), HugeLength(11));
        assert!(kernel.back(HugePageId(0), HugeLength(64)));
        assert!(kernel.back(HugePageId(500), HugeLength(64)));
        assert_eq!(kernel.gone(), HugeLength(7));
    }
}
