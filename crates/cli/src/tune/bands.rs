//! Bands of sizes: which of them a job lives in, and what may serve each.

use crate::stats::Requests;
use spandrel_pages::{AllocatorId, ByteSize, KIB, MIB};
use spandrel_policy::Available;

/// Where bands begin. From 128 KiB on `auto` maps pages; below, the allocators differ by how they treat what
/// fits several times into a cache line, into a page, and what does not.
const EDGES: [usize; 6] = [0, 256, 4 * KIB, 32 * KIB, 128 * KIB, MIB];
/// Below this page mapping is not tried: an object takes a page at least.
const MAPPED_FROM: usize = 4 * KIB;
/// From here on `auto` maps pages.
const AUTO_MAPPED_FROM: usize = 128 * KIB;
/// A band with fewer of the requests and fewer of the bytes than these parts is left as it is, and so is
/// one with few requests for little: no allocator takes a microsecond more for each.
const REQUESTS_PART: u64 = 100;
const REQUESTS_LEAST: u64 = 1000;
const BYTES_PART: u64 = 20;

/// Sizes from `from` up to `to`, that excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// First size in bytes.
    pub from: usize,
    /// One past the last; `None`: it has no end.
    pub to: Option<usize>,
    /// The allocator that serves it.
    pub allocator: AllocatorId,
}

/// What a job asked for in a band.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Load {
    /// New objects and resized ones.
    pub requests: u64,
    /// Bytes asked for by them.
    pub bytes: u64,
}

/// All bands, as `auto` has them.
pub fn of_auto() -> Vec<Band> {
    let ends = EDGES.iter().skip(1).map(|end| Some(*end)).chain([None]);
    let serves = |from| match from {
        AUTO_MAPPED_FROM.. => AllocatorId::Mmap,
        _ => AllocatorId::Native,
    };
    EDGES
        .iter()
        .zip(ends)
        .map(|(from, to)| Band { from: *from, to, allocator: serves(*from) })
        .collect()
}

impl Band {
    /// How tables and profiles name it.
    pub fn name(&self) -> String {
        let from = if self.from == 0 { "0".into() } else { ByteSize(self.from).to_string() };
        match self.to {
            Some(to) => format!("{from}-{}", ByteSize(to)),
            None => format!("{from}-"),
        }
    }

    /// Other allocators that might serve it.
    pub fn others(&self, available: Available) -> Vec<AllocatorId> {
        let suits = |id: &AllocatorId| {
            *id != self.allocator
                && available.has(*id)
                && (*id != AllocatorId::Mmap || self.from >= MAPPED_FROM)
        };
        AllocatorId::ALL.into_iter().filter(suits).collect()
    }

    /// What of these requests is in it. They are counted by powers of two, at which bands begin.
    pub fn load(&self, requests: &[Requests]) -> Load {
        let is_in = |row: &&Requests| {
            row.from >= self.from as u64 && self.to.is_none_or(|to| row.from < to as u64)
        };
        requests.iter().filter(is_in).fold(Load::default(), |load, row| Load {
            requests: load.requests + row.count(),
            bytes: load.bytes + row.bytes(),
        })
    }
}

impl Load {
    /// Whether it is enough of the whole for another allocator to matter.
    pub fn matters(&self, whole: Load) -> bool {
        let many = self.requests >= REQUESTS_LEAST.max(whole.requests / REQUESTS_PART);
        self.requests > 0 && (many || self.bytes >= whole.bytes / BYTES_PART)
    }
}

/// The ranges of a template: neighbours of one allocator are one range.
pub fn merged(bands: &[Band]) -> Vec<Band> {
    let mut ranges: Vec<Band> = Vec::new();
    for band in bands {
        match ranges.last_mut() {
            Some(last) if last.allocator == band.allocator => last.to = band.to,
            _ => ranges.push(*band),
        }
    }
    ranges
}

/// A mode that serves the bands so.
pub fn mode(bands: &[Band]) -> String {
    let ranges: Vec<String> = merged(bands)
        .iter()
        .map(|range| format!("{}:{}", range.name(), range.allocator.name()))
        .collect();
    format!("template={}", ranges.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_policy::{Mode, parse_mode};

    fn row(from: u64, allocs: u64, alloc_bytes: u64) -> Requests {
        Requests { from, allocs, alloc_bytes, ..Requests::default() }
    }

    #[test]
    fn the_bands_of_auto_are_a_template_of_two_ranges() {
        let bands = of_auto();
        assert_eq!(mode(&bands), "template=0-128KiB:native,128KiB-:mmap");
        let Mode::Template(_) = parse_mode(&mode(&bands)).unwrap() else { panic!() };
        assert_eq!((bands[0].name(), bands[5].name()), ("0-256B".into(), "1MiB-".into()));
    }

    #[test]
    fn any_choice_of_allocators_is_a_mode() {
        for first in AllocatorId::ALL {
            for second in AllocatorId::ALL {
                let mut bands = of_auto();
                bands[1].allocator = first;
                bands[4].allocator = second;
                assert!(parse_mode(&mode(&bands)).is_ok(), "{}", mode(&bands));
            }
        }
    }

    #[test]
    fn requests_are_in_one_band_each() {
        let rows = [
            row(0, 1, 1),
            row(128, 2, 300),
            row(256, 4, 2000),
            row(65536, 8, 800_000),
            row(1 << 30, 1, 1 << 30),
        ];
        let loads: Vec<Load> = of_auto().iter().map(|band| band.load(&rows)).collect();
        assert_eq!(loads.iter().map(|load| load.requests).collect::<Vec<_>>(), [3, 4, 0, 8, 0, 1]);
        assert_eq!(loads[0].bytes, 301);
    }

    #[test]
    fn cold_bands_do_not_matter() {
        let whole = Load { requests: 200_000, bytes: 1 << 30 };
        assert!(!Load { requests: 1_999, bytes: 1 << 20 }.matters(whole));
        assert!(Load { requests: 2_000, bytes: 1 << 20 }.matters(whole));
        assert!(!Load { requests: 2, bytes: 1 }.matters(Load { requests: 3, bytes: 100 }));
        assert!(Load { requests: 1, bytes: 1 << 29 }.matters(whole), "few and large");
        assert!(!Load::default().matters(Load::default()));
    }

    #[test]
    fn small_objects_are_not_mapped_for_a_try() {
        let all = AllocatorId::ALL.into_iter().fold(Available::BASE, Available::with);
        let bands = of_auto();
        assert!(!bands[0].others(all).contains(&AllocatorId::Mmap));
        assert!(bands[2].others(all).contains(&AllocatorId::Mmap));
        assert!(!bands[5].others(all).contains(&AllocatorId::Mmap), "it has it");
        assert_eq!(bands[0].others(Available::BASE), [AllocatorId::Sys]);
    }
}
