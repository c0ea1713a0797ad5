//! A heap's file, or its log, byte by byte in another file.

use super::directory_of;
use crate::progress::Progress;
use spandrel_os::draft::Draft;
use spandrel_os::image::{Access, Image};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of one write.
const CHUNK_BYTES: usize = 256 << 10;

/// Opens a file, and locks it as those do that read it: no process opens the heap for writing until the image is dropped.
///
/// # Errors
/// The error's number: `EWOULDBLOCK` if a process has the heap open.
pub fn locked(path: &Path) -> Result<Image, i32> {
    let image = open(path)?;
    image.lock(Access::Read)?;
    Ok(image)
}

/// Opens a file to read it.
///
/// # Errors
/// The error's number.
pub fn open(path: &Path) -> Result<Image, i32> {
    Image::open(&c_string(path)?, Access::Read)
}

/// Writes the bytes of a file to a new file, which appears whole or not at all, and is durable when this returns.
pub fn duplicate(from: &Image, to: &Path) -> io::Result<()> {
    duplicated(from, to).map_err(io::Error::from_raw_os_error)
}

fn duplicated(from: &Image, to: &Path) -> Result<(), i32> {
    let (name, bytes) = (c_string(to)?, from.bytes()?);
    let progress = Progress::bar("writing", bytes);
    let draft = Draft::new(&name)?;
    let image = draft.image()?;
    image.grow(0, bytes)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while let Some((start, end)) = from.next_data(at)? {
        at = start;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let read = from.read_at(&mut buffer[..most], at)?;
            if read == 0 {
                break;
            }
            image.write_at(&buffer[..read], at)?;
            at += read as u64;
            progress.at(at);
        }
        at = end;
    }
    image.sync()?;
    draft.publish(&name).map(drop)
}

fn c_string(path: &Path) -> Result<CString, i32> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)
}

/// Gives a file another name, which no file has, and makes that durable.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let renamed = || spandrel_os::image::rename(&c_string(from)?, &c_string(to)?);
    renamed().map_err(io::Error::from_raw_os_error)?;
    std::fs::File::open(directory_of(to))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_duplicate_has_the_same_bytes_and_replaces_nothing() {
        let place = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| place.path().join(name));
        let file = std::fs::File::create(&from).unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(&[7; 300_000], 1_000_001).unwrap();
        file.write_all_at(b"end", (3 << 20) - 3).unwrap();
        let image = locked(&from).unwrap();
        duplicate(&image, &to).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        let again = duplicate(&image, &to).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(rename(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        rename(&from, &place.path().join("other")).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
