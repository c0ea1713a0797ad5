//! Each part of the page heap against a model of its own: random instructions, a kernel that may
//! refuse, everything compared after each step. For property tests and fuzzers only.

extern crate std;

mod huge_allocator;
mod huge_cache;
mod huge_filler;
mod huge_region;

use std::vec::Vec;

use spandrel_pages::{HugeLength, HugePageId, Length, PageId};

use crate::bits::PAGES;
use crate::memory::{Collapse, Memory};
use crate::order::Order;

/// What is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Component {
    /// Unbacked address space (4.2).
    HugeAllocator,
    /// Backed, empty huge pages (4.3).
    HugeCache,
    /// Spans on single huge pages (4.4), in one of its orders.
    HugeFiller(Order),
    /// Spans across huge pages (4.5).
    HugeRegion,
}

/// One step. What the numbers mean is the component's business: every number is an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What to do, and whether the kernel refuses this time.
    pub what: u8,
    /// Mostly a size.
    pub first: u16,
    /// Mostly a choice among what is there.
    pub second: u16,
}

impl Instruction {
    /// Of the kernel's answers one in 16 is a refusal.
    fn refused(self) -> bool {
        self.what >> 4 == 15
    }

    /// One of `n` kinds.
    fn kind(self, n: u8) -> u8 {
        self.what % 16 % n
    }

    /// A count from 1 to `most`: every other time a small one.
    fn count(self, most: u16) -> u32 {
        let most = if self.first & 1 == 0 { most.min(4) } else { most };
        u32::from((self.first >> 1) % most) + 1
    }

    /// A power of two up to `1 << log`; four times in five 1.
    fn align(self, log: u16) -> u32 {
        if self.second.is_multiple_of(5) { 1 << (self.second / 5 % (log + 1)) } else { 1 }
    }

    /// An index into something of this length, if it has any.
    fn index(self, length: usize) -> Option<usize> {
        usize::from(self.second).checked_rem(length)
    }
}

/// Runs the instructions on an empty component.
///
/// # Panics
/// When the component and its model differ.
pub fn run(component: Component, instructions: &[Instruction]) {
    match component {
        Component::HugeAllocator => huge_allocator::run(instructions),
        Component::HugeCache => huge_cache::run(instructions),
        Component::HugeFiller(order) => huge_filler::run(order, instructions),
        Component::HugeRegion => huge_region::run(instructions),
    }
}

/// A kernel that remembers what it was asked to do, and refuses when told to.
#[derive(Default)]
struct Kernel {
    refuses: bool,
    backed: Vec<HugePageId>,
    unbacked: Vec<(PageId, u32)>,
}

impl Kernel {
    /// What went back, as whole huge pages in order of address.
    fn unbacked_hugepages(&self) -> Vec<u32> {
        let mut pages = Vec::new();
        for (first, count) in &self.unbacked {
            assert!(first.offset() == 0 && count.is_multiple_of(PAGES));
            pages.extend(first.hugepage().0..first.hugepage().0 + count / PAGES);
        }
        pages.sort_unstable();
        pages
    }
}

impl Memory for Kernel {
    fn extend(&mut self, _: HugePageId) -> bool {
        !self.refuses
    }

    fn back(&mut self, first: HugePageId, count: HugeLength) -> bool {
        if !self.refuses {
            self.backed.extend((0..count.0).map(|n| first.after(HugeLength(n))));
        }
        !self.refuses
    }

    fn unback(&mut self, first: PageId, count: Length) -> bool {
        if !self.refuses {
            self.unbacked.push((first, count.0));
        }
        !self.refuses
    }

    fn collapse(&mut self, _: HugePageId) -> Collapse {
        Collapse::Unsupported
    }
}

/// The stretches of `true`, as first and length.
fn rows(of: &[bool]) -> Vec<(u32, u32)> {
    let mut rows = Vec::new();
    let mut at = 0;
    for same in of.chunk_by(|a, b| a == b) {
        if same.first() == Some(&true) {
            rows.push((at, same.len() as u32));
        }
        at += same.len() as u32;
    }
    rows
}

/// The lowest place for `count` at a multiple of `align` in a stretch.
fn place_in((first, length): (u32, u32), count: u32, align: u32) -> Option<u32> {
    let at = first.next_multiple_of(align);
    (at + count <= first + length).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instructions() -> impl Strategy<Value = Vec<Instruction>> {
        let one = any::<(u8, u16, u16)>();
        let one = one.prop_map(|(what, first, second)| Instruction { what, first, second });
        prop::collection::vec(one, 1..400)
    }

    /// `PROPTEST_CASES` asks for more; everything is compared after every instruction.
    fn config() -> ProptestConfig {
        let asked = std::env::var_os("PROPTEST_CASES").is_some();
        let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        if asked { default } else { ProptestConfig { cases: 64, ..default } }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn the_huge_allocator_is_as_its_model(instructions in instructions()) {
            run(Component::HugeAllocator, &instructions);
        }

        #[test]
        fn the_huge_cache_is_as_its_model(instructions in instructions()) {
            run(Component::HugeCache, &instructions);
        }

        #[test]
        fn the_huge_filler_is_as_its_model(
            order in prop::sample::select(std::vec![
                Order::RangeThenAllocations,
                Order::RangeThenPages,
                Order::AllocationsThenRange,
                Order::BestFit,
            ]),
            instructions in instructions(),
        ) {
            run(Component::HugeFiller(order), &instructions);
        }

        #[test]
        fn a_huge_region_is_as_its_model(instructions in instructions()) {
            run(Component::HugeRegion, &instructions);
        }
    }
}
