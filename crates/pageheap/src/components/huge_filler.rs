//! `HugeFiller`: spans lie on free pages of huge pages of their kind, on the huge page that the order
//! prefers, in the free range that fits best, and what is called zeroed is.

extern crate std;

use std::vec;
use std::vec::Vec;

use spandrel_pages::HugePageId;

use super::{Instruction, place_in, rows};
use crate::bits::PAGES;
use crate::huge_filler::{Contribution, HugeFiller, Placed};
use crate::lists::{CHUNKS, LISTS, RANGES};
use crate::order::{Order, chunk};
use crate::tracker::{Table, Tracker, flag};

const HUGEPAGES: u32 = 24;

/// A span, or the tail of a large one, which is no span by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    page: HugePageId,
    at: u32,
    pages: u32,
    tail: bool,
}

/// A huge page in the filler.
struct Page {
    used: Vec<bool>,
    /// Written since they came from the kernel.
    dirty: Vec<bool>,
    /// Went back, or never came.
    gone: Vec<bool>,
    allocations: u16,
    dense: bool,
    donated: bool,
    broken: bool,
}

impl Page {
    fn free(&self) -> Vec<(u32, u32)> {
        rows(&self.used.iter().map(|used| !used).collect::<Vec<_>>())
    }

    fn longest(&self) -> u32 {
        self.free().iter().map(|row| row.1).max().unwrap_or(0)
    }

    fn count(of: &[bool]) -> u32 {
        of.iter().filter(|it| **it).count() as u32
    }

    /// Where a request that may use it looks first: whole ones, donated ones, those with backed free
    /// pages, the others.
    fn rank(&self) -> u32 {
        let partial = Self::count(&self.used) + Self::count(&self.gone) < PAGES;
        match (self.broken, self.donated, partial) {
            (false, false, _) => 0,
            (false, true, _) => 1,
            (true, _, true) => 2,
            (true, _, false) => 3,
        }
    }

    /// Its place among those of a rank.
    fn place(&self, order: Order) -> u32 {
        let used = Self::count(&self.used) as u16;
        match order {
            _ if self.dense => (255 - u32::from(self.allocations)) / 4,
            Order::RangeThenAllocations | Order::BestFit => {
                CHUNKS * self.longest() + chunk(self.allocations)
            }
            Order::RangeThenPages => CHUNKS * self.longest() + chunk(used),
            Order::AllocationsThenRange => RANGES * chunk(self.allocations) + self.longest(),
        }
    }

    /// Gives out pages; says whether they were all clean.
    fn give(&mut self, at: u32, pages: u32) -> bool {
        let mut clean = true;
        for at in at as usize..(at + pages) as usize {
            assert!(!core::mem::replace(&mut self.used[at], true), "{at} is given twice");
            self.gone[at] = false;
            clean &= !core::mem::replace(&mut self.dirty[at], true);
        }
        clean
    }
}

struct Model {
    order: Order,
    pages: Vec<Option<Page>>,
    parts: Vec<Part>,
}

impl Model {
    fn page(&mut self, page: HugePageId) -> &mut Page {
        self.pages[page.0 as usize].as_mut().expect("a huge page that is in the filler")
    }

    /// The huge pages that have room for a request: rank, place, closest fit, number.
    fn candidates(&self, pages: u32, dense: bool) -> Vec<(u32, u32, u32, usize)> {
        let with_room = self.pages.iter().enumerate().filter_map(|(number, page)| {
            let page = page.as_ref().filter(|page| page.dense == dense)?;
            let fit = page.free().iter().map(|row| row.1).filter(|n| *n >= pages).min()?;
            Some((page.rank(), page.place(self.order), fit, number))
        });
        with_room.collect()
    }

    /// Is the huge page that was chosen the one that the order prefers?
    fn judge(&self, placed: Placed, pages: u32, dense: bool) {
        let candidates = self.candidates(pages, dense);
        let number = placed.first.hugepage().0 as usize;
        let chosen = *candidates.iter().find(|c| c.3 == number).expect("one with room");
        let best = if self.order == Order::BestFit && !dense {
            candidates.iter().min_by_key(|c| (c.0, c.2, c.3))
        } else {
            candidates.iter().min_by_key(|c| (c.0, c.1))
        };
        let best = *best.expect("there is one");
        if self.order == Order::BestFit && !dense {
            assert_eq!((chosen.0, chosen.2, chosen.3), (best.0, best.2, best.3));
        } else {
            assert_eq!((chosen.0, chosen.1), (best.0, best.1));
        }
        let free = self.pages[number].as_ref().expect("it is here").free();
        let row =
            free.iter().find(|row| row.0 == placed.first.offset()).expect("a range's beginning");
        assert_eq!(row.1, chosen.2, "not the closest fit");
    }

    fn compare(&self, filler: &HugeFiller, table: &Table) {
        let mut counts = crate::huge_filler::Counts::default();
        for (number, page) in self.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            let tracker = &table[HugePageId(number as u32)];
            counts.add(tracker);
            let used =
                page.used.iter().enumerate().all(|(at, used)| tracker.used.get(at as u32) == *used);
            let gone = page
                .gone
                .iter()
                .enumerate()
                .all(|(at, gone)| tracker.unbacked.get(at as u32) == *gone);
            assert!(used && gone);
            assert_eq!(u32::from(tracker.used_pages), Page::count(&page.used));
            assert_eq!(u32::from(tracker.unbacked_pages), Page::count(&page.gone));
            assert_eq!(u32::from(tracker.longest), page.longest());
            assert_eq!(tracker.allocations, page.allocations);
            assert_eq!(tracker.has(flag::BROKEN), page.broken);
            assert!(HugeFiller::is_listed(tracker, self.order));
            assert!(u32::from(tracker.list) <= 7 * LISTS);
        }
        assert_eq!(counts, filler.counts);
        let listed = self.pages.iter().flatten().filter(|page| page.longest() > 0).count();
        assert_eq!(filler.sets.iter().map(|lists| lists.members).sum::<u32>(), listed as u32);
        for part in &self.parts {
            let holds = HugeFiller::holds(&table[part.page], part.at, part.pages);
            assert_eq!(holds, !part.tail, "{part:?}");
        }
    }

    fn contribute(&mut self, filler: &mut HugeFiller, table: &mut Table, step: &Instruction) {
        let Some(number) = self.pages.iter().position(Option::is_none) else { return };
        let page = HugePageId(number as u32);
        let dense = step.second & 3 == 0;
        let (kind, pages) = match step.second >> 2 & 3 {
            0 => (Contribution::Large, PAGES / 2 + step.count(127)),
            1 => (Contribution::Tail, step.count(255)),
            _ if dense => (Contribution::Span { dense }, 1),
            _ => (Contribution::Span { dense }, step.count(128)),
        };
        let dense = kind == Contribution::Span { dense: true };
        let span = matches!(kind, Contribution::Span { .. });
        let fresh = step.second & 16 == 0;
        filler.contribute(table, page, fresh, 0, pages, kind);
        let small = span && fresh && step.second & 32 == 0;
        if small {
            filler.begin_small(table, page);
        }
        let all = |is| vec![is; PAGES as usize];
        let mut is = Page {
            used: all(false),
            dirty: all(!fresh),
            gone: all(small),
            allocations: 1,
            dense,
            donated: !span,
            broken: small,
        };
        is.give(0, pages);
        self.pages[number] = Some(is);
        self.parts.push(Part { page, at: 0, pages, tail: kind == Contribution::Tail });
    }

    fn allocate(&mut self, filler: &mut HugeFiller, table: &mut Table, step: &Instruction) {
        let dense = step.second & 1 == 0;
        let (pages, align) = if dense { (1, 1) } else { (step.count(200), step.align(8)) };
        let Some(placed) = filler.allocate(table, pages, align, dense) else {
            let fits = |row| if align == 1 { row >= pages } else { row >= pages + align - 1 };
            assert!(!self.candidates(pages, dense).iter().any(|c| fits(c.2)), "there is room");
            return;
        };
        if align == 1 {
            self.judge(placed, pages, dense);
        }
        let (page, at) = (placed.first.hugepage(), placed.first.offset());
        assert!(at.is_multiple_of(align) && place_in((at, pages), pages, align) == Some(at));
        let is = self.page(page);
        assert_eq!(is.dense, dense);
        is.allocations += 1;
        is.donated = false;
        // Pages that went back come back as zeroes.
        assert!(is.give(at, pages) || !placed.zeroed, "{placed:?} was written");
        self.parts.push(Part { page, at, pages, tail: false });
    }

    fn free(&mut self, filler: &mut HugeFiller, table: &mut Table, step: &Instruction) {
        let Some(index) = step.index(self.parts.len()) else { return };
        let part = self.parts.swap_remove(index);
        let empty = if part.tail {
            filler.vacate(table, part.page, part.at, part.pages)
        } else {
            filler.free(table, part.page, part.at, part.pages)
        };
        let is = self.page(part.page);
        is.used[part.at as usize..(part.at + part.pages) as usize].fill(false);
        is.allocations -= 1;
        assert_eq!(empty, Page::count(&is.used) == 0);
        if empty {
            filler.withdraw(table, part.page);
            table[part.page] = Tracker::default();
            self.pages[part.page.0 as usize] = None;
        }
    }

    fn grow(&mut self, filler: &mut HugeFiller, table: &mut Table, step: &Instruction) {
        let Some(index) = step.index(self.parts.len()) else { return };
        let Part { page, at, pages, tail } = self.parts[index];
        let more = step.count(200);
        let end = at + pages;
        let is = self.page(page);
        let open = end + more <= PAGES
            && is.used[end as usize..(end + more) as usize].iter().all(|used| !used);
        if tail || is.dense {
            return;
        }
        match filler.grow(table, page, end, more) {
            Some(zeroed) => {
                assert!(open);
                assert!(is.give(end, more) || !zeroed);
                self.parts[index].pages += more;
            }
            None => assert!(!open),
        }
    }

    /// What a release does to a huge page: its free pages go back.
    fn break_up(&mut self, filler: &mut HugeFiller, table: &mut Table, step: &Instruction) {
        let Some(index) = step.index(self.parts.len()) else { return };
        let page = self.parts[index].page;
        let is = self.page(page);
        is.broken = true;
        for at in 0..PAGES as usize {
            is.gone[at] = !is.used[at];
            is.dirty[at] &= is.used[at];
        }
        filler.edit(table, page, |tracker| {
            let count = PAGES - u32::from(tracker.used_pages);
            tracker.flags |= flag::BROKEN;
            (tracker.unbacked, tracker.unbacked_pages) = (tracker.used.not(), count as u16);
            tracker.length = count;
        });
    }

    /// What is freed twice, or never was a span, is not held.
    fn ask_for_a_stranger(&self, table: &Table, step: &Instruction) {
        let page = HugePageId(u32::from(step.first) % HUGEPAGES);
        let (at, pages) = (u32::from(step.second) % PAGES, step.count(300));
        let known = self.parts.contains(&Part { page, at, pages, tail: false });
        if self.pages[page.0 as usize].is_some() {
            assert_eq!(HugeFiller::holds(&table[page], at, pages), known);
        }
    }
}

pub(super) fn run(order: Order, instructions: &[Instruction]) {
    let mut records = vec![Tracker::default(); HUGEPAGES as usize];
    let mut table = Table::new(&mut records);
    let mut filler = std::boxed::Box::new(HugeFiller::new(order));
    let pages = core::iter::repeat_with(|| None).take(HUGEPAGES as usize).collect();
    let mut model = Model { order, pages, parts: Vec::new() };
    for step in instructions {
        let (filler, table) = (&mut filler, &mut table);
        match step.kind(16) {
            0..=2 => model.contribute(filler, table, step),
            3..=7 => model.allocate(filler, table, step),
            8..=12 => model.free(filler, table, step),
            13 => model.grow(filler, table, step),
            14 => model.break_up(filler, table, step),
            _ => model.ask_for_a_stranger(table, step),
        }
        model.compare(filler, table);
    }
}
