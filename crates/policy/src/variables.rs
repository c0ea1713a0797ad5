//! The environment variables of the project. A name among ours that nothing reads is a typing error.

/// What the names of all begin with.
pub const PREFIX: &str = "SPANDREL_";

/// Those that the library reads.
const OF_THE_LIBRARY: [&str; 16] = [
    "SPANDREL_BACKGROUND",
    "SPANDREL_DURABLE_VERIFY",
    "SPANDREL_EXPERIMENT",
    "SPANDREL_GUARD",
    "SPANDREL_HANDSHAKE",
    "SPANDREL_LIMIT",
    "SPANDREL_MODE",
    "SPANDREL_PROFILE",
    "SPANDREL_RELEASE_RATE",
    "SPANDREL_SITES",
    "SPANDREL_STATS",
    "SPANDREL_TRACE",
    "SPANDREL_TRACE_LIMIT",
    "SPANDREL_TRACE_OF",
    "SPANDREL_TUNER",
    "SPANDREL_VERBOSE",
];

/// Those that the command, the build and the tests read, or that the command sets for what it starts.
const OF_TOOLS: [&str; 18] = [
    "SPANDREL_BENCH_WORKER",
    "SPANDREL_DURABLE_ADAPTER",
    "SPANDREL_DURABLE_DIR",
    "SPANDREL_DURABLE_PRELOAD",
    "SPANDREL_DURABLE_PROBE",
    "SPANDREL_DURABLE_PROGRAM",
    "SPANDREL_DURABLE_SOCKET",
    "SPANDREL_DURABLE_WORKERS",
    "SPANDREL_EVERY_BIT",
    "SPANDREL_FUZZ_COMPONENT",
    "SPANDREL_HEAP_LIB",
    "SPANDREL_LIB",
    "SPANDREL_PAPER",
    "SPANDREL_PEERS",
    "SPANDREL_PROGRAMS",
    "SPANDREL_PYTHON",
    "SPANDREL_SOAK",
    "SPANDREL_TCMALLOC_SOURCES",
];
/// Variables of the tests.
const OF_TESTS: &str = "SPANDREL_TEST_";

/// Longest name that is compared with others.
const NAME_BYTES: usize = 32;
/// Letters that a typing error changes at most.
const NEAR: usize = 2;

/// A name among ours that nothing reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown<'a> {
    /// The name.
    pub name: &'a str,
    /// The variable that may be meant.
    pub meant: Option<&'static str>,
}

impl core::fmt::Display for Unknown<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}: there is no such variable", self.name)?;
        match self.meant {
            Some(meant) => write!(out, "; {meant} may be meant"),
            None => Ok(()),
        }
    }
}

/// Looks a variable's name up; `None`: it is known, or not among ours.
pub fn unknown(name: &str) -> Option<Unknown<'_>> {
    let is_known = |name| OF_THE_LIBRARY.iter().chain(&OF_TOOLS).any(|known| *known == name);
    if !name.starts_with(PREFIX) || name.starts_with(OF_TESTS) || is_known(name) {
        return None;
    }
    let near = OF_THE_LIBRARY.iter().map(|known| (distance(name, known), *known));
    let nearest = near.min_by_key(|(distance, _)| *distance);
    Some(Unknown { name, meant: nearest.filter(|(far, _)| *far <= NEAR).map(|(_, known)| known) })
}

/// Letters to insert, to remove or to replace until two names are the same.
fn distance(one: &str, other: &str) -> usize {
    if one.len() > NAME_BYTES || other.len() > NAME_BYTES {
        return usize::MAX;
    }
    // Of the beginning of `one` that was looked at, to each beginning of `other`.
    let mut row: [usize; NAME_BYTES + 1] = core::array::from_fn(|at| at);
    for (line, letter) in one.bytes().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (place, against) in row.iter_mut().skip(1).zip(other.bytes()) {
            let replaced = diagonal + usize::from(letter != against);
            diagonal = *place;
            left = replaced.min(left + 1).min(*place + 1);
            *place = left;
        }
    }
    row.get(other.len()).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::BTreeSet;
    use std::format;
    use std::path::Path;
    use std::string::{String, ToString};

    #[test]
    fn names_that_nothing_reads_are_unknown() {
        for known in ["SPANDREL_MODE", "SPANDREL_LIB", "SPANDREL_TEST_X", "PATH", "spandrel_mode"] {
            assert_eq!(unknown(known), None);
        }
        for (name, meant) in [
            ("SPANDREL_MODEE", Some("SPANDREL_MODE")),
            ("SPANDREL_MDOE", Some("SPANDREL_MODE")),
            ("SPANDREL_STAT", Some("SPANDREL_STATS")),
            ("SPANDREL_RELEASERATE", Some("SPANDREL_RELEASE_RATE")),
            ("SPANDREL_", None),
            ("SPANDREL_COLOUR", None),
            ("SPANDREL_A_NAME_THAT_IS_LONGER_THAN_ANY_OTHER", None),
        ] {
            assert_eq!(unknown(name), Some(Unknown { name, meant }));
        }
        let said = unknown("SPANDREL_MODEE").unwrap().to_string();
        assert_eq!(said, "SPANDREL_MODEE: there is no such variable; SPANDREL_MODE may be meant");
    }

    #[test]
    fn distances() {
        for (one, other, far) in [("", "", 0), ("abc", "", 3), ("abc", "abd", 1), ("ab", "ba", 2)] {
            assert_eq!((distance(one, other), distance(other, one)), (far, far));
        }
    }

    /// What a source file reads: names in quotation marks, alone or in a C string.
    fn read_by(text: &str, names: &mut BTreeSet<String>) {
        for (at, _) in text.match_indices(&format!("\"{PREFIX}")) {
            let name = text.get(at + 1..).and_then(|rest| rest.split('"').next()).unwrap_or("");
            if name.len() > PREFIX.len()
                && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            {
                names.insert(name.to_string());
            }
        }
    }

    fn read_in(directory: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() && !path.ends_with("tests") => read_in(&path, names),
                Some("rs") if !path.ends_with("variables.rs") => {
                    read_by(&std::fs::read_to_string(&path).unwrap(), names);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn each_variable_that_a_source_file_reads_is_known() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names = BTreeSet::new();
        for part in ["crates", "bench/harness", "bench/worker", "tests/src", "fuzz/fuzz_targets"] {
            read_in(&workspace.join(part), &mut names);
        }
        assert!(names.len() > 20, "{names:?}");
        let strangers: BTreeSet<_> = names.iter().filter(|name| unknown(name).is_some()).collect();
        assert_eq!(strangers, BTreeSet::new(), "they belong into the lists of this file");
        for known in OF_THE_LIBRARY {
            assert!(names.contains(known), "nothing reads {known}");
        }
    }
}
