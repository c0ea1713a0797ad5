//! The statistics that the library writes when a process ends: shown.

pub mod native;
mod table;

pub use spandrel_measure::gather::Gathering;
pub use spandrel_report::{Requests, Stats};

use spandrel_console::say;
use spandrel_report::numbers::counted;

/// Shows the sum of what was gathered on standard error.
pub fn print(gathering: &Gathering, exit_code: u8) {
    let (all, bad) = gathering.read();
    if bad > 0 {
        let files = counted(bad as u64, "file", "files");
        say::err(format_args!("spandrel: {files} of statistics could not be read"));
    }
    if all.is_empty() {
        let killed = if exit_code > 128 { ": a process ended by a signal writes none" } else { "" };
        say::err(format_args!("spandrel: no statistics were written{killed}"));
        return;
    }
    say::err(table::draw(&Stats::sum(&all), all.len()).trim_end());
}
