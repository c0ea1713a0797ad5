//! Long steps show that they live: a bar on a terminal, plain lines elsewhere.

use crate::say;
use indicatif::{ProgressBar, ProgressStyle};
use spandrel_report::numbers::counted;
use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a line is written where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(20);

/// The progress of one suite, on standard error.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: RefCell<String>,
    done: Cell<u64>,
    total: Cell<u64>,
    last_line: Cell<Instant>,
}

impl Progress {
    /// Nothing to show yet.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{spinner} {prefix:<22} [{bar:32}] {pos}/{len}  {elapsed} {msg}";
            let style = ProgressStyle::with_template(style)
                .expect("the template is constant and valid")
                .progress_chars("=> ");
            let bar = ProgressBar::new(0).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            bar,
            label: RefCell::default(),
            done: Cell::new(0),
            total: Cell::new(0),
            last_line: Cell::new(Instant::now()),
        }
    }

    /// A new stage of `steps` steps.
    pub fn stage(&self, label: &str, steps: usize) {
        self.done.set(0);
        self.total.set(steps as u64);
        self.label.replace(label.to_string());
        match &self.bar {
            Some(bar) => {
                bar.set_length(steps as u64);
                bar.set_position(0);
                bar.set_prefix(label.to_string());
                bar.set_message("");
            }
            None => say::err(format_args!("{label}: {}", counted(steps as u64, "run", "runs"))),
        }
    }

    /// What the next step is about.
    pub fn note(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
        }
    }

    /// One step is done.
    pub fn step(&self) {
        self.done.set(self.done.get() + 1);
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.last_line.get().elapsed() >= LINE_INTERVAL => {
                self.last_line.set(Instant::now());
                say::err(format_args!(
                    "{}: {} of {}",
                    self.label.borrow(),
                    self.done.get(),
                    self.total.get()
                ));
            }
            None => {}
        }
    }

    /// Takes the bar away, so that results can be printed.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
