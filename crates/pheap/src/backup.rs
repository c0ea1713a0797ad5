//! Copies of heaps as files.

use spandrel_os::draft;
use spandrel_pmem::{Failed, Media, Medium as _, peek};

use crate::error::Error;
use crate::limits::{CPath, check_path};
use crate::open::{LOG, Options};
use crate::open_error::OpenError;
use crate::superblock::{Identity, Record, State};

/// Refuses a path where a file is, or one that is not empty if `may_be_empty`.
fn check_free(path: &CPath, may_be_empty: bool) -> Result<(), Error> {
    match peek(path.as_c(), &mut []) {
        Err(Failed(libc::ENOENT)) => Ok(()),
        Ok((_, 0)) if may_be_empty => Ok(()),
        Err(Failed(why @ (libc::ENOTDIR | libc::ENAMETOOLONG | libc::EACCES))) => {
            Err(Error::System(why))
        }
        _ => Err(Error::System(libc::EEXIST)),
    }
}

impl Options<'_> {
    /// Writes a copy of a heap to a new file: a backup, also of a heap that is open. What the copy holds is that of
    /// [`Options::copy`]; it is opened as any heap, and recovered then unless the heap was closed, which the result says.
    ///
    /// The new file is there whole or not at all, and durable when this returns.
    ///
    /// # Errors
    /// As for [`Options::copy`]; [`Error::System`] with `EEXIST` if there is a file `to`, or a log beside it that is not empty;
    /// [`Error::DiskFull`]. The error has the path of the file that is meant.
    pub fn copy_to(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Result<State, OpenError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let target = new_file(to).map_err(|why| OpenError::new(to, why))?;
        let (medium, state) = self.read_copy(from).map_err(|why| OpenError::new(from, why))?;
        // SAFETY: the medium maps its whole length, and no other thread has the copy.
        let bytes = unsafe { core::slice::from_raw_parts(medium.base().as_ptr(), medium.bytes()) };
        draft::write_new(target.as_c(), bytes)
            .map_err(|why| OpenError::new(to, Failed(why).into()))?;
        Ok(state)
    }

    /// A copy in memory, and what its record says.
    fn read_copy(&self, from: &[u8]) -> Result<(Media, State), Error> {
        let medium = self.copy_medium(from)?;
        // What is no heap is no backup.
        Identity::read(&medium)?;
        let record = Record::read(&medium)?;
        Ok((medium, record.state))
    }
}

/// The path of a heap that is to be written. A log beside it would be in the way of the copy's own; a heap that was closed leaves an empty one.
fn new_file(path: &[u8]) -> Result<CPath, Error> {
    check_path(path, LOG.len())?;
    let file = CPath::new(path, b"").map_err(Error::System)?;
    check_free(&file, false)?;
    check_free(&CPath::new(path, LOG).map_err(Error::System)?, true)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use spandrel_os::image;
    use spandrel_pmem::{Choice, Media};
    use std::borrow::ToOwned;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    use std::string::String;
    use std::time::Duration;
    use std::vec::Vec;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let [one, two] = image::unique();
            let path = std::env::temp_dir().join(format!("spandrel-{name}-{one:x}{two:x}"));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str) -> Vec<u8> {
            self.0.join(name).as_os_str().as_bytes().to_vec()
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: std::io::Result<std::fs::DirEntry>| {
                entry.unwrap().file_name().into_string().unwrap()
            };
            std::fs::read_dir(&self.0).unwrap().map(name).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn options() -> Options<'static> {
        Options::new().size(1 << 20).limit(1 << 30)
    }

    fn filled(heap: &Heap<Media>, word: u64) {
        let object = heap.alloc(8).unwrap();
        // SAFETY: an object of that size.
        unsafe { object.cast::<u64>().write(word) };
        heap.set_root(0, Some(object)).unwrap();
    }

    fn word(heap: &Heap<Media>) -> u64 {
        // SAFETY: what was written there.
        unsafe { heap.get_root(0).unwrap().unwrap().cast::<u64>().read() }
    }

    #[test]
    fn a_closed_heap_is_copied_closed() {
        let folder = Folder::new("backup-closed");
        let heap = options().create(folder.file("heap")).unwrap();
        filled(&heap, 1);
        heap.close().unwrap();
        let state = options().copy_to(folder.file("heap"), folder.file("copy")).unwrap();
        assert_eq!(state, State::Clean);
        let (copy, opened) = options().open(folder.file("copy")).unwrap();
        assert!(opened.was_clean && word(&copy) == 1);
        // Both live on.
        let (heap, _) = options().open(folder.file("heap")).unwrap();
        filled(&heap, 2);
        heap.close().unwrap();
        assert_eq!(word(&copy), 1);
    }

    #[test]
    fn an_open_heap_with_a_log_is_copied_as_of_its_last_checkpoint() {
        let folder = Folder::new("backup-logged");
        let heap = options().medium(Choice::Logged).create(folder.file("heap")).unwrap();
        filled(&heap, 1);
        heap.checkpoint().unwrap();
        filled(&heap, 2);
        let state = options().copy_to(folder.file("heap"), folder.file("copy")).unwrap();
        assert_eq!(state, State::Dirty);
        let (copy, opened) = options().open(folder.file("copy")).unwrap();
        assert!(!opened.was_clean && word(&copy) == 1 && word(&heap) == 2);
    }

    #[test]
    fn an_open_heap_that_is_mapped_is_copied_at_its_next_checkpoint() {
        let folder = Folder::new("backup-mapped");
        let heap = options().medium(Choice::Mapped).create(folder.file("heap")).unwrap();
        filled(&heap, 1);
        let (from, to) = (folder.file("heap"), folder.file("copy"));
        let soon = options().wait(Duration::from_millis(10)).copy_to(&from, &to);
        assert_eq!(soon.unwrap_err(), Error::NoCheckpoint);
        assert_eq!(folder.names(), ["heap"]);
        let copying = std::thread::spawn(move || options().copy_to(from, to).ok());
        while !copying.is_finished() {
            heap.checkpoint().unwrap();
        }
        assert_eq!(copying.join().unwrap(), Some(State::Dirty));
        let (copy, _) = options().open(folder.file("copy")).unwrap();
        assert_eq!(word(&copy), 1);
    }

    #[test]
    fn nothing_is_written_over_and_what_is_no_heap_is_not_copied() {
        let folder = Folder::new("backup-refused");
        let heap = options().create(folder.file("heap")).unwrap();
        heap.close().unwrap();
        // The error, and the name of the file that it means.
        let fails = |from: &str, to: &str| {
            let why = options().copy_to(folder.file(from), folder.file(to)).unwrap_err();
            let path = String::from_utf8(why.path().to_vec()).unwrap();
            (why.error(), path.rsplit('/').next().unwrap_or("").to_owned())
        };
        let there = |name: &str| (Error::System(libc::EEXIST), name.to_owned());
        std::fs::write(folder.0.join("there"), b"kept").unwrap();
        std::fs::write(folder.0.join("logged.wal"), b"kept").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.0.join("link")).unwrap();
        std::fs::write(folder.0.join("empty.wal"), b"").unwrap();
        let copied = options().copy_to(folder.file("heap"), folder.file("empty"));
        assert_eq!(copied.unwrap(), State::Clean);
        for to in ["there", "link", "heap", "empty", "."] {
            assert_eq!(fails("heap", to), there(to));
        }
        assert_eq!(fails("heap", "logged"), there("logged.wal"));
        assert_eq!(std::fs::read(folder.0.join("there")).unwrap(), b"kept");
        assert_eq!(fails("there", "copy"), (Error::NotAHeap, "there".to_owned()));
        let absent = Error::System(libc::ENOENT);
        assert_eq!(fails("none", "copy"), (absent, "none".to_owned()));
        assert_eq!(fails("heap", "no/copy").0, absent);
        assert_eq!(fails("heap", "a\0b").0, Error::System(libc::EINVAL));
        assert_eq!(fails("heap", &"a".repeat(5000)).0.errno(), libc::ENAMETOOLONG);
    }
}
