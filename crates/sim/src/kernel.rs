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
#[derive(Clone, Copy, Default, Debug)]
pub struct Kernel {
    /// What it was asked so far.
    pub calls: Calls,
}

impl Memory for Kernel {
    fn back(&mut self, _: HugePageId, count: HugeLength) -> bool {
        self.calls.back += 1;
        self.calls.backed_hugepages += u64::from(count.0);
        true
    }

    fn unback(&mut self, _: PageId, count: Length) -> bool {
        self.calls.unback += 1;
        self.calls.unbacked_pages += u64::from(count.0);
        true
    }

    fn collapse(&mut self, _: HugePageId) -> Collapse {
        self.calls.collapse += 1;
        Collapse::Done { micros: COLLAPSE_MICROS }
    }
}
