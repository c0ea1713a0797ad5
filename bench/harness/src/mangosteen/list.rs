//! What can be measured, and how much is done at a scale.

use serde::Serialize;
use spandrel_console::Failure;

/// The names of all parts, in the order in which they are measured.
pub const ALL: [&str; 7] =
    ["fill", "redb", "clients", "updates", "capture", "recovery", super::servers::NAME];

/// The scale without `--scale`, and with `--quick`. At 1 there are the records that a machine with two processors has patience for: the paper has 13 million.
pub const SCALE: f64 = 0.1;
pub const SCALE_QUICK: f64 = 0.01;

/// How much is done.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sizes {
    /// Records of a store.
    pub keys: u64,
    /// The longest duration of a run, in milliseconds.
    pub millis: u64,
    /// MiB of values in the state that is recovered.
    pub recovered: u64,
    /// Seconds after which a run is given up.
    pub patience: u64,
}

impl Sizes {
    /// A million records at 1.
    pub fn at(scale: f64) -> Self {
        let part = |of: f64, least: f64| (of * scale).max(least).round() as u64;
        Self {
            keys: part(1e6, 1000.0),
            millis: part(5000.0, 100.0),
            recovered: part(1024.0, 4.0),
            patience: 300,
        }
    }
}

/// Which stores a case is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Stores {
    /// Durable states, a map in memory, and stores of others.
    All,
    /// A durable state.
    Own,
    /// Durable states whose stores are noted in several ways.
    Captures,
}

/// A run of the worker on each store.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// The part that it belongs to.
    pub part: &'static str,
    /// What tables call it.
    pub name: String,
    /// Arguments of the worker.
    pub words: Vec<String>,
    /// What is measured with it.
    pub stores: Stores,
    /// Threads that send requests.
    pub threads: u64,
    /// Puts among a hundred requests.
    pub updates: u64,
    /// Bytes of a value.
    pub value: u64,
}

/// The job, threads, puts among a hundred requests, and bytes of a value.
type Numbers = (&'static str, u64, u64, u64);

impl Case {
    fn new(
        part: &'static str,
        name: String,
        (job, threads, updates, value): Numbers,
        keys: u64,
        sizes: &Sizes,
    ) -> Self {
        let numbers = [
            ("--threads", threads),
            ("--updates", updates),
            ("--value", value),
            ("--keys", keys),
            ("--millis", sizes.millis),
        ];
        let mut words = vec!["--job".to_string(), job.to_string()];
        let pairs = numbers.map(|(name, number)| [name.to_string(), number.to_string()]);
        words.extend(pairs.into_iter().flatten());
        Self { part, name, words, stores: Stores::All, threads, updates, value }
    }

    fn with(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| (*word).to_string()));
        self
    }
}

/// The cases of some parts.
pub fn cases(parts: &[&str], sizes: &Sizes) -> Vec<Case> {
    let keys = sizes.keys;
    let mut all = Vec::new();
    // Figs. 8 and 9 of the paper: LevelDB's own benchmark, with values of 100 bytes and of 1 KiB.
    for value in [100, 1024] {
        for job in ["fillseq", "fillrandom", "overwrite", "readseq", "readreverse"] {
            let name = format!("{job}, {value} B");
            all.push(Case::new("fill", name, (job, 1, 100, value), keys, sizes));
        }
    }
    let large = (keys / 1000).max(10);
    all.push(Case::new("fill", "fill100K".into(), ("fillrandom", 1, 100, 100_000), large, sizes));
    // The table of redb's own benchmark; values have 150 bytes there.
    for (name, job, threads, updates) in [
        ("bulk load", "bulk", 1, 100),
        ("individual writes", "overwrite", 1, 100),
        ("batch writes", "batches", 1, 100),
        ("random reads", "mixed", 1, 0),
        ("random reads, 4 threads", "mixed", 4, 0),
        ("random range reads", "ranges", 1, 0),
        ("removals", "removals", 1, 100),
    ] {
        all.push(Case::new("redb", name.into(), (job, threads, updates, 150), keys, sizes));
    }
    // Figs. 5 and 6: clients in a closed loop, records of ten fields of 100 bytes; keys by Zipf's law and uniform. The paper has no row of puts alone.
    for (updates, spread) in
        [(100, "uniform"), (90, "uniform"), (90, "zipf"), (10, "uniform"), (10, "zipf")]
    {
        for threads in [1, 2, 8, 32, 96] {
            let of_keys = if spread == "zipf" { ", Zipf" } else { "" };
            let name = format!("{updates} % puts{of_keys}, {threads}");
            let numbers = ("mixed", threads, updates, 1000);
            let case = Case::new("clients", name, numbers, keys, sizes);
            all.push(case.with(&["--spread", spread]));
        }
    }
    // Fig. 7: the part of updates, keys by Zipf's law.
    for updates in [100, 90, 50, 10, 0] {
        let numbers = ("mixed", 8, updates, 1000);
        let case = Case::new("updates", format!("{updates} % puts"), numbers, keys, sizes);
        all.push(case.with(&["--spread", "zipf"]));
    }
    // Section 4.3, and what the paper's sections 6.2 and 6.3 say of deduplication and of ranges.
    let of_captures = [
        ("100 % puts, Zipf, 1 kB, 8", ("mixed", 8, 100, 1000), keys, "zipf"),
        ("100 % puts, 1 kB, 8", ("mixed", 8, 100, 1000), keys, "uniform"),
        ("fillrandom, 100 B, 1", ("fillrandom", 1, 100, 100), keys, "uniform"),
        ("fill100K, 1", ("fillrandom", 1, 100, 100_000), large, "uniform"),
    ];
    for (name, numbers, keys, spread) in of_captures {
        let case = Case::new("capture", name.into(), numbers, keys, sizes);
        all.push(Case { stores: Stores::Captures, ..case.with(&["--spread", spread]) });
    }
    // Section 6.4: what is left after a crash comes back.
    let records = sizes.recovered * 1024;
    for (name, threads) in [("one processor", 1), ("all processors", 2)] {
        let case = Case::new("recovery", name.into(), ("reopen", 1, 100, 1024), records, sizes);
        all.push(Case { stores: Stores::Own, threads, ..case });
    }
    all.into_iter().filter(|case| parts.contains(&case.part)).collect()
}

/// The parts of these names, in the order of the list; all if none are named.
pub fn choose(names: Option<&[String]>) -> Result<Vec<&'static str>, Failure> {
    let Some(names) = names else { return Ok(ALL.to_vec()) };
    if let Some(unknown) = names.iter().find(|name| !ALL.contains(&name.as_str())) {
        return Err(Failure::refused(format!(
            "--only: the suite 'durable' has no part '{unknown}'; there are: {}",
            ALL.join(", ")
        )));
    }
    Ok(ALL.iter().filter(|known| names.iter().any(|name| name == *known)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        assert_eq!((Sizes::at(1.0).keys, Sizes::at(1.0).recovered), (1_000_000, 1024));
        assert_eq!((Sizes::at(1e-9).keys, Sizes::at(1e-9).millis), (1000, 100));
    }

    #[test]
    fn cases_of_parts() {
        let sizes = Sizes::at(SCALE);
        let all = cases(&ALL, &sizes);
        // Servers have loads of their own.
        assert!(ALL.iter().take(6).all(|part| all.iter().any(|case| case.part == *part)));
        let some = cases(&["updates"], &sizes);
        assert_eq!(some.len(), 5);
        assert!(some[0].words.ends_with(&["--spread".into(), "zipf".into()]));
        assert!(some[4].words.windows(2).any(|pair| pair == ["--updates", "0"]));
    }

    #[test]
    fn chosen_by_name() {
        let names = ["updates", "fill"].map(String::from);
        assert_eq!(choose(Some(&names)).unwrap(), ["fill", "updates"]);
        let failure = choose(Some(&["nothing".to_string()])).unwrap_err();
        assert!(failure.code == 2 && failure.message.contains("'nothing'"));
        assert_eq!(choose(None).unwrap().len(), ALL.len());
    }
}
