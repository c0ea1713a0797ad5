//! `spandrel sim`: the page heap on paper.
//!
//! The library does the work; here text becomes what it wants, and what it says becomes tables
//! and files.

mod args;
mod asked;
mod figure;
mod on_allocators;
mod report;
mod traces;

pub use args::SimArgs;

use crate::bench::table;
use crate::failure::Failure;
use crate::files::{self, write};
use crate::say;
use asked::Asked;
use indicatif::{ProgressBar, ProgressStyle};
use report::Described;
use spandrel_report::numbers::{bytes, counted};
use spandrel_sim::{Config, Driver, Error, Operations, Outcome, Policy, run as simulate, timeline};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// Runs what was asked for.
pub fn run(args: &SimArgs) -> Result<u8, Failure> {
    if let Some(name) = &args.figure {
        return figure::run(name, args.out.as_deref());
    }
    // Better refused now than after minutes.
    files::check_plot("--out", args.out.as_deref())?;
    let tables = [asked::target_file(args).map(Path::to_path_buf), args.sizes.clone()];
    let read: Vec<_> = args.traces.iter().cloned().chain(tables.into_iter().flatten()).collect();
    let written = [("--json", args.json.as_deref()), ("--out", args.out.as_deref())];
    files::check(&written, &read)?;
    if !args.traces.is_empty() {
        return traces::run(args);
    }
    let asked = Asked::from(args)?;
    let on_allocators =
        args.on_allocators.then(|| on_allocators::find(args, asked.peak_bytes())).transpose()?;
    let about = format!(
        "{} target, peak {}, {}, {}, seed {}",
        asked.shape,
        bytes(asked.peak_bytes()),
        counted(asked.operations, "operation", "operations"),
        counted(asked.target.end_s().round() as u64, "simulated second", "simulated seconds"),
        args.seed
    );
    say::out(table::wrap(&about).trim_start())?;
    if let Some(why) = asked.slow() {
        say::err(why);
    }
    let driver = || {
        Driver::new(asked.sizes.clone(), asked.target.clone(), args.seed, asked.limit)
            .map_err(|error| Failure::refused(format!("{}: {error}", asked::size_option(args))))
    };
    if let Some(ready) = on_allocators {
        return on_allocators::run(ready, driver()?, &about);
    }
    let config = |policy| Config { release_per_s: asked.release_per_s, ..asked.config(policy) };
    let outcomes = compare(&asked.policies, config, asked.operations, driver)?;
    if let Some(path) = &args.json {
        let of = Described {
            seed: Some(args.seed),
            target: &asked.shape,
            peak_bytes: asked.peak_bytes(),
            settled_s: asked.target.settled_s(),
            release_per_s: asked.release_per_s,
        };
        write(path, &report::json(&of, &outcomes)?)?;
    }
    if let Some(path) = &args.out {
        draw(path, &about, &outcomes, asked.target.settled_s())?;
    }
    // Last: the files shall be there also when nobody reads this.
    say::out(report::table(&outcomes))?;
    Ok(0)
}

/// Gives each policy the same operations.
fn compare<S: Operations + Send>(
    policies: &[Policy],
    config: impl Fn(Policy) -> Config,
    operations: u64,
    source: impl Fn() -> Result<S, Failure>,
) -> Result<Vec<Outcome>, Failure> {
    let bar = bar();
    let mut outcomes = Vec::new();
    for policy in policies {
        bar.set_length(operations);
        bar.set_position(0);
        bar.set_prefix(policy.name());
        let mut told = 0;
        let mut tell = |done: u64| {
            if done - told > 100_000 {
                told = done;
                bar.set_position(done);
            }
        };
        let outcome = simulate(&config(*policy), &mut source()?, &mut tell);
        outcomes.push(outcome.map_err(failed)?);
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// Draws the course of it.
fn draw(path: &Path, about: &str, outcomes: &[Outcome], settled_s: f64) -> Result<(), Failure> {
    let title = match outcomes.len() {
        1 => "The page heap on paper",
        _ => "Policies of the page heap on the same operations",
    };
    let chart = timeline(title, about, outcomes, settled_s);
    write(path, &chart.svg().map_err(failed)?)
}

/// A simulation that could not be done to its end.
fn failed(error: Error) -> Failure {
    Failure::new(format!("sim: {error}"))
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
