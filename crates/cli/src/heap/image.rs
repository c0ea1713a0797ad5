//! The bytes of a medium as a file: there whole, or not at all.

use super::progress::Progress;
use crate::failure::Failure;
use crate::files::not_written;
use nix::fcntl::{AT_FDCWD, AtFlags, posix_fallocate};
use nix::unistd::linkat;
use spandrel_pheap::Medium;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes that are written in one call, or skipped if they are all zero.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes all bytes of a medium, to which no code stores, to a file that must not be there yet.
pub fn write(medium: &impl Medium, path: &Path) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let written = match nameless(directory) {
        Ok(file) => write_nameless(medium, file, path),
        // File systems without nameless files (NFS, FUSE).
        Err(_) => write_named(medium, directory, path),
    };
    // The name is durable once the directory is.
    let durable = written.and_then(|()| File::open(directory)?.sync_all());
    durable.map_err(|why| not_written(path, &why))
}

/// A file that has no name: if the command is killed it is gone.
fn nameless(directory: &Path) -> io::Result<File> {
    // For its owner alone, as a heap's own file.
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
}

fn write_nameless(medium: &impl Medium, mut file: File, path: &Path) -> io::Result<()> {
    fill(medium, &mut file)?;
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(AT_FDCWD, place.as_str(), AT_FDCWD, path, AtFlags::AT_SYMLINK_FOLLOW)?;
    Ok(())
}

fn write_named(medium: &impl Medium, directory: &Path, path: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".spandrel-heap-").tempfile_in(directory)?;
    fill(medium, file.as_file_mut())?;
    file.persist_noclobber(path)?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_pheap::Options;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_with_and_without_a_name_in_the_meantime() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.heap");
        let bytes = path.as_os_str().as_encoded_bytes();
        Options::new().size(1 << 20).create(bytes).unwrap().close().unwrap();
        let medium = spandrel_pheap::copy(bytes).unwrap();
        // SAFETY: the medium has as many bytes, and no code stores to it.
        let whole = unsafe { std::slice::from_raw_parts(medium.base().as_ptr(), medium.bytes()) };
        let nameless = place.path().join("nameless");
        write(&medium, &nameless).unwrap();
        let named = place.path().join("named");
        write_named(&medium, place.path(), &named).unwrap();
        for copy in [nameless, named] {
            assert!(std::fs::read(&copy).unwrap() == whole);
            assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
            let again = write(&medium, &copy).unwrap_err();
            assert!(again.message.contains("File exists"), "{}", again.message);
        }
        assert!(write(&medium, &place.path().join("no/such")).is_err());
    }
}
