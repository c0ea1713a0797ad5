//! Which memory is durable.
//!
//! Invariants: regions are whole pages, disjoint, sorted, and do not touch each other: neighbours are one region. So a block or a page that
//! holds a byte of a region lies within it.

use spandrel_pages::PAGE_BYTES;

use crate::Refused;

/// Regions at most. A program has one arena as a rule, and a mapping more for each very large object.
pub const MOST_REGIONS: usize = 64;

/// A range of whole pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Region {
    /// The address of the first byte.
    pub start: usize,
    /// The address behind the last byte.
    pub end: usize,
}

/// The durable regions of a program.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The largest region. One comparison answers for it.
    main: Region,
    /// From the first region to the last one.
    hull: Region,
    count: usize,
    all: [Region; MOST_REGIONS],
}

impl Default for Regions {
    fn default() -> Self {
        Self::new()
    }
}

impl Regions {
    /// No region.
    pub const fn new() -> Self {
        let none = Region { start: 0, end: 0 };
        Self { main: none, hull: none, count: 0, all: [none; MOST_REGIONS] }
    }

    /// The region of `bytes` bytes at `at` alone.
    ///
    /// # Errors
    /// [`Refused::Size`].
    pub fn of(at: *const u8, bytes: usize) -> Result<Self, Refused> {
        let mut regions = Self::new();
        regions.add(at, bytes)?;
        Ok(regions)
    }

    /// Makes `bytes` bytes at `at` durable. Regions that touch or overlap become one.
    ///
    /// # Errors
    /// [`Refused::Size`]: the range is empty, not of whole pages, or no part of the address space. [`Refused::Regions`].
    pub fn add(&mut self, at: *const u8, bytes: usize) -> Result<(), Refused> {
        let mut region = checked(at, bytes)?;
        let touches = |other: &Region| other.start <= region.end && region.start <= other.end;
        let (mut kept, mut count) = ([Region::default(); MOST_REGIONS], 0);
        for other in self.iter().filter(|other| !touches(other)) {
            if let Some(place) = kept.get_mut(count) {
                *place = other;
                count += 1;
            }
        }
        let joined = self.iter().filter(touches).fold(region, |all, other| Region {
            start: all.start.min(other.start),
            end: all.end.max(other.end),
        });
        region = joined;
        *kept.get_mut(count).ok_or(Refused::Regions)? = region;
        self.set(kept, count + 1);
        Ok(())
    }

    /// Makes `bytes` bytes at `at` transient: what a region has besides stays durable.
    ///
    /// # Errors
    /// As for [`Regions::add`].
    pub fn remove(&mut self, at: *const u8, bytes: usize) -> Result<(), Refused> {
        let region = checked(at, bytes)?;
        let (mut kept, mut count) = ([Region::default(); MOST_REGIONS], 0);
        for other in self.iter() {
            let before = Region { start: other.start, end: other.end.min(region.start) };
            let behind = Region { start: other.start.max(region.end), end: other.end };
            for part in [before, behind].into_iter().filter(|part| part.start < part.end) {
                *kept.get_mut(count).ok_or(Refused::Regions)? = part;
                count += 1;
            }
        }
        self.set(kept, count);
        Ok(())
    }

    fn set(&mut self, all: [Region; MOST_REGIONS], count: usize) {
        (self.all, self.count) = (all, count);
        self.all.get_mut(..count).unwrap_or_default().sort_unstable_by_key(|region| region.start);
        self.main = self.iter().max_by_key(|region| region.end - region.start).unwrap_or_default();
        let start = self.iter().next().unwrap_or_default().start;
        self.hull = Region { start, end: self.iter().last().unwrap_or_default().end };
    }

    /// All regions, in order of address.
    pub fn iter(&self) -> impl Iterator<Item = Region> + '_ {
        self.all.iter().take(self.count).copied()
    }

    /// Whether the largest region holds all of `bytes` bytes at `at`, which is the answer of nearly every write. False: [`Regions::clip`]
    /// has the answer.
    #[inline(always)]
    pub fn main_holds(&self, at: usize, bytes: usize) -> bool {
        at >= self.main.start && at < self.main.end && bytes <= self.main.end - at
    }

    /// Whether `bytes` bytes at `at` lie outside of the regions and of what is between them, which is the answer of most transient writes.
    /// False: they may be durable.
    #[inline(always)]
    pub fn are_far(&self, at: usize, bytes: usize) -> bool {
        at >= self.hull.end || at.saturating_add(bytes) <= self.hull.start
    }

    /// Whether a byte is durable.
    pub fn holds(&self, at: usize) -> bool {
        self.main_holds(at, 1) || self.iter().any(|region| region.start <= at && at < region.end)
    }

    /// Calls `part` with the address and the number of bytes of each durable part of `bytes` bytes at `at`, in order.
    pub fn clip(&self, at: usize, bytes: usize, mut part: impl FnMut(usize, usize)) {
        let Some(last) = bytes.checked_sub(1).map(|more| at.saturating_add(more)) else { return };
        for region in self.iter() {
            let (from, to) = (at.max(region.start), last.min(region.end - 1));
            if from <= to {
                part(from, to - from + 1);
            }
        }
    }
}

fn checked(at: *const u8, bytes: usize) -> Result<Region, Refused> {
    let start = at as usize;
    let end = start.checked_add(bytes).ok_or(Refused::Size)?;
    let is_whole = bytes > 0 && start.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES);
    if is_whole { Ok(Region { start, end }) } else { Err(Refused::Size) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn at(page: usize) -> *const u8 {
        (page * PAGE_BYTES) as *const u8
    }

    fn add(regions: &mut Regions, page: usize, pages: usize) -> Result<(), Refused> {
        regions.add(at(page), pages * PAGE_BYTES)
    }

    fn pages(regions: &Regions) -> Vec<(usize, usize)> {
        regions.iter().map(|r| (r.start / PAGE_BYTES, r.end / PAGE_BYTES)).collect()
    }

    #[test]
    fn regions_are_sorted_and_neighbours_are_one() {
        let mut regions = Regions::new();
        assert!(!regions.main_holds(0, 0) && !regions.holds(0));
        for (page, count) in [(20, 2), (5, 1), (9, 3), (6, 1), (30, 1), (4, 4)] {
            add(&mut regions, page, count).unwrap();
        }
        assert_eq!(pages(&regions), [(4, 8), (9, 12), (20, 22), (30, 31)]);
        assert_eq!((regions.main.start, regions.main.end), (at(4) as usize, at(8) as usize));
        add(&mut regions, 8, 13).unwrap();
        assert_eq!(pages(&regions), [(4, 22), (30, 31)]);
        regions.remove(at(6), 2 * PAGE_BYTES).unwrap();
        regions.remove(at(30), PAGE_BYTES).unwrap();
        regions.remove(at(21), 9 * PAGE_BYTES).unwrap();
        assert_eq!(pages(&regions), [(4, 6), (8, 21)]);
        let (start, end) = (at(4) as usize, at(21) as usize);
        assert!(regions.are_far(start - 8, 8) && regions.are_far(end, usize::MAX));
        assert!(!regions.are_far(start - 8, 9) && !regions.are_far(end - 1, 1));
        assert!(!regions.are_far(at(7) as usize, 1) && Regions::new().are_far(0, 9));
    }

    #[test]
    fn a_write_is_clipped() {
        let mut regions = Regions::new();
        add(&mut regions, 2, 1).unwrap();
        add(&mut regions, 4, 2).unwrap();
        let clipped = |from: usize, bytes: usize| {
            let mut parts = Vec::new();
            regions.clip(from, bytes, |at, bytes| parts.push((at, bytes)));
            parts
        };
        assert_eq!(clipped(0, 0), []);
        assert_eq!(clipped(8192, 0), []);
        assert_eq!(clipped(8191, 2), [(8192, 1)]);
        assert_eq!(clipped(0, usize::MAX), [(8192, 4096), (16384, 8192)]);
        assert_eq!(clipped(24575, usize::MAX), [(24575, 1)]);
        assert_eq!(clipped(24576, 9), []);
        assert!(regions.main_holds(16384, 8192) && regions.main_holds(24575, 1));
        assert!(!regions.main_holds(24575, 2) && !regions.main_holds(24576, 0));
        assert!(!regions.main_holds(8192, 1) && regions.holds(8192) && !regions.holds(12288));
    }

    #[test]
    fn what_is_no_region_is_refused() {
        let mut regions = Regions::new();
        let last = usize::MAX - PAGE_BYTES + 1;
        for (from, bytes) in [(1, PAGE_BYTES), (0, 0), (0, 1), (last, PAGE_BYTES)] {
            assert_eq!(regions.add(from as *const u8, bytes), Err(Refused::Size));
        }
        (0..MOST_REGIONS).for_each(|number| add(&mut regions, number * 2, 1).unwrap());
        assert_eq!(add(&mut regions, 200, 1), Err(Refused::Regions));
        add(&mut regions, 1, 1).unwrap();
        assert_eq!(pages(&regions).len(), MOST_REGIONS - 1);
        add(&mut regions, 200, 3).unwrap();
        assert_eq!(regions.remove(at(201), PAGE_BYTES), Err(Refused::Regions));
        assert_eq!(pages(&regions).last(), Some(&(200, 203)));
    }
}
