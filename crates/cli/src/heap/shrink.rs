//! `spandrel heap shrink`: free blocks at the end of a heap are released to the disk.

use super::args::ShrinkArgs;
use super::failed::{failed, refuse_durable};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_pheap::{Options, Shrunk};
use spandrel_report::numbers::bytes;
use std::os::unix::ffi::OsStrExt;

/// Cuts a heap behind its last object.
pub fn run(args: &ShrinkArgs) -> Result<u8, Failure> {
    let path = &args.file;
    refuse_durable(path)?;
    let shrunk = Options::new().shrink(path.as_os_str().as_bytes());
    let shrunk = shrunk.map_err(|why| failed(path, why))?;
    say::out(format_args!("{}: {}", path.display(), text(shrunk)))?;
    Ok(0)
}

fn text(of: Shrunk) -> String {
    let Shrunk { from, to } = of;
    match from.saturating_sub(to) {
        0 => format!(
            "{}; its last block is in use, or it is as small as a heap can be",
            bytes(to as f64)
        ),
        given => format!("{} released; it has {} now", bytes(given as f64), bytes(to as f64)),
    }
}
