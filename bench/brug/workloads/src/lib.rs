//! `paper-ALLOCATOR WORKLOAD COUNT`: one workload of the Brug paper's evaluation (CCGrid '24,
//! section IV) in one fresh process, on whichever global allocator the program was built with.
//!
//! Each prints one JSON object: what was done how often, nanoseconds of the work alone, and a
//! checksum over what the data structures contain at the end. The checksum is a function of the
//! workload and the count: an allocator under which it differs has lost or mixed up bytes.
//!
//! Invariant: one thread; the same requests in the same order whatever the allocator.

mod arrow;
mod checksum;
mod collections;
mod hardly;
mod phases;
mod random;
mod vectors;
mod wasm;

use std::process::ExitCode;
use std::time::Instant;

/// Does a workload so many times; its checksum.
type Work = fn(usize) -> Result<u64, String>;

const WORKLOADS: &[(&str, Work)] = &[
    ("vec-integers", vectors::integers),
    ("vec-pages", vectors::pages),
    ("vecdeque", collections::deque),
    ("linkedlist", collections::list),
    ("hashmap", collections::hash_map),
    ("btreemap", collections::tree_map),
    ("hashset", collections::hash_set),
    ("btreeset", collections::tree_set),
    ("binaryheap", collections::heap),
    ("arrow-integers", arrow::integers),
    ("arrow-pages", arrow::pages),
    ("wasm-linker", wasm::link),
    ("phases", phases::run),
    ("hardly", hardly::run),
];

/// The program: reads the command line, works, prints.
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    print(run(&words))
}

/// Prints what came of it, as a program does at its end.
pub fn print(outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Does what the words of a command line ask for; JSON.
///
/// # Errors
/// The words name no workload or no count, or the work went wrong.
pub fn run(words: &[String]) -> Result<String, String> {
    let [name, count] = words else {
        return Err(format!("usage: WORKLOAD COUNT; the workloads are: {}", names()));
    };
    let (_, work) = WORKLOADS
        .iter()
        .find(|(known, _)| known == name)
        .ok_or_else(|| format!("there is no workload '{name}'; there are: {}", names()))?;
    let count = match count.parse() {
        Ok(count) if count > 0 => count,
        _ => return Err(format!("'{count}' is no count: give a whole number from 1 on")),
    };
    let start = Instant::now();
    let checksum = work(count).map_err(|why| format!("{name}: {why}"))?;
    let work_ns = start.elapsed().as_nanos();
    Ok(format!(
        "{{\"workload\":\"{name}\",\"count\":{count},\"work_ns\":{work_ns},\"peak_rss\":{},\"checksum\":\"{checksum:016x}\"}}",
        peak_bytes()
    ))
}

/// The most bytes that were resident since the program was loaded; what the kernel tells whoever
/// waits for a process contains the size of who started it. 0 where it is not told.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn names() -> String {
    WORKLOADS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_comes_to_the_same_result_again_and_to_another_one_with_more_to_do() {
        for (name, work) in WORKLOADS {
            let first = work(300).unwrap();
            assert_eq!(work(300).unwrap(), first, "{name}");
            assert_ne!(work(301).unwrap(), first, "{name}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let refused = |words: &[&str]| {
            run(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>()).unwrap_err()
        };
        assert!(refused(&[]).contains("usage"));
        assert!(refused(&["vec", "1"]).contains("'vec'"));
        for count in ["0", "-1", "many"] {
            assert!(refused(&["hardly", count]).contains(&format!("'{count}'")));
        }
    }
}
