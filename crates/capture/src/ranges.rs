//! Large writes, which are not cut into blocks.
//!
//! Invariants: a range begins and ends at a block's edge. Ranges may overlap up to [`Ranges::merge`]; a new one joins one of the newest
//! that it touches.

use core::slice;

use crate::Refused;
use crate::memory::Memory;
use crate::table::PAGE_SHIFT;

/// Bytes from which on a write is a range.
///
/// Measured (`examples/figures.rs`, blocks of 32 bytes, drain included): a range takes 15 ns once, and 17 ns each time if 40 places are
/// written in turn. 256 bytes as blocks take 63 ns once and 17 ns in turn; 128 bytes 34 and 10 ns. So from 256 bytes on a range is never slower.
pub const RANGE_BYTES: usize = 256;
/// The newest ranges that a new one is compared with: a program that fills a few buffers in turn adds no range for each write.
const NEWEST: usize = 4;
/// Bounds of the number of ranges.
pub const COUNTS: core::ops::RangeInclusive<usize> = 2..=1 << 22;

/// Bytes from `start` to `last`, which is one of them: the end of the address space needs no case of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(C)]
pub struct Run {
    pub start: usize,
    pub last: usize,
}

impl Run {
    /// The run, widened to whole blocks of `1 << shift` bytes.
    #[inline(always)]
    pub fn widened(self, shift: u32) -> Self {
        let within = (1 << shift) - 1;
        Self { start: self.start & !within, last: self.last | within }
    }

    /// Whether the two overlap or are neighbours.
    #[inline(always)]
    pub fn touches(self, other: Self) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
    }

    /// Both, if they touch.
    #[inline(always)]
    pub fn joined(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), last: self.last.max(other.last) }
    }
}

/// Ranges of one batch.
pub struct Ranges {
    memory: Memory,
    count: usize,
    most: usize,
    is_coarse: bool,
    is_lost: bool,
    /// Large writes of all batches.
    noted: u64,
}

impl Ranges {
    /// No ranges, with room for `most`.
    ///
    /// # Errors
    /// [`Refused::Size`], [`Refused::Memory`].
    pub fn new(most: usize) -> Result<Self, Refused> {
        if !COUNTS.contains(&most) {
            return Err(Refused::Size);
        }
        let memory = Memory::new(most * 2, COUNTS.start() * 2)?;
        Ok(Self { memory, count: 0, most, is_coarse: false, is_lost: false, noted: 0 })
    }

    /// Large writes of all batches so far.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// Whether ranges of the batch were widened to pages.
    pub fn is_coarse(&self) -> bool {
        self.is_coarse
    }

    /// Whether there was no room for all ranges of the batch.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Notes a range of whole blocks.
    pub fn note(&mut self, run: Run) {
        self.noted += 1;
        let count = self.count;
        let newest = self.all().get_mut(count.saturating_sub(NEWEST)..).unwrap_or_default();
        if let Some(range) = newest.iter_mut().rev().find(|range| range.touches(run)) {
            *range = range.joined(run);
            return;
        }
        self.push(run);
    }

    /// As [`Ranges::note`], as a range of its own.
    pub fn add(&mut self, run: Run) {
        self.noted += 1;
        self.push(run);
    }

    fn push(&mut self, run: Run) {
        // Nothing is made room for: that would sort all ranges for each write.
        if self.is_lost {
            return;
        }
        if !self.has_room() {
            self.make_room();
        }
        if !self.is_lost {
            // SAFETY: there is room for one range more, and it is open.
            unsafe { self.memory.at().cast::<Run>().add(self.count).write(run) };
            self.count += 1;
        }
    }

    /// Those that there are.
    pub fn all(&mut self) -> &mut [Run] {
        // SAFETY: the first `count` ranges were written. A run is two words.
        unsafe { slice::from_raw_parts_mut(self.memory.at().cast().as_ptr(), self.count) }
    }

    fn has_room(&mut self) -> bool {
        self.count < self.most
            && (self.count * 2 + 2 <= self.memory.words() || self.memory.open_more())
    }

    /// Joins ranges. If half of the room is not free then, ranges become whole pages. If that does not free half, the batch is lost.
    #[cold]
    fn make_room(&mut self) {
        let half = self.count / 2;
        self.merge();
        if self.count > half {
            self.is_coarse = true;
            self.all().iter_mut().for_each(|range| *range = range.widened(PAGE_SHIFT));
            self.merge();
            self.is_lost |= self.count > half;
        }
    }

    /// Sorts the ranges and joins those that touch. Returns them.
    pub fn merge(&mut self) -> &[Run] {
        let all = self.all();
        all.sort_unstable();
        let mut kept = 0_usize;
        for number in 0..all.len() {
            let Some(&range) = all.get(number) else { break };
            match kept.checked_sub(1).and_then(|newest| all.get_mut(newest)) {
                Some(newest) if newest.touches(range) => *newest = newest.joined(range),
                _ => {
                    if let Some(place) = all.get_mut(kept) {
                        *place = range;
                    }
                    kept += 1;
                }
            }
        }
        self.count = kept;
        self.all()
    }

    /// Forgets all ranges: a batch begins.
    pub fn reset(&mut self) {
        (self.count, self.is_coarse, self.is_lost) = (0, false, false);
    }
}
