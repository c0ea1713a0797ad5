//! The allocators that are installed, and sentences about those that are not.

use crate::contender::{Contender, STATIC};
use crate::{modes, places};
use spandrel_console::Failure;
use std::path::Path;

/// Which allocators are to be compared.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Only these peers; without it all that are installed.
    pub peers: Option<&'a [String]>,
    /// Modes of Spandrel, separated by commas or semicolons; none where Spandrel is not to be preloaded.
    pub modes: Option<&'a str>,
    /// The library of Spandrel, if it is named.
    pub library: Option<&'a Path>,
    /// Whether notes name the peers that are not installed, where all are wanted.
    pub names_missing: bool,
}

/// Peers that a distribution packages: name, file, and Debian's package.
const PACKAGED: &[(&str, &str, &str)] = &[
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
    ("gperftools", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
];

/// Peers that `bench/peers` builds: name and file.
const BUILT: &[(&str, &str)] = &[
    ("jemalloc-5.3.1", "libpeer_jemalloc.so"),
    ("mimalloc2", "libpeer_mimalloc2.so"),
    ("mimalloc3", "libpeer_mimalloc3.so"),
    ("snmalloc", "libpeer_snmalloc.so"),
    ("tcmalloc", "libpeer_tcmalloc.so"),
];

/// Everything that is installed and wanted, the system's allocator first, and sentences about what is not installed.
pub fn find(wanted: &Wanted<'_>) -> Result<(Vec<Contender>, Vec<String>), Failure> {
    let mut found =
        vec![Contender::system(), Contender::tuned("sys-hugetlb", "glibc.malloc.hugetlb=1")];
    let (mut packages, mut not_built) = (Vec::new(), Vec::new());
    for (name, file, package) in PACKAGED {
        match places::system_library(file) {
            Some(path) => found.push(Contender::preloaded(name, path)),
            None => packages.push((*name, *package)),
        }
    }
    let built = places::peers();
    for (name, file) in BUILT {
        let path = built.as_ref().map(|directory| directory.join(file));
        match path.filter(|path| path.exists()) {
            Some(path) => found.push(Contender::preloaded(name, path)),
            None => not_built.push(*name),
        }
    }
    if let Some(named) = wanted.peers {
        check_named(named, &found)?;
        found.retain(|peer| peer.is_system() || named.contains(&peer.name));
    }
    let mut notes = Vec::new();
    if wanted.peers.is_none() && wanted.names_missing {
        notes.extend(missing(&packages, &not_built));
    }
    let Some(modes) = wanted.modes else { return Ok((found, notes)) };
    match places::library(wanted.library) {
        Ok(library) => {
            for mode in modes::split(modes) {
                if mode != STATIC {
                    let checked = modes::check("--modes", &mode)?;
                    modes::check_built_in(&checked, &mode, &library)?;
                }
                found.push(Contender::spandrel(&mode, &library));
            }
        }
        // A library that is named and is not there is an error. Only not built: the peers can still be measured.
        Err(failure) if wanted.library.is_some() => return Err(failure),
        Err(failure) => notes.push(failure.message),
    }
    Ok((found, notes))
}

/// Sentences about peers that are not measured: what a package has, and what is built from source.
fn missing(packages: &[(&str, &str)], not_built: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    let (names, packages): (Vec<&str>, Vec<&str>) = packages.iter().copied().unzip();
    if !names.is_empty() {
        notes.push(format!(
            "not installed: {} ({} {})",
            names.join(", "),
            if names.len() == 1 { "package" } else { "packages" },
            packages.join(" ")
        ));
    }
    if !not_built.is_empty() {
        notes.push(format!(
            "not built: {} ('make peers' in the source tree, or name their folder in SPANDREL_PEERS)",
            not_built.join(", ")
        ));
    }
    notes
}

fn check_named(named: &[String], found: &[Contender]) -> Result<(), Failure> {
    let known = |name: &&String| found.iter().any(|peer| peer.name == **name);
    match named.iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<&str> = found.iter().map(|peer| peer.name.as_str()).collect();
            Err(Failure::refused(format!(
                "--peers: '{name}' is not installed here; there are: {}",
                names.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named_and_how_to_get_it() {
        assert_eq!(missing(&[], &[]), Vec::<String>::new());
        let notes = missing(&[], &["snmalloc", "tcmalloc"]);
        assert!(notes.len() == 1 && notes[0].starts_with("not built: snmalloc, tcmalloc ("));
        assert!(!notes[0].contains("package"), "{notes:?}");
        let notes = missing(&[("mimalloc", "libmimalloc2.0")], &[]);
        assert_eq!(notes, ["not installed: mimalloc (package libmimalloc2.0)"]);
    }
}
