//! What the sums of a heap that was closed put right exactly: the difference between a sum and what it should be is that of one
//! word, and which word, and what it was, is found by trying.
//!
//! Words of any kind: each single bit. Headers, region lines and roots: every word that could have been written there, so that one
//! of them may be damaged in any way. A wrong guess passes once in 2^64 tries.

use spandrel_pmem::Medium;

use crate::class::{CLASSES, Class};
use crate::header::Header;
use crate::layout::{BITS_WORDS, BLOCK_BYTES, BlockId, REGION_BLOCKS, blocks_of, first_block};
use crate::objects::valid;
use crate::pointer::offset_of;
use crate::shared::Core;
use crate::sums::{
    HEADERS_AT, LINE_WORDS, MARKS_AT, STAMP_AT, delta, marks_sum_at, mix, region_line, stamp_word,
    word_of_mix,
};
use crate::superblock::{NAMES, ROOT_COUNT, ROOTS, Record, UNDO_LOG};

/// Generations that a damaged stamp is tried to have been, back from the last one.
const GENERATIONS: u64 = 1 << 16;

/// Called with the offset of each word that was put right, and its kind.
pub type Report<'a> = &'a mut dyn FnMut(usize, &'static str);

/// What could not be put right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// Roots.
    pub roots: bool,
    /// Names of roots.
    pub names: bool,
    /// Headers, or region lines.
    pub headers: bool,
    /// Mark bits, or their sums.
    pub marks: bool,
}

impl Left {
    /// Whether all was put right.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl<M: Medium> Core<M> {
    /// Stores a word of metadata that was damaged. It is durable after a fence.
    fn mend(&self, at: usize, word: u64) {
        self.store(at, word);
        self.medium.write_back(at, 8);
    }

    /// Puts right what the sums of a closing record tell. What they do not is left as it is.
    pub fn restore(&self, record: &Record, report: Report<'_>) -> Left {
        let mut left = Left::default();
        let sums = record.sums;
        if !crate::undo::is_settled(&self.medium, sums.undo) {
            crate::undo::forget(&self.medium, sums.undo);
            report(UNDO_LOG, "the undo log: emptied, as it was");
        }
        let names = self.sum_words(NAMES..UNDO_LOG) ^ sums.names;
        left.names = !self.flip(NAMES..UNDO_LOG, names, "the name of a root", report);
        left.headers = !self.restore_lines(record, report);
        for region in self.own_regions() {
            let line = self.line(region);
            left.headers |= !self.restore_header(region, line[0], report);
            left.headers |= self.verify_lengths_of(region).is_err();
            left.marks |= !self.restore_marks_sums(region, line[1], report);
            // Without headers it is not known which bits there are.
            if !left.headers && !left.marks {
                left.marks |= !self.restore_marks(region, report);
            }
        }
        let roots = self.sum_words(ROOTS..NAMES) ^ sums.roots;
        left.roots = !self.flip(ROOTS..NAMES, roots, "a root", report)
            && (left.headers || !self.restore_root(roots, report));
        self.medium.fence();
        left
    }

    /// Flips the one bit of some words by which a sum differs. False: there is none.
    fn flip(
        &self,
        mut words: core::ops::Range<usize>,
        differs_by: u64,
        what: &'static str,
        report: Report<'_>,
    ) -> bool {
        if differs_by == 0 {
            return true;
        }
        let place = words.clone().step_by(8).find_map(|at| {
            let word = self.load(at);
            let flipped = (0..64).map(|bit| word ^ 1 << bit);
            let mut fitting = flipped.filter(|flipped| delta(at, word, *flipped) == differs_by);
            fitting.next().map(|flipped| (at, flipped))
        });
        // A word that has become anything but zero where there was none is found as well.
        let place = place.or_else(|| {
            let at = words.find(|at| at % 8 == 0 && delta(*at, self.load(*at), 0) == differs_by);
            at.map(|at| (at, 0))
        });
        let Some((at, word)) = place else { return false };
        self.mend(at, word);
        report(at, what);
        true
    }

    /// Puts one region line right.
    fn restore_lines(&self, record: &Record, report: Report<'_>) -> bool {
        let differs_by = self.sum_lines(record.bytes) ^ record.sums.regions;
        if differs_by == 0 {
            return true;
        }
        let what = "the line of a region";
        for region in self.own_regions() {
            let line = region_line(region);
            let [headers, marks] = self.sum_region(region);
            let stamps = (0..=record.closed).rev().take(GENERATIONS as usize);
            let candidates = [(HEADERS_AT, headers), (MARKS_AT, marks)]
                .into_iter()
                .chain(stamps.map(|stamp| (STAMP_AT, stamp_word(region, stamp))));
            for (at, word) in candidates.map(|(at, word)| (line + at, word)) {
                if delta(at, self.load(at), word) == differs_by {
                    self.mend(at, word);
                    report(at, what);
                    return true;
                }
            }
        }
        let mut lines = self.own_regions().map(region_line);
        lines.any(|line| self.flip(line..line + LINE_WORDS * 8, differs_by, what, report))
    }

    /// Puts one header of a region right.
    pub fn restore_header(&self, region: usize, sum: u64, report: Report<'_>) -> bool {
        let differs_by = self.sum_region(region)[0] ^ sum;
        if differs_by == 0 {
            return true;
        }
        let count = self.bytes() / BLOCK_BYTES;
        for block in blocks_of(region) {
            let (at, old) = (block.header(), self.load(block.header()));
            let fits = |header: &Header| delta(at, old, header.word(block)) == differs_by;
            if let Some(header) = could_be(block, count).find(fits) {
                self.mend(at, header.word(block));
                report(at, "the header of a block");
                return true;
            }
        }
        false
    }

    /// Puts the sum of one block's mark bits right: it is damaged itself if it does not fit and the bits do.
    fn restore_marks_sums(&self, region: usize, sum: u64, report: Report<'_>) -> bool {
        let differs_by = self.sum_region(region)[1] ^ sum;
        if differs_by == 0 {
            return true;
        }
        let what = "the sum of a block's mark bits";
        for block in blocks_of(region) {
            let at = marks_sum_at(block);
            let of_bits = self.sum_marks_of(block);
            if delta(at, self.load(at), of_bits) == differs_by {
                self.mend(at, of_bits);
                report(at, what);
                return true;
            }
            if self.flip(at..at + 8, differs_by, what, report) {
                return true;
            }
        }
        false
    }

    /// The sum that the mark bits of a block have by its header.
    pub fn sum_marks_of(&self, block: BlockId) -> u64 {
        match self.header(block) {
            Ok(Header::Small(class)) => self.sum_marks(block, class),
            _ => 0,
        }
    }

    /// Puts one mark bit of each block of a region right, and clears those of what is no object.
    pub fn restore_marks(&self, region: usize, report: Report<'_>) -> bool {
        let mut is_whole = true;
        for block in blocks_of(region) {
            self.clear_stray(block, report);
            let differs_by = self.sum_marks_of(block) ^ self.load(marks_sum_at(block));
            let bits = block.bits()..block.bits() + BITS_WORDS * 8;
            is_whole &= self.flip(bits, differs_by, "a mark bit", report);
        }
        is_whole
    }

    /// Clears mark bits of what is no object, and what stands behind the words of a header: nothing does.
    pub fn clear_stray(&self, block: BlockId, report: Report<'_>) {
        let Ok(header) = self.header(block) else { return };
        for word in 0..BITS_WORDS {
            let may = if let Header::Small(class) = header { valid(class, word) } else { 0 };
            let at = block.bits() + word * 8;
            let bits = self.load(at);
            if bits & !may != 0 {
                self.mend(at, bits & may);
                report(at, "a mark bit of what is no object");
            }
        }
        self.clear_behind(block, report);
    }

    /// Clears what stands behind the words of a header.
    pub fn clear_behind(&self, block: BlockId, report: Report<'_>) {
        for at in (block.header() + 16..block.header() + 64).step_by(8) {
            if self.load(at) != 0 {
                self.mend(at, 0);
                report(at, "something behind the header of a block");
            }
        }
    }

    /// Puts one root right, of which anything was damaged. The sum says which word each root would have to be; one of these words leads to an
    /// object. Roots that lead to no object are tried first.
    fn restore_root(&self, differs_by: u64, report: Report<'_>) -> bool {
        let is_suspect = |index: &usize| {
            let word = self.load(ROOTS + index * 8);
            word != 0 && !self.begins(word) || word == 0 && self.root_name(*index).is_some()
        };
        let fitting = |index: usize| {
            let at = ROOTS + index * 8;
            let word = word_of_mix(at, mix(at, self.load(at)) ^ differs_by);
            self.begins(word).then_some((at, word))
        };
        let mut suspects = (0..ROOT_COUNT).filter(is_suspect);
        let place = suspects.find_map(fitting);
        let Some((at, word)) = place.or_else(|| (0..ROOT_COUNT).find_map(fitting)) else {
            return false;
        };
        self.mend(at, word);
        report(at, "a root");
        true
    }

    /// Whether a root's word leads to where an allocated object begins.
    pub fn begins(&self, word: u64) -> bool {
        let found = offset_of(word).and_then(|at| Some((at, self.object_of(at)?)));
        found.is_some_and(|(at, found)| at == found.start && self.is_marked(&found))
    }
}

/// All that the header of a block could say, in a heap of `count` blocks.
fn could_be(block: BlockId, count: usize) -> impl Iterator<Item = Header> {
    let at = block.0 as usize;
    let region_end = (block.region() + 1) * REGION_BLOCKS;
    let in_region = count.min(region_end).saturating_sub(at);
    // An object that is longer than its region ends with another one.
    let may_go_on = block == first_block(block.region()) && block.region() > 0;
    let ends = (region_end + REGION_BLOCKS..=count).step_by(REGION_BLOCKS);
    let longer = ends.filter(move |_| may_go_on).map(move |end| end - at);
    let large = (1..=in_region).chain(longer).map(|blocks| Header::Large(blocks as u32));
    let classes = (0..CLASSES as u8).map(|class| Header::Small(Class(class)));
    let is_there = at < count;
    [Header::Free]
        .into_iter()
        .chain([Header::Lost].into_iter().chain(classes).filter(move |_| is_there))
        .chain(large)
}
