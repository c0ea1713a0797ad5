//! Names of functions that the loader does not know: those that a file does not export.

use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind};
use spandrel_report::{Caller, Stats};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Functions of a file: first address, size, name.
type Functions = Vec<(u64, u64, String)>;

/// Names what has no name yet, where its file has one, and writes all names as their languages do.
pub fn name(processes: &mut [Stats]) {
    let mut known: HashMap<String, Functions> = HashMap::new();
    let sites = processes.iter_mut().flat_map(|stats| &mut stats.sites);
    for caller in sites.flat_map(|site| &mut site.callers) {
        if caller.function.is_empty() {
            let functions =
                known.entry(caller.file.clone()).or_insert_with(|| functions(&caller.file));
            caller.function = holding(functions, caller).unwrap_or_default();
        }
        caller.function = demangled(&caller.function);
    }
}

/// The function that has an offset of a file. `None`: the file does not say.
pub fn function_at(file: &str, offset: u64) -> Option<String> {
    let caller = Caller { file: file.to_owned(), offset, function: String::new() };
    holding(&functions(file), &caller).map(|name| demangled(&name))
}

/// Whether a program asks the loader for a function of a library. False where the file cannot be read.
pub fn imports(path: &Path, name: &str) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let cache = ReadCache::new(file);
    ElfFile64::<Endianness, _>::parse(&cache).is_ok_and(|elf| {
        elf.dynamic_symbols().any(|symbol| symbol.is_undefined() && symbol.name() == Ok(name))
    })
}

/// The functions of a file, in order of address; none where it cannot be read or says nothing.
fn functions(path: &str) -> Functions {
    let Ok(file) = File::open(path) else { return Functions::new() };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<Endianness, _>::parse(&cache) else { return Functions::new() };
    // Offsets count from where the file begins in memory.
    let base = match elf.elf_header().e_type(elf.endian()) {
        object::elf::ET_DYN => 0,
        _ => elf.relative_address_base(),
    };
    let text = elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let mut functions: Functions = text
        .filter_map(|symbol| {
            let first = symbol.address().checked_sub(base)?;
            Some((first, symbol.size(), symbol.name().ok()?.to_owned()))
        })
        .collect();
    functions.sort();
    functions
}

fn holding(functions: &Functions, caller: &Caller) -> Option<String> {
    let after = functions.partition_point(|(first, ..)| *first <= caller.offset);
    let (first, size, name) = functions.get(after.checked_sub(1)?)?;
    (caller.offset - first < *size).then(|| name.clone())
}

/// A name as Rust or C++ write it.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok();
    cpp.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_report::Site;

    #[test]
    fn names_as_their_languages_write_them() {
        assert_eq!(
            demangled("_ZNSt6vectorIiSaIiEE9push_backEOi"),
            "std::vector<int, std::allocator<int> >::push_back(int&&)"
        );
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!((demangled("realloc"), demangled("")), ("realloc".into(), String::new()));
    }

    #[test]
    fn a_function_that_is_not_exported_is_found_in_its_file() {
        let file = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let own = functions(&file);
        let (first, _, name) =
            own.iter().find(|(_, size, name)| *size > 16 && name.contains("symbols")).unwrap();
        let caller = Caller { file, offset: first + 5, function: String::new() };
        let nobody = Caller { file: "/no/such/file".into(), ..caller.clone() };
        let mut stats = [Stats {
            sites: vec![Site { callers: vec![caller, nobody], ..Site::default() }],
            ..Stats::default()
        }];
        super::name(&mut stats);
        let [caller, nobody] = &stats[0].sites[0].callers[..] else { panic!() };
        assert_eq!((&caller.function, nobody.function.as_str()), (&demangled(name), ""));
    }
}
