//! The stores: a durable state, the same load on a map in memory, and stores of others.

use super::capture;
use super::list::{Case, Stores};
use serde_json::Value;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_measure::contender::{Contender, Role};
use spandrel_measure::{places, process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What tables call a durable state, and what the worker calls it.
pub const STATE: &str = "spandrel";
/// A plain state of the standard library's map, whose commands are translated.
pub const PLAIN: &str = "plain";
/// A map in memory, which nothing survives.
pub const MEMORY: &str = "memory";
/// The worker's tree on libpmemobj.
pub const PMEMOBJ: &str = "pmemobj";
/// Durable states whose stores are noted otherwise.
pub const CAPTURES: [&str; 5] =
    ["spandrel-16", "spandrel-64", "spandrel-128", "spandrel-repeats", "spandrel-blocks"];
/// Stores that the worker opens, and the packages that have them.
const OPENED: [(&str, &str, &str); 4] = [
    ("leveldb", "libleveldb.so.1d", "libleveldb1d"),
    ("rocksdb", "librocksdb.so.7.8", "librocksdb7.8"),
    ("lmdb", "liblmdb.so.0", "liblmdb0"),
    (PMEMOBJ, "libpmemobj.so.1", "libpmemobj1"),
];
/// Stores of the program that `make -C bench/peers stores` builds.
const BUILT: [&str; 2] = ["redb", "fjall"];

/// The programs with the stores.
pub struct Programs {
    pub worker: PathBuf,
    /// Of plain states, which need an allocator of their own, if it is built.
    pub plain: Option<PathBuf>,
    /// Of stores that are Rust packages, if it is built.
    peers: Option<PathBuf>,
}

impl Programs {
    /// Finds them.
    pub fn find(worker: &Path) -> Self {
        let named = std::env::var_os("SPANDREL_PEERS").map(PathBuf::from);
        let built = || Some(places::source_tree()?.join("bench/peers/lib"));
        let peers = named.or_else(built).map(|folder| folder.join("stores"));
        let peers = peers.filter(|path| path.is_file());
        Self { worker: worker.to_path_buf(), plain: capture::beside(worker), peers }
    }

    /// The stores that there are, and sentences about those that are missing.
    pub fn stores(&self) -> (Vec<Contender>, Vec<String>) {
        let of = |name: &str| Contender { name: name.into(), ..Contender::system() };
        let mut found = vec![of(MEMORY), Contender { role: Role::Ours, ..of(STATE) }];
        let mut missing = Vec::new();
        if self.plain.is_some() {
            found.push(Contender { role: Role::Ours, ..of(PLAIN) });
        } else {
            missing.push(format!("not built: {PLAIN} (cargo build --release)"));
        }
        for (name, library, package) in OPENED {
            match places::system_library(library) {
                Some(_) => found.push(of(name)),
                None => missing.push(format!("not installed: {name} (package {package})")),
            }
        }
        if self.peers.is_some() {
            found.extend(BUILT.map(of));
        } else {
            let names = BUILT.join(" and ");
            missing.push(format!("not built: {names} (make -C bench/peers stores)"));
        }
        (found, missing)
    }

    /// Those of `all` that a case is measured with, or others.
    pub fn of(case: &Case, all: &[Contender]) -> Vec<Contender> {
        let ours = all.iter().filter(|store| case.stores == Stores::All || store.name == STATE);
        let captures = CAPTURES.iter().filter(|_| case.stores == Stores::Captures);
        let captures = captures.map(|name| Contender {
            name: (*name).into(),
            role: Role::Ours,
            ..Contender::system()
        });
        ours.cloned().chain(captures).collect()
    }

    /// One run of a case on a store, in a fresh directory within `place`.
    pub fn run(
        &self,
        store: &Contender,
        case: &Case,
        place: &Path,
        patience: Duration,
    ) -> Result<Value, String> {
        let directory = Scratch::directory_in(Kind::Bench, place)
            .map_err(|why| format!("{}: {why}", place.display()))?;
        let is_reopened = case.words.iter().any(|word| word == "reopen");
        if is_reopened {
            let words: Vec<String> = case.words.iter().map(|word| crash(word)).collect();
            self.worker_says(store, &words, directory.path(), patience)?;
        }
        let said = self.worker_says(store, &case.words, directory.path(), patience)?;
        serde_json::from_str(&said).map_err(|why| format!("its output is not JSON: {why}"))
    }

    fn worker_says(
        &self,
        store: &Contender,
        words: &[String],
        directory: &Path,
        patience: Duration,
    ) -> Result<String, String> {
        let mut command = match (&self.peers, &self.plain) {
            (Some(peers), _) if BUILT.contains(&store.name.as_str()) => Command::new(peers),
            (_, plain) => {
                let plain = plain.as_ref().filter(|_| store.name == PLAIN);
                let mut command = Command::new(plain.unwrap_or(&self.worker));
                command.arg("store");
                command
            }
        };
        command.arg(&store.name).args(words).arg("--directory").arg(directory);
        store.prepare(&mut command);
        Ok(process::run(&mut command, Some(patience))?.success()?.output)
    }
}

/// The words of the run that leaves what a run recovers.
fn crash(word: &str) -> String {
    if word == "reopen" { "crash".into() } else { word.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_and_a_map_are_always_there() {
        let programs = Programs { worker: "worker".into(), plain: None, peers: None };
        let (found, missing) = programs.stores();
        assert_eq!((found[0].name.as_str(), found[1].name.as_str()), (MEMORY, STATE));
        assert!(found[1].ours() && !found[0].ours());
        assert!(missing.iter().any(|line| line.contains("redb and fjall")));
        assert!(missing.iter().any(|line| line.contains(PLAIN)));
        let programs = Programs { plain: Some("plain".into()), ..programs };
        let (found, missing) = programs.stores();
        assert!(found[2].name == PLAIN && !missing.iter().any(|line| line.contains(PLAIN)));
        let sizes = super::super::list::Sizes::at(1.0);
        let measured = |part| {
            let case = super::super::list::cases(&[part], &sizes).swap_remove(0);
            Programs::of(&case, &found).iter().any(|store| store.name == PLAIN)
        };
        assert_eq!(["fill", "recovery", "capture"].map(measured), [true, false, false]);
        assert_eq!((crash("reopen"), crash("--keys")), ("crash".into(), "--keys".into()));
    }
}
