//! The allocators that are compared, and how a program is put on each.

use crate::args::{BenchArgs, Suite};
use crate::{modes, places};
use serde::Serialize;
use spandrel_console::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to allocate.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What tables call it.
    pub name: String,
    /// The library to preload, if any.
    pub preload: Option<PathBuf>,
    /// Further environment.
    pub env: Vec<(String, OsString)>,
    /// What it is in the comparison.
    pub role: Role,
}

/// What a contender is in a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Another allocator.
    Peer,
    /// Spandrel.
    Ours,
    /// The work without any allocator: no allocator is faster.
    Floor,
}

/// What `--modes` and tables call `auto` where it does not learn while the program runs.
pub const STATIC: &str = "static";

/// Variables by which others decide about allocators.
const FOREIGN_VARIABLES: [&str; 5] =
    ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_CONF", "BRUG_ALLOC"];

impl Contender {
    /// The C library's own allocator.
    pub fn system() -> Self {
        Self { name: "sys".into(), preload: None, env: Vec::new(), role: Role::Peer }
    }

    /// The C library's own allocator with one of its tunables set.
    pub fn tuned(name: &str, tunable: &str) -> Self {
        let env = vec![("GLIBC_TUNABLES".into(), tunable.into())];
        Self { name: name.into(), preload: None, env, role: Role::Peer }
    }

    fn preloaded(name: &str, library: PathBuf) -> Self {
        Self { name: name.into(), preload: Some(library), env: Vec::new(), role: Role::Peer }
    }

    /// Spandrel in a mode, or [`STATIC`].
    pub fn spandrel(mode: &str, library: &Path) -> Self {
        let name = if mode == "auto" { "spandrel".into() } else { format!("spandrel {mode}") };
        let env = if mode == STATIC {
            vec![("SPANDREL_MODE".into(), "auto".into()), ("SPANDREL_TUNER".into(), "0".into())]
        } else {
            vec![("SPANDREL_MODE".into(), mode.into())]
        };
        Self { name, preload: Some(library.to_path_buf()), env, role: Role::Ours }
    }

    /// The work alone, for suites that have it.
    pub fn floor(name: &str) -> Self {
        Self { name: name.into(), role: Role::Floor, ..Self::system() }
    }

    /// Whether it is Spandrel.
    pub fn ours(&self) -> bool {
        self.role == Role::Ours
    }

    /// Whether this is the allocator that ratios are taken against.
    pub fn is_system(&self) -> bool {
        self.name == "sys"
    }

    /// What puts a program on this allocator, as words of `env`.
    pub fn variables(&self) -> impl Iterator<Item = OsString> {
        let preload = self.preload.iter().map(|library| ("LD_PRELOAD", library.as_os_str()));
        let others = self.env.iter().map(|(name, value)| (name.as_str(), value.as_os_str()));
        preload.chain(others).map(|(name, value)| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            word
        })
    }

    /// Puts a program on this allocator: it sees what its contender sets, not what the
    /// user's shell happens to have.
    pub fn prepare(&self, command: &mut Command) {
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.as_encoded_bytes().starts_with(b"SPANDREL_")) {
            command.env_remove(name);
        }
        for name in FOREIGN_VARIABLES {
            command.env_remove(name);
        }
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", library);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
    }
}

/// Peers that a distribution packages: name, file, and Debian's package.
const PACKAGED: &[(&str, &str, &str)] = &[
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
    ("gperftools", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
];

/// Peers that `bench-compare` builds: name and file.
const BUILT: &[(&str, &str)] = &[
    ("jemalloc-5.3.1", "libpeer_jemalloc.so"),
    ("mimalloc2", "libpeer_mimalloc2.so"),
    ("mimalloc3", "libpeer_mimalloc3.so"),
    ("snmalloc", "libpeer_snmalloc.so"),
    ("tcmalloc", "libpeer_tcmalloc.so"),
];

/// Everything that is installed, and sentences about what is not.
pub fn find(args: &BenchArgs) -> Result<(Vec<Contender>, Vec<String>), Failure> {
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
    if let Some(wanted) = &args.peers {
        check_wanted(wanted, &found)?;
        found.retain(|peer| peer.is_system() || wanted.contains(&peer.name));
    }
    let mut notes = Vec::new();
    // Real programs are put on peers by name only, and other suites say themselves what they lack.
    if args.peers.is_none()
        && !matches!(args.suite, Suite::Apps | Suite::World | Suite::Paper | Suite::Heap)
    {
        notes.extend(missing(&packages, &not_built));
    }
    if args.suite == Suite::Heap {
        // The worker is linked with the recoverable heap.
        return Ok((found, notes));
    }
    match places::library(args.lib.as_deref()) {
        Ok(library) => {
            for mode in modes::split(&args.modes) {
                if mode != STATIC {
                    let checked = modes::check("--modes", &mode)?;
                    modes::check_built_in(&checked, &mode, &library)?;
                }
                found.push(Contender::spandrel(&mode, &library));
            }
        }
        // A library that is named and is not there is an error. Only not built: the peers can still be measured.
        Err(failure) if args.lib.is_some() => return Err(failure),
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

fn check_wanted(wanted: &[String], found: &[Contender]) -> Result<(), Failure> {
    let known = |name: &&String| found.iter().any(|peer| peer.name == **name);
    match wanted.iter().find(|name| !known(name)) {
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

    #[test]
    fn the_environment_is_the_contenders_own() {
        let contender = Contender::spandrel("mmap", Path::new("/x/libspandrel.so"));
        let mut command = Command::new("true");
        command.env("GLIBC_TUNABLES", "leftover");
        contender.prepare(&mut command);
        let env: Vec<_> = command.get_envs().collect();
        let value = |name: &str| env.iter().find(|(n, _)| *n == name).and_then(|(_, v)| *v);
        assert_eq!(value("LD_PRELOAD").unwrap(), "/x/libspandrel.so");
        assert_eq!(value("SPANDREL_MODE").unwrap(), "mmap");
        assert_eq!(value("GLIBC_TUNABLES"), None);
    }
}
