//! What the command prints. A reader may go away (`| head`): that is no crash.
//!
//! Text is on standard output, unless a file of the command goes there (`--json -`): then it is on standard error.

use crate::Failure;
use crate::shutdown::printing;
use crate::terminal::Stream;
use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether standard output is a file of the command.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Keeps standard output for a file.
pub fn take_output() {
    IS_TAKEN.store(true, Relaxed);
}

/// Where text goes.
pub fn text_stream() -> Stream {
    if IS_TAKEN.load(Relaxed) { Stream::Err } else { Stream::Out }
}

/// Writes a line of text, or several.
pub fn out(text: impl Display) -> Result<(), Failure> {
    if text_stream() == Stream::Err {
        err(text);
        return Ok(());
    }
    file(text)
}

/// Writes the contents of a file on standard output.
pub fn file(text: impl Display) -> Result<(), Failure> {
    let _printing = printing();
    written(writeln!(stdout().lock(), "{text}"))
}

/// Writes a line on standard error. A failure has no place where it could be reported.
pub fn err(text: impl Display) {
    let _printing = printing();
    last(text);
}

/// The last line of the command, for a caller that keeps the command steady.
pub fn last(text: impl Display) {
    let _ = writeln!(stderr().lock(), "{text}");
}

/// What became of a write to standard output.
///
/// # Errors
/// The reader has gone away, which needs no message; or the system's reason.
pub fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|why| match why.kind() {
        ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::refused(format!("standard output: {why}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_message() {
        let failure = written(Err(ErrorKind::BrokenPipe.into())).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (141, ""));
        let failure = written(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert!(failure.code == 2 && failure.message.starts_with("standard output: "));
    }
}
