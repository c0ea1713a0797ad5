//! `spandrel heap`: heaps in files made, looked at, mended, copied.

mod args;
mod check;
mod copy;
mod create;
mod dump;
mod failed;
mod gc;
mod holder;
pub mod image;
mod info;
mod load;
mod output;
mod repair;
mod roots;
mod shell;
mod shrink;
mod words;

pub use args::HeapArgs;
pub use failed::is_damage;

use args::{HeapTask, WaitArgs};
use failed::{copy_failed, failed};
use nix::sys::signal::{SigHandler, Signal, signal};
use spandrel_console::Failure;
use spandrel_pheap::{Error, Media, Options};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a block, as files are counted.
const BLOCK_BYTES: u64 = spandrel_pheap::BLOCK_BYTES as u64;

/// Runs the subcommand.
pub fn run(args: &HeapArgs) -> Result<u8, Failure> {
    // A write beyond `ulimit -f` is an error, and no signal.
    // SAFETY: to ignore a signal calls no function.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    match &args.task {
        HeapTask::Create(args) => create::run(args),
        HeapTask::Info(args) => info::run(args),
        HeapTask::Check(args) => check::run(args),
        HeapTask::Repair(args) => repair::run(args),
        HeapTask::Gc(args) => gc::run(args),
        HeapTask::Roots(args) => roots::run(args),
        HeapTask::Copy(args) => copy::run(args),
        HeapTask::Dump(args) => dump::run(args),
        HeapTask::Load(args) => load::run(args),
        HeapTask::Shrink(args) => shrink::run(args),
    }
}

/// A copy in memory of what a file holds.
fn copied(path: &Path, wait: &WaitArgs) -> Result<Media, Failure> {
    let copy = Options::new().wait(wait.wait).copy_medium(path.as_os_str().as_bytes());
    copy.map_err(|why| copy_failed(path, why))
}

/// A file that belongs to another: its name, and a word.
fn beside(path: &Path, word: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(word);
    name.into()
}

/// The file with the sums of a heap's pages, if it has one.
fn sums_of(path: &Path) -> PathBuf {
    beside(path, ".sum")
}

/// The log of a heap, if it has one.
fn log_of(path: &Path) -> PathBuf {
    beside(path, ".wal")
}

/// The directory that a file lies in.
pub fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// Refuses the name of a heap that is to be made where a file has it, or where a file that is not empty has the name of its log, where it
/// leaves no room for the name of a log, and where it is itself the name of another heap's log.
fn refuse_existing(path: &Path) -> Result<(), Failure> {
    let log = log_of(path);
    // A heap that was closed leaves an empty log.
    let is_in_the_way = |file: &Path| {
        let found = file.symlink_metadata();
        found.is_ok_and(|found| file != log || !found.is_file() || found.len() > 0)
    };
    for file in [path, &log] {
        if is_in_the_way(file) {
            return Err(Failure::refused(format!(
                "{}: it is there already, and may hold something; name another file, or remove it",
                file.display()
            )));
        }
    }
    let name = path.as_os_str().as_bytes();
    // There is no such file, so that this looks at the name alone.
    if let Err(why @ (Error::NameTooLong { .. } | Error::PathTooLong { .. })) =
        Options::new().copy_medium(name)
    {
        return Err(failed(path, why));
    }
    let heap = name.strip_suffix(b".wal").map(|heap| Path::new(OsStr::from_bytes(heap)));
    if let Some(heap) = heap.filter(|heap| heap.is_file()) {
        return Err(Failure::refused(format!(
            "{}: the log of {} has that name; name another file",
            path.display(),
            heap.display()
        )));
    }
    Ok(())
}

/// Bytes of a file, by which progress is shown.
fn bytes_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}
