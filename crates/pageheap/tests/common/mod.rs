//! A kernel made of arrays, which holds the page heap to what it promises.
#![allow(dead_code, reason = "every test uses its part")]

pub mod calls;
pub mod world;

use spandrel_pageheap::{Collapse, Memory};
use spandrel_pages::{HEAP_PAGES_PER_HUGEPAGE, HugeLength, HugePageId, Length, PageId};

const PAGES: usize = HEAP_PAGES_PER_HUGEPAGE as usize;

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Not resident.
    Nothing,
    /// Zeroes.
    Zeroes,
    /// Something that was written.
    Data,
}

/// Memory on paper.
pub struct Fake {
    pub content: Vec<Content>,
    /// Pages that belong to spans.
    pub used: Vec<bool>,
    /// Huge pages that may be used: backed, and not wholly unbacked since.
    pub announced: Vec<bool>,
    /// Whether the kernel is to leave a huge page broken.
    stays_small: Vec<bool>,
    /// Records below this may be written.
    pub extended: HugePageId,
    /// Of so many calls one is refused, by kind; 0 for none.
    pub refuse_extend: u32,
    pub refuse_back: u32,
    pub refuse_unback: u32,
    pub refuse_collapse: u32,
    pub collapse_unsupported: bool,
    /// Of so many huge pages one begins with small pages; 0 for none.
    pub begins_small: u32,
    /// Whether giving back was ever refused: then the heap may take gone pages for resident ones.
    pub was_refused: bool,
    pub calls: u64,
    random: u32,
}

impl Fake {
    pub fn new(hugepages: usize) -> Self {
        Self {
            content: vec![Content::Nothing; hugepages * PAGES],
            used: vec![false; hugepages * PAGES],
            announced: vec![false; hugepages],
            stays_small: vec![false; hugepages],
            extended: HugePageId(0),
            refuse_extend: 0,
            refuse_back: 0,
            refuse_unback: 0,
            refuse_collapse: 0,
            collapse_unsupported: false,
            begins_small: 0,
            was_refused: false,
            calls: 0,
            random: 1,
        }
    }

    fn refuses(&mut self, one_of: u32) -> bool {
        self.calls += 1;
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        one_of > 0 && (self.random >> 8).is_multiple_of(one_of)
    }

    pub fn resident(&self) -> usize {
        self.content.iter().filter(|c| **c != Content::Nothing).count()
    }

    /// A span was handed out: it is nobody else's, usable, and zeroed if it is said to be.
    pub fn take(&mut self, first: PageId, pages: Length, zeroed: bool) {
        for page in first.0 as usize..(first.0 + pages.0) as usize {
            assert!(!self.used[page], "page {page} is handed out twice");
            assert!(self.announced[page / PAGES], "page {page} is not backed");
            assert!(!zeroed || self.content[page] != Content::Data, "page {page} is not zeroed");
            self.used[page] = true;
            self.content[page] = Content::Data;
        }
    }

    pub fn put(&mut self, first: PageId, pages: Length) {
        for page in first.0 as usize..(first.0 + pages.0) as usize {
            assert!(self.used[page]);
            self.used[page] = false;
        }
    }
}

impl Memory for Fake {
    fn extend(&mut self, end: HugePageId) -> bool {
        assert!(end > self.extended && end.0 as usize <= self.announced.len());
        if self.refuse_extend > 0 && self.refuses(self.refuse_extend) {
            return false;
        }
        self.extended = end;
        true
    }

    fn back(&mut self, first: HugePageId, count: HugeLength) -> bool {
        assert!(count.0 > 0 && first.0 + count.0 <= self.extended.0);
        if self.refuses(self.refuse_back) {
            return false;
        }
        for page in first.0 as usize..(first.0 + count.0) as usize {
            assert!(!self.announced[page], "huge page {page} is backed twice");
            self.announced[page] = true;
            self.stays_small[page] = false;
            self.content[page * PAGES..(page + 1) * PAGES].fill(Content::Zeroes);
        }
        true
    }

    fn begins_small(&mut self) -> bool {
        self.begins_small > 0 && self.refuses(self.begins_small)
    }

    fn back_small(&mut self, page: HugePageId) -> bool {
        let backed = self.back(page, HugeLength(1));
        if backed {
            let first = page.0 as usize * PAGES;
            self.content[first + 1..first + PAGES].fill(Content::Nothing);
        }
        backed
    }

    fn stay_small(&mut self, page: HugePageId) {
        assert!(self.announced[page.0 as usize]);
        self.stays_small[page.0 as usize] = true;
    }

    fn unback(&mut self, first: PageId, count: Length) -> bool {
        assert!(count.0 > 0);
        let range = first.0 as usize..(first.0 + count.0) as usize;
        assert!(!self.used[range.clone()].contains(&true), "a used page goes back");
        if self.refuses(self.refuse_unback) {
            self.was_refused = true;
            return false;
        }
        self.content[range.clone()].fill(Content::Nothing);
        for page in range.start / PAGES..range.end.div_ceil(PAGES) {
            assert!(self.announced[page], "huge page {page} was not backed");
            let whole = &self.content[page * PAGES..(page + 1) * PAGES];
            self.announced[page] = whole.iter().any(|c| *c != Content::Nothing);
            let alone = !self.announced[page] || self.stays_small[page];
            assert!(alone, "the kernel may make huge page {page} whole again");
        }
        true
    }

    fn collapse(&mut self, page: HugePageId) -> Collapse {
        let page = page.0 as usize;
        assert!(self.announced[page]);
        self.stays_small[page] = false;
        if self.collapse_unsupported {
            return Collapse::Unsupported;
        }
        if self.refuses(self.refuse_collapse) {
            return Collapse::Busy { micros: 30 };
        }
        for content in &mut self.content[page * PAGES..(page + 1) * PAGES] {
            if *content == Content::Nothing {
                *content = Content::Zeroes;
            }
        }
        Collapse::Done { micros: 400 }
    }
}
