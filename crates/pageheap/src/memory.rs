//! What the page heap does to memory: a few effects, and nothing else.

use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

/// The kernel, or what stands for it.
pub trait Memory {
    /// The records of all huge pages below `end` may be written from now on; before, they are only
    /// read. False: there is no memory for the records, and what lies beyond stays unused.
    fn extend(&mut self, end: HugePageId) -> bool {
        let _ = end;
        true
    }

    /// Huge pages that were never used or are wholly unbacked are about to be used. False: the
    /// kernel refuses memory, and they stay unused.
    ///
    /// Single pages that went back while the rest of their huge page stayed are *not* announced
    /// again: touching them faults them in.
    fn back(&mut self, first: HugePageId, count: HugeLength) -> bool;

    /// Whether the address space of any of these huge pages was released for good, so that [`Self::back`] fails for them from now on.
    fn is_gone(&self, first: HugePageId, count: HugeLength) -> bool {
        let _ = (first, count);
        false
    }

    /// Whether a huge page that is about to be used for small spans had better begin with small
    /// pages: getting a whole one takes long just now, and it can be made whole later. Asked once for
    /// each.
    fn begins_small(&mut self) -> bool {
        false
    }

    /// As [`Self::back`] for one huge page, whose pages come one by one as they are touched. It
    /// counts as broken until it is made whole.
    fn back_small(&mut self, page: HugePageId) -> bool {
        self.back(page, HugeLength(1))
    }

    /// Single pages of a huge page are about to go back: from now on it is mapped by small pages, until
    /// [`Self::collapse`] or [`Self::back`]. Left alone, the kernel makes such a huge page whole by
    /// itself some day, and with it all that went back.
    fn stay_small(&mut self, page: HugePageId) {
        let _ = page;
    }

    /// Gives pages back; afterwards they read as zeroes. False: refused, they are still resident
    /// with what was in them.
    fn unback(&mut self, first: PageId, count: Length) -> bool;

    /// Makes a huge page whole again that is mapped by small pages.
    fn collapse(&mut self, page: HugePageId) -> Collapse;
}

/// What an attempt to make a huge page whole came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collapse {
    /// It is whole.
    Done {
        /// How long it took.
        micros: u32,
    },
    /// Not now: no huge page is free, or something holds one of its pages (`EAGAIN`, `ENOMEM`).
    Busy {
        /// How long it took to find out.
        micros: u32,
    },
    /// This kernel cannot; it will not be asked again.
    Unsupported,
}

/// Memory on paper: the kernel does all that it is asked to, and it costs nothing. For
/// simulations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paper {
    /// What every attempt to make a huge page whole comes to.
    pub collapse: Collapse,
}

impl Memory for Paper {
    fn back(&mut self, _: HugePageId, _: HugeLength) -> bool {
        true
    }

    fn unback(&mut self, _: PageId, _: Length) -> bool {
        true
    }

    fn collapse(&mut self, _: HugePageId) -> Collapse {
        self.collapse
    }
}
