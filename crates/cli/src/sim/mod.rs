//! `spandrel sim`: the page heap on paper.
//!
//! The library does the work; here text becomes what it wants, and what it says becomes tables
//! and files.

mod args;
mod asked;
mod compared;
mod figure;
mod on_allocators;
mod report;
mod traces;

pub use args::SimArgs;

use asked::Asked;
use compared::compare;
use indicatif::ProgressBar;
use report::Described;
use spandrel_console::Failure;
use spandrel_console::files::{self, write};
use spandrel_console::say;
use spandrel_console::terminal::bar::Bar;
use spandrel_console::terminal::table;
use spandrel_report::numbers::{bytes, counted};
use spandrel_sim::{Course, Driver, Error, timeline};
use std::path::Path;

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
    let outcomes = compare(&asked.pairs, asked.config(), asked.operations, driver)?;
    let described = Described {
        seed: Some(args.seed),
        target: asked.shape.clone(),
        about,
        peak_bytes: asked.peak_bytes(),
        settled_s: asked.target.settled_s(),
        outcomes,
    };
    let described = [described];
    if let Some(path) = &args.json {
        write(path, &report::json(&described)?)?;
    }
    if let Some(path) = &args.out {
        draw(path, &described)?;
    }
    // Last: the files shall be there also when no program reads this.
    let [described] = &described;
    say::out(report::table(&described.outcomes))?;
    Ok(0)
}

/// Draws the course of it, or of several below each other.
fn draw(path: &Path, all: &[Described]) -> Result<(), Failure> {
    let title = match all {
        [one, ..] if one.outcomes.len() > 1 => "Policies of the page heap on the same operations",
        _ => "The page heap on paper",
    };
    let about = match all {
        [one] => one.about.clone(),
        several => counted(several.len() as u64, "recording", "recordings"),
    };
    let courses: Vec<Course<'_>> = (all.iter())
        .map(|one| Course {
            title: if all.len() > 1 { &one.target } else { "" },
            outcomes: &one.outcomes,
            settled_s: one.settled_s,
        })
        .collect();
    let chart = timeline(title, &about, &courses);
    write(path, &chart.svg().map_err(failed)?)
}

/// A simulation that could not be done to its end.
fn failed(error: Error) -> Failure {
    Failure::new(format!("sim: {error}"))
}

/// A progress bar on standard error; none where that is no terminal.
fn bar(about: String, steps: u64) -> Option<Bar> {
    const LONG: &str = "{prefix:<22} [{bar:40}] {percent}%  {elapsed}, {eta} to go";
    const SHORT: &str = "{prefix} {percent}%  {eta} to go";
    Bar::show(ProgressBar::new(steps).with_prefix(about), LONG, SHORT)
}
