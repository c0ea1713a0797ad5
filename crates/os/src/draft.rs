//! Files that get their name when they are whole: what is cut off leaves nothing, and what has a name is what it should be.
//!
//! A draft has no name at all where the file system can do that (`O_TMPFILE`), so that also a killed process leaves nothing. Elsewhere its name
//! begins with `.spandrel-` until it is published.

use core::ffi::CStr;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::image::{Image, retry, unique};

const PATH_BYTES: usize = 4096;
/// What the names of drafts begin with, where they need one.
const PREFIX: &[u8] = b".spandrel-";

/// A path in a buffer of its own.
struct Path {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl Path {
    /// The directory that a path names a file of.
    fn directory(path: &CStr) -> Result<Self, i32> {
        let path = path.to_bytes();
        let directory = match path.iter().rposition(|byte| *byte == b'/') {
            Some(0) => &path[..1],
            Some(end) => &path[..end],
            None => b".",
        };
        let mut found = Self { bytes: [0; PATH_BYTES], len: 0 };
        found.add(directory).map(|()| found)
    }

    fn add(&mut self, part: &[u8]) -> Result<(), i32> {
        let end = self.len + part.len();
        // A zero byte stays behind it.
        let place = self.bytes.get_mut(self.len..end).filter(|_| end < PATH_BYTES);
        place.ok_or(libc::ENAMETOOLONG)?.copy_from_slice(part);
        self.len = end;
        Ok(())
    }

    fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c".")
    }
}

/// Has what was named, renamed or removed in the directory of a path survive a loss of power.
///
/// # Errors
/// The error's number.
pub fn sync_directory_of(path: &CStr) -> Result<(), i32> {
    let directory = Path::directory(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || fs::open(directory.text(), flags, Mode::empty());
    let synced = retry(open).and_then(|open| retry(|| fs::fsync(&open)));
    match synced {
        // File systems that know no such thing, and directories that may be written to but not read.
        Err(Errno::INVAL | Errno::ACCESS | Errno::ROFS | Errno::BADF) => Ok(()),
        synced => synced.map_err(Errno::raw_os_error),
    }
}

/// Removes the name of an image, if it is still that image's name.
///
/// # Errors
/// The error's number.
pub fn remove_name(path: &CStr, image: &Image) -> Result<(), i32> {
    let named = retry(|| fs::lstat(path)).map_err(Errno::raw_os_error)?;
    let is = retry(|| fs::fstat(&image.file)).map_err(Errno::raw_os_error)?;
    if (named.st_dev, named.st_ino) != (is.st_dev, is.st_ino) {
        return Err(libc::ESTALE);
    }
    retry(|| fs::unlink(path)).map_err(Errno::raw_os_error)
}

/// Writes a new file, for its owner alone, durable when this returns. Room is taken for all of it, also for zeroes.
///
/// # Errors
/// The error's number: `EEXIST` if there is a file of that name, `ENOSPC` and `EFBIG` if there is no room. No file is left then.
pub fn write_new(path: &CStr, bytes: &[u8]) -> Result<(), i32> {
    /// What is written in one call, and left out where all of it is zero.
    const CHUNK_BYTES: usize = 256 << 10;
    // Before anything is written; the name at the end is refused as well.
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

/// A file that has no name yet, or a preliminary one.
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
    /// Makes an empty file for its owner alone, in the directory of a path.
    ///
    /// # Errors
    /// The error's number.
    pub fn new(path: &CStr) -> Result<Self, i32> {
        let directory = Path::directory(path)?;
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match retry(|| fs::open(directory.text(), flags | OFlags::TMPFILE, mode)) {
            Ok(file) => return Ok(Self { image: Some(Image::of(file)), name: None }),
            // File systems that have none, and kernels.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {}
            Err(why) => return Err(why.raw_os_error()),
        }
        Self::named(directory)
    }

    /// The same with a preliminary name in the directory.
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
        Ok(Self { image: Some(Image::of(file)), name: Some(directory) })
    }

    /// The file.
    ///
    /// # Errors
    /// None, as long as it was not published.
    pub fn image(&self) -> Result<&Image, i32> {
        self.image.as_ref().ok_or(libc::EBADF)
    }

    /// Gives it its name, which no other file has. The caller has synced the file; its name survives a loss of power when this returns.
    ///
    /// # Errors
    /// The error's number: `EEXIST` if there is a file of that name, whatever it is.
    pub fn publish(mut self, path: &CStr) -> Result<Image, i32> {
        let image = self.image.take().ok_or(libc::EBADF)?;
        match &self.name {
            None => Self::link(&image, path)?,
            Some(name) => {
                let flags = RenameFlags::NOREPLACE;
                match retry(|| fs::renameat_with(CWD, name.text(), CWD, path, flags)) {
                    // Known by nearly all file systems; a link does it elsewhere, and the drop takes the first name away.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                        retry(|| fs::link(name.text(), path)).map_err(Errno::raw_os_error)?;
                    }
                    renamed => {
                        renamed.map_err(Errno::raw_os_error)?;
                        self.name = None;
                    }
                }
            }
        }
        sync_directory_of(path)?;
        Ok(image)
    }

    fn link(image: &Image, path: &CStr) -> Result<(), i32> {
        // Without privilege since Linux 6.10.
        match retry(|| fs::linkat(&image.file, c"", CWD, path, AtFlags::EMPTY_PATH)) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(libc::EEXIST),
            Err(_) => {}
        }
        let mut name = Path { bytes: [0; PATH_BYTES], len: 0 };
        name.add(b"/proc/self/fd/")?;
        let number = image.file.as_raw_fd();
        let mut scale = 1_000_000_000;
        while scale > 0 {
            if number >= scale || scale == 1 {
                let digit = (number / scale % 10) as usize;
                name.add(&b"0123456789"[digit..digit + 1])?;
            }
            scale /= 10;
        }
        retry(|| fs::linkat(CWD, name.text(), CWD, path, AtFlags::SYMLINK_FOLLOW))
            .map_err(Errno::raw_os_error)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::ffi::CString;
    use std::format;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    use std::vec::Vec;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("spandrel-draft-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn path(&self, name: &str) -> CString {
            CString::new(self.0.join(name).as_os_str().as_bytes()).unwrap()
        }

        fn names(&self) -> Vec<std::ffi::OsString> {
            std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole() {
        let place = Place::new("whole");
        let path = place.path("file");
        let draft = Draft::new(&path).unwrap();
        draft.image().unwrap().write_at(b"all of it", 0).unwrap();
        assert!(!place.0.join("file").exists());
        draft.image().unwrap().sync().unwrap();
        drop(draft.publish(&path).unwrap());
        assert_eq!(std::fs::read(place.0.join("file")).unwrap(), b"all of it");
        let second = Draft::new(&path).unwrap();
        assert_eq!(second.publish(&path).unwrap_err(), libc::EEXIST);
        drop(Draft::new(&path).unwrap());
        assert_eq!(place.names(), ["file"]);
    }

    #[test]
    fn where_a_file_needs_a_name_it_has_a_preliminary_one() {
        let place = Place::new("named");
        let path = place.path("file");
        let named = || Draft::named(Path::directory(&path).unwrap()).unwrap();
        let draft = named();
        assert!(place.names()[0].as_bytes().starts_with(PREFIX));
        draft.image().unwrap().write_at(b"all of it", 0).unwrap();
        drop(draft.publish(&path).unwrap());
        assert_eq!(std::fs::read(place.0.join("file")).unwrap(), b"all of it");
        assert_eq!(named().publish(&path).unwrap_err(), libc::EEXIST);
        drop(named());
        assert_eq!(place.names(), ["file"]);
    }

    #[test]
    fn a_name_is_removed_if_it_is_still_the_images() {
        let place = Place::new("name");
        let path = place.path("file");
        let image = Image::create(&path).unwrap();
        std::fs::rename(place.0.join("file"), place.0.join("kept")).unwrap();
        std::fs::write(place.0.join("file"), "another").unwrap();
        assert_eq!(remove_name(&path, &image), Err(libc::ESTALE));
        assert_eq!(std::fs::read(place.0.join("file")).unwrap(), b"another");
        remove_name(&place.path("kept"), &image).unwrap();
        assert_eq!(place.names(), ["file"]);
    }
}
