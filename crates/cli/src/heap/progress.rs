//! Whoever waits for a large heap sees that something happens: a bar on a terminal, nothing elsewhere.

use crate::failure::Failure;
use crate::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

/// A heap that is smaller takes no longer than a moment.
const LEAST_BYTES: u64 = 256 << 20;
const SPINNER: &str = "{spinner} {msg}  {elapsed}";
const SHARE: &str = "{spinner} {msg} [{bar:32}] {percent}%  {elapsed}";
const BAR: &str = "{spinner} {msg} [{bar:32}] {binary_bytes}/{binary_total_bytes}  {elapsed}";

/// A bar, or none. Dropped, it is gone.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Something of which nobody knows how long it takes, with so many bytes.
    pub fn spinner(what: &str, bytes: u64) -> Self {
        Self::new(what, bytes, SPINNER)
    }

    /// Something that is told how far it is.
    pub fn bar(what: &str, bytes: u64) -> Self {
        Self::new(what, bytes, BAR)
    }

    /// Something that says itself how many steps it takes; see [`Progress::watcher`].
    pub fn share(what: &str, bytes: u64) -> Self {
        Self::new(what, bytes, SHARE)
    }

    /// What is told how many steps are done, and of how many.
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
        if bytes < LEAST_BYTES || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(bytes).with_message(what.to_string());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(Some(bar))
    }

    /// So many bytes are done.
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

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
