//! The contenders: of each allocator one, libpmemobj, and the recoverable heap.

use super::{Chosen, worker};
use crate::suite::Bench;
use spandrel_measure::contender::{Contender, Role};
use std::time::Duration;

/// What tables call the recoverable heap.
pub const HEAP: &str = "spandrel";
/// libpmemobj of PMDK.
pub const PMEMOBJ: &str = "pmemobj";

/// Of several builds of an allocator the first that there is; and the package that has one.
const PEERS: [(&str, &[&str], &str); 2] = [
    (JEMALLOC, &["jemalloc-5.3.1", "jemalloc"], "libjemalloc2"),
    ("mimalloc", &["mimalloc2", "mimalloc", "mimalloc3"], "libmimalloc2.0"),
];
const JEMALLOC: &str = "jemalloc";

/// Parts that are not measured on every allocator.
const ALONE: [&str; 4] = ["blocks", "resur", "open", "checkpoint"];

/// How long it may take to find out whether libpmemobj is there.
const TRIAL_MAX: Duration = Duration::from_secs(20);

/// The contenders that there are, and sentences about those that are missing.
pub fn find(bench: &Bench, chosen: &Chosen) -> (Vec<Contender>, Vec<String>) {
    let (mut found, mut missing) = among(&bench.contenders);
    let is_needed = chosen.names.iter().any(|name| !ALONE.contains(name));
    if !is_needed {
        return (found, Vec::new());
    }
    let pmemobj = pmemobj();
    let words = ["heap-pair", "--pairs", "1"].map(String::from);
    let mut notes = Vec::new();
    match worker::on(&bench.worker, &pmemobj, &words, TRIAL_MAX) {
        Ok(_) => found.push(pmemobj),
        // As the dynamic linker has it.
        Err(why) if why.contains("libpmemobj.so") => {
            missing.push("libpmemobj (package libpmemobj1)".into());
        }
        Err(why) => notes.push(format!("without libpmemobj: {why}")),
    }
    found.push(heap());
    notes.extend(missing.into_iter().map(|name| format!("not installed: {name}")));
    (found, notes)
}

/// The system's allocator and one of each peer.
fn among(all: &[Contender]) -> (Vec<Contender>, Vec<String>) {
    let of = |name: &str| all.iter().find(|contender| contender.name == name).cloned();
    let mut found: Vec<Contender> = all.iter().filter(|c| c.is_system()).cloned().collect();
    let mut missing = Vec::new();
    for (name, builds, package) in PEERS {
        match builds.iter().find_map(|build| of(build)) {
            Some(peer) => found.push(peer),
            None => missing.push(format!("{name} (package {package})")),
        }
    }
    (found, missing)
}

/// The recoverable heap: the worker is linked with it, and nothing is preloaded.
pub fn heap() -> Contender {
    Contender { name: HEAP.into(), role: Role::Ours, ..Contender::system() }
}

fn pmemobj() -> Contender {
    let env = vec![("PMEM_IS_PMEM_FORCE".into(), "1".into())];
    Contender { name: PMEMOBJ.into(), env, ..Contender::system() }
}

/// Whether this is libpmemobj.
pub fn is_pmemobj(contender: &Contender) -> bool {
    contender.name == PMEMOBJ
}

/// Whether this is jemalloc, in whatever build.
pub fn is_jemalloc(contender: &Contender) -> bool {
    contender.name.starts_with(JEMALLOC)
}

/// What the worker calls whom it is to allocate with.
pub fn word(contender: &Contender) -> &'static str {
    match contender.name.as_str() {
        HEAP => "spandrel",
        PMEMOBJ => "pmemobj",
        _ => "malloc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Contender> {
        let of = |name: &&str| Contender { name: (*name).into(), ..Contender::system() };
        names.iter().map(of).collect()
    }

    #[test]
    fn one_build_of_each() {
        let all = named(&["sys", "sys-hugetlb", "jemalloc", "mimalloc", "snmalloc", "mimalloc2"]);
        let (found, missing) = among(&all);
        let names: Vec<_> = found.iter().map(|contender| contender.name.as_str()).collect();
        assert_eq!(names, ["sys", "jemalloc", "mimalloc2"]);
        assert!(missing.is_empty() && is_jemalloc(&found[1]));
        let (_, missing) = among(&named(&["sys", "mimalloc3"]));
        assert_eq!(missing, ["jemalloc (package libjemalloc2)"]);
    }

    #[test]
    fn words_of_the_worker() {
        assert_eq!(
            [heap(), pmemobj(), Contender::system()].each_ref().map(word),
            ["spandrel", "pmemobj", "malloc"]
        );
        assert!(heap().ours() && !pmemobj().ours() && heap().preload.is_none());
    }
}
