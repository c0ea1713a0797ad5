//! `spandrel heap copy`: a heap, as of its last checkpoint, in another file.

use super::args::CopyArgs;
use super::failed::copy_failed;
use super::{bytes_of, log_of, refuse_existing, words};
use crate::progress::Progress;
use spandrel_console::Failure;
use spandrel_console::files::not_written;
use spandrel_console::say;
use spandrel_pheap::{OpenError, Options, State};
use spandrel_report::numbers::bytes;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Copies a heap.
pub fn run(args: &CopyArgs) -> Result<u8, Failure> {
    let (from, to) = (&args.from, &args.to);
    // A log beside it would be taken for the copy's.
    refuse_existing(to)?;
    let progress = Progress::spinner("copying", bytes_of(from));
    let options = Options::new().wait(args.wait.wait);
    let copied = options.copy_to(from.as_os_str().as_bytes(), to.as_os_str().as_bytes());
    let state = copied.map_err(|why| not_copied(args, &why))?;
    drop(progress);
    let note = match state {
        State::Clean => "",
        State::Dirty => "; it is recovered when it is opened",
    };
    say::out(format_args!(
        "{}: {} of {}, {}{note}",
        to.display(),
        bytes(bytes_of(to) as f64),
        from.display(),
        words::state(state),
    ))?;
    Ok(0)
}

fn not_copied(args: &CopyArgs, why: &OpenError) -> Failure {
    let named = Path::new(OsStr::from_bytes(why.path()));
    match named == args.to || named == log_of(&args.to) {
        true => not_written(named, &why.error().reason()),
        false => copy_failed(&args.from, why.error()),
    }
}
