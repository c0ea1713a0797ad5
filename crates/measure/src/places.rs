//! Where the pieces of an installation lie, relative to this command: in a build
//! directory everything is side by side, in a package it is `bin/` and `lib/`.

use object::elf::{self, ET_DYN, Machine};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache};
use spandrel_console::Failure;
use spandrel_pages::live::SYMBOL;
use std::fs::File;
use std::path::{Path, PathBuf};

const LIBRARY: &str = "libspandrel.so";
const WORKER: &str = "spandrel-bench-worker";

/// The directories to look in for a file of this installation.
fn candidates(name: &str) -> Vec<PathBuf> {
    let Some(here) = own_directory() else {
        return Vec::new();
    };
    let lib = here.join("../lib");
    [
        here.join(name),
        lib.join(name),
        lib.join(format!("{}-linux-gnu", std::env::consts::ARCH)).join(name),
        lib.join("spandrel").join(name),
    ]
    .into()
}

/// The source tree that this command was built in, where its build directory lies in the tree.
pub fn source_tree() -> Option<PathBuf> {
    Some(own_directory()?.join("../.."))
}

fn own_directory() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_path_buf())
}

/// The library to preload, as an absolute path: a Spandrel for this machine.
pub fn library(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = asked {
        let library = std::fs::canonicalize(path).map_err(|why| {
            Failure::refused(format!("the library '{}' cannot be used: {why}", path.display()))
        })?;
        return check_library(&library).map(|()| library);
    }
    let library = find(LIBRARY).ok_or_else(|| {
        Failure::refused(format!(
            "{LIBRARY} was not found beside this command or in ../lib: build it with \
             'cargo build --release -p spandrel-capi', or name it with --lib PATH or SPANDREL_LIB"
        ))
    })?;
    check_library(&library).map(|()| library)
}

/// Refuses a file that is no Spandrel, or cannot be preloaded: the program would run as if nothing were wrong, on another
/// allocator.
fn check_library(library: &Path) -> Result<(), Failure> {
    check_preloadable(library)?;
    let path = library.display();
    let why = match is_spandrel(library) {
        Some(true) => return Ok(()),
        Some(false) => "is another library than Spandrel: name libspandrel.so",
        None => "is not a shared library for this machine",
    };
    Err(Failure::refused(format!("'{path}' {why}")))
}

/// Whether a shared library is Spandrel, which has its figures under a name; `None`: it is no library for this machine.
fn is_spandrel(path: &Path) -> Option<bool> {
    let file = ReadCache::new(File::open(path).ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&file).ok()?;
    let header = elf.elf_header();
    let is_library =
        header.e_type(elf.endian()) == ET_DYN && header.e_machine(elf.endian()) == own_machine();
    let is_figures = |symbol: object::read::elf::ElfSymbol64<'_, '_, Endianness, _>| {
        symbol.name() == Ok(SYMBOL) && symbol.address() != 0
    };
    is_library.then(|| elf.dynamic_symbols().any(is_figures))
}

/// The machine that this command, and so the library, was built for.
pub fn own_machine() -> Machine {
    match std::env::consts::ARCH {
        "aarch64" => elf::EM_AARCH64,
        "riscv64" => elf::EM_RISCV,
        _ => elf::EM_X86_64,
    }
}

/// The program that the benchmarks measure.
pub fn worker() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("SPANDREL_BENCH_WORKER").map(PathBuf::from);
    named.filter(|path| path.exists()).or_else(|| find(WORKER)).ok_or_else(|| {
        Failure::refused(format!(
            "{WORKER} was not found beside this command or in ../lib/spandrel: build it with \
             'cargo build --release', or name it in SPANDREL_BENCH_WORKER"
        ))
    })
}

/// Another program or library that was built or installed beside this command.
pub fn beside(name: &str) -> Option<PathBuf> {
    find(name)
}

/// The directory of peers built by `bench/peers/build.sh`.
pub fn peers() -> Option<PathBuf> {
    let named = std::env::var_os("SPANDREL_PEERS").map(PathBuf::from);
    let built = || Some(source_tree()?.join("bench/peers/lib"));
    named.or_else(built).filter(|path| path.is_dir())
}

fn find(name: &str) -> Option<PathBuf> {
    candidates(name).into_iter().find_map(|path| std::fs::canonicalize(path).ok())
}

/// A shared library of the system, by its file name.
pub fn system_library(name: &str) -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [multiarch.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists())
}

/// What `LD_PRELOAD` separates its names by cannot be part of one.
///
/// # Errors
/// The path has a space or a colon.
pub fn check_preloadable(library: &Path) -> Result<(), Failure> {
    let bytes = library.as_os_str().as_encoded_bytes();
    if bytes.iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::refused(format!(
            "'{}' cannot be preloaded: the dynamic linker takes spaces and colons for separators; \
             move the library (or, for spandrel run, name a link to it with --lib)",
            library.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_refused() {
        assert!(check_preloadable(Path::new("/usr/lib/libspandrel.so")).is_ok());
        assert_eq!(check_preloadable(Path::new("/my lib/x.so")).unwrap_err().code, 2);
        assert_eq!(check_preloadable(Path::new("/a:b/x.so")).unwrap_err().code, 2);
    }

    #[test]
    fn a_named_library_must_exist() {
        let failure = library(Some(Path::new("/no/such/lib.so"))).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("/no/such/lib.so"));
    }
}
