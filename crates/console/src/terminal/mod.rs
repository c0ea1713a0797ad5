//! What the terminal can show: its width, whether it takes styles, and whether a line may be drawn anew.

pub mod bar;
mod line;
pub mod table;

pub use bar::clear_bars;

use std::io::{IsTerminal, stderr, stdout};
use std::os::fd::AsRawFd;

/// Columns where the output is no terminal.
pub const WIDTH: usize = 100;
/// Columns of a terminal that does not know them: a serial line, a pseudo-terminal without a window.
const WIDTH_UNKNOWN: usize = 80;
/// Fewer columns hold no text.
const WIDTH_LEAST: usize = 20;

/// Where text goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn is_terminal(self) -> bool {
        match self {
            Self::Out => stdout().is_terminal(),
            Self::Err => stderr().is_terminal(),
        }
    }

    /// Columns for text; at most [`WIDTH`] are used for sentences.
    pub fn width(self) -> usize {
        if !self.is_terminal() {
            return WIDTH;
        }
        let fd = match self {
            Self::Out => stdout().as_raw_fd(),
            Self::Err => stderr().as_raw_fd(),
        };
        // SAFETY: an all-zero `winsize` is a valid value.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes to `size`, which outlives it.
        let asked = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
        let known = if asked == 0 { usize::from(size.ws_col) } else { 0 };
        columns(known, std::env::var("COLUMNS").ok().as_deref())
    }

    /// Whether text may be bold.
    pub fn is_styled(self) -> bool {
        // https://no-color.org: the variable counts where it is not empty.
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        self.is_terminal() && !refused && !is_dumb()
    }

    /// Whether a line may be drawn again and again.
    pub fn is_animated(self) -> bool {
        self.is_terminal() && !is_dumb()
    }
}

/// Whether the terminal only appends text.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb")
}

/// Columns of a terminal: what the kernel says, or else the environment.
fn columns(kernel: usize, environment: Option<&str>) -> usize {
    let environment = environment.and_then(|text| text.parse().ok());
    let known = Some(kernel).filter(|columns| *columns > 0);
    let known = known.or(environment.filter(|columns| *columns > 0));
    known.unwrap_or(WIDTH_UNKNOWN).max(WIDTH_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_does_not_know_its_width_has_eighty_columns() {
        assert_eq!(columns(0, None), 80);
        assert_eq!(columns(0, Some("0")), 80);
        assert_eq!(columns(0, Some("132")), 132);
        assert_eq!(columns(40, Some("132")), 40);
        assert_eq!(columns(1, None), WIDTH_LEAST);
    }
}
