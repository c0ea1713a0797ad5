//! The flags of `spandrel bench`.

use clap::builder::PossibleValue;
use clap::{Parser, ValueEnum};
use spandrel_harness::{ALL, Asked, SUITES, named};
use std::path::PathBuf;
use std::sync::LazyLock;

/// Measure this machine: Spandrel beside every other allocator that is installed.
///
/// Each measurement is a fresh process; allocators take turns, after one
/// unmeasured round, and medians are compared.
#[derive(Parser, Debug)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_name = "SUITE", default_value = "all")]
    pub suite: SuiteName,

    /// Fewer rounds and smaller jobs: a first impression in minutes
    #[arg(long)]
    pub quick: bool,

    /// Measured rounds [default: 7; 3 with --quick and for `apps` and `world`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,

    /// Write everything that was measured to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw the suite `hugepages`, `paper`, `heap` or `durable` as a picture
    #[arg(long, value_name = "FILE.svg")]
    pub out: Option<PathBuf>,

    /// Only these allocators, separated by commas (sys is always measured)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,

    /// Modes of Spandrel to measure, separated by commas or semicolons; `static` is `auto` that
    /// does not learn while the program runs
    #[arg(long, value_name = "MODES", default_value = "auto")]
    pub modes: String,

    /// Only these of the suites `programs`, `world`, `paper` or `heap`, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Option<Vec<String>>,

    /// How much of what the papers did, in the suites `paper` (element counts) and `heap` (times; sizes
    /// come in steps) [default: 0.1, or 0.02 with --quick; 1 is the papers' own]
    #[arg(long, value_name = "PART", value_parser = scale)]
    pub scale: Option<f64>,

    /// In the suite `paper`, also train a profile for each workload (`spandrel tune`) and measure
    /// `auto` with it: takes several times as long
    #[arg(long)]
    pub trained: bool,

    /// Write the tables of the suite `world`, `paper` or `heap` as Markdown
    #[arg(long, value_name = "FILE.md")]
    pub markdown: Option<PathBuf>,

    /// Hold the figures against the project's targets (docs/targets.md)
    #[arg(long)]
    pub targets: bool,

    /// The library to measure [default: found beside this command]
    #[arg(long, value_name = "PATH", env = "SPANDREL_LIB", hide_env_values = true)]
    pub lib: Option<PathBuf>,
}

impl BenchArgs {
    /// What these flags ask of the harness.
    pub fn asked(self) -> Asked {
        Asked {
            suite: named(self.suite.0),
            quick: self.quick,
            runs: self.runs,
            json: self.json,
            out: self.out,
            peers: self.peers,
            modes: self.modes,
            only: self.only,
            scale: self.scale,
            trained: self.trained,
            markdown: self.markdown,
            targets: self.targets,
            library: self.lib,
        }
    }
}

/// A part of the paper's counts: more than nothing, and no more than all of it.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("give a number above 0 and up to 1, such as 0.1".into()),
    }
}

/// The name of a suite, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuiteName(&'static str, &'static str);

static NAMES: LazyLock<Vec<SuiteName>> = LazyLock::new(|| {
    let suites = SUITES.iter().map(|suite| (suite.name(), suite.about()));
    suites.chain([ALL]).map(|(name, about)| SuiteName(name, about)).collect()
});

impl ValueEnum for SuiteName {
    fn value_variants<'a>() -> &'a [Self] {
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0).help(self.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_part() {
        assert_eq!(scale("0.1"), Ok(0.1));
        assert_eq!(scale("1"), Ok(1.0));
        for wrong in ["0", "-1", "1.01", "nan", "inf", "all", ""] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_suite_has_its_name_and_all_stands_for_none() {
        let asked = |words: &[&str]| BenchArgs::parse_from([&["bench"], words].concat()).asked();
        for suite in SUITES {
            let found = asked(&[suite.name()]).suite.expect("a suite");
            assert_eq!(found.name(), suite.name());
        }
        for all in [&["all"][..], &[]] {
            let asked = asked(all);
            assert!(asked.suite.is_none() && asked.modes == Asked::default().modes);
        }
    }
}
