//! Progress with large heaps and states: a bar on a terminal, nothing elsewhere.

use indicatif::ProgressBar;
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_console::terminal::bar::Bar;
use std::fmt::Display;
use std::sync::Arc;

/// A smaller heap takes less than a second, and has no bar.
const LEAST_BYTES: u64 = 256 << 20;
const SPINNER: &str = "{spinner} {msg}  {elapsed}";
const SHARE: &str = "{spinner} {msg} [{bar:32}] {percent}%  {elapsed}";
const BAR: &str = "{spinner} {msg} [{bar:32}] {binary_bytes}/{binary_total_bytes}  {elapsed}";

/// A bar, or none. The bar disappears when this is dropped.
pub struct Progress(Option<Arc<Bar>>);

impl Progress {
    /// A spinner, for work of which the length is not known. `bytes` is the size of the heap.
    pub fn spinner(what: &str, bytes: u64) -> Self {
        Self::new(what, bytes, SPINNER)
    }

    /// A bar over bytes, which [`Progress::at`] moves.
    pub fn bar(what: &str, bytes: u64) -> Self {
        Self::new(what, bytes, BAR)
    }

    /// A bar over steps, which [`Progress::watcher`] moves.
    pub fn share(what: &str, bytes: u64) -> Self {
        Self::new(what, bytes, SHARE)
    }

    /// A function that takes the number of steps that are done, and the number of all.
    pub fn watcher(&self) -> impl Fn(u64, u64) + Sync + use<> {
        let bar = self.0.clone();
        move |done, all| {
            if let Some(bar) = &bar {
                bar.set_length(all);
                bar.set_position(done);
            }
        }
    }

    fn new(what: &str, bytes: u64, template: &str) -> Self {
        if bytes < LEAST_BYTES {
            return Self(None);
        }
        let bar = ProgressBar::new(bytes).with_message(what.to_string());
        Self(Bar::show(bar, template, SPINNER).map(Arc::new))
    }

    /// Shows that `bytes` bytes are done.
    pub fn at(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(bytes);
        }
    }

    /// Writes a line on standard output that the bar does not write over.
    pub fn out(&self, text: impl Display) -> Result<(), Failure> {
        match &self.0 {
            Some(bar) => bar.suspend(|| say::out(text)),
            None => say::out(text),
        }
    }
}
