//! `HugeAllocator`: what it gives out has one owner, and it grows only when nothing fits.

extern crate std;

use std::vec;
use std::vec::Vec;

use spandrel_pages::{HugeLength, HugePageId};

use super::{Instruction, Kernel, place_in, rows};
use crate::huge_allocator::HugeAllocator;
use crate::ranges::Range;
use crate::tracker::{Table, Tracker};

const HUGEPAGES: u32 = 96;

struct Model {
    /// Below the frontier, and free.
    free: Vec<bool>,
    held: Vec<Range>,
    frontier: u32,
}

impl Model {
    fn give(&mut self, range: Range, count: u32) {
        assert_eq!(range.count.0, count);
        for page in range.first.0..range.end().0 {
            let free = core::mem::replace(&mut self.free[page as usize], false);
            assert!(free || page >= self.frontier, "{page} is given twice");
        }
        self.held.push(range);
    }

    /// The frontier may have moved to `end`; what was passed is free unless it is held.
    fn move_frontier(&mut self, end: u32) {
        assert!(self.frontier <= end && end <= HUGEPAGES);
        for page in self.frontier..end {
            self.free[page as usize] =
                !self.held.iter().any(|r| r.first.0 <= page && page < r.end().0);
        }
        self.frontier = end;
    }

    /// The free range that ends at the frontier begins here.
    fn last_row(&self) -> u32 {
        let last = rows(&self.free).pop().filter(|(at, n)| at + n == self.frontier);
        last.map_or(self.frontier, |(at, _)| at)
    }

    fn compare(&self, vacant: &HugeAllocator, table: &Table) {
        let rows = rows(&self.free);
        for &(at, n) in &rows {
            let range = Some(Range::new(at, n));
            assert_eq!(vacant.free.starting_at(table, HugePageId(at)), range);
            assert_eq!(vacant.free.ending_at(table, HugePageId(at + n)), range);
        }
        assert_eq!(vacant.free.total.0, rows.iter().map(|row| row.1).sum::<u32>());
        assert_eq!(vacant.free.largest(table).0, rows.iter().map(|row| row.1).max().unwrap_or(0));
        assert_eq!(vacant.frontier.0, self.frontier);
    }
}

pub(super) fn run(instructions: &[Instruction]) {
    let mut records = vec![Tracker::default(); HUGEPAGES as usize];
    let mut table = Table::new(&mut records);
    let mut vacant = HugeAllocator::new();
    let mut model = Model { free: vec![false; HUGEPAGES as usize], held: Vec::new(), frontier: 0 };
    for step in instructions {
        let mut kernel = Kernel { refuses: step.refused(), ..Kernel::default() };
        match step.kind(5) {
            0 | 1 => {
                let (count, align) = (step.count(24), step.align(5));
                let got =
                    vacant.allocate(&mut table, &mut kernel, HugeLength(count), HugeLength(align));
                let rows = rows(&model.free);
                // A range that is longer by the alignment always does.
                let surely = rows.iter().any(|row| row.1 >= count + align - 1);
                let at_the_end =
                    place_in((model.last_row(), HUGEPAGES - model.last_row()), count, align);
                match got {
                    Some(range) => {
                        assert!(range.first.0.is_multiple_of(align));
                        assert!(!surely || vacant.frontier.0 == model.frontier, "grew for nothing");
                        model.give(range, count);
                    }
                    None => assert!(!surely && (kernel.refuses || at_the_end.is_none())),
                }
                model.move_frontier(vacant.frontier.0);
            }
            2 => {
                // Growth: what follows something that is held.
                let Some(index) = step.index(model.held.len()) else { continue };
                let range = Range::new(model.held[index].end().0, step.count(24));
                let open = range.end().0 <= HUGEPAGES
                    && (range.first.0..range.end().0.min(model.frontier))
                        .all(|page| model.free[page as usize]);
                let grows = range.end().0 > model.frontier;
                let got = vacant.allocate_at(&mut table, &mut kernel, range);
                assert_eq!(got, open && !(grows && kernel.refuses), "{range:?}");
                if got {
                    model.give(range, range.count.0);
                }
                model.move_frontier(vacant.frontier.0);
            }
            _ => {
                if let Some(index) = step.index(model.held.len()) {
                    let range = model.held.swap_remove(index);
                    vacant.free.insert(&mut table, range);
                    model.free[range.first.0 as usize..range.end().0 as usize].fill(true);
                }
            }
        }
        model.compare(&vacant, &table);
    }
}
