//! The error of making, opening or copying a heap in a file: the path, the reason in words, the way out.

use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;

use spandrel_os::holder::{self, COMMAND_BYTES};
use spandrel_os::image::{Access, Image};
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;
use crate::layout::LEAST_BYTES;
use crate::limits::CPath;
use crate::open::{LOG, SUMS};

/// Bytes of a path in the short form.
const SHORT_BYTES: usize = 120;

/// An [`Error`] with the path of the file, and the process that has the heap open. The path is the log's if the error is one of the log, and that of the sums
/// if it is one of them.
///
/// It prints as `visits.heap: process 1234 (redis-server) has it open; close it there first`, also where `main` returns it. The alternate
/// form (`{:#}`) has at most the last 120 bytes of the path.
pub struct OpenError {
    error: Error,
    path: Option<Text>,
    holder: Option<Holder>,
}

/// A process that has a heap open.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Holder {
    process: u32,
    command: [u8; COMMAND_BYTES],
}

impl OpenError {
    /// Adds the path and the process to an error of the heap with that path. The call examines files and locks, and therefore belongs directly
    /// behind the call that failed.
    #[cold]
    pub fn new(path: impl AsRef<[u8]>, error: Error) -> Self {
        let path = path.as_ref();
        // A path that the kernel does not take names no file.
        let (file, log) = (CPath::new(path, b"").ok(), CPath::new(path, LOG).ok());
        let [file, log] = [&file, &log].map(|path| path.as_ref().map_or(c"", CPath::as_c));
        let of_log = is_of_log(file, log, error);
        let holder = match error {
            Error::Locked | Error::NoCheckpoint => holder::of(file),
            _ => None,
        };
        let holder = holder.map(|process| Holder { process, command: holder::command(process) });
        let sums = CPath::new(path, SUMS).ok();
        let sums = sums.filter(|sums| is_of_sums(file, sums.as_c(), error));
        let named = match &sums {
            _ if of_log => log.to_bytes(),
            Some(sums) => sums.as_c().to_bytes(),
            None => path,
        };
        Self { error, path: Text::new(named), holder }
    }

    /// The error without the path.
    pub fn error(&self) -> Error {
        self.error
    }

    /// The path of the heap, of its log or of its sums; empty: not known.
    pub fn path(&self) -> &[u8] {
        self.path.as_ref().map_or(&[], Text::bytes)
    }

    /// The process that has locked the file, if the kernel names it. A child that shares the lock may have outlived that process.
    pub fn holder(&self) -> Option<u32> {
        self.holder.map(|holder| holder.process)
    }

    /// The number for `errno` of C callers.
    pub fn errno(&self) -> i32 {
        self.error.errno()
    }

    /// Writes the reason, without the path and the way out.
    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.holder, self.error) {
            (Some(holder), Error::Locked) => write!(f, "{holder} has it open"),
            (Some(holder), Error::NoCheckpoint) => {
                write!(f, "{holder} has it open, was asked for a copy, and came to no checkpoint")
            }
            // The size of the heap, not of an object.
            (_, Error::Size(bytes)) => write!(
                f,
                "a heap has {} KiB at least, and was to have {bytes} bytes; make it larger",
                LEAST_BYTES >> 10
            ),
            _ => fmt::Display::fmt(&self.error.reason(), f),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.path();
        let last = all.len().saturating_sub(SHORT_BYTES);
        let path = match f.alternate() && last > 0 {
            true => {
                f.write_str("\u{2026}")?;
                all.get(last..).unwrap_or(all)
            }
            false => all,
        };
        if !path.is_empty() {
            write_lossily(f, path)?;
            f.write_str(": ")?;
        }
        self.write_reason(f)?;
        self.error.way_out().map_or(Ok(()), |way| write!(f, "; {way}"))
    }
}

/// As it prints: `main` and `unwrap` show an error in this form.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.error)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.process == spandrel_os::env::pid().unsigned_abs() {
            return f.write_str("this process");
        }
        write!(f, "process {}", self.process)?;
        let end = self.command.iter().position(|byte| *byte == 0).unwrap_or(COMMAND_BYTES);
        match self.command.get(..end) {
            Some(command) if !command.is_empty() => {
                f.write_str(" (")?;
                write_lossily(f, command)?;
                f.write_str(")")
            }
            _ => Ok(()),
        }
    }
}

impl core::error::Error for OpenError {}

impl PartialEq<Error> for OpenError {
    fn eq(&self, other: &Error) -> bool {
        self.error == *other
    }
}

/// Without the path: for functions that use a heap as well as open it.
impl From<OpenError> for Error {
    fn from(why: OpenError) -> Self {
        why.error
    }
}

/// Without a path: for functions that open a heap as well as use it.
impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self { error, path: None, holder: None }
    }
}

/// Whether an error is one of the file with the sums, and not of the heap's file.
fn is_of_sums(file: &CStr, sums: &CStr, error: Error) -> bool {
    let number = match error {
        Error::ForeignSums => return true,
        Error::System(number) if number != libc::ENOENT && number != libc::EEXIST => number,
        _ => return false,
    };
    let fails = |path| Image::open(path, Access::Write).err() == Some(number);
    fails(sums) && !fails(file)
}

/// Whether an error is one of the log, and not of the heap's file.
fn is_of_log(file: &CStr, log: &CStr, error: Error) -> bool {
    let number = match error {
        Error::ForeignLog
        | Error::StaleLog
        | Error::MissingLog
        | Error::DamagedLog
        | Error::NotALog => return true,
        // A closed heap has no log: what is missing is the heap, which another process may be making just now.
        Error::System(libc::ENOENT) => return false,
        Error::System(number) => number,
        _ => return false,
    };
    let fails = |path, access| match Image::open(path, access).err() {
        // A new file needs the name: any file of that name is in the way.
        why if number == libc::EEXIST => why != Some(libc::ENOENT),
        why => why == Some(number),
    };
    let by =
        [(file, Access::Read), (log, Access::Read), (file, Access::Write), (log, Access::Write)];
    let found = by.into_iter().find(|(path, access)| fails(path, *access));
    // The log is missing, and the directory allows no new file.
    let refused = matches!(number, libc::EACCES | libc::EPERM | libc::EROFS);
    let missing = || {
        refused
            && Image::open(file, Access::Write).is_ok()
            && Image::open(log, Access::Read).err() == Some(libc::ENOENT)
    };
    found.map_or_else(missing, |(path, _)| path == log)
}

/// Writes bytes as text, with a replacement character for others.
fn write_lossily(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        f.write_str(chunk.valid())?;
        if !chunk.invalid().is_empty() {
            f.write_str("\u{fffd}")?;
        }
    }
    Ok(())
}

/// A text on a page of its own: there is no allocator here.
pub(crate) struct Text {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the page is its own, and does not change once it is filled.
unsafe impl Send for Text {}
// SAFETY: as above.
unsafe impl Sync for Text {}

impl Text {
    /// As much as a page holds; `None`: there is no memory.
    pub(crate) fn new(text: &[u8]) -> Option<Self> {
        let text = text.get(..PAGE_BYTES).unwrap_or(text);
        let at = vm::reserve(PAGE_BYTES)?;
        // SAFETY: reserved above; once it is open it has room for the text.
        unsafe {
            if !vm::open(at.as_ptr(), PAGE_BYTES) {
                vm::release(at.as_ptr(), PAGE_BYTES);
                return None;
            }
            at.as_ptr().copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
        Some(Self { at, len: text.len() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and filled until it is dropped.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: its own page, to which no reference outlives it.
        unsafe { vm::release(self.at.as_ptr(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, Options};
    use std::format;
    use std::os::unix::fs::symlink;
    use std::string::{String, ToString};

    fn log_of(path: &str) -> String {
        format!("{path}{}", core::str::from_utf8(LOG).unwrap())
    }

    #[test]
    fn an_error_has_the_path_the_reason_and_the_way_out() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.heap").to_str().unwrap().to_string();
        let error = |why: Option<Error>| OpenError::new(&path, why.unwrap());
        let missing = error(Options::new().open(&path).err());
        assert_eq!(missing.to_string(), format!("{path}: No such file or directory (os error 2)"));
        std::fs::write(&path, "text").unwrap();
        let no_heap = error(Options::new().open(&path).err()).to_string();
        assert!(no_heap.starts_with(&format!("{path}: it is no heap; name a heap")), "{no_heap}");
        let small = error(Options::new().size(1000).create(format!("{path}2")).err()).to_string();
        assert!(small.contains("704 KiB at least, and was to have 1000 bytes; make"), "{small}");
        let there = error(Options::new().create(&path).err());
        assert!(there.to_string().starts_with(&format!("{path}: File exists")), "{there}");
        assert_eq!((there.path(), there.errno()), (path.as_bytes(), libc::EEXIST));
        assert!(there == Error::System(libc::EEXIST) && there.holder().is_none());
        assert_eq!(Error::from(there), Error::System(libc::EEXIST));
        assert_eq!(OpenError::from(Error::RootsFull).to_string(), Error::RootsFull.to_string());
        let long = "x".repeat(300);
        let short = format!("{:#}", OpenError::new(&long, Error::NotAHeap));
        assert!(short.starts_with(&format!("\u{2026}{}: it is no heap", &long[..120])), "{short}");
        let odd = OpenError::new(b"x\xffy", Error::NotAHeap).to_string();
        assert!(odd.starts_with("x\u{fffd}y: it is no heap"), "{odd}");
    }

    #[test]
    fn what_is_wrong_with_the_log_is_said_of_the_log() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.heap").to_str().unwrap().to_string();
        let options = Options::new().size(1 << 20).medium(Choice::Logged);
        options.create(&path).unwrap().close().unwrap();
        let log = log_of(&path);
        let _ = std::fs::remove_file(&log);
        symlink("/etc/passwd", &log).unwrap();
        let why = Options::new().open(&path).err().unwrap();
        let text = OpenError::new(&path, why).to_string();
        assert!(text.starts_with(&format!("{log}: it has the name")), "{text}");
        std::fs::remove_file(&path).unwrap();
        let why = options.create(&path).err().unwrap();
        let made = OpenError::new(&path, why);
        assert_eq!((made.path(), made.error()), (log.as_bytes(), Error::NotALog));
        let foreign = OpenError::new(&path, Error::ForeignLog).to_string();
        assert!(foreign.starts_with(&format!("{log}: it is the log of another")), "{foreign}");
    }

    #[test]
    fn a_process_that_has_it_open_is_named() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("a.heap").to_str().unwrap().to_string();
        let heap = Options::new().size(1 << 20).create(&path).unwrap();
        let why = Options::new().wait(core::time::Duration::ZERO).copy_medium(&path).err().unwrap();
        let error = OpenError::new(&path, why);
        assert_eq!(error.error(), Error::Locked);
        match error.holder() {
            Some(process) => {
                assert_eq!(process, std::process::id());
                let text = format!("{path}: this process has it open; close it there first");
                assert_eq!(error.to_string(), text);
            }
            None => assert!(error.to_string().contains("in this process or another")),
        }
        drop(heap);
        let holder = Holder { process: 1 << 30, command: *b"redis-server\0\0\0\0" };
        let error = OpenError { holder: Some(holder), ..error };
        let named = format!("{path}: process 1073741824 (redis-server) has it open; close it");
        assert!(error.to_string().starts_with(&named), "{error}");
    }
}
