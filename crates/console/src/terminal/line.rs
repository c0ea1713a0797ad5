//! The line of a bar on standard error, some columns narrower than the terminal.
//!
//! A terminal shows `^C` where the cursor is. Behind a line of full width that is on the next one, and the bar could
//! not be removed any more.

use super::Stream;
use indicatif::TermLike;
use std::fmt::Write as _;
use std::io::{Result, Write as _, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Columns that stay empty.
const EMPTY: usize = 4;

/// What is written at once, so that no half of a line is seen.
#[derive(Debug, Default)]
pub struct Line(Mutex<String>);

impl Line {
    fn text(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the cursor; terminals take 0 for 1.
    fn moved(&self, n: usize, direction: char) -> Result<()> {
        if n > 0 {
            // A text takes whatever is written.
            let _ = write!(self.text(), "\x1b[{n}{direction}");
        }
        Ok(())
    }
}

impl TermLike for Line {
    fn width(&self) -> u16 {
        Stream::Err.width().saturating_sub(EMPTY).try_into().unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, n: usize) -> Result<()> {
        self.moved(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> Result<()> {
        self.moved(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> Result<()> {
        self.moved(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> Result<()> {
        self.moved(n, 'D')
    }

    fn write_line(&self, text: &str) -> Result<()> {
        self.write_str(text)?;
        self.write_str("\n")
    }

    fn write_str(&self, text: &str) -> Result<()> {
        self.text().push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> Result<()> {
        self.write_str("\r\x1b[2K")
    }

    fn flush(&self) -> Result<()> {
        let text = std::mem::take(&mut *self.text());
        stderr().lock().write_all(text.as_bytes())
    }
}
