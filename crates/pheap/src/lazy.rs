//! Lines of auxiliary metadata that were changed and not written back yet (section 8.1): they need to be durable only when the
//! heap is closed, and to close it must not take longer the larger it is. So the table that remembers them is bounded; a
//! line that would need the place of another has that written back.
//!
//! On a medium where lines are not what becomes durable ([`Medium::has_lines`]) nothing is remembered.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};

use spandrel_pmem::{LINE_BYTES, Medium};

/// Places of the table: closing writes back no more lines than that.
pub const PLACES: usize = 4096;

/// See the head of this file.
pub struct Lazy {
    /// The numbers of the lines, plus 1.
    lines: [AtomicU32; PLACES],
    evicted: AtomicU64,
    /// No line has to be written back.
    is_off: AtomicBool,
}

impl Lazy {
    /// Remembers no line from now on: the medium has none.
    pub fn turn_off(&self) {
        self.is_off.store(true, Relaxed);
    }

    /// Notes that a line was changed.
    #[inline]
    pub fn touch(&self, medium: &impl Medium, at: usize) {
        if self.is_off.load(Relaxed) {
            return;
        }
        // A heap has fewer than 2^32 lines of mark bits: they are numbered by what lies between them.
        let line = at / LINE_BYTES;
        let number = Self::numbered(line);
        let place = &self.lines[number as usize % PLACES];
        // The change of the line comes before the look at its place, for all processors. x86 lets a load pass the store before it: another
        // thread could take the place and write the line back between the two, without the change, which nothing would write back then.
        // After the fence a thread that takes the place later writes back the change as well. The swap below is such a fence itself.
        fence(SeqCst);
        if place.load(Relaxed) == number {
            return;
        }
        let before = place.swap(number, AcqRel);
        if before != 0 && before != number {
            medium.write_back(Self::line(before) * LINE_BYTES, LINE_BYTES);
            self.evicted.fetch_add(1, Relaxed);
        }
    }

    /// Lines of mark bits lie in the first 576 KiB of each 64 MiB: they are numbered densely, from 1 on.
    fn numbered(line: usize) -> u32 {
        const REGION: usize = crate::layout::REGION_BYTES / LINE_BYTES;
        const META: usize = crate::layout::FIRST_BLOCK * crate::layout::BLOCK_BYTES / LINE_BYTES;
        debug_assert!(line % REGION < META);
        (line / REGION * META + line % REGION + 1) as u32
    }

    fn line(number: u32) -> usize {
        const REGION: usize = crate::layout::REGION_BYTES / LINE_BYTES;
        const META: usize = crate::layout::FIRST_BLOCK * crate::layout::BLOCK_BYTES / LINE_BYTES;
        let index = number as usize - 1;
        index / META * REGION + index % META
    }

    /// Has all lines written back. They are durable after a fence.
    pub fn write_back(&self, medium: &impl Medium) {
        for place in &self.lines {
            let number = place.swap(0, AcqRel);
            if number != 0 {
                medium.write_back(Self::line(number) * LINE_BYTES, LINE_BYTES);
            }
        }
    }

    /// How many lines had to be written back before the heap was closed.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BlockId, REGION_BLOCKS};

    #[test]
    fn lines_of_mark_bits_have_numbers_of_their_own() {
        for block in [0, 5, REGION_BLOCKS - 1, 3 * REGION_BLOCKS + 9, 77 * REGION_BLOCKS] {
            let at = BlockId(block as u32).bits();
            assert_eq!(Lazy::line(Lazy::numbered(at / LINE_BYTES)), at / LINE_BYTES);
        }
    }
}
