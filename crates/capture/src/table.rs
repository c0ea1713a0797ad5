//! Blocks without duplicates: the table of Mangosteen, section 4.3.
//!
//! Open addressing with linear probing. An entry is a block's number + 1; 0 is empty. The least block has 16 bytes, so that the number + 1
//! always fits.
//!
//! Where this table differs from the paper's Figure 3:
//! - Entries are block numbers, not aligned addresses: with `a % length` an aligned address of 32-byte blocks reaches one slot in 32.
//! - The last block is that of the last byte, `addr + size - 1`: a write that ends at a block's edge touches no block behind it. A write of
//!   zero bytes touches none.
//! - A list of the used slots makes the cost of a drain that of the noted blocks. Measured with 8192 slots, see the head of `captured`.
//!
//! Invariants:
//! - At most `limit` entries are used, 60 % of the slots, so that each probe ends at an empty slot.
//! - `slots[..count]` are the slots of the used entries, in the order of their first notes; all other entries are 0.
//! - `list[limit..limit + spilled]` are the blocks of the overflow. A block of the table is not in the overflow; one of the overflow may be
//!   there several times. `spilled > 0` only while `count == limit`.

use core::ptr::NonNull;
use core::slice;

use crate::Refused;
use crate::memory::Memory;

/// log2 of the bytes of a page: the block size of a batch that has outgrown the overflow. A page that holds a written byte is readable as a
/// whole; nothing larger is.
pub const PAGE_SHIFT: u32 = 12;
/// The load limit in percent (Mangosteen, section 4.3).
const LOAD_PERCENT: usize = 60;
/// log2 of the neighbouring blocks that share a cache line of 8 entries.
const NEIGHBOURS_SHIFT: u32 = 3;
/// 2^64 divided by the golden ratio: multiples of it are spread most evenly (Knuth, volume 3, 6.4).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bounds of the number of slots.
pub const SLOTS: core::ops::RangeInclusive<usize> = 64..=1 << 24;
/// The most entries of an overflow.
pub const MOST_OVERFLOW: usize = 1 << 26;

/// Figures of a table, over all batches.
#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    pub blocks: u64,
    pub duplicates: u64,
    pub overflowed: u64,
}

/// Blocks of one batch.
pub struct Table {
    entries: NonNull<u64>,
    /// log2 of the bytes of a block, as blocks are noted now.
    shift: u32,
    /// A group's hash, shifted by this, is below the number of groups.
    home_shift: u32,
    mask: usize,
    /// The entry of the block that was noted last; 0: none. A repeated note ends here.
    last: u64,
    count: usize,
    limit: usize,
    slots: NonNull<u32>,
    spilled: usize,
    /// There was no room for a page: what the batch wrote is unknown.
    is_lost: bool,
    /// log2 of the bytes of a block when a batch begins.
    fine_shift: u32,
    /// Room for the blocks of the table when they are drained, and the overflow behind it.
    list: Memory,
    /// Entries of the overflow at most.
    most_spilled: usize,
    figures: Figures,
    /// Keeps the entries and the slots mapped.
    _memory: Memory,
}

// SAFETY: the pointers lead into memory that the value owns.
unsafe impl Send for Table {}

impl Table {
    /// An empty table of `slots` slots, a power of two, for blocks of `1 << shift` bytes, and room for `overflow` blocks more.
    ///
    /// # Errors
    /// [`Refused::Size`], [`Refused::Memory`].
    pub fn new(shift: u32, slots: usize, overflow: usize) -> Result<Self, Refused> {
        let is_valid = (4..=7).contains(&shift)
            && SLOTS.contains(&slots)
            && slots.is_power_of_two()
            && overflow <= MOST_OVERFLOW;
        if !is_valid {
            return Err(Refused::Size);
        }
        let limit = slots * LOAD_PERCENT / 100;
        // A slot number has 4 bytes: the numbers take half the words of `limit` entries.
        let words = slots + limit.div_ceil(2);
        let memory = Memory::new(words, words)?;
        let list = Memory::new(limit + overflow, limit)?;
        Ok(Self {
            entries: memory.at(),
            shift,
            home_shift: u64::BITS - (slots.trailing_zeros() - NEIGHBOURS_SHIFT),
            mask: slots - 1,
            last: 0,
            count: 0,
            limit,
            // SAFETY: the memory has more words than entries.
            slots: unsafe { memory.at().add(slots) }.cast(),
            spilled: 0,
            is_lost: false,
            fine_shift: shift,
            list,
            most_spilled: overflow,
            figures: Figures::default(),
            _memory: memory,
        })
    }

    /// log2 of the bytes of a block, as blocks are noted now.
    #[inline(always)]
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// log2 of the bytes of a block when a batch begins.
    pub fn fine_shift(&self) -> u32 {
        self.fine_shift
    }

    /// Whether there was no room for all pages of the batch.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Figures of all batches so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Notes the blocks from that of the byte at `at` to that of the byte at `last`, which is not before it.
    #[inline(always)]
    pub fn note(&mut self, at: usize, last: usize) {
        let (first, end) = (at as u64 >> self.shift, last as u64 >> self.shift);
        if first != end {
            self.note_several(at, last);
        } else if first + 1 == self.last {
            self.figures.duplicates += 1;
        } else {
            self.note_one(first);
        }
    }

    #[inline(never)]
    fn note_one(&mut self, block: u64) {
        self.insert(block);
    }

    #[inline(never)]
    fn note_several(&mut self, at: usize, last: usize) {
        // Blocks may become pages meanwhile: each turn has the size of its own.
        let mut next = Some(at);
        while let Some(at) = next.filter(|at| *at <= last) {
            let shift = self.shift;
            self.insert(at as u64 >> shift);
            next = (at | ((1 << shift) - 1)).checked_add(1);
        }
    }

    /// The slot at which the probe for a block begins. Eight neighbours begin in one cache line, in their order.
    #[inline(always)]
    fn home(&self, block: u64) -> usize {
        let group = (block >> NEIGHBOURS_SHIFT).wrapping_mul(GOLDEN) >> self.home_shift;
        (group << NEIGHBOURS_SHIFT | block & ((1 << NEIGHBOURS_SHIFT) - 1)) as usize
    }

    #[inline(always)]
    fn insert(&mut self, block: u64) {
        let entry = block + 1;
        let mut slot = self.home(block) & self.mask;
        loop {
            // SAFETY: the mask keeps the number below that of the entries.
            let found = unsafe { self.entries.add(slot).read() };
            if found == entry {
                self.figures.duplicates += 1;
                self.last = entry;
                return;
            }
            if found == 0 {
                break;
            }
            slot = (slot + 1) & self.mask;
        }
        if self.count == self.limit {
            return self.spill(block);
        }
        // SAFETY: as above; `count < limit`, and there is room for `limit` slot numbers.
        unsafe {
            self.entries.add(slot).write(entry);
            self.slots.add(self.count).write(slot as u32);
        }
        self.count += 1;
        self.last = entry;
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, block: u64) {
        self.figures.overflowed += 1;
        if self.is_lost {
            return;
        }
        if !self.has_room() {
            let shift = self.shift;
            self.make_room();
            if self.is_lost {
                return;
            }
            if self.shift != shift {
                // Nothing becomes coarser than a page: this note does not come here again.
                return self.insert(block >> (self.shift - shift));
            }
        }
        // SAFETY: the word is open, as `has_room` found or `make_room` has left it.
        unsafe { self.list.at().add(self.limit + self.spilled).write(block) };
        self.spilled += 1;
        self.last = block + 1;
    }

    /// Whether the overflow has room for one more block; opens memory for it.
    fn has_room(&mut self) -> bool {
        self.spilled < self.most_spilled
            && (self.limit + self.spilled < self.list.words() || self.list.open_more())
    }

    /// Removes duplicates of the overflow. If half of it is not free then, blocks become pages. If that does not free half, the batch is lost.
    fn make_room(&mut self) {
        let (before, half) = (self.spilled, self.spilled / 2);
        // SAFETY: the words of the overflow were written, and `self` is borrowed exclusively.
        let overflow =
            unsafe { slice::from_raw_parts_mut(self.list.at().as_ptr().add(self.limit), before) };
        self.spilled = sort(overflow);
        if self.spilled < before && self.spilled <= half {
            return;
        }
        let (more, limit) = (PAGE_SHIFT.saturating_sub(self.shift), self.limit);
        let blocks = self.take();
        if more == 0 {
            self.is_lost = true;
            return;
        }
        blocks.iter_mut().for_each(|block| *block >>= more);
        let pages = sort(blocks);
        self.shift = PAGE_SHIFT;
        if pages > limit + half {
            self.is_lost = true;
            return;
        }
        for number in 0..pages {
            // SAFETY: `pages` words of the list were written. The first `limit` pages go to the table; a later one goes to the overflow, to the
            // word that it is read from. So no page is overwritten before it is read.
            let page = unsafe { self.list.at().add(number).read() };
            self.insert(page);
        }
    }

    /// Takes out all blocks, in no order. Those of the overflow may be there several times. The table is empty then; the block size and
    /// [`Table::is_lost`] stay up to [`Table::reset`].
    pub fn take(&mut self) -> &mut [u64] {
        for number in 0..self.count {
            // SAFETY: `slots[..count]` are the slots of used entries, and the list is open for `limit` words at least.
            unsafe {
                let entry = self.entries.add(self.slots.add(number).read() as usize);
                self.list.at().add(number).write(entry.read() - 1);
                entry.write(0);
            }
        }
        // The overflow lies right behind a full table's blocks.
        let len = self.count + self.spilled;
        (self.count, self.spilled, self.last) = (0, 0, 0);
        // SAFETY: the first `count` words were written above, and those of the overflow when they were noted. There is none if the table was not
        // full.
        unsafe { slice::from_raw_parts_mut(self.list.at().as_ptr(), len) }
    }

    /// Counts `blocks` blocks of the batch that ended, and begins the next one with small blocks.
    pub fn reset(&mut self, blocks: usize) {
        self.figures.blocks += blocks as u64;
        (self.shift, self.is_lost, self.last) = (self.fine_shift, false, 0);
    }
}

/// Sorts, and moves the numbers without duplicates to the front. Returns how many these are.
fn sort(all: &mut [u64]) -> usize {
    all.sort_unstable();
    let mut kept = 0;
    for number in 0..all.len() {
        let Some(&value) = all.get(number) else { break };
        if kept > 0 && all.get(kept - 1) == Some(&value) {
            continue;
        }
        if let Some(place) = all.get_mut(kept) {
            *place = value;
            kept += 1;
        }
    }
    kept
}
