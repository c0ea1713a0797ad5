//! The bytes of a medium as a file: there whole, or not at all.

use super::progress::Progress;
use crate::failure::Failure;
use crate::files::not_written;
use nix::fcntl::posix_fallocate;
use spandrel_pheap::Medium;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// What is looked at for anything but zeroes, and written in one go.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes all bytes of a medium, to which no code stores, to a file that must not be there yet.
pub fn write(medium: &impl Medium, path: &Path) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let wrong = |why: &io::Error| not_written(path, why);
    // For its owner alone, as a heap's own file.
    let mut file = tempfile::Builder::new()
        .prefix(".spandrel-heap-")
        .tempfile_in(directory)
        .map_err(|why| wrong(&why))?;
    fill(medium, file.as_file_mut()).map_err(|why| wrong(&why))?;
    file.persist_noclobber(path).map_err(|why| wrong(&why.error))?;
    // The name is durable once the directory is.
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|why| wrong(&why))
}

fn fill(medium: &impl Medium, file: &mut File) -> io::Result<()> {
    let progress = Progress::bar("writing", medium.bytes() as u64);
    // A program that maps the copy stores to all of it: there has to be room, also for zeroes.
    let length = i64::try_from(medium.bytes()).map_err(io::Error::other)?;
    posix_fallocate(&file, 0, length)?;
    // SAFETY: the medium has `bytes` bytes, and no code stores to this one.
    let all = unsafe { std::slice::from_raw_parts(medium.base().as_ptr(), medium.bytes()) };
    for (number, chunk) in all.chunks(CHUNK_BYTES).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            let at = (number * CHUNK_BYTES) as u64;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(chunk)?;
            progress.at(at);
        }
    }
    file.sync_all()
}
