//! Which blocks are free, and how they are taken: chunks of the paper (sections 5.6, 6.2 to 6.4, 7.2, 7.3).
//!
//! A bit for each block says that it is free; free neighbours are found, not coalesced. The bits are transient: headers say
//! the same for good. After a clean start regions are looked at one by one as blocks are needed, so that to open a
//! heap takes no longer the larger it is.

use core::sync::atomic::Ordering::*;

use spandrel_pmem::Medium;

use crate::class::Class;
use crate::error::Error;
use crate::header::Header;
use crate::layout::{
    BLOCK_BYTES, BlockId, FIRST_BLOCK, REGION_BLOCKS, REGION_BYTES, REGION_OBJECT_BLOCKS,
    first_block,
};
use crate::memory::{Table, Zeroed};
use crate::partial::Listed;
use crate::shared::Core;

/// A heap grows by an eighth, and by this number of blocks at least (a mebibyte).
const GROW_BLOCKS: usize = 16;
const WORD_BITS: usize = 64;
/// A large object covers a block that has a header.
pub const USED_TWICE: &str = "a block that is its own and part of a large object";

/// What is known of a block of small or medium objects, under the lock of its class.
#[derive(Default)]
pub struct Info {
    /// Its neighbours in its list of those with free objects; 0: none.
    pub before: u32,
    pub after: u32,
    /// Objects that are allocated, or in a thread's cache.
    pub live: u32,
    /// No word of mark bits before this one has a free object.
    pub first_word: u16,
    /// The threads that have taken objects of it last.
    pub group: u8,
    pub listed: Listed,
}

// SAFETY: numbers, and a name for 0.
unsafe impl Zeroed for Info {}

/// The transient state of all blocks, under one lock.
pub struct Blocks {
    free: Table<u64>,
    /// No word before it has a free block.
    first: usize,
    /// Blocks of the heap.
    pub count: usize,
}

impl Blocks {
    pub fn new(most: usize) -> Result<Self, Error> {
        let free = Table::reserve(most.div_ceil(WORD_BITS))?;
        Ok(Self { free, first: 0, count: 0 })
    }

    fn word(&mut self, index: usize) -> Option<&mut u64> {
        // SAFETY: `&mut self`.
        self.free.pointer(index).map(|word| unsafe { &mut *word })
    }

    fn set_free(&mut self, block: BlockId, count: usize, is_free: bool) {
        for number in block.0 as usize..block.0 as usize + count {
            if let Some(word) = self.word(number / WORD_BITS) {
                let bit = 1 << (number % WORD_BITS);
                *word = if is_free { *word | bit } else { *word & !bit };
            }
        }
        if is_free {
            self.first = self.first.min(block.0 as usize / WORD_BITS);
        }
    }

    fn is_free(&mut self, number: usize) -> bool {
        self.word(number / WORD_BITS).is_some_and(|word| *word >> (number % WORD_BITS) & 1 == 1)
    }

    /// The first of `count` free blocks in a row. Metadata between regions is never free, so that no row crosses it.
    fn find(&mut self, count: usize) -> Option<BlockId> {
        let words = self.count.div_ceil(WORD_BITS);
        let (mut run, mut is_first) = (0, true);
        for index in self.first..words {
            let word = *self.word(index)?;
            if word == 0 {
                run = 0;
                continue;
            }
            if is_first {
                (self.first, is_first) = (index, false);
            }
            if count == 1 {
                return Some(BlockId((index * WORD_BITS) as u32 + word.trailing_zeros()));
            }
            for bit in 0..WORD_BITS {
                run = if word >> bit & 1 == 1 { run + 1 } else { 0 };
                if run == count {
                    return Some(BlockId((index * WORD_BITS + bit + 1 - count) as u32));
                }
            }
        }
        if is_first {
            self.first = words;
        }
        None
    }

    /// Whether a region, as far as the heap has it, holds nothing.
    fn is_empty(&mut self, region: usize) -> bool {
        let first = first_block(region).0 as usize;
        let end = ((region + 1) * REGION_BLOCKS).min(self.count);
        region > 0 && (first..end).all(|number| self.is_free(number))
    }
}

impl<M: Medium> Core<M> {
    /// Takes `count` blocks in a row. Only the transient bits say so yet.
    pub fn take_blocks(&self, count: usize) -> Result<BlockId, Error> {
        if count > REGION_OBJECT_BLOCKS {
            self.free_empties();
            return self.take_regions(&mut self.blocks.lock(), count);
        }
        if let Some(found) = self.find_blocks(&mut self.blocks.lock(), count)? {
            return Ok(found);
        }
        self.free_empties();
        let mut blocks = self.blocks.lock();
        loop {
            if let Some(found) = self.find_blocks(&mut blocks, count)? {
                return Ok(found);
            }
            self.grow_for(&mut blocks, count)?;
        }
    }

    /// Takes `count` blocks that are free.
    fn find_blocks(&self, blocks: &mut Blocks, count: usize) -> Result<Option<BlockId>, Error> {
        loop {
            if let Some(found) = blocks.find(count) {
                blocks.set_free(found, count, false);
                return Ok(Some(found));
            }
            if !self.scan_next(blocks)? {
                return Ok(None);
            }
        }
    }

    /// Gives blocks back whose headers say durably that they are free.
    pub fn return_blocks(&self, block: BlockId, count: usize) {
        self.blocks.lock().set_free(block, count, true);
    }

    /// Takes `count` blocks from `block` on, if they are free.
    pub fn take_blocks_at(&self, block: BlockId, count: usize) -> bool {
        let mut blocks = self.blocks.lock();
        let from = block.0 as usize;
        let is_free = (from..from + count).all(|number| blocks.is_free(number));
        if is_free {
            blocks.set_free(block, count, false);
        }
        is_free
    }

    /// Whole regions for an object that is longer than one: it begins behind the metadata of the first and covers that of the
    /// others.
    fn take_regions(&self, blocks: &mut Blocks, count: usize) -> Result<BlockId, Error> {
        let needed = (count + FIRST_BLOCK).div_ceil(REGION_BLOCKS);
        while self.scan_next(blocks)? {}
        let present = blocks.count.div_ceil(REGION_BLOCKS);
        let mut run = 0;
        let mut first = None;
        for region in 1..present {
            run = if blocks.is_empty(region) { run + 1 } else { 0 };
            let is_whole = (region + 1) * REGION_BLOCKS <= blocks.count;
            if run == needed && is_whole {
                first = Some(region + 1 - needed);
                break;
            }
        }
        let first = match first {
            Some(first) => first,
            None => {
                let first = present - run.min(needed - 1);
                let to = (first + needed).checked_mul(REGION_BLOCKS).ok_or(Error::Full)?;
                self.grow_to(blocks, to)?;
                first
            }
        };
        let block = first_block(first);
        for region in first..first + needed {
            let start = first_block(region);
            blocks.set_free(start, REGION_BLOCKS - start.in_region(), false);
            self.set_continues(region, region > first);
        }
        Ok(block)
    }

    /// How many blocks an object gets that needs `count`.
    pub fn covered(block: BlockId, count: usize) -> usize {
        match count {
            0..=REGION_OBJECT_BLOCKS => count,
            _ => (count + FIRST_BLOCK).next_multiple_of(REGION_BLOCKS) - block.in_region(),
        }
    }

    /// Makes the regions that a freed object went on in regions again. Its header is still there: if this is cut off,
    /// recovery frees it once more.
    pub fn clear_regions(&self, block: BlockId, count: usize) {
        static ZEROES: [u8; 4096] = [0; 4096];
        let generation = self.record.lock().generation;
        let end = block.plus(count - 1).region() + 1;
        for region in block.region() + 1..end {
            let metadata = FIRST_BLOCK * BLOCK_BYTES;
            for at in (0..metadata).step_by(ZEROES.len()) {
                // SAFETY: of an object that was freed.
                unsafe { self.medium.store(region * REGION_BYTES + at, &ZEROES) };
            }
            self.set_stamp(region, generation);
            self.set_region_sums(region, [0, 0]);
            self.medium.write_back(region * REGION_BYTES, metadata);
        }
        self.fence();
    }

    /// The same as [`Core::return_blocks`] for whole regions.
    pub fn return_regions(&self, block: BlockId, count: usize) {
        let mut blocks = self.blocks.lock();
        let end = block.plus(count - 1).region() + 1;
        for region in block.region()..end {
            self.set_continues(region, false);
            let start = first_block(region);
            blocks.set_free(start, REGION_BLOCKS - start.in_region(), true);
        }
    }

    fn grow_for(&self, blocks: &mut Blocks, count: usize) -> Result<(), Error> {
        let now = blocks.count;
        let in_region = now % REGION_BLOCKS;
        let tail = (0..in_region).take_while(|back| blocks.is_free(now - 1 - back)).count();
        let missing = count.saturating_sub(tail);
        let least = if in_region > 0 && in_region + missing <= REGION_BLOCKS {
            now + missing
        } else {
            now.next_multiple_of(REGION_BLOCKS) + FIRST_BLOCK + count
        };
        let step = (now / 8).clamp(GROW_BLOCKS, REGION_BLOCKS);
        let wanted = least.max(now + step);
        match self.grow_to(blocks, wanted) {
            Err(why) if why.is_full() && wanted > least => self.grow_to(blocks, least),
            grown => grown,
        }
    }

    /// Makes the heap longer, to `count` blocks.
    fn grow_to(&self, blocks: &mut Blocks, count: usize) -> Result<(), Error> {
        // Not the medium's refusal: its number for that is the one for want of memory.
        let within = |bytes: &usize| *bytes <= self.medium.limit();
        let bytes = count.checked_mul(BLOCK_BYTES).filter(within).ok_or(Error::Full)?;
        self.ensure_tables(blocks, count)?;
        // What is missing would be there again, as zeroes.
        self.check_present()?;
        self.medium.grow(bytes)?;
        let mut record = self.record.lock();
        record.bytes = bytes as u64;
        record.put(&self.medium);
        let generation = record.generation;
        drop(record);
        self.note_bytes(bytes);
        let now = core::mem::replace(&mut blocks.count, count);
        // Before a header there says anything.
        for region in now.div_ceil(REGION_BLOCKS)..count.div_ceil(REGION_BLOCKS) {
            self.set_stamp(region, generation);
            self.set_region_sums(region, [0, 0]);
        }
        self.medium.fence();
        for region in now / REGION_BLOCKS..count.div_ceil(REGION_BLOCKS) {
            let from = now.max(first_block(region).0 as usize);
            let to = ((region + 1) * REGION_BLOCKS).min(count);
            if from < to {
                blocks.set_free(BlockId(from as u32), to - from, true);
            }
        }
        self.scanned.store(count.div_ceil(REGION_BLOCKS), Release);
        Ok(())
    }

    /// Has room in the transient tables for a heap of `count` blocks.
    pub fn ensure_tables(&self, blocks: &Blocks, count: usize) -> Result<(), Error> {
        blocks.free.ensure(count.div_ceil(WORD_BITS))?;
        self.infos.ensure(count)?;
        self.tags.ensure(count)?;
        self.continues.ensure(count.div_ceil(REGION_BLOCKS))?;
        self.region_sums.ensure(2 * count.div_ceil(REGION_BLOCKS))
    }

    /// Looks at regions up to one, so that what is known of its blocks is known.
    pub fn scan_to(&self, region: usize) -> Result<(), Error> {
        while self.scanned.load(Acquire) <= region {
            if !self.scan_next(&mut self.blocks.lock())? {
                break;
            }
        }
        Ok(())
    }

    /// Looks at the next region. False: all were looked at.
    pub fn scan_next(&self, blocks: &mut Blocks) -> Result<bool, Error> {
        let region = self.scanned.load(Acquire);
        if region * REGION_BLOCKS >= blocks.count {
            return Ok(false);
        }
        if !self.is_continued(region) {
            // What is damaged is found before anything is noted or handed out: the region is looked at again when more is needed.
            let count = blocks.count;
            let sums = self.sums_of_region(region).and_then(|sums| {
                self.each_header(region, count, |block, header| self.verify_marks(block, header))?;
                Ok(sums)
            });
            let sums = sums.map_err(|why| self.note_damage(why))?;
            self.set_region_sums(region, sums);
            // Durable before anything changes there, so that a failure finds the region's sums void.
            if self.set_stamp(region, self.record.lock().generation) {
                self.medium.fence();
            }
            self.each_header(region, count, |block, header| {
                self.scan_block(blocks, block, header);
                Ok(())
            })?;
        }
        self.scanned.store(region + 1, Release);
        Ok(true)
    }

    /// The sums of a region, which are those of its line. Where headers and mark bits are exact though the heap was not closed, the lines of regions
    /// that it has changed are older.
    fn sums_of_region(&self, region: usize) -> Result<[u64; 2], Error> {
        let is_changed = || self.stamp(region).map(|stamp| stamp > self.record.lock().closed);
        if self.is_exact() && is_changed()? {
            return Ok(self.sum_region(region));
        }
        self.verify_region(region)
    }

    /// Notes which regions are parts of an object that begins in one before: that has to be known before a thread looks for a header there.
    pub fn note_continued(&self, count: usize) {
        let mut region = 0;
        while region * REGION_BLOCKS < count {
            self.set_continues(region, false);
            let first = first_block(region);
            let mut next = region + 1;
            if (first.0 as usize) < count
                && let Ok(Header::Large(blocks)) = self.header(first)
                && self.check_large(first, blocks as usize, count).is_ok()
            {
                next = (first.0 as usize + blocks as usize).div_ceil(REGION_BLOCKS).max(next);
            }
            (region + 1..next).for_each(|region| self.set_continues(region, true));
            region = next;
        }
    }

    /// Calls `see` with each header of the heap's first `count` blocks, in order. What lies below a large object has none.
    pub fn each_block(
        &self,
        count: usize,
        mut see: impl FnMut(BlockId, Header) -> Result<(), Error>,
    ) -> Result<(), Error> {
        (0..count.div_ceil(REGION_BLOCKS))
            .filter(|region| !self.is_continued(*region))
            .try_for_each(|region| self.each_header(region, count, &mut see))
    }

    /// Verifies the headers of a region: each large object lies within the heap, and covers no block that has a header of its own. Sums do not
    /// say that: those of a forged file may fit.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first place where that is not so.
    pub fn verify_lengths_of(&self, region: usize) -> Result<(), Error> {
        let end = ((region + 1) * REGION_BLOCKS) as u32;
        self.each_header(region, self.bytes() / BLOCK_BYTES, |block, header| {
            let Header::Large(count) = header else { return Ok(()) };
            let mut covered = (block.0 + 1..block.plus(count as usize).0.min(end)).map(BlockId);
            match covered.find(|block| self.load(block.header()) != 0) {
                Some(block) => Err(Error::Damaged { at: block.header() as u64, what: USED_TWICE }),
                None => Ok(()),
            }
        })
    }

    /// The same of a region.
    fn each_header(
        &self,
        region: usize,
        blocks: usize,
        mut see: impl FnMut(BlockId, Header) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = ((region + 1) * REGION_BLOCKS).min(blocks);
        let mut block = first_block(region);
        while (block.0 as usize) < end {
            let header = self.header(block)?;
            let count = if let Header::Large(count) = header { count as usize } else { 1 };
            if count > 1 {
                self.check_large(block, count, blocks)?;
            }
            see(block, header)?;
            block = block.plus(count);
        }
        Ok(())
    }

    /// Notes what a block is.
    fn scan_block(&self, blocks: &mut Blocks, block: BlockId, header: Header) {
        match header {
            Header::Free => blocks.set_free(block, 1, true),
            Header::Small(class) => {
                let live = self.count_marks(block, class);
                let mut info = Info { live: live as u32, ..Info::default() };
                if live < class.objects() {
                    info.after = self.found[class.index()].swap(block.0, Release);
                }
                // SAFETY: no thread looks at it before the lock of the blocks is free.
                unsafe { *self.info(block) = info };
                self.set_tag(block, class.tag());
            }
            Header::Large(_) | Header::Lost => {}
        }
    }

    /// Whether a large object can be there.
    pub fn check_large(&self, block: BlockId, count: usize, blocks: usize) -> Result<(), Error> {
        let end = (block.0 as usize).checked_add(count);
        let is_within = block.in_region() + count <= REGION_BLOCKS;
        let is_whole = block == first_block(block.region())
            && block.region() > 0
            && end.is_some_and(|end| end.is_multiple_of(REGION_BLOCKS));
        let fits = end.is_some_and(|end| end <= blocks);
        if fits && (is_within || is_whole) {
            return Ok(());
        }
        Err(Error::Damaged { at: block.header() as u64, what: "the length of a large object" })
    }

    /// Forgets all that is known of blocks, before they are looked at anew.
    pub fn forget_blocks(&self, blocks: &mut Blocks) {
        for index in 0..blocks.count.div_ceil(WORD_BITS) {
            if let Some(word) = blocks.word(index) {
                *word = 0;
            }
        }
        blocks.first = 0;
        self.tags.all().iter().for_each(|tag| tag.store(0, Relaxed));
        self.scanned.store(0, Release);
        self.found.iter().for_each(|head| head.store(0, Relaxed));
        self.note_continued(blocks.count);
    }

    /// Objects of a block whose marks are set.
    fn count_marks(&self, block: BlockId, class: Class) -> usize {
        let words = class.objects().div_ceil(WORD_BITS);
        (0..words).map(|word| self.load(block.bits() + word * 8).count_ones() as usize).sum()
    }
}
