//! Objects and their mark bits: a bit that is set says that the object is allocated or in a thread's cache (section 5.1).
//!
//! Bits change under the lock of the block's class. They are persistent, and need not be durable before the heap is closed.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

use spandrel_pmem::Medium;

use crate::blocks::Info;
use crate::class::{CLASSES, Class};
use crate::error::Error;
use crate::header::Header;
use crate::layout::{BlockId, REGION_BYTES};
use crate::partial::{Listed, Partial};
use crate::shared::Core;
use crate::sums::{delta, marks_sum_at};

const WORD_BITS: usize = 64;

impl<M: Medium> Core<M> {
    /// Takes as many free objects as fit of one block (the incremental sweep of section 6.1), at least one, for a thread of a group.
    ///
    /// # Errors
    /// [`Error::is_full`].
    pub fn take_objects(
        &self,
        class: Class,
        group: usize,
        into: &mut [NonNull<u8>],
    ) -> Result<usize, Error> {
        let mut partial = self.partial[class.index()].lock();
        let block = loop {
            self.adopt(class, &mut partial);
            if let Some(block) = self.first_with_room(&mut partial, group) {
                break block;
            }
            let is_more = self.scan_next(&mut self.blocks.lock())?;
            if !is_more {
                break self.new_block(class, group, &mut partial)?;
            }
        };
        // SAFETY: the class's lock is held.
        let info = unsafe { &mut *self.info(block) };
        let (mut count, mut changed) = (0, 0);
        let words = class.objects().div_ceil(WORD_BITS);
        let first = info.first_word as usize;
        for word in first..words {
            let at = block.bits() + word * 8;
            let marks = self.load(at);
            let mut free = !marks & valid(class, word);
            let mut taken = 0;
            while free != 0 && count < into.len() {
                let bit = free.trailing_zeros();
                free &= free - 1;
                taken |= 1 << bit;
                let object = word * WORD_BITS + bit as usize;
                into[count] = self.at(block.start() + object * class.bytes());
                count += 1;
            }
            if taken != 0 {
                self.store(at, marks | taken);
                changed ^= delta(at, marks, marks | taken);
                self.lazy.touch(&self.medium, at);
            }
            info.first_word = word as u16;
            if free != 0 {
                break;
            }
        }
        self.note_marks(block, changed);
        let was_empty = info.live == 0;
        let is_full = info.live as usize + count >= class.objects();
        if was_empty || is_full {
            self.unlist(block, info, &mut partial);
        }
        info.live += count as u32;
        if was_empty && !is_full {
            self.list(block, info, &mut partial);
        }
        if count == 0 {
            // What was found when the block was looked at is not there: bits and count disagree.
            return Err(Error::Damaged {
                at: block.bits() as u64,
                what: "the mark bits of a block",
            });
        }
        Ok(count)
    }

    /// Gives objects of a class back to their blocks.
    ///
    /// # Errors
    /// [`Error::DoubleFree`]: one of them was free already. All others are back.
    pub fn return_objects(&self, class: Class, objects: &[NonNull<u8>]) -> Result<(), Error> {
        self.scan_all_of(objects)?;
        let mut outcome = Ok(());
        let mut partial = self.partial[class.index()].lock();
        self.adopt(class, &mut partial);
        let mut rest = objects;
        // The block of the last word that was changed, and by how much its sum changes.
        let mut changed: Option<(BlockId, u64)> = None;
        while let Some((first, others)) = rest.split_first() {
            // Those of the same word at once: what was allocated together is often freed together.
            let (block, word, mut bits) = self.mark_of(class, *first);
            let mut count = 1;
            rest = others;
            while let Some((next, others)) = rest.split_first() {
                let (_, next_word, bit) = self.mark_of(class, *next);
                if next_word != word || bits & bit != 0 {
                    break;
                }
                bits |= bit;
                count += 1;
                rest = others;
            }
            let marks = self.load(word);
            if marks & bits != bits {
                let is_free = |object: &&NonNull<u8>| {
                    let (_, at, bit) = self.mark_of(class, **object);
                    at == word && marks & bit == 0
                };
                let twice =
                    objects.iter().find(is_free).map_or(0, |object| object.as_ptr() as usize);
                outcome = Err(Error::DoubleFree(twice));
                count = (marks & bits).count_ones();
                if count == 0 {
                    continue;
                }
            }
            self.store(word, marks & !bits);
            let by = delta(word, marks, marks & !bits);
            match &mut changed {
                Some((of, sum)) if *of == block => *sum ^= by,
                other => {
                    if let Some((of, sum)) = other.replace((block, by)) {
                        self.note_marks(of, sum);
                    }
                }
            }
            self.lazy.touch(&self.medium, word);
            self.note_returned(block, (word - block.bits()) / 8, count, &mut partial);
        }
        if let Some((of, sum)) = changed {
            self.note_marks(of, sum);
        }
        outcome
    }

    /// Changes the sum of a block's mark bits by `by`, as the bits have changed.
    fn note_marks(&self, block: BlockId, by: u64) {
        if by != 0 {
            self.change_marks_sum(block, by);
            self.lazy.touch(&self.medium, marks_sum_at(block));
        }
    }

    /// Looks at the regions that these objects lie in and that were not looked at yet.
    fn scan_all_of(&self, objects: &[NonNull<u8>]) -> Result<(), Error> {
        if self.scanned.load(Acquire) * REGION_BYTES >= self.bytes() {
            return Ok(());
        }
        for object in objects {
            self.scan_to(BlockId::of(self.offset(object.as_ptr())).region())?;
        }
        Ok(())
    }

    /// The block of an object, where the word with its mark bit is, and the bit.
    #[inline]
    fn mark_of(&self, class: Class, object: NonNull<u8>) -> (BlockId, usize, u64) {
        let at = self.offset(object.as_ptr());
        let block = BlockId::of(at);
        let number = class.object_at(at - block.start());
        (block, block.bits() + number / WORD_BITS * 8, 1 << (number % WORD_BITS))
    }

    /// `count` objects of a block became free, with marks in one word.
    fn note_returned(&self, block: BlockId, word: usize, count: u32, partial: &mut Partial) {
        // SAFETY: the class's lock is held.
        let info = unsafe { &mut *self.info(block) };
        info.live -= count;
        info.first_word = info.first_word.min(word as u16);
        if info.live == 0 {
            self.unlist(block, info, partial);
        }
        if info.listed == Listed::Nowhere {
            self.list(block, info, partial);
        }
    }

    /// A block that was free, for a class, in its list. One line is written back and one fence waited for.
    fn new_block(
        &self,
        class: Class,
        group: usize,
        partial: &mut Partial,
    ) -> Result<BlockId, Error> {
        let block = self.take_blocks(1)?;
        // Its sum says that none is set: a bit that is would be an object that is never handed out.
        for at in (block.bits()..block.bits() + class.objects().div_ceil(WORD_BITS) * 8).step_by(8)
        {
            if self.load(at) != 0 {
                self.store(at, 0);
            }
        }
        self.set_header(block, Header::Small(class));
        self.set_tag(block, class.tag());
        self.counters.fresh_blocks.fetch_add(1, Relaxed);
        // SAFETY: no other thread has the block, and the class's lock is held.
        let info = unsafe { &mut *self.info(block) };
        *info = Info { group: group as u8, ..Info::default() };
        self.list(block, info, partial);
        Ok(block)
    }

    /// Looks at all blocks: those without objects become free when the heap is closed.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn look_at_all(&self) -> Result<(), Error> {
        self.scan_to(usize::MAX)?;
        for class in (0..CLASSES as u8).filter_map(Class::from_number) {
            self.adopt(class, &mut self.partial[class.index()].lock());
        }
        Ok(())
    }

    /// Puts blocks that were found with free objects into their class's list.
    fn adopt(&self, class: Class, partial: &mut Partial) {
        let found = &self.found[class.index()];
        if found.load(Relaxed) == 0 {
            return;
        }
        let blocks = self.blocks.lock();
        let mut next = found.swap(0, Acquire);
        drop(blocks);
        while next != 0 {
            let block = BlockId(next);
            // SAFETY: the class's lock is held, and what was found is in no other list any more.
            let info = unsafe { &mut *self.info(block) };
            next = info.after;
            self.list(block, info, partial);
        }
    }
}

/// The bits of a word that stand for objects.
pub fn valid(class: Class, word: usize) -> u64 {
    match class.objects().saturating_sub(word * WORD_BITS) {
        0 => 0,
        left if left < WORD_BITS => (1 << left) - 1,
        _ => u64::MAX,
    }
}
