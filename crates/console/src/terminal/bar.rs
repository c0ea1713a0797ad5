//! A line on standard error that shows how far work is. It disappears with its value, and before a signal ends the command.

use super::Stream;
use super::line::Line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two frames.
const FRAME: Duration = Duration::from_millis(120);
/// Frames in a second at most.
const HZ: u8 = 20;
/// Columns that the long form takes.
const LONG: usize = 90;

static BARS: Mutex<Vec<(u64, ProgressBar)>> = Mutex::new(Vec::new());

fn bars() -> MutexGuard<'static, Vec<(u64, ProgressBar)>> {
    BARS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bar that is shown.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    number: u64,
}

impl Bar {
    /// A bar over `bar`, whose length and texts are set; none where lines cannot be drawn anew. The templates are for
    /// wide terminals, and for narrow ones.
    pub fn show(bar: ProgressBar, long: &str, short: &str) -> Option<Self> {
        if !Stream::Err.is_animated() {
            return None;
        }
        let template = if Stream::Err.width() >= LONG { long } else { short };
        // A template is a constant; without one the bar has indicatif's own style.
        let style = ProgressStyle::with_template(template).ok()?;
        bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(Box::new(Line::default()), HZ));
        bar.set_style(style.progress_chars("=> "));
        bar.enable_steady_tick(FRAME);
        let mut bars = bars();
        let number = bars.last().map_or(0, |(number, _)| number + 1);
        bars.push((number, bar.clone()));
        Some(Self { bar, number })
    }
}

impl Deref for Bar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        bars().retain(|(number, _)| *number != self.number);
    }
}

/// Takes all bars away, for good: the thread that moves them may go on for a while.
pub fn clear_bars() {
    for (_, bar) in bars().iter() {
        bar.finish_and_clear();
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}
