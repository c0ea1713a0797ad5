//! `spandrel durable compact`: what the files of a state do not need is released.
//!
//! The state is copied beside itself, cut there, and renamed into its place. So each failure leaves the state as it was, or compacted; a missing log is made
//! anew.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{CompactArgs, paths_of, refused, size};
use crate::progress::Progress;
use nix::sys::statvfs::statvfs;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_console::{Failure, say};
use spandrel_durable::Error;
use spandrel_durable::copy::copy;
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::log_file::capacity_of;
use spandrel_durable::store::{Settings, recover_files};
use spandrel_os::draft::sync_directory_of;
use spandrel_os::image;
use spandrel_pages::ByteSize;
use spandrel_pheap::replicated::shrink_replica;
use spandrel_report::numbers::bytes;

/// A log that has grown gets the length of a new one.
const LOG_BYTES: u64 = 64 << 20;
/// Compacts a state.
pub fn run(args: &CompactArgs) -> Result<u8, Failure> {
    let directory = &args.directory;
    let asked = args.log.as_deref().map(|text| log_of(directory, text)).transpose()?;
    let paths = paths_of(directory)?;
    let lock = Directory::open(paths.directory.as_c(), false);
    let _lock = lock.map_err(|why| refused(directory, why))?;
    let before = held(directory);
    let recover = |log| {
        let settings = Settings { log, ..Settings::default() };
        recover_files(&paths, &settings, &mut |_, _| ()).map_err(|why| refused(directory, why))
    };
    let (_, _, recovered) = recover(None)?;
    let log = asked.unwrap_or(recovered.ring.shape().capacity.min(LOG_BYTES));
    // In the state's directory: the copy gets its file's name.
    let beside = Scratch::directory_in(Kind::Compact, directory);
    let beside = beside.map_err(|why| system(directory, why))?;
    // The directory itself is locked.
    compact(&paths, directory, &beside.path().join("copy"))?;
    drop(beside);
    drop(recover(Some(log))?);
    let after = held(directory);
    say::out(match before.saturating_sub(after) {
        0 => {
            format!("{}: {}; there is nothing to release", directory.display(), bytes(after as f64))
        }
        given => format!(
            "{}: {} released; it has {} now",
            directory.display(),
            bytes(given as f64),
            bytes(after as f64)
        ),
    })?;
    Ok(0)
}

fn compact(paths: &Paths, directory: &Path, beside: &Path) -> Result<(), Failure> {
    let progress = Progress::bar("copying", size(&directory.join("state")));
    let copied = copy(paths, paths_of(beside)?, &mut progress.watcher());
    drop(progress);
    copied.map_err(|why| refused(directory, why))?.map_err(|why| refused(beside, why))?;
    let state = beside.join("state");
    let shrunk = shrink_replica(state.as_os_str().as_bytes());
    shrunk.map_err(|why| refused(&state, why.into()))?;
    // A heap that was cut continues no log. The state that is there has all batches, so that it needs none.
    let removed = image::remove(paths.log.as_c());
    let removed = removed.and_then(|()| sync_directory_of(paths.log.as_c()));
    removed.map_err(|why| refused(directory, Error::System(why)))?;
    fs::rename(&state, directory.join("state")).map_err(|why| system(&state, why))?;
    sync_directory_of(paths.state.as_c()).map_err(|why| refused(directory, Error::System(why)))
}

/// The length of a log that is asked for, for which the disk has room beside the log that is there.
fn log_of(directory: &Path, text: &str) -> Result<u64, Failure> {
    let wrong = |why: String| Failure::refused(format!("--log: '{text}': {why}"));
    let size = ByteSize::parse(text).map_err(|why| wrong(why.to_string()))?;
    let length = capacity_of(Some(size.0 as u64)).map_err(|why| wrong(why.to_string()))?;
    let room = statvfs(directory).map_or(u64::MAX, |disk| {
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        free.saturating_add(super::size(&directory.join("log")))
    });
    if length > room {
        return Err(wrong(format!("the disk has {} for it; name less", bytes(room as f64))));
    }
    Ok(length)
}

fn system(path: &Path, why: std::io::Error) -> Failure {
    Failure::refused(format!("{}: {why}", path.display()))
}

/// Bytes that the files hold on their medium.
fn held(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let of = |name| directory.join(name).metadata().map_or(0, |file| file.blocks() * 512);
    of("state") + of("log")
}
