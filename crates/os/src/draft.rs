//! Files that get their name when they are complete: a file of that name is never a part of one.
//!
//! A draft has no name where the file system can do that (`O_TMPFILE`): a killed process leaves no file. Elsewhere it has a preliminary
//! name, which begins with `.spandrel-`, until it is published: a killed process leaves that file.

use core::ffi::CStr;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::cpath::CPath;
use crate::image::{Image, rename, retry, unique};

/// Bytes of a path at most, the zero byte at its end among them (`PATH_MAX`).
const PATH_BYTES: usize = 4096;
/// The beginning of preliminary names.
const PREFIX: &[u8] = b".spandrel-";

/// A path in a buffer.
pub(crate) struct Path {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl Path {
    fn new() -> Self {
        Self { bytes: [0; PATH_BYTES], len: 0 }
    }

    /// The directory of the file that a path names.
    fn directory(path: &CStr) -> Result<Self, i32> {
        let path = path.to_bytes();
        let directory = match path.iter().rposition(|byte| *byte == b'/') {
            Some(0) => &path[..1],
            Some(end) => &path[..end],
            None => b".",
        };
        let mut found = Self::new();
        found.add(directory).map(|()| found)
    }

    fn add(&mut self, part: &[u8]) -> Result<(), i32> {
        let end = self.len + part.len();
        // The last byte of the buffer stays zero.
        let place = self.bytes.get_mut(self.len..end).filter(|_| end < PATH_BYTES);
        place.ok_or(libc::ENAMETOOLONG)?.copy_from_slice(part);
        self.len = end;
        Ok(())
    }

    pub(crate) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c".")
    }
}

/// Makes the names in the directory of a path durable. Does nothing where the process may not read the directory, or the file system has no
/// such call.
///
/// # Errors
/// The error's number.
pub fn sync_directory_of(path: &CStr) -> Result<(), i32> {
    sync_directory(open_directory(path)?.as_ref())
}

/// Opens the directory of a path. `None`: the process may write to it, but not read it.
fn open_directory(path: &CStr) -> Result<Option<OwnedFd>, i32> {
    let directory = Path::directory(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match retry(|| fs::open(directory.text(), flags, Mode::empty())) {
        Err(Errno::ACCESS) => Ok(None),
        opened => opened.map(Some).map_err(Errno::raw_os_error),
    }
}

fn sync_directory(directory: Option<&OwnedFd>) -> Result<(), i32> {
    let Some(directory) = directory else { return Ok(()) };
    match retry(|| fs::fsync(directory)) {
        // File systems without the call.
        Err(Errno::INVAL | Errno::ROFS | Errno::BADF) => Ok(()),
        synced => synced.map_err(Errno::raw_os_error),
    }
}

/// Removes the name of an image, if it is still that image's name. The removal need not survive a loss of power.
///
/// # Errors
/// The error's number: `ESTALE` if another file has the name.
pub fn remove_name(path: &CStr, image: &Image) -> Result<(), i32> {
    if !image.is_named(path)? {
        return Err(libc::ESTALE);
    }
    retry(|| fs::unlink(path)).map_err(Errno::raw_os_error)
}

/// Writes a new file for its owner alone, with room on the medium for all of its bytes. The file is durable when this returns.
///
/// # Errors
/// The error's number: `EEXIST` if there is a file of that name, `ENOSPC` and `EFBIG` if there is no room. No file is left then.
pub fn write_new(path: &CStr, bytes: &[u8]) -> Result<(), i32> {
    /// Bytes of one write. A chunk of zeroes is not written: the new file has zeroes there.
    const CHUNK_BYTES: usize = 256 << 10;
    // A name that is taken is refused before the work, and once more when the file gets its name.
    if retry(|| fs::lstat(path)).is_ok() {
        return Err(libc::EEXIST);
    }
    let draft = Draft::new(path)?;
    let image = draft.image()?;
    image.grow(0, bytes.len() as u64)?;
    for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            image.write_at(chunk, (number * CHUNK_BYTES) as u64)?;
        }
    }
    image.sync()?;
    draft.publish(path).map(drop)
}

/// A file that has no name yet, or a preliminary one. Dropping a draft removes the file.
pub struct Draft {
    image: Option<Image>,
    name: Option<Path>,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = fs::unlink(name.text());
        }
    }
}

impl Draft {
    /// Makes an empty file for its owner alone, in the directory of a path, which the draft is to be published under.
    ///
    /// # Errors
    /// The error's number.
    pub fn new(path: &CStr) -> Result<Self, i32> {
        let directory = Path::directory(path)?;
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match retry(|| fs::open(directory.text(), flags | OFlags::TMPFILE, mode)) {
            Ok(file) => {
                let image = Image::of(file)?;
                // The file gets its name through `/proc`, which a sandbox may lack.
                let descriptor = descriptor_of(&image)?;
                if retry(|| fs::stat(descriptor.text())).is_ok() {
                    return Ok(Self { image: Some(image), name: None });
                }
            }
            // File systems and kernels without files that have no name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {}
            Err(why) => return Err(why.raw_os_error()),
        }
        Self::named(directory)
    }

    /// An empty file with a preliminary name in the directory.
    fn named(mut directory: Path) -> Result<Self, i32> {
        directory.add(b"/")?;
        directory.add(PREFIX)?;
        let [number, _] = unique();
        for shift in (0..64).step_by(4).rev() {
            let digit = (number >> shift & 0xf) as usize;
            directory.add(&b"0123456789abcdef"[digit..digit + 1])?;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let open = || fs::open(directory.text(), flags, Mode::RUSR | Mode::WUSR);
        let file: OwnedFd = retry(open).map_err(Errno::raw_os_error)?;
        Ok(Self { image: Some(Image::of(file)?), name: Some(directory) })
    }

    /// The file.
    ///
    /// # Errors
    /// None: a draft has its file until it is published.
    pub fn image(&self) -> Result<&Image, i32> {
        self.image.as_ref().ok_or(libc::EBADF)
    }

    /// Gives the file its name, which no other file has. The caller has synced the file. Its name survives a loss of power when this
    /// returns.
    ///
    /// # Errors
    /// The error's number: `EEXIST` if there is a file of that name, or a directory, a link, ... The file is removed then.
    pub fn publish(mut self, path: &CStr) -> Result<Image, i32> {
        let image = self.image.take().ok_or(libc::EBADF)?;
        // Before the file has its name: a process without free descriptors leaves no file.
        let directory = open_directory(path)?;
        match &self.name {
            None => Self::link(&image, path)?,
            Some(name) => {
                rename(name.text(), path)?;
                self.name = None;
            }
        }
        if let Err(why) = sync_directory(directory.as_ref()) {
            let _ = remove_name(path, &image);
            return Err(why);
        }
        Ok(image)
    }

    fn link(image: &Image, path: &CStr) -> Result<(), i32> {
        // Linux 6.10 and later demand no privilege for this.
        match retry(|| fs::linkat(&*image.file, c"", CWD, path, AtFlags::EMPTY_PATH)) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(libc::EEXIST),
            Err(_) => {}
        }
        let name = descriptor_of(image)?;
        retry(|| fs::linkat(CWD, name.text(), CWD, path, AtFlags::SYMLINK_FOLLOW))
            .map_err(Errno::raw_os_error)
    }
}

/// The path of an open file in `/proc`.
///
/// # Errors
/// `ENAMETOOLONG`: none.
pub(crate) fn descriptor_of(image: &Image) -> Result<Path, i32> {
    let mut name = Path::new();
    name.add(CPath::of_descriptor(image.file.as_raw_fd()).as_c().to_bytes())?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::testing::Directory;

    #[test]
    fn a_file_has_its_name_when_it_is_whole() {
        let directory = Directory::new();
        let path = directory.path("file");
        let draft = Draft::new(&path).unwrap();
        draft.image().unwrap().write_at(b"all of it", 0).unwrap();
        assert!(!directory.at("file").exists());
        draft.image().unwrap().sync().unwrap();
        drop(draft.publish(&path).unwrap());
        assert_eq!(std::fs::read(directory.at("file")).unwrap(), b"all of it");
        let second = Draft::new(&path).unwrap();
        assert_eq!(second.publish(&path).unwrap_err(), libc::EEXIST);
        drop(Draft::new(&path).unwrap());
        assert_eq!(directory.names(), ["file"]);
    }

    #[test]
    fn where_a_file_needs_a_name_it_has_a_preliminary_one() {
        let directory = Directory::new();
        let path = directory.path("file");
        let named = || Draft::named(Path::directory(&path).unwrap()).unwrap();
        let draft = named();
        assert!(directory.names()[0].as_bytes().starts_with(PREFIX));
        draft.image().unwrap().write_at(b"all of it", 0).unwrap();
        drop(draft.publish(&path).unwrap());
        assert_eq!(std::fs::read(directory.at("file")).unwrap(), b"all of it");
        assert_eq!(named().publish(&path).unwrap_err(), libc::EEXIST);
        drop(named());
        assert_eq!(directory.names(), ["file"]);
    }

    #[test]
    fn a_name_is_removed_if_it_is_still_the_images() {
        let directory = Directory::new();
        let path = directory.path("file");
        let image = Image::create(&path).unwrap();
        std::fs::rename(directory.at("file"), directory.at("kept")).unwrap();
        std::fs::write(directory.at("file"), "another").unwrap();
        assert_eq!(remove_name(&path, &image), Err(libc::ESTALE));
        assert_eq!(std::fs::read(directory.at("file")).unwrap(), b"another");
        remove_name(&directory.path("kept"), &image).unwrap();
        assert_eq!(directory.names(), ["file"]);
    }
}
