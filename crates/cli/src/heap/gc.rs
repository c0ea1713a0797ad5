//! `spandrel heap gc`: what cannot be reached becomes free.

use super::args::GcArgs;
use super::failed::{failed, refuse_durable};
use super::{BLOCK_BYTES, bytes_of};
use crate::progress::Progress;
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_pheap::{Collected, Options};
use spandrel_report::numbers::{bytes, counted};
use std::os::unix::ffi::OsStrExt;

/// Collects a heap.
pub fn run(args: &GcArgs) -> Result<u8, Failure> {
    let path = &args.file;
    refuse_durable(path)?;
    let progress = Progress::share("collecting", bytes_of(path));
    let watch = progress.watcher();
    // Offline: the recovery of one that was not closed is the collection that follows anyway.
    let opened = Options::new().offline().open(path.as_os_str().as_bytes());
    let (mut heap, opened) = opened.map_err(|why| failed(path, why))?;
    let collected = heap.collect_watched(&[], Some(&watch)).map_err(|why| failed(path, why))?;
    heap.close().map_err(|why| failed(path, why))?;
    drop(progress);
    let recovered = if opened.was_clean { "" } else { "it was not closed, and is recovered; " };
    say::out(format_args!("{}: {recovered}{}", path.display(), text(&collected)))?;
    Ok(0)
}

fn text(of: &Collected) -> String {
    format!(
        "{} freed, and {} ({}); {} stay ({})",
        counted(of.freed, "object", "objects"),
        counted(of.freed_blocks, "block", "blocks"),
        bytes((of.freed_blocks * BLOCK_BYTES) as f64),
        counted(of.live, "object", "objects"),
        bytes(of.live_bytes as f64),
    )
}
