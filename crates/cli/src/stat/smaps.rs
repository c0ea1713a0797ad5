//! What the kernel says of a process's memory: `/proc/PID/smaps`.

use crate::failure::Failure;
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// Memory in bytes.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    #[serde(rename = "anonymous_bytes")]
    pub anonymous: u64,
    /// Of the anonymous, on transparent huge pages.
    #[serde(rename = "huge_bytes")]
    pub huge: u64,
    #[serde(rename = "swapped_bytes")]
    pub swapped: u64,
}

/// A process's memory, its native heap's, and that of the heap's tables.
#[derive(Debug, Default, PartialEq)]
pub struct Resident {
    pub all: Memory,
    pub heap: Memory,
    pub tables: Memory,
}

impl Resident {
    /// Adds up the mappings of a process.
    pub fn of(pid: i32, tables: &Range<u64>, heap: &Range<u64>) -> Result<Self, Failure> {
        let path = format!("/proc/{pid}/smaps");
        let failure = |why| Failure::new(format!("{path}: {why}"));
        let file = File::open(&path).map_err(failure)?;
        Self::sum(BufReader::new(file), tables, heap).map_err(failure)
    }

    fn sum(smaps: impl BufRead, tables: &Range<u64>, heap: &Range<u64>) -> std::io::Result<Self> {
        let mut sum = Self::default();
        let mut start = None;
        for line in smaps.lines() {
            let line = line?;
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            let Some(name) = name.strip_suffix(':') else {
                start = name.split('-').next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
                continue;
            };
            let Ok(kib) = value.parse::<u64>() else { continue };
            sum.all.add(name, kib * 1024);
            for (range, part) in [(tables, &mut sum.tables), (heap, &mut sum.heap)] {
                if start.is_some_and(|start| range.contains(&start)) {
                    part.add(name, kib * 1024);
                }
            }
        }
        Ok(sum)
    }
}

/// Whether the kernel gives a process huge pages at all.
pub fn has_huge_pages(pid: i32) -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    // Linux before 5.0 does not tell of the process.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_off = status.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.next() == Some("THP_enabled:") && words.next() == Some("0")
    });
    setting.is_ok_and(|setting| !setting.contains("[never]")) && !is_off
}

impl Memory {
    fn add(&mut self, name: &str, bytes: u64) {
        match name {
            "Rss" => self.resident += bytes,
            "Anonymous" => self.anonymous += bytes,
            "AnonHugePages" => self.huge += bytes,
            "Swap" => self.swapped += bytes,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
Rss:                   8 kB
Anonymous:             4 kB
AnonHugePages:         0 kB
VmFlags: rd wr mr
400000-800000 rw-p 00000000 00:00 0
Rss:                4096 kB
Anonymous:          4096 kB
AnonHugePages:      2048 kB
Swap:                 12 kB
";

    #[test]
    fn mappings_add_up() {
        let (tables, heap) = (0..0x40_0000, 0x40_0000..0x100_0000);
        let sum = Resident::sum(SMAPS.as_bytes(), &tables, &heap).unwrap();
        assert_eq!((sum.tables.resident, sum.tables.anonymous), (8192, 4096));
        let heap =
            Memory { resident: 4 << 20, anonymous: 4 << 20, huge: 2 << 20, swapped: 12 << 10 };
        assert_eq!(sum.heap, heap);
        assert_eq!((sum.all.resident, sum.all.anonymous), ((4 << 20) + 8192, (4 << 20) + 4096));
    }

    #[test]
    fn nonsense_counts_nothing() {
        let nonsense = "Rss: x kB\n\n:\n- -\nRss:\n".as_bytes();
        let sum = Resident::sum(nonsense, &(0..1), &(1..u64::MAX)).unwrap();
        assert_eq!(sum, Resident::default());
    }
}
