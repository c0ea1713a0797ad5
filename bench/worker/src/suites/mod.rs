//! The suites: each is one program with one behaviour.

mod append;
mod arrow;
mod copies;
mod dispatch;
mod hugepages;
mod mixed;
mod pair;
mod realloc;
mod replay;
mod server;
mod small_realloc;
mod vec;

use crate::args::Args;
use crate::{heap, meter};
use serde_json::{Map, Value};

/// What a suite found out.
pub type Report = Map<String, Value>;

type Suite = fn(Args) -> Result<Report, String>;

const SUITES: &[(&str, Suite)] = &[
    ("realloc", realloc::run),
    ("append", append::run),
    ("vec", vec::run),
    ("arrow", arrow::run),
    ("copies", copies::run),
    ("pair", pair::run_pair),
    ("batch", pair::run_batch),
    ("dispatch", dispatch::run),
    ("hugepages", hugepages::run),
    ("mixed", mixed::run),
    ("small-realloc", small_realloc::run),
    ("replay", replay::run),
    ("server", server::serve),
    ("server-clients", server::clients),
    ("heap-larson", heap::larson),
    ("heap-threadtest", heap::threadtest),
    ("heap-prodcon", heap::prodcon),
    ("heap-sh6bench", heap::sh6bench),
    ("heap-pair", heap::pair),
    ("heap-blocks", heap::blocks),
    ("heap-resur", heap::resur),
    ("heap-open", heap::open),
    ("heap-checkpoint", heap::checkpoint),
    ("heap-barnes", heap::barnes),
    ("heap-queens", heap::queens),
    ("heap-cholesky", heap::cholesky),
    ("true", nothing),
];

/// The names of all suites.
pub fn names() -> String {
    let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Runs the suite called `name`.
pub fn run(name: &str, words: &[String]) -> Result<Value, String> {
    let (_, suite) = SUITES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("no suite '{name}'; there are: {}", names()))?;
    let mut report = suite(Args::parse(words)?)?;
    report.insert("suite".into(), name.into());
    report.entry("peak_rss").or_insert_with(|| meter::peak_rss().into());
    report.entry("rss").or_insert_with(|| meter::rss().into());
    Ok(Value::Object(report))
}

/// Does nothing: what is left is the cost of being loaded.
fn nothing(args: Args) -> Result<Report, String> {
    args.begin()
}
