//! What the kernel says of a process's memory: `/proc/PID/smaps`.

use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// Memory in bytes.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// All that is in memory.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    /// Of the resident, what belongs to no file.
    #[serde(rename = "anonymous_bytes")]
    pub anonymous: u64,
    /// Of the anonymous, on transparent huge pages.
    #[serde(rename = "huge_bytes")]
    pub huge: u64,
    /// What was swapped out.
    #[serde(rename = "swapped_bytes")]
    pub swapped: u64,
}

/// A process's memory, and that of parts of it, in the order of their addresses' ranges.
#[derive(Debug)]
pub struct Resident<const PARTS: usize> {
    /// Of the process.
    pub all: Memory,
    /// Of the parts.
    pub parts: [Memory; PARTS],
}

impl<const PARTS: usize> Resident<PARTS> {
    /// Adds up the mappings of a process. A part may be several ranges; of a mapping counts where it begins.
    pub fn of(pid: i32, parts: &[&[Range<u64>]; PARTS]) -> std::io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/smaps"))?;
        Self::sum(BufReader::new(file), parts)
    }

    fn sum(smaps: impl BufRead, parts: &[&[Range<u64>]; PARTS]) -> std::io::Result<Self> {
        let mut sum =
            Self { all: Memory::default(), parts: std::array::from_fn(|_| Memory::default()) };
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
            for (ranges, part) in parts.iter().zip(&mut sum.parts) {
                let is_in = |start| ranges.iter().any(|range| range.contains(&start));
                if start.is_some_and(is_in) {
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
        let (tables, heap) = ([0..0x500, 0x600..0x40_0000], 0x40_0000..0x100_0000);
        let sum =
            Resident::sum(SMAPS.as_bytes(), &[&tables, std::slice::from_ref(&heap), &[]]).unwrap();
        let [tables, heap, nothing] = sum.parts;
        assert_eq!((tables.resident, tables.anonymous), (8192, 4096));
        let expected =
            Memory { resident: 4 << 20, anonymous: 4 << 20, huge: 2 << 20, swapped: 12 << 10 };
        assert_eq!((heap, nothing), (expected, Memory::default()));
        assert_eq!((sum.all.resident, sum.all.anonymous), ((4 << 20) + 8192, (4 << 20) + 4096));
    }

    #[test]
    fn nonsense_counts_nothing() {
        let nonsense = "Rss: x kB\n\n:\n- -\nRss:\n".as_bytes();
        let everywhere = 0..u64::MAX;
        let sum = Resident::sum(nonsense, &[&[everywhere]]).unwrap();
        assert_eq!((sum.all, sum.parts), (Memory::default(), [Memory::default()]));
    }
}
