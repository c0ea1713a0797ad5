//! Sums of the metadata of a heap that was closed. They find each bit of the metadata that has changed since.
//!
//! The sums are a chain.
//! - The closing record has a sum of the roots, one of the names, and one of the region lines.
//! - A region line has a sum of the headers of its region, and one of their second words.
//! - The second word of a header is the sum of its block's mark bits.
//!
//! A sum is the exclusive or of [`mix`] of each word and its offset. So a word that changes costs two mixes, whatever the sum covers. Words
//! that are zero add nothing: the sums of a new medium are zero. The difference between two sums determines the single word or bit that
//! differs ([`crate::exact`]).
//!
//! The sums of a region are valid until a session changes the region. A session first stores its generation as the region's stamp, durably. A
//! stamp above the generation of the last closing record makes the sums of the region void.

use core::sync::atomic::Ordering::*;

use spandrel_pmem::{LINE_BYTES, Medium};

use crate::class::Class;
use crate::error::Error;
use crate::header::{Header, check};
use crate::layout::{
    BITS_WORDS, BlockId, FIRST_BLOCK, HEADER_BYTES, REGION_BLOCKS, REGION_BYTES, SUPERBLOCK,
    blocks_of,
};
use crate::shared::Core;
use crate::superblock::{NAMES, ROOTS, Record, UNDO_LOG};
use crate::undo::is_version;

/// Where the line of a region lies: in the place of the header of its block 1, which has none.
pub const fn region_line(region: usize) -> usize {
    region * REGION_BYTES + HEADER_BYTES
}

/// The words of a region line: the sum of headers, the sum of their second words, the stamp. The others are zero.
pub const HEADERS_AT: usize = 0;
/// See [`HEADERS_AT`].
pub const MARKS_AT: usize = 8;
/// See [`HEADERS_AT`].
pub const STAMP_AT: usize = 16;
/// Words of a region line that mean something.
pub const LINE_WORDS: usize = 3;

const _: () = assert!(FIRST_BLOCK > 1);

/// 64 bits of a word and its place, 0 for a word that is zero. For one place different words have different mixes, with the
/// exception of one pair.
#[inline]
pub fn mix(at: usize, word: u64) -> u64 {
    if word == 0 {
        return 0;
    }
    // SplitMix64's finisher.
    let mut mixed = word.wrapping_add((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The word that has this mix in its place: the inverse of [`mix`].
pub fn word_of_mix(at: usize, mixed: u64) -> u64 {
    if mixed == 0 {
        return 0;
    }
    // Each step of SplitMix64's finisher backwards. The factors are the inverses of those in `mix`.
    let unshift = |word: u64, by: u32| word ^ word >> by ^ word >> (2 * by);
    let mut word = unshift(mixed, 31);
    word = unshift(word.wrapping_mul(0x3196_42b2_d24d_8ec3), 27);
    word = unshift(word.wrapping_mul(0x96de_1b17_3f11_9089), 30);
    word.wrapping_sub((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What a sum changes by when a word changes.
#[inline]
pub fn delta(at: usize, old: u64, new: u64) -> u64 {
    mix(at, old) ^ mix(at, new)
}

/// The second word of a block's header: the sum of its mark bits.
pub const fn marks_sum_at(block: BlockId) -> usize {
    block.header() + 8
}

/// Where a stamp is damaged, and where the sums of a region do not fit.
const STAMP: &str = "the stamp of a region";
/// The headers of a region are not those that were written.
pub const HEADERS: &str = "the headers of a region: their sum is another";
/// The mark bits of a block are not those that were written.
pub const MARKS: &str = "the mark bits of a block: their sum is another";
/// The second words of headers are not those that were written.
pub const MARK_SUMS: &str = "the sums of mark bits of a region: their sum is another";
/// The roots are not those that were written.
pub const ROOTS_SUM: &str = "the roots: their sum is another";
/// The names are not those that were written.
pub const NAMES_SUM: &str = "the names of roots: their sum is another";
/// The region lines are not those that were written.
pub const REGIONS_SUM: &str = "the lines of regions: their sum is another";

/// The record has a word in the place of the undo log's version that is none.
const UNDO_VERSION: &str = "the heap's record: the version of the undo log";

/// A stamp as a word: the generation, and a check of it and of its place. Generation 0 is 0, as a fresh region has it.
pub fn stamp_word(region: usize, generation: u64) -> u64 {
    if generation == 0 {
        return 0;
    }
    let low = generation & ((1 << 48) - 1);
    low | check(low, BlockId((region * REGION_BLOCKS) as u32)) << 48
}

impl<M: Medium> Core<M> {
    /// Regions of the heap that have a line: those that no large object of another covers.
    pub fn own_regions(&self) -> impl Iterator<Item = usize> + '_ {
        let count = self.bytes().div_ceil(REGION_BYTES);
        (0..count).filter(|region| !self.is_continued(*region))
    }

    /// The generation in the stamp of a region.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the word is no stamp of this region.
    pub fn stamp(&self, region: usize) -> Result<u64, Error> {
        let at = region_line(region) + STAMP_AT;
        let word = self.load(at);
        let generation = word & ((1 << 48) - 1);
        if word != stamp_word(region, generation) {
            return Err(Error::Damaged { at: at as u64, what: STAMP });
        }
        Ok(generation)
    }

    /// Stores this session's generation as the stamp of a region. It is durable after a fence. False: the region had that stamp.
    pub fn set_stamp(&self, region: usize, generation: u64) -> bool {
        let (at, word) = (region_line(region) + STAMP_AT, stamp_word(region, generation));
        if self.load(at) == word {
            return false;
        }
        self.store(at, word);
        // Not counted among what allocations cost: once for each region and session.
        self.medium.write_back(at, 8);
        true
    }

    /// The sums of a region's headers and of their second words, as they are.
    pub fn sum_region(&self, region: usize) -> [u64; 2] {
        blocks_of(region).fold([0, 0], |[headers, marks], block| {
            let (at, sum_at) = (block.header(), marks_sum_at(block));
            [headers ^ mix(at, self.load(at)), marks ^ mix(sum_at, self.load(sum_at))]
        })
    }

    /// The sum of a block's mark bits, as they are. Words beyond a class's objects are zero.
    pub fn sum_marks(&self, block: BlockId, class: Class) -> u64 {
        let words = class.objects().div_ceil(64).min(BITS_WORDS);
        (0..words).fold(0, |sum, word| {
            let at = block.bits() + word * 8;
            sum ^ mix(at, self.load(at))
        })
    }

    /// The sum of a range of words, as they are.
    pub fn sum_words(&self, words: core::ops::Range<usize>) -> u64 {
        words.step_by(8).fold(0, |sum, at| sum ^ mix(at, self.load(at)))
    }

    /// The sums of a region as its line has them.
    pub fn line(&self, region: usize) -> [u64; 2] {
        [HEADERS_AT, MARKS_AT].map(|at| self.load(region_line(region) + at))
    }

    /// Writes the sums of a region into its line. They are durable after a fence.
    pub fn set_line(&self, region: usize, sums: [u64; 2]) {
        let line = region_line(region);
        if self.line(region) == sums {
            return;
        }
        for (at, sum) in [HEADERS_AT, MARKS_AT].into_iter().zip(sums) {
            self.store(line + at, sum);
        }
        self.medium.write_back(line, LINE_BYTES);
    }

    /// Compares the headers of a region, and the sums of mark bits in their second words, with the region's line. Returns the sums.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first place where they differ.
    pub fn verify_region(&self, region: usize) -> Result<[u64; 2], Error> {
        self.stamp(region)?;
        let (sums, line) = (self.sum_region(region), self.line(region));
        let damaged = |at: usize, what| Err(Error::Damaged { at: at as u64, what });
        if sums[0] != line[0] {
            return damaged(region_line(region) + HEADERS_AT, HEADERS);
        }
        if sums[1] != line[1] {
            return damaged(region_line(region) + MARKS_AT, MARK_SUMS);
        }
        Ok(sums)
    }

    /// Compares the mark bits of a block with their sum.
    ///
    /// # Errors
    /// [`Error::Damaged`]: they differ.
    pub fn verify_marks(&self, block: BlockId, header: Header) -> Result<(), Error> {
        let sum = match header {
            Header::Small(class) => self.sum_marks(block, class),
            _ => 0,
        };
        if sum == self.load(marks_sum_at(block)) {
            return Ok(());
        }
        Err(Error::Damaged { at: block.bits() as u64, what: MARKS })
    }

    /// Whether the sums of a region hold: no session has changed the region since the heap was closed.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the stamp is none.
    pub fn has_sums(&self, region: usize, closed: u64) -> Result<bool, Error> {
        Ok(self.stamp(region)? <= closed)
    }

    /// Compares the headers of all regions whose sums hold with these, before anything relies on headers.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first place where they differ.
    pub fn verify_headers(&self) -> Result<(), Error> {
        self.own_regions().try_for_each(|region| self.verify_headers_of(region))
    }

    /// The same of one region.
    ///
    /// # Errors
    /// As for [`Core::verify_headers`].
    pub fn verify_headers_of(&self, region: usize) -> Result<(), Error> {
        let (line, closed) = (region_line(region) + HEADERS_AT, self.record.lock().closed);
        if self.has_sums(region, closed)? && self.sum_region(region)[0] != self.load(line) {
            return Err(Error::Damaged { at: line as u64, what: HEADERS });
        }
        Ok(())
    }

    /// The sum of the lines of all regions of a heap that has `bytes` bytes by its record, as they are. A medium may be longer: of a
    /// heap that was shrunk, until the file is cut.
    pub fn sum_lines(&self, bytes: u64) -> u64 {
        let own = self.own_regions().filter(|region| ((region * REGION_BYTES) as u64) < bytes);
        own.fold(0, |sum, region| {
            let line = region_line(region);
            sum ^ self.sum_words(line..line + LINE_WORDS * 8)
        })
    }

    /// Compares the roots, names, region lines and headers of a heap that was closed with their sums, and the lengths of large objects with the
    /// heap. A forged file may have sums that fit, and a length that does not.
    ///
    /// The comparison reads a line for each block, which is a thousandth of the heap. With a wrong header an object would be shorter, or
    /// missing, in every later operation. Mark bits matter only to allocation and freeing: they are compared when a region is first used.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first place where they differ.
    pub fn verify_closed(&self, record: &Record) -> Result<(), Error> {
        let sums = self.sums(record.bytes);
        let differ = [
            (!is_version(record.sums.undo), SUPERBLOCK, UNDO_VERSION),
            (sums.roots != record.sums.roots, ROOTS, ROOTS_SUM),
            (sums.names != record.sums.names, NAMES, NAMES_SUM),
            (sums.regions != record.sums.regions, region_line(0), REGIONS_SUM),
        ];
        match differ.into_iter().find(|(differs, ..)| *differs) {
            Some((_, at, what)) => Err(Error::Damaged { at: at as u64, what }),
            None => self.own_regions().try_for_each(|region| {
                self.verify_region(region)?;
                self.verify_lengths_of(region)
            }),
        }
    }

    /// The sums that a closing record with `bytes` bytes has, of what is there.
    pub fn sums(&self, bytes: u64) -> Sums {
        Sums {
            regions: self.sum_lines(bytes),
            roots: self.sum_words(ROOTS..NAMES),
            names: self.sum_words(NAMES..UNDO_LOG),
            undo: self.load(UNDO_LOG),
        }
    }

    /// Writes the sums of all regions that were scanned in this session into their lines. They are durable after a fence.
    pub fn settle_lines(&self) {
        let scanned = self.scanned.load(Acquire);
        for region in self.own_regions().take_while(|region| *region < scanned) {
            self.set_line(region, self.region_sums(region));
        }
        if !self.is_exact() {
            return;
        }
        // An earlier session has changed others and was not closed: their lines are older than their headers, which are exact.
        let closed = self.record.lock().closed;
        let others = self.own_regions().skip_while(|region| *region < scanned);
        for region in others.filter(|region| self.stamp(*region).is_ok_and(|at| at > closed)) {
            self.set_line(region, self.sum_region(region));
        }
    }

    /// Writes the lines of all regions from the headers as they are.
    pub fn sum_all(&self) {
        self.own_regions().for_each(|region| self.set_line(region, self.sum_region(region)));
    }

    /// The sums of a region as this session has counted them.
    fn region_sums(&self, region: usize) -> [u64; 2] {
        [0, 1].map(|which| {
            self.region_sums.all().get(region * 2 + which).map_or(0, |sum| sum.load(Relaxed))
        })
    }

    /// Sets the transient sums of a region that is scanned.
    pub fn set_region_sums(&self, region: usize, sums: [u64; 2]) {
        for (which, sum) in sums.into_iter().enumerate() {
            if let Some(place) = self.region_sums.all().get(region * 2 + which) {
                place.store(sum, Relaxed);
            }
        }
    }

    fn change_region_sum(&self, region: usize, which: usize, by: u64) {
        if let Some(sum) = self.region_sums.all().get(region * 2 + which) {
            sum.fetch_xor(by, Relaxed);
        }
    }

    /// Stores the first word of a header.
    pub fn store_header(&self, block: BlockId, header: Header) {
        let (at, word) = (block.header(), header.word(block));
        let old = self.load(at);
        self.store(at, word);
        self.change_region_sum(block.region(), 0, delta(at, old, word));
    }

    /// Changes the sum of a block's mark bits by `by`, as the bits have changed. Under the lock of the block's class.
    pub fn change_marks_sum(&self, block: BlockId, by: u64) {
        let at = marks_sum_at(block);
        let old = self.load(at);
        self.store(at, old ^ by);
        self.change_region_sum(block.region(), 1, delta(at, old, old ^ by));
    }
}

/// The sums that a closing record has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Of the lines of regions.
    pub regions: u64,
    /// Of the roots.
    pub roots: u64,
    /// Of their names.
    pub names: u64,
    /// The version word of the undo log.
    pub undo: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_single_bit_changes_a_sum_by_a_number_of_its_own() {
        let mut seen = BTreeSet::new();
        for word in [0, 1, u64::MAX, 0x50a7_0000_0012_3450] {
            for at in (4096..8192).step_by(8) {
                for bit in 0..64 {
                    let by = delta(at, word, word ^ 1 << bit);
                    assert!(by != 0 && seen.insert(by), "{at:#x} {word:#x} {bit}");
                }
            }
            seen.clear();
        }
        assert_eq!(mix(77, 0), 0);
    }

    #[test]
    fn the_word_of_a_mix_is_found() {
        for at in (0..1 << 20).step_by(4096 + 8) {
            for word in [0, 1, u64::MAX, 0x50a7_0000_0012_3450, mix(at, 3)] {
                assert_eq!(word_of_mix(at, mix(at, word)), word, "{at:#x}");
            }
        }
    }

    #[test]
    fn a_stamp_is_one_word_that_holds_in_its_place_alone() {
        assert_eq!(stamp_word(5, 0), 0);
        assert_ne!(stamp_word(5, 7), stamp_word(6, 7));
        assert_eq!(stamp_word(5, 7) & 0xffff, 7);
    }
}
