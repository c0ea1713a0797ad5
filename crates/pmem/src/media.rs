//! Whatever a file lies on: one type for all media, chosen when the file is opened.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::time::Duration;

use spandrel_os::image::{self, Access, Image};

use crate::file::File;
use crate::files;
use crate::mapped::{Kind, Mapped};
use crate::medium::{Failed, Medium};
use crate::snapshot::Snapshot;

/// How a file is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// Mapped if it lies on persistent memory or on tmpfs, else with a log.
    #[default]
    Auto,
    /// Stores are the file's: they survive the process, and a power failure only on persistent memory.
    Mapped,
    /// The file changes from checkpoint to checkpoint; see [`File`].
    Logged,
}

/// What stores to a medium survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarantee {
    /// Crashes of the process and of the kernel, and loss of power: with the next fence.
    Dax,
    /// Crashes of the process.
    Memory,
    /// All of them: with the next checkpoint.
    File,
    /// Nothing: it is a copy that nobody keeps.
    Copy,
}

enum Inner {
    Mapped(Mapped),
    Logged(File),
    Copied(Snapshot),
}

/// An open file. See the head of this file.
pub struct Media {
    /// That of the medium, so that to store need not ask which it is.
    base: NonNull<u8>,
    inner: Inner,
}

// SAFETY: as the medium that it is.
unsafe impl Send for Media {}
// SAFETY: as the medium that it is.
unsafe impl Sync for Media {}

/// Where a file lies, and how.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The file.
    pub path: &'a CStr,
    /// Its log, if it has one.
    pub log: &'a CStr,
    /// A number that no other file has.
    pub identity: u64,
    /// How it is to be used.
    pub choice: Choice,
    /// Bytes that it may have at most.
    pub limit: usize,
    /// Where it is to be mapped; `None`: anywhere.
    pub base: Option<usize>,
    /// Where in it somebody may ask for a copy who does not have it; see [`crate::loan`].
    pub asking: usize,
    /// How long a copy waits for whoever has the file mapped.
    pub wait: Duration,
}

impl Media {
    /// Makes a file of so many zeroes.
    ///
    /// # Errors
    /// As for [`Mapped::create`] and [`File::create`]. There is no file then that was not there before.
    pub fn create(place: &Place<'_>, bytes: usize) -> Result<Self, Failed> {
        let Place { path, log, identity, choice, limit, base, .. } = *place;
        if choice != Choice::Logged {
            let mapped = Mapped::create(path, bytes, limit, base)?;
            if choice == Choice::Mapped || is_memory(&mapped, path) {
                return Ok(Self::of(Inner::Mapped(mapped)));
            }
            drop(mapped);
            image::remove(path).map_err(Failed)?;
        }
        Ok(Self::of(Inner::Logged(File::create(path, log, identity, bytes, limit, base)?)))
    }

    /// Opens a file. Where nobody says how, one with a log is used with it; one that is to be mapped gets first what is only in its log.
    ///
    /// # Errors
    /// As for [`Mapped::open`] and [`File::open`]; `EBADMSG` if the log is another file's. What is in a log that cannot be used is never
    /// passed over: the file is not opened then.
    pub fn open(place: &Place<'_>) -> Result<Self, Failed> {
        let Place { path, log, identity, choice, limit, base, .. } = *place;
        match choice {
            Choice::Logged => {}
            Choice::Mapped => {
                let image = files::absorb(files::locked(path)?, log, identity)?;
                return Ok(Self::of(Inner::Mapped(Mapped::of(image, limit, base)?)));
            }
            Choice::Auto => {
                let has_log = match Image::open(log, Access::Read) {
                    Err(libc::ENOENT) => false,
                    opened => opened.map(|_| true).map_err(Failed)?,
                };
                if !has_log {
                    let mapped = Mapped::open(path, limit, base)?;
                    if is_memory(&mapped, path) {
                        return Ok(Self::of(Inner::Mapped(mapped)));
                    }
                }
            }
        }
        Ok(Self::of(Inner::Logged(File::open(path, log, identity, limit, base)?)))
    }

    /// A copy in memory of what a file holds: that of a closed one, or of the last checkpoint, or, of one that somebody has mapped, as he
    /// lends it. What the file holds stays as it is.
    ///
    /// # Errors
    /// As for [`Snapshot::take`].
    pub fn copy(place: &Place<'_>) -> Result<Self, Failed> {
        Ok(Self::of(Inner::Copied(Snapshot::take(place)?)))
    }

    fn of(inner: Inner) -> Self {
        let base = match &inner {
            Inner::Mapped(medium) => medium.base(),
            Inner::Logged(medium) => medium.base(),
            Inner::Copied(medium) => medium.base(),
        };
        Self { base, inner }
    }

    /// What stores survive here.
    pub fn guarantee(&self) -> Guarantee {
        match &self.inner {
            Inner::Mapped(mapped) if mapped.kind() == Kind::Dax => Guarantee::Dax,
            Inner::Mapped(_) => Guarantee::Memory,
            Inner::Logged(_) => Guarantee::File,
            Inner::Copied(_) => Guarantee::Copy,
        }
    }
}

/// Reads the first bytes of a file, as they are there: how many were read, and how many the file has.
///
/// # Errors
/// The error's number: `ELOOP` for a symbolic link, `EINVAL` for what is no file.
pub fn peek(path: &CStr, into: &mut [u8]) -> Result<(usize, u64), Failed> {
    peek_at(path, 0, into)
}

/// The same of the bytes from an offset on.
///
/// # Errors
/// As for [`peek`].
pub fn peek_at(path: &CStr, at: u64, into: &mut [u8]) -> Result<(usize, u64), Failed> {
    let image = Image::open(path, Access::Read).map_err(Failed)?;
    let read = image.read_at(into, at).map_err(Failed)?;
    Ok((read, image.bytes().map_err(Failed)?))
}

/// Whether stores survive as much on this medium as the machine they run on can promise.
fn is_memory(mapped: &Mapped, path: &CStr) -> bool {
    mapped.kind() == Kind::Dax || image::is_in_memory(path)
}

// SAFETY: each of them is one.
unsafe impl Medium for Media {
    #[inline]
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        match &self.inner {
            Inner::Mapped(medium) => medium.bytes(),
            Inner::Logged(medium) => medium.bytes(),
            Inner::Copied(medium) => medium.bytes(),
        }
    }

    fn present(&self) -> Result<usize, Failed> {
        match &self.inner {
            Inner::Mapped(medium) => medium.present(),
            Inner::Logged(medium) => medium.present(),
            Inner::Copied(medium) => medium.present(),
        }
    }

    fn limit(&self) -> usize {
        match &self.inner {
            Inner::Mapped(medium) => medium.limit(),
            Inner::Logged(medium) => medium.limit(),
            Inner::Copied(medium) => medium.bytes(),
        }
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        match &self.inner {
            Inner::Mapped(medium) => medium.grow(bytes),
            Inner::Logged(medium) => medium.grow(bytes),
            Inner::Copied(_) => Err(Failed(libc::ENOMEM)),
        }
    }

    #[inline]
    fn has_lines(&self) -> bool {
        matches!(&self.inner, Inner::Mapped(medium) if medium.kind() == Kind::Dax)
    }

    #[inline]
    fn write_back(&self, at: usize, len: usize) {
        if let Inner::Mapped(medium) = &self.inner {
            medium.write_back(at, len);
        }
    }

    #[inline]
    fn fence(&self) {
        if let Inner::Mapped(medium) = &self.inner {
            medium.fence();
        }
    }

    fn checkpoint(&self) -> Result<(), Failed> {
        match &self.inner {
            Inner::Mapped(medium) => medium.checkpoint(),
            Inner::Logged(medium) => medium.checkpoint(),
            Inner::Copied(_) => Ok(()),
        }
    }

    fn settle(&self) -> Result<(), Failed> {
        match &self.inner {
            Inner::Logged(file) => file.settle(),
            _ => Ok(()),
        }
    }

    #[inline]
    fn is_asked(&self, at: usize) -> bool {
        matches!(&self.inner, Inner::Mapped(medium) if medium.is_asked(at))
    }

    fn lend(&self, at: usize) {
        if let Inner::Mapped(medium) = &self.inner {
            medium.lend(at);
        }
    }
}
