//! `spandrel sim`: the page heap on paper.
//!
//! The library does the work; here text becomes what it wants, and what it says becomes tables
//! and files.

mod args;
mod asked;
mod figure;
mod report;

pub use args::SimArgs;

use crate::bench::numbers::{bytes, count};
use crate::bench::table;
use crate::failure::Failure;
use crate::say;
use asked::Asked;
use indicatif::{ProgressBar, ProgressStyle};
use spandrel_sim::{Config, Driver, Error, Policy, run as simulate, timeline};
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// Runs what was asked for.
pub fn run(args: &SimArgs) -> Result<u8, Failure> {
    if let Some(name) = &args.figure {
        return figure::run(name, args.out.as_deref());
    }
    let asked = Asked::from(args)?;
    let files = [&args.json, &args.out].into_iter().flatten();
    if args.json.is_some() && args.json == args.out {
        return Err(Failure::refused("--json and --out name the same file; name two"));
    }
    // Better refused now than after minutes; what is there stays until there is something new.
    for path in files {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|why| not_written(path, &why))?;
    }
    let about = format!(
        "{} target, peak {}, {} operations, {:.0} simulated seconds, seed {}",
        asked.shape,
        bytes(asked.peak_bytes()),
        count(asked.operations),
        asked.target.end_s(),
        args.seed
    );
    say::out(table::wrap(&about).trim_start())?;
    if let Some(why) = asked.slow() {
        say::err(why);
    }
    let bar = bar();
    let mut outcomes = Vec::new();
    for policy in &asked.policies {
        bar.set_length(asked.operations);
        bar.set_position(0);
        bar.set_prefix(policy.name());
        let config = Config { release_per_s: asked.release_per_s, ..asked.config(*policy) };
        let mut driver =
            Driver::new(asked.sizes.clone(), asked.target.clone(), args.seed, asked.limit)
                .map_err(|error| Failure::refused(format!("--heap: {error}")))?;
        let mut told = 0;
        let mut tell = |done: u64| {
            if done - told > 100_000 {
                told = done;
                bar.set_position(done);
            }
        };
        outcomes.push(simulate(&config, &mut driver, &mut tell).map_err(failed)?);
    }
    bar.finish_and_clear();
    if let Some(path) = &args.json {
        write(path, &report::json(&asked, args.seed, &outcomes)?)?;
    }
    if let Some(path) = &args.out {
        let title = match outcomes.len() {
            1 => "The page heap on paper",
            _ => "Policies of the page heap on the same operations",
        };
        let chart = timeline(title, &about, &outcomes, asked.target.settled_s());
        write(path, &chart.svg().map_err(failed)?)?;
    }
    // Last: the files shall be there also when nobody reads this.
    say::out(report::table(&outcomes))?;
    Ok(0)
}

/// A simulation that could not be done to its end.
fn failed(error: Error) -> Failure {
    Failure::new(format!("sim: {error}"))
}

/// Writes a file, or says why not.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|why| not_written(path, &why))
}

fn not_written(path: &Path, why: &std::io::Error) -> Failure {
    Failure::refused(format!("{}: {why}; name a file that can be written", path.display()))
}

/// A progress bar on standard error; none where that is no terminal.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{prefix:<22} [{bar:40}] {percent}%  {elapsed}, {eta} to go";
    let style = ProgressStyle::with_template(style)
        .expect("the template is constant and valid")
        .progress_chars("=> ");
    let bar = ProgressBar::new(0).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The policies that are compared unless others are named.
const USUAL: [Policy; 3] = Policy::FAST;
