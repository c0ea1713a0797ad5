//! `spandrel sim --figure`: the paper's figures as tables and plots.

use super::{bar, failed};
use spandrel_console::Failure;
use spandrel_console::files::{is_plot, write};
use spandrel_console::say;
use spandrel_console::terminal::table;
use spandrel_sim::figures::Figure;
use std::path::Path;

/// Steps of the progress bar.
const STEPS: u64 = 1000;

/// Draws a figure; its plot goes to a directory if one was named.
pub fn run(name: &str, out: Option<&Path>) -> Result<u8, Failure> {
    let figure =
        Figure::parse(name).map_err(|error| Failure::refused(format!("--figure: {error}")))?;
    if let Some(plot) = out.filter(|path| is_plot(path)) {
        return Err(Failure::refused(format!(
            "--out: '{}' is the name of a plot; with --figure, name the directory that it goes to",
            plot.display()
        )));
    }
    if let Some(directory) = out {
        std::fs::create_dir_all(directory).map_err(|why| {
            let path = directory.display();
            Failure::refused(format!("--out: {path}: {why}; name a directory for the plot"))
        })?;
    }
    let bar = bar(format!("figure {name}"), STEPS);
    let mut tell = |done| bar.iter().for_each(|bar| bar.set_position((done * STEPS as f64) as u64));
    let drawn = figure.draw(&mut tell).map_err(failed)?;
    drop(bar);
    let mut plot = None;
    if let Some(directory) = out {
        let path = directory.join(format!("{}.svg", drawn.name));
        write(&path, &drawn.chart.svg().map_err(failed)?)?;
        plot = Some(path);
    }
    say::out(format_args!("{}\n{}\n", drawn.title, drawn.about))?;
    let mut rows = table::new(&drawn.header);
    for row in drawn.rows {
        table::add(&mut rows, false, row);
    }
    say::out(rows)?;
    for finding in &drawn.findings {
        say::out(table::wrap(finding))?;
    }
    if let Some(path) = plot {
        say::out(table::wrap(&format!("plot: {}", path.display())))?;
    }
    Ok(0)
}
