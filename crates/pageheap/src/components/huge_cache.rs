//! `HugeCache`: its limit is the swing of demand in the window, and what it releases is the highest.

extern crate std;

use std::vec;
use std::vec::Vec;

use spandrel_pages::HugeLength;

use super::{Instruction, Kernel, rows};
use crate::huge_cache::HugeCache;
use crate::ranges::{Range, Ranges};
use crate::tracker::{State, Table, Tracker};

const HUGEPAGES: u32 = 96;
const WINDOW_MS: u32 = 1600;
/// The window has 16 epochs, the current one among them.
const EPOCH_MS: u64 = 100;
const LEAST: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    InUse,
    Cached,
    Gone,
}

/// Demand since the beginning: when it became what.
struct Demand {
    now_ms: u64,
    in_use: u32,
    history: Vec<(u64, u32)>,
}

impl Demand {
    fn becomes(&mut self, in_use: u32) {
        self.in_use = in_use;
        self.history.push((self.now_ms, in_use));
    }

    /// What it was when the oldest epoch began, and all that it has been since.
    fn swing(&self) -> u32 {
        let newest = self.now_ms / EPOCH_MS * EPOCH_MS;
        let begins = newest.checked_sub(15 * EPOCH_MS);
        let before = |at: &u64| begins.is_some_and(|begins| *at < begins);
        let known = self.history.partition_point(|(at, _)| before(at));
        let at_first = known.checked_sub(1).map_or(0, |last| self.history[last].1);
        let since = self.history[known..].iter().map(|(_, n)| *n).chain([at_first]);
        since.clone().max().unwrap_or(0) - since.min().unwrap_or(0)
    }
}

pub(super) fn run(instructions: &[Instruction]) {
    let mut records = vec![Tracker::default(); HUGEPAGES as usize];
    let mut table = Table::new(&mut records);
    let mut cache = HugeCache::new(WINDOW_MS, HugeLength(LEAST));
    let mut gone = Ranges::new(State::Free, State::FreeEnd);
    let mut places = vec![Place::InUse; HUGEPAGES as usize];
    let mut demand = Demand { now_ms: 0, in_use: 0, history: Vec::new() };
    let are = |places: &[Place], place| places.iter().map(|p| *p == place).collect::<Vec<_>>();
    for step in instructions {
        let mut kernel = Kernel { refuses: step.refused(), ..Kernel::default() };
        match step.kind(6) {
            0 => {
                let (count, align) = (step.count(24), step.align(5));
                let rows = rows(&are(&places, Place::Cached));
                let surely = rows.iter().any(|row| row.1 >= count + align - 1);
                match cache.allocate(&mut table, HugeLength(count), HugeLength(align)) {
                    Some(range) => {
                        assert!(range.count.0 == count && range.first.0.is_multiple_of(align));
                        for page in range.first.0..range.end().0 {
                            assert!(places[page as usize] == Place::Cached);
                            places[page as usize] = Place::InUse;
                        }
                    }
                    None => assert!(!surely, "{count} at {align} among {rows:?}"),
                }
            }
            1 => {
                // A part of what is in use comes back.
                let rows = rows(&are(&places, Place::InUse));
                if let Some((first, length)) = step.index(rows.len()).map(|i| rows[i]) {
                    let range = Range::new(first, step.count(24).min(length));
                    cache.ranges.insert(&mut table, range);
                    places[range.first.0 as usize..range.end().0 as usize].fill(Place::Cached);
                }
            }
            2 => {
                let wanted = step.count(48);
                let cached = rows(&are(&places, Place::Cached));
                let highest = cached.iter().flat_map(|(at, n)| *at..at + n).rev();
                let released =
                    cache.release(&mut table, &mut gone, &mut kernel, HugeLength(wanted));
                let total: u32 = cached.iter().map(|row| row.1).sum();
                assert_eq!(released.0, if kernel.refuses { 0 } else { wanted.min(total) });
                let expected: Vec<u32> = highest.take(released.0 as usize).collect();
                let mut asked = kernel.unbacked_hugepages();
                asked.reverse();
                assert_eq!(asked, expected);
                for page in expected {
                    places[page as usize] = Place::Gone;
                }
            }
            3 => {
                demand.now_ms += u64::from(step.first % 2000);
                let count = step.count(60);
                cache.taken(demand.now_ms, HugeLength(count));
                demand.becomes(demand.in_use + count);
            }
            4 => {
                demand.now_ms += u64::from(step.first % 200);
                let count = step.count(60).min(demand.in_use);
                cache.returned(demand.now_ms, HugeLength(count));
                demand.becomes(demand.in_use - count);
            }
            _ => {
                demand.now_ms += u64::from(step.second % 700);
                assert_eq!(cache.limit(demand.now_ms).0, demand.swing().max(LEAST));
                assert_eq!(cache.in_use(), demand.in_use);
            }
        }
        for (ranges, place) in [(&cache.ranges, Place::Cached), (&gone, Place::Gone)] {
            let rows = rows(&are(&places, place));
            assert_eq!(ranges.total.0, rows.iter().map(|row| row.1).sum::<u32>());
            for (at, n) in rows {
                let range = Range::new(at, n);
                assert_eq!(ranges.starting_at(&table, range.first), Some(range));
            }
        }
    }
}
