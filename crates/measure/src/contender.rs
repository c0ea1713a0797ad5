//! The allocators that are compared, and how a program is put on each.

use serde::Serialize;
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

/// What tables call a server on the allocator that it is linked with: `redis-server` on its own jemalloc.
pub const OWN: &str = "own jemalloc";

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

    /// Another allocator, in a library.
    pub fn preloaded(name: &str, library: PathBuf) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

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
