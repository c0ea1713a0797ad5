//! Which variables a section has, and in which order.
//!
//! The variables of `SPANDREL_DURABLE` are one range, of which the linker makes the order: another level of optimisation, or another compiler, turns it round. A state that was made
//! with one order must not be read with another. The file of the program says where each variable lies, in its table of symbols. A file without one (`strip`) has its build id.

use std::fs::File;
use std::hash::Hasher as _;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadCache};
use spandrel_os::modules::Module;
use twox_hash::XxHash64;

/// The section of `SPANDREL_DURABLE`.
const SECTION: &str = "spandrel_durable";

/// Two numbers for the variables of a range; 0: it is not known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Layout {
    /// Of the names of the variables and their places.
    pub symbols: u64,
    /// Of the build.
    pub build: u64,
}

impl Layout {
    /// Of a range of the program's memory. One that is no section has one variable, and needs no number: neither is known.
    pub fn of(at: usize, bytes: usize) -> Self {
        Module::around(at)
            .and_then(|module| Self::of_section(&module, at, bytes))
            .unwrap_or_default()
    }

    fn of_section(module: &Module, at: usize, bytes: usize) -> Option<Self> {
        let cache = ReadCache::new(File::open(path_of(module, at)?).ok()?);
        let file: ElfFile64<'_, object::NativeEndian, _> = ElfFile64::parse(&cache).ok()?;
        let from = at.checked_sub(module.base())? as u64;
        file.sections().find(|section| {
            section.address() == from
                && section.size() == bytes as u64
                && section.name() == Ok(SECTION)
        })?;
        let within = from..from + bytes as u64;
        let variables = file
            .symbols()
            .filter(|symbol| within.contains(&symbol.address()) && symbol.is_definition());
        let mut variables: Vec<(u64, &[u8])> = variables
            .filter_map(|symbol| Some((symbol.address() - from, symbol.name_bytes().ok()?)))
            .collect();
        variables.sort_unstable();
        let mut symbols = XxHash64::with_seed(0);
        for (place, name) in &variables {
            symbols.write(&place.to_le_bytes());
            symbols.write(name);
            symbols.write(&[0]);
        }
        let mut build = XxHash64::with_seed(0);
        let id = module.build_id();
        build.write(id.unwrap_or(&[]));
        // Never the number of what is not known.
        let number =
            |is_known: bool, hasher: &XxHash64| if is_known { hasher.finish() | 1 } else { 0 };
        Some(Self {
            symbols: number(!variables.is_empty(), &symbols),
            build: number(id.is_some(), &build),
        })
    }

    /// Whether a state with that layout is one of a program with this one. What is known of neither was made before there were such numbers, or is one variable.
    pub fn allows(self, state: Self) -> bool {
        let is_known = self != Self::default() && state != Self::default();
        match (self.symbols, state.symbols) {
            _ if !is_known => true,
            (0, _) | (_, 0) => self.build == state.build && self.build != 0,
            (own, its) => own == its,
        }
    }
}

/// The file that an address is of.
fn path_of(module: &Module, at: usize) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    if Module::program().is_some_and(|program| program.addresses() == module.addresses()) {
        return Some("/proc/self/exe".into());
    }
    // SAFETY: zeroes are such a structure.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is this function's.
    if unsafe { libc::dladdr(at as *const libc::c_void, &raw mut found) } == 0
        || found.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: the loader's own string, as long as the file is loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(found.dli_fname) };
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}
