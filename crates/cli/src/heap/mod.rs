//! `spandrel heap`: heaps in files made, looked at, mended, copied.

mod args;
mod check;
mod copy;
mod create;
mod dump;
mod failed;
mod gc;
mod holder;
mod image;
mod info;
mod load;
mod progress;
mod repair;
mod roots;
mod shrink;
mod words;

pub use args::HeapArgs;

use crate::failure::Failure;
use args::{HeapTask, WaitArgs};
use failed::copy_failed;
use spandrel_pheap::{Error, Media, Options};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a block, as files are counted.
const BLOCK_BYTES: u64 = spandrel_pheap::BLOCK_BYTES as u64;

/// Does what was asked.
pub fn run(args: &HeapArgs) -> Result<u8, Failure> {
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
    raw_copy(path, wait).map_err(|why| copy_failed(path, why))
}

/// The same, for commands that tell damage from other errors.
fn raw_copy(path: &Path, wait: &WaitArgs) -> Result<Media, Error> {
    Options::new().wait(wait.wait).copy_medium(path.as_os_str().as_bytes())
}

/// A file that belongs to another: its name, and a word.
fn beside(path: &Path, word: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(word);
    name.into()
}

/// The log of a heap, if it has one.
fn log_of(path: &Path) -> PathBuf {
    beside(path, ".wal")
}

/// Bytes of a file, by which progress is shown.
fn bytes_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}
