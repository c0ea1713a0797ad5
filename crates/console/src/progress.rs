//! Long steps show that they live: a bar on a terminal, plain lines elsewhere.

use crate::say;
use crate::terminal::bar::Bar;
use indicatif::ProgressBar;
use spandrel_report::numbers::counted;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How often a line is written where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(20);
const LONG: &str = "{spinner} {prefix:<22} [{bar:32}] {pos}/{len}  {elapsed} {wide_msg}";
const SHORT: &str = "{spinner} {prefix} {pos}/{len} {wide_msg}";

/// The progress of one suite, on standard error.
pub struct Progress {
    since: Instant,
    bar: RefCell<Option<Bar>>,
    label: RefCell<String>,
    done: Cell<u64>,
    total: Cell<u64>,
    last_line: Cell<Instant>,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Nothing to show yet.
    pub fn new() -> Self {
        let since = Instant::now();
        Self {
            since,
            bar: RefCell::default(),
            label: RefCell::default(),
            done: Cell::new(0),
            total: Cell::new(0),
            last_line: Cell::new(since),
        }
    }

    /// A new stage of `steps` steps.
    pub fn stage(&self, label: &str, steps: usize) {
        self.done.set(0);
        self.total.set(steps as u64);
        self.label.replace(label.to_string());
        // A bar of its own: one that changed its length and its position one after the other would show
        // a stage that there is not.
        self.bar.replace(None);
        let bar = ProgressBar::new(steps as u64)
            .with_prefix(label.to_string())
            .with_elapsed(self.since.elapsed());
        match Bar::show(bar, LONG, SHORT) {
            Some(bar) => _ = self.bar.replace(Some(bar)),
            None => say::err(format_args!("{label}: {}", counted(steps as u64, "run", "runs"))),
        }
    }

    /// What the next step is about.
    pub fn note(&self, what: &str) {
        if let Some(bar) = &*self.bar.borrow() {
            bar.set_message(what.to_string());
        }
    }

    /// One step is done.
    pub fn step(&self) {
        self.done.set(self.done.get() + 1);
        match &*self.bar.borrow() {
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
        self.bar.replace(None);
    }
}
