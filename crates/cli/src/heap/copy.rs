//! `spandrel heap copy`: a heap, as of its last checkpoint, in another file.

use super::args::CopyArgs;
use super::failed::failed;
use super::progress::Progress;
use super::{bytes_of, copied, image, refuse_existing, words};
use crate::failure::Failure;
use crate::say;
use spandrel_pheap::{Identity, Medium, Record, State};
use spandrel_report::numbers::bytes;

/// Copies a heap.
pub fn run(args: &CopyArgs) -> Result<u8, Failure> {
    let (from, to) = (&args.from, &args.to);
    // A log beside it would be taken for the copy's.
    refuse_existing(to)?;
    let progress = Progress::spinner("reading", bytes_of(from));
    let medium = copied(from, &args.wait)?;
    drop(progress);
    // What is no heap is not kept.
    let read = Identity::read(&medium).and_then(|_| Record::read(&medium));
    let record = read.map_err(|why| failed(from, why))?;
    image::write(&medium, to)?;
    let note = match record.state {
        State::Clean => "",
        State::Dirty => "; it is recovered when it is opened",
    };
    say::out(format_args!(
        "{}: {} of {}, {}{note}",
        to.display(),
        bytes(medium.bytes() as f64),
        from.display(),
        words::state(record.state),
    ))?;
    Ok(0)
}
