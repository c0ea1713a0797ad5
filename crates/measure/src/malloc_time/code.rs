//! Where in a process the code of its allocator lies.

use crate::contender::{Contender, OWN};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

const LIBC: &str = "libc.so.6";
/// What Debian's Redis is linked with.
const REDIS_OWN: &str = "libjemalloc.so";

/// All that glibc's allocator exports, without what may stand before it.
const MALLOC_EXPORTS: [&str; 18] = [
    "malloc",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "malloc_trim",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "__default_morecore",
];
/// Several times what there is: more means that something else lies in between.
const MALLOC_BYTES_MAX: u64 = 128 << 10;

/// A file's code in a process.
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    /// Addresses in the process.
    pub addresses: Range<u64>,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub file: PathBuf,
}

impl Mapping {
    fn is_of(&self, name: &str) -> bool {
        self.file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
    }

    /// The part of it that has been made from a part of the file.
    fn part(&self, offsets: &Range<u64>) -> Range<u64> {
        let address = |offset: u64| {
            let address = offset.saturating_sub(self.offset).saturating_add(self.addresses.start);
            address.min(self.addresses.end)
        };
        address(offsets.start)..address(offsets.end)
    }
}

/// The executable mappings of a process.
pub fn mappings(pid: u32) -> Vec<Mapping> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let (from, to) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    permissions.contains('x').then_some(Mapping {
        addresses: number(from)?..number(to)?,
        offset: number(offset)?,
        file: line.get(line.find('/')?..)?.into(),
    })
}

/// The code of a contender's allocator, and of glibc's, which others may fall back to. `None` if
/// it is not known where the contender's is.
pub fn of_allocator(contender: &Contender, mappings: &[Mapping]) -> Option<Vec<Range<u64>>> {
    let own = match &contender.preload {
        Some(library) => fs::canonicalize(library).ok()?.file_name()?.to_str()?.to_string(),
        None if contender.name == OWN => REDIS_OWN.into(),
        None => LIBC.into(),
    };
    let mut ranges = Vec::new();
    let mut found = false;
    for mapping in mappings {
        let range = match mapping.is_of(LIBC) {
            true => malloc_in_libc(&mapping.file).map(|offsets| mapping.part(&offsets)),
            false => mapping.is_of(&own).then(|| mapping.addresses.clone()),
        };
        found |= range.is_some() && mapping.is_of(&own);
        ranges.extend(range);
    }
    found.then_some(ranges)
}

/// The offsets in glibc's file between which its allocator lies, which is one unit: all that it
/// exports, with what is before it up to the end of the function that another unit exports, as
/// its inner functions, which no symbol names, come first.
fn malloc_in_libc(file: &Path) -> Option<Range<u64>> {
    let cache = ReadCache::new(File::open(file).ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let mut functions: Vec<(Range<u64>, bool)> = Vec::new();
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let (name, from) = (symbol.name().ok()?, symbol.address());
        let name = name.strip_prefix("__libc_").unwrap_or(name);
        functions.push((from..from.checked_add(symbol.size())?, MALLOC_EXPORTS.contains(&name)));
    }
    let addresses = unit(&functions)?;
    let segment = elf.elf_program_headers().iter().find_map(|header| {
        let (offset, _) = header.file_range(elf.endian());
        let from = header.p_vaddr(elf.endian());
        let range = from..from.checked_add(header.p_memsz(elf.endian()))?;
        range.contains(&addresses.start).then_some((from, offset))
    })?;
    let offset = |address: u64| (address - segment.0).checked_add(segment.1);
    Some(offset(addresses.start)?..offset(addresses.end)?)
}

/// Functions, and whether they belong to the unit: where it lies.
fn unit(functions: &[(Range<u64>, bool)]) -> Option<Range<u64>> {
    let of_unit = || functions.iter().filter(|(_, belongs)| *belongs).map(|(range, _)| range);
    let others = || functions.iter().filter(|(_, belongs)| !*belongs).map(|(range, _)| range);
    let first = of_unit().map(|range| range.start).min()?;
    let end = of_unit().map(|range| range.end).max()?;
    let start = others().filter(|range| range.start < first).map(|range| range.end).max()?;
    let alone = !others().any(|range| range.start >= first && range.start < end);
    (alone && start <= first && end - start <= MALLOC_BYTES_MAX).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_can_be_executed() {
        let line = "7f00-7f40 r-xp 00026000 fe:00 53  /with blank/libc.so.6";
        let mapping = mapping(line).unwrap();
        assert_eq!((mapping.addresses.clone(), mapping.offset), (0x7f00..0x7f40, 0x26000));
        assert_eq!(mapping.file, Path::new("/with blank/libc.so.6"));
        assert_eq!(mapping.part(&(0x26010..0x26020)), 0x7f10..0x7f20);
        assert_eq!(mapping.part(&(0x10..0x99999)), 0x7f00..0x7f40);
        assert!(super::mapping("7f00-7f40 rw-p 00026000 fe:00 53  /libc.so.6").is_none());
        assert!(super::mapping("7f00-7f40 r-xp 00000000 00:00 0 [vdso]").is_none());
    }

    #[test]
    fn a_unit_begins_behind_the_one_before_it() {
        let functions =
            [(10..20, false), (90..95, true), (70..80, true), (30..40, false), (95..99, false)];
        assert_eq!(unit(&functions), Some(40..95));
        assert_eq!(unit(&[(10..20, false), (30..40, false)]), None);
        // Another's in between: that is not one unit.
        assert_eq!(unit(&[(1..2, false), (10..20, true), (30..40, false), (50..60, true)]), None);
    }

    #[test]
    fn glibcs_own_allocator_is_found_in_this_process() {
        let mappings = mappings(std::process::id());
        let ranges = of_allocator(&Contender::system(), &mappings).expect("glibc is loaded");
        let within = |address: usize| ranges.iter().any(|r| r.contains(&(address as u64)));
        assert!(within(libc::malloc as *const () as usize));
        assert!(within(libc::posix_memalign as *const () as usize));
        assert!(!within(libc::getpid as *const () as usize));
        let elsewhere = Contender::spandrel("auto", Path::new("/proc/self/exe"));
        assert!(of_allocator(&elsewhere, &[]).is_none());
    }
}
