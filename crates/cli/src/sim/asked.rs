//! What was asked for, understood and checked.

use super::SimArgs;
use super::compared::{Pair, pairs};
use spandrel_console::{Failure, files};
use spandrel_measure::reserve;
use spandrel_pages::{ByteSize, GIB, HEAP_PAGE_BYTES};
use spandrel_report::numbers::bytes;
use spandrel_sim::{Config, HEAP_MAX, Policy, Shape, Sizes, Target, bytes_needed};
use std::path::Path;

const HEAP_BYTES: u64 = 64 * GIB as u64;
/// The same where memory is really asked for.
const REAL_BYTES: u64 = 256 << 20;
const OPERATIONS: u64 = 20_000_000;
/// Where a heap is so large that filling it takes more than those.
const FILLS: f64 = 4.0;
/// Best fit takes time with the heap's size: from this many bytes times operations on it is told.
const SLOW: f64 = 4e16;
/// This many simulated seconds take minutes, whatever happens in them.
const LONG_S: f64 = 1e7;
/// Files of more bytes are no tables.
const FILE_MAX: usize = 64 << 20;

/// A comparison of policies.
pub struct Asked {
    /// The policies and releases, each pair once.
    pub pairs: Vec<Pair>,
    /// Which spans.
    pub sizes: Sizes,
    /// The course of the heap.
    pub target: Target,
    /// What the course is called.
    pub shape: String,
    /// About how many operations there will be.
    pub operations: u64,
    /// How many there may be at most.
    pub limit: Option<u64>,
}

impl Asked {
    /// Understands the flags; reads files.
    pub fn from(args: &SimArgs) -> Result<Self, Failure> {
        let pairs = pairs(args)?;
        let sizes = match &args.sizes {
            None => Sizes::built_in(),
            Some(path) => parse_file("--sizes", path, Sizes::parse)?,
        };
        let limit = args.operations.as_deref().map(operations).transpose()?;
        let usual = if args.on_allocators { REAL_BYTES } else { HEAP_BYTES };
        let heap = args.heap.as_deref().map(heap).transpose()?;
        Ok(match shape(&args.target) {
            Some(shape) => {
                let pages = heap.unwrap_or(usual) as f64 / HEAP_PAGE_BYTES as f64;
                check_memory("--heap", pages, &sizes)?;
                check_largest(args, pages, &sizes)?;
                let fills = (FILLS * pages / sizes.mean_live_pages()) as u64;
                let usual = if args.on_allocators { fills } else { OPERATIONS.max(fills) };
                let operations = limit.unwrap_or(usual);
                let target = Target::of(shape, &sizes, pages, operations, args.seed)
                    .map_err(|error| Failure::refused(format!("{}: {error}", at_fault(args))))?;
                // The driver ends when the target does, after about as many.
                let shape = args.target.clone();
                Self { pairs, sizes, target, shape, operations, limit: None }
            }
            None => {
                let path = Path::new(&args.target);
                if !path.exists() {
                    return Err(Failure::refused(format!(
                        "--target: '{}' is neither steady, drop or saw-tooth nor a file; name one of them",
                        args.target
                    )));
                }
                let target = parse_file("--target", path, Target::parse)?;
                if heap.is_some() {
                    return Err(Failure::refused(format!(
                        "--heap: the target '{}' is a file, which says how large the heap is; leave \
                         --heap out",
                        args.target
                    )));
                }
                check_memory("--target", target.peak(), &sizes)?;
                check_largest(args, target.peak(), &sizes)?;
                let whole = target.operations(&sizes) as u64;
                let operations = limit.map_or(whole, |limit| limit.min(whole));
                let shape = path.display().to_string();
                Self { pairs, sizes, target, shape, operations, limit }
            }
        })
    }

    /// The largest size of the heap.
    pub fn peak_bytes(&self) -> f64 {
        self.target.peak() * HEAP_PAGE_BYTES as f64
    }

    /// How it is simulated; policy and release are a pair's.
    pub fn config(&self) -> Config {
        Config::new(Policy::RangeThenAllocations, &self.sizes, &self.target)
    }

    /// What takes minutes, and the way out.
    pub fn slow(&self) -> Option<&'static str> {
        let work = self.peak_bytes() * self.operations as f64;
        if self.pairs.iter().any(|pair| pair.policy == Policy::BestFit) && work > SLOW {
            return Some(
                "best-fit looks at every huge page with room for each request: this takes long; \
                 a smaller --heap or fewer --operations do as well",
            );
        }
        (self.target.end_s() > LONG_S).then_some(
            "the target is looked at a hundred times a simulated second: this takes long; fewer \
             --operations, a larger --heap or shorter lifetimes end sooner",
        )
    }
}

/// The option that said how large the heap is.
pub fn size_option(args: &SimArgs) -> &'static str {
    match target_file(args) {
        Some(_) => "--target",
        None => "--heap",
    }
}

/// The file that holds the target.
pub fn target_file(args: &SimArgs) -> Option<&Path> {
    shape(&args.target).is_none().then(|| Path::new(&args.target))
}

fn shape(text: &str) -> Option<Shape> {
    match text {
        "steady" => Some(Shape::Steady),
        "drop" => Some(Shape::DROP),
        "saw-tooth" | "sawtooth" => Some(Shape::SAW_TOOTH),
        _ => None,
    }
}

fn heap(text: &str) -> Result<u64, Failure> {
    let size = ByteSize::parse(text)
        .map_err(|why| Failure::refused(format!("--heap: '{text}': {why}")))?;
    let bytes = size.0 as u64;
    if bytes < HEAP_PAGE_BYTES as u64 {
        return Err(Failure::refused(format!(
            "--heap: '{text}' is less than a page of 8 KiB; name a size such as 64GiB"
        )));
    }
    Ok(bytes)
}

/// A number of operations; digits may be grouped by underscores.
fn operations(text: &str) -> Result<u64, Failure> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    match digits.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Failure::refused(format!(
            "--operations: '{text}' is no whole number above zero; name one such as 20_000_000"
        ))),
    }
}

/// Which option decided how long a usual course takes.
fn at_fault(args: &SimArgs) -> &'static str {
    match (&args.operations, &args.heap) {
        (Some(_), _) => "--operations",
        (None, Some(_)) => "--heap",
        // The usual heap is large enough for the usual spans.
        (None, None) => "--sizes",
    }
}

/// Refuses heaps that a span would not fit into.
fn check_largest(args: &SimArgs, pages: f64, sizes: &Sizes) -> Result<(), Failure> {
    let largest = f64::from(sizes.largest());
    if largest <= pages {
        return Ok(());
    }
    let shown = |pages: f64| bytes(pages * HEAP_PAGE_BYTES as f64);
    Err(Failure::refused(format!(
        "{}: {} is less than the largest span, {}; take a larger heap or smaller spans",
        size_option(args),
        shown(pages),
        shown(largest)
    )))
}

/// Refuses heaps that cannot be numbered, or whose records would not fit into this machine.
fn check_memory(option: &str, pages: f64, sizes: &Sizes) -> Result<(), Failure> {
    let heap_bytes = pages * HEAP_PAGE_BYTES as f64;
    if heap_bytes > HEAP_MAX as f64 {
        return Err(Failure::refused(format!(
            "{option}: {} is too large; up to {} can be simulated",
            bytes(heap_bytes),
            bytes(HEAP_MAX as f64)
        )));
    }
    let needed = bytes_needed(heap_bytes as u64, pages / sizes.mean_live_pages());
    match reserve::available_bytes() {
        Some(available) if needed > available => Err(Failure::refused(format!(
            "{option}: records of a heap of {} take about {}, and this machine has {} left; \
             take a smaller heap or larger spans",
            bytes(heap_bytes),
            bytes(needed as f64),
            bytes(available as f64)
        ))),
        _ => Ok(()),
    }
}

/// Reads a table; an error names the option, the file and the line.
fn parse_file<T>(
    option: &str,
    path: &Path,
    parse: fn(&str) -> Result<T, spandrel_sim::Error>,
) -> Result<T, Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("{option}: {}: {why}", path.display()))
    };
    let format = "docs/sim.md has the format";
    let text = files::read(path, FILE_MAX).map_err(|why| refuse(&format!("{why}; {format}")))?;
    let text =
        String::from_utf8(text).map_err(|_| refuse(&format!("this is no text; {format}")))?;
    parse(&text).map_err(|error| refuse(&format!("{error} ({format})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn asked(args: &[&str]) -> Result<Asked, Failure> {
        Asked::from(&SimArgs::parse_from([&["sim"], args].concat()))
    }

    fn refused(args: &[&str]) -> String {
        let failure = asked(args).err().expect("it should be refused");
        assert_eq!(failure.code, 2);
        failure.message
    }

    #[test]
    fn flags_become_a_comparison() {
        let asked = asked(&["--policy", "lfr,best-fit", "--heap", "1GiB", "--release", "1MiB/s"]);
        let asked = asked.unwrap();
        assert_eq!(asked.pairs.len(), 2);
        assert_eq!(asked.operations, 20_000_000);
        assert!((asked.peak_bytes() / GIB as f64 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn large_heaps_are_filled_several_times() {
        assert!(asked(&["--heap", "256GiB"]).unwrap().operations > 40_000_000);
    }

    #[test]
    fn what_takes_years_is_refused_and_what_takes_minutes_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let sizes = directory.path().join("sizes.csv");
        std::fs::write(&sizes, "pages,weight,lifetime_s\n1,1,604800\n").unwrap();
        let sizes = sizes.to_str().unwrap();
        let message = refused(&["--sizes", sizes, "--heap", "64MiB"]);
        assert!(message.contains("lifetime_s") && message.contains("days"), "{message}");
        assert!(asked(&["--sizes", sizes, "--heap", "2GiB"]).unwrap().slow().is_some());
        assert!(asked(&["--heap", "1GiB"]).unwrap().slow().is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        for (args, parts) in [
            (&["--heap", "0"][..], &["--heap", "'0'", "64GiB"][..]),
            (&["--heap", "many"], &["--heap", "'many'"]),
            (&["--heap", "17TiB"], &["--heap", "17.0 TiB", "16.0 TiB"]),
            (&["--heap", "1MiB"], &["--heap", "largest span"]),
            (&["--operations", "0"], &["--operations", "above zero"]),
            (&["--operations", "1000"], &["--operations", "too few"]),
            (&["--sizes", "/no/such.csv"], &["--sizes", "/no/such.csv", "docs/sim.md"]),
            (&["--target", "up"], &["--target", "'up'", "saw-tooth"]),
        ] {
            let message = refused(args);
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
