//! `HugeRegion`: spans lie at the lowest place of the oldest region that has room.

extern crate std;

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use spandrel_pages::{HugeLength, HugePageId, PageId};

use super::{Instruction, Kernel, place_in};
use crate::bits::PAGES;
use crate::huge_allocator::HugeAllocator;
use crate::huge_region::{Counts, HugeRegions, REGION, is_summed_up};
use crate::ranges::Ranges;
use crate::tracker::{State, Table, Tracker};

/// Two regions, and not quite a third.
const HUGEPAGES: u32 = 3 * REGION.0 - 1;

struct Model {
    /// Their first huge pages, the oldest region first.
    regions: Vec<u32>,
    /// First page and pages.
    spans: BTreeMap<u32, u32>,
    /// Huge pages of regions that are backed.
    backed: Vec<bool>,
    /// Pages written since they came from the kernel.
    dirty: Vec<bool>,
}

impl Model {
    /// The free stretches of a region.
    fn free(&self, region: u32) -> Vec<(u32, u32)> {
        let (first, end) = (region * PAGES, (region + REGION.0) * PAGES);
        let mut free = Vec::new();
        let mut at = first;
        for (span, pages) in self.spans.range(first..end).map(|(s, p)| (*s, *p)).chain([(end, 0)]) {
            if span > at {
                free.push((at, span - at));
            }
            at = span + pages;
        }
        free
    }

    fn lowest(&self, pages: u32, align: u32) -> Option<u32> {
        let place = |region: &u32| {
            self.free(*region).into_iter().find_map(|row| place_in(row, pages, align))
        };
        self.regions.iter().find_map(place)
    }

    fn is_occupied(&self, page: u32) -> bool {
        let before = self.spans.range(..(page + 1) * PAGES).next_back();
        before.is_some_and(|(first, pages)| first + pages > page * PAGES)
    }

    fn huge_pages(&self) -> impl Iterator<Item = u32> {
        self.regions.iter().flat_map(|region| *region..region + REGION.0)
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts { regions: self.regions.len() as u32, ..Counts::default() };
        counts.used = self.spans.values().sum();
        for page in self.huge_pages() {
            let occupied = self.is_occupied(page);
            counts.occupied += u32::from(occupied);
            counts.empty += u32::from(!occupied && self.backed[page as usize]);
        }
        counts
    }

    /// Pages are given out; says whether all were clean.
    fn give(&mut self, first: u32, pages: u32) -> bool {
        for page in first / PAGES..=(first + pages - 1) / PAGES {
            assert!(self.backed[page as usize], "{page} is not backed");
        }
        let given = &mut self.dirty[first as usize..(first + pages) as usize];
        let clean = !given.contains(&true);
        given.fill(true);
        clean
    }

    /// What the kernel was asked to do.
    fn note(&mut self, kernel: &Kernel) {
        for page in &kernel.backed {
            assert!(!core::mem::replace(&mut self.backed[page.0 as usize], true));
        }
        for page in kernel.unbacked_hugepages() {
            assert!(core::mem::replace(&mut self.backed[page as usize], false));
            assert!(!self.is_occupied(page), "{page} went back under a span");
            self.dirty[(page * PAGES) as usize..((page + 1) * PAGES) as usize].fill(false);
        }
    }
}

pub(super) fn run(instructions: &[Instruction]) {
    let mut records = vec![Tracker::default(); HUGEPAGES as usize];
    let mut table = Table::new(&mut records);
    let mut vacant = HugeAllocator::new();
    let mut cached = Ranges::new(State::Cached, State::CachedEnd);
    let mut regions = HugeRegions::new();
    let mut model = Model {
        regions: Vec::new(),
        spans: BTreeMap::new(),
        backed: vec![false; HUGEPAGES as usize],
        dirty: vec![false; (HUGEPAGES * PAGES) as usize],
    };
    for step in instructions {
        let mut kernel = Kernel { refuses: step.refused(), ..Kernel::default() };
        let chosen = step.index(model.spans.len());
        let chosen = chosen.and_then(|i| model.spans.iter().nth(i).map(|(f, p)| (*f, *p)));
        match (step.kind(16), chosen) {
            (0, _) => {
                let added = regions.add(&mut table, &mut kernel, &mut vacant);
                if added.is_some() {
                    let newest = regions.newest().expect("it was added").0;
                    assert!(!model.regions.iter().any(|r| r.abs_diff(newest) < REGION.0));
                    model.regions.push(newest);
                }
            }
            (1..=7, _) => {
                // Now and then what only an empty region has room for.
                let pages = step.count(if step.second & 31 == 0 { u16::MAX } else { 900 });
                let align = step.align(9);
                let expected = model.lowest(pages, align);
                let placed = regions.allocate(&mut table, &mut kernel, pages, align);
                model.note(&kernel);
                match placed {
                    Some(placed) => {
                        assert_eq!(Some(placed.first.0), expected);
                        assert!(model.give(placed.first.0, pages) || !placed.zeroed);
                        model.spans.insert(placed.first.0, pages);
                    }
                    None => assert!(expected.is_none() || kernel.refuses),
                }
            }
            (8..=11, Some((first, pages))) => {
                assert!(HugeRegions::holds(&table, PageId(first), pages));
                let emptied = regions.free(&mut table, PageId(first), pages);
                model.spans.remove(&first);
                let under = first / PAGES..=(first + pages - 1) / PAGES;
                let expected = under.filter(|page| !model.is_occupied(*page)).count();
                assert_eq!(emptied.0 as usize, expected);
                assert!(!HugeRegions::holds(&table, PageId(first), pages), "freed twice");
            }
            (12, Some((first, pages))) => {
                let (end, more) = (first + pages, step.count(900));
                let region = table[PageId(first).hugepage()].note;
                let row = model.free(region).into_iter().find(|row| row.0 == end);
                let open = row.is_some_and(|row| row.1 >= more);
                let grown = regions.grow(&mut table, &mut kernel, region, PageId(end), more);
                model.note(&kernel);
                match grown {
                    Some(zeroed) => {
                        assert!(open && (model.give(end, more) || !zeroed));
                        model.spans.insert(first, pages + more);
                    }
                    None => assert!(!open || kernel.refuses),
                }
            }
            (13, _) => {
                let (wanted, empty) = (step.count(600), regions.counts.empty);
                let released = regions.release(&mut table, &mut kernel, HugeLength(wanted));
                model.note(&kernel);
                assert_eq!(released.0, if kernel.refuses { 0 } else { wanted.min(empty) });
                assert_eq!(released.0 as usize, kernel.unbacked.len());
            }
            (14, _) => {
                if let Some(index) = step.index(model.regions.len()) {
                    let region = model.regions[index];
                    let used = model.free(region) != [(region * PAGES, REGION.pages().0)];
                    let inside = HugePageId(region + u32::from(step.first) % REGION.0);
                    let before = cached.total.0 + vacant.free.total.0;
                    regions.dissolve(&mut table, inside, &mut cached, &mut vacant.free);
                    if !used {
                        model.regions.remove(index);
                        assert_eq!(cached.total.0 + vacant.free.total.0, before + REGION.0);
                        // The cache is another's business.
                        let backed = &mut model.backed[region as usize..][..REGION.0 as usize];
                        let kept = backed.iter().filter(|backed| **backed).count();
                        assert!(cached.total.0 as usize >= kept);
                        while let Some(range) = cached.last(&table) {
                            cached.take(&mut table, range, range);
                            vacant.free.insert(&mut table, range);
                        }
                        backed.fill(false);
                        let pages = (region * PAGES) as usize;
                        model.dirty[pages..pages + REGION.pages().0 as usize].fill(false);
                    }
                }
            }
            (_, chosen) => {
                // Neither a part of a span nor more than it is one.
                if let Some((first, pages)) = chosen {
                    let at = first + u32::from(step.first) % pages;
                    let other = step.count(900);
                    let held = HugeRegions::holds(&table, PageId(at), other);
                    assert_eq!(held, (at, other) == (first, pages));
                }
            }
        }
        assert_eq!(regions.counts, model.counts());
        assert!(regions.iter(&table).map(|r| r.0).eq(model.regions.iter().copied()));
    }
    for region in &model.regions {
        let all = (0..REGION.0)
            .all(|n| is_summed_up(&table, HugePageId(*region), HugePageId(region + n)));
        assert!(all, "summaries of region {region}");
    }
}
