//! The workloads, and how much each is given to do.

use super::redis::NAME as REDIS;
use spandrel_console::Failure;

/// A workload of the paper's evaluation, or one of ours beside them.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// What the workers and tables call it.
    pub name: &'static str,
    /// The paper's figure; empty if it is ours.
    pub figure: &'static str,
    /// How often it is done at scale 1. The paper says so for integers and pages only.
    count: u64,
    /// Bytes of an item in the data structure.
    item_bytes: u64,
    /// Whether it makes too many small objects for a page each. The
    /// paper leaves its `mmap` mode out there as well.
    pub is_small: bool,
}

const fn workload(
    name: &'static str,
    figure: &'static str,
    count: u64,
    item_bytes: u64,
    is_small: bool,
) -> Workload {
    Workload { name, figure, count, item_bytes, is_small }
}

/// 15 GiB.
const PAGES: u64 = (15 << 30) / 4096;
const INTEGERS: u64 = 100_000_000;

/// In the paper's order; ours last.
pub const ALL: &[Workload] = &[
    workload("vec-integers", "Fig. 7", INTEGERS, 4, false),
    workload("vec-pages", "Fig. 8", PAGES, 4096, false),
    workload("vecdeque", "Fig. 9", INTEGERS, 8, false),
    workload("linkedlist", "Fig. 9", 20_000_000, 32, true),
    workload("hashmap", "Fig. 9", 20_000_000, 36, true),
    workload("btreemap", "Fig. 9", 10_000_000, 40, true),
    workload("hashset", "Fig. 9", 20_000_000, 20, true),
    workload("btreeset", "Fig. 9", 10_000_000, 24, true),
    workload("binaryheap", "Fig. 9", INTEGERS, 8, false),
    workload("arrow-integers", "Fig. 10", INTEGERS, 4, false),
    workload("arrow-pages", "Fig. 11", PAGES, 4096, false),
    workload("wasm-linker", "Fig. 12", 100_000, 1, false),
    workload(PHASES, "", 10_000_000, 800, true),
    workload(HARDLY, "", 20_000_000, 1, false),
];

/// The job with phases, on which `auto` is to be ahead of every fixed mode.
pub const PHASES: &str = "phases";
/// The program that hardly allocates.
pub const HARDLY: &str = "hardly";
/// The scale without `--scale`, and with `--quick`.
pub const SCALE: f64 = 0.1;
pub const SCALE_QUICK: f64 = 0.02;

impl Workload {
    /// How often it is done.
    pub fn count(&self, scale: f64) -> u64 {
        ((self.count as f64 * scale).round() as u64).max(1)
    }

    /// The most memory that it takes: what doubles is there twice while it is copied.
    pub fn peak_bytes(&self, scale: f64) -> u64 {
        let bytes = self.count(scale).saturating_mul(self.item_bytes).max(1);
        let doubled = 2u64.saturating_mul(1 << bytes.ilog2());
        bytes.max(doubled)
    }
}

/// The workloads of these names, in the order of the list; all if none are named.
pub fn choose(names: Option<&[String]>) -> Result<Vec<Workload>, Failure> {
    let Some(names) = names else { return Ok(ALL.to_vec()) };
    let known: Vec<&str> = ALL.iter().map(|workload| workload.name).chain([REDIS]).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::refused(format!(
            "--only: there is no workload '{unknown}'; there are: {}",
            known.join(", ")
        )));
    }
    Ok(ALL.iter().filter(|w| names.iter().any(|name| name == w.name)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Workload {
        choose(Some(&[name.to_string()])).unwrap()[0]
    }

    #[test]
    fn scale_1_is_the_papers() {
        assert_eq!(of("vec-integers").count(1.0), 100_000_000);
        assert_eq!(of("arrow-pages").count(1.0) * 4096, 15 << 30);
        assert_eq!(of("vec-integers").count(0.1), 10_000_000);
        assert_eq!(of("vec-integers").count(1e-12), 1);
    }

    #[test]
    fn what_doubles_is_there_twice() {
        assert_eq!(of("vec-pages").peak_bytes(1.0), 16 << 30);
        assert_eq!(of("vec-pages").peak_bytes(1e-12), 8192);
    }

    #[test]
    fn chosen_by_name() {
        let names = ["hardly", "vecdeque"].map(String::from);
        let chosen = choose(Some(&names)).unwrap();
        assert_eq!(chosen.iter().map(|w| w.name).collect::<Vec<_>>(), ["vecdeque", "hardly"]);
        let failure = choose(Some(&["nothing".to_string()])).unwrap_err();
        assert!(failure.code == 2 && failure.message.contains("'nothing'"));
        assert!(failure.message.contains("phases"));
        assert_eq!(choose(None).unwrap().len(), ALL.len());
    }
}
