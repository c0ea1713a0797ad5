//! What a batch has written: a table of blocks, and ranges.
//!
//! A drain takes the blocks out of the table by its list of used slots, sorts them, and joins them with the ranges to runs.
//!
//! Measured, for a table of 8192 slots and sparse blocks, the median of 301 drains:
//!
//! | blocks | list and sort | list, neighbours looked up | walk through all slots and sort | the same by cache lines |
//! |---|---|---|---|---|
//! | 4 | 40 ns | 30 ns | 4246 ns | 721 ns |
//! | 64 | 471 ns | 180 ns | 5519 ns | 2524 ns |
//! | 400 | 3275 ns | 1632 ns | 10446 ns | 10046 ns |
//! | 2000 | 18147 ns | 25008 ns | 36926 ns | 34642 ns |
//!
//! The sort stays: its runs are in order of address, so that blocks within ranges are joined by one pass over both, and a replica applies
//! them in the order of its pages.

use core::ptr;

use crate::ranges::{RANGE_BYTES, Ranges, Run};
use crate::table::{PAGE_SHIFT, Table};
use crate::{Refused, Statistics};

/// Sizes of a [`Captured`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of a block: 16, 32, 64 or 128. A block is the least that is named.
    pub block_bytes: usize,
    /// Slots of the table, a power of two from 64 to 2^24. Blocks beyond 60 % of them go to the overflow.
    pub slots: usize,
    /// Blocks of the overflow, at most 2^26. A batch that needs more is noted in whole pages.
    pub overflow: usize,
    /// Ranges, 2 to 2^22. A batch that needs more is noted in whole pages.
    pub ranges: usize,
    /// Bytes from which on a write is a range, 1 at least; [`usize::MAX`]: none is, and large writes are noted block by block.
    pub range_bytes: usize,
    /// Each write is a range of its own, as often as it comes: what a log costs without the table. For measurements.
    pub has_repeats: bool,
}

impl Default for Sizes {
    /// Blocks of 32 bytes (the best of Mangosteen, section 4.3); 8192 slots, 64 KiB, which a processor's second cache holds; an overflow of
    /// 8 MiB and ranges of 16 MiB, which take memory when they are used: a translated copy of 256 bytes or more is a range.
    fn default() -> Self {
        Self {
            block_bytes: 32,
            slots: 8192,
            overflow: 1 << 20,
            ranges: 1 << 20,
            range_bytes: RANGE_BYTES,
            has_repeats: false,
        }
    }
}

/// How exact the runs of a batch are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Extent {
    /// Each block of a run was written.
    Blocks,
    /// Each page of a run was written.
    Pages,
    /// No run was named: any byte may have been written.
    Everything,
}

/// What one batch has written.
pub struct Captured {
    table: Table,
    ranges: Ranges,
    /// Bytes of the longest write that is noted as blocks.
    most: usize,
    has_repeats: bool,
    coarse: u64,
    whole: u64,
}

impl Captured {
    /// Nothing, with room as `sizes` has it.
    ///
    /// # Errors
    /// [`Refused::Size`], [`Refused::Memory`].
    pub fn new(sizes: Sizes) -> Result<Self, Refused> {
        if !sizes.block_bytes.is_power_of_two() || sizes.range_bytes == 0 {
            return Err(Refused::Size);
        }
        let table = Table::new(sizes.block_bytes.trailing_zeros(), sizes.slots, sizes.overflow)?;
        let has_repeats = sizes.has_repeats;
        let most = if has_repeats { 0 } else { sizes.range_bytes - 1 };
        Ok(Self {
            table,
            ranges: Ranges::new(sizes.ranges)?,
            most,
            has_repeats,
            coarse: 0,
            whole: 0,
        })
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        1 << self.table.fine_shift()
    }

    /// Notes a write of `bytes` bytes at `at`. A write beyond the end of the address space ends there.
    #[inline]
    pub fn note(&mut self, at: usize, bytes: usize) {
        let before = bytes.wrapping_sub(1);
        if before < self.most {
            self.table.note(at, at.saturating_add(before));
        } else if bytes > 0 {
            self.note_range(at, at.saturating_add(before));
        }
    }

    #[cold]
    #[inline(never)]
    fn note_range(&mut self, start: usize, last: usize) {
        let run = Run { start, last }.widened(self.table.fine_shift());
        if self.has_repeats { self.ranges.add(run) } else { self.ranges.note(run) }
    }

    /// Calls `see` with the address and the number of bytes of each run, in order of address, and forgets all. Runs are disjoint, and no two
    /// touch: blocks and ranges that overlap or touch are one run (but see [`Sizes::has_repeats`]). Complexity: that of a sort of the noted blocks.
    pub fn drain(&mut self, mut see: impl FnMut(*const u8, usize)) -> Extent {
        let is_coarse = self.table.shift() == PAGE_SHIFT || self.ranges.is_coarse();
        let is_lost = self.table.is_lost() || self.ranges.is_lost();
        let shift = self.table.shift();
        let blocks = self.table.take();
        let count = blocks.len();
        if self.has_repeats && !is_lost {
            self.ranges.all().iter().for_each(|run| name(*run, &mut see));
        } else if !is_lost {
            blocks.sort_unstable();
            let mut blocks = blocks.iter().map(|block| {
                let start = (*block as usize) << shift;
                Run { start, last: start }.widened(shift)
            });
            join(&mut blocks, self.ranges.merge(), &mut see);
        }
        self.table.reset(count);
        self.ranges.reset();
        match (is_lost, is_coarse) {
            (true, _) => {
                self.whole += 1;
                Extent::Everything
            }
            (_, true) => {
                self.coarse += 1;
                Extent::Pages
            }
            _ => Extent::Blocks,
        }
    }

    /// Figures of all batches so far.
    pub fn statistics(&self) -> Statistics {
        let figures = self.table.figures();
        Statistics {
            blocks: figures.blocks,
            duplicates: figures.duplicates,
            ranges: self.ranges.noted(),
            overflowed: figures.overflowed,
            coarse: self.coarse,
            whole: self.whole,
        }
    }
}

/// Joins two sorted sequences of runs.
fn join(
    blocks: &mut dyn Iterator<Item = Run>,
    ranges: &[Run],
    see: &mut impl FnMut(*const u8, usize),
) {
    let (mut ranges, mut open) = (ranges.iter().copied().peekable(), None::<Run>);
    let mut next_block = blocks.next();
    loop {
        let next = match (next_block, ranges.peek()) {
            (Some(block), Some(range)) if *range < block => ranges.next(),
            (Some(block), _) => {
                next_block = blocks.next();
                Some(block)
            }
            (None, _) => ranges.next(),
        };
        match (open, next) {
            (Some(run), Some(next)) if run.touches(next) => open = Some(run.joined(next)),
            (run, next) => {
                if let Some(run) = run {
                    name(run, see);
                }
                open = next;
                if next.is_none() {
                    return;
                }
            }
        }
    }
}

/// Names a run. The whole address space, whose length no number has, is two.
pub fn name(run: Run, see: &mut (impl FnMut(*const u8, usize) + ?Sized)) {
    let at = |address| ptr::with_exposed_provenance(address);
    match (run.last - run.start).checked_add(1) {
        Some(bytes) => see(at(run.start), bytes),
        None => {
            let half = usize::MAX / 2 + 1;
            see(at(0), half);
            see(at(half), half);
        }
    }
}
