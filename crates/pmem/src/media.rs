//! The medium of a file: one type for all of them, chosen when the file is opened.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::time::Duration;

use spandrel_os::image::{Access, Image};
use spandrel_os::written::Written;
use spandrel_os::{directory, filesystem};

use crate::compare::{Mismatch, Standing};
use crate::file::File;
use crate::files;
use crate::mapped::{Kind, Mapped};
use crate::medium::{Failed, Medium};
use crate::room::Buffer;
use crate::snapshot::Snapshot;
use crate::sums_file::Keep;

/// How a file is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// Mapped if it lies on persistent memory or on tmpfs, else with a log.
    #[default]
    Auto,
    /// Stores are the file's: they survive the process, and a power failure only on persistent memory. Refused where a full disk would end
    /// the program by a signal: on file systems that copy what is written.
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
    /// Nothing: it is a copy in memory.
    Copy,
}

// One for each open heap, and nothing here may allocate.
#[expect(clippy::large_enum_variant)]
enum Inner {
    Mapped(Mapped),
    Logged(File),
    Copied(Snapshot),
}

/// An open file. See the head of this file.
pub struct Media {
    /// The base of the medium in `inner`: a store needs no branch by the kind of the medium.
    base: NonNull<u8>,
    inner: Inner,
}

// SAFETY: `base` is an address of the medium in `inner`, which is `Send` and `Sync`.
unsafe impl Send for Media {}
// SAFETY: as above.
unsafe impl Sync for Media {}

/// Bytes of a path at most, the zero byte at its end among them.
pub const PATH_BYTES: usize = 4096;

/// A path that is kept.
pub struct Name(Buffer);

impl Name {
    /// Keeps a path. A relative one holds also when the process has gone to another directory, unless both together are too long for a path.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, `ENOMEM`.
    pub fn of(path: &CStr) -> Result<Self, Failed> {
        let path = path.to_bytes_with_nul();
        let mut kept = Buffer::new(PATH_BYTES)?;
        let bytes = kept.bytes();
        let directory = match path.first() {
            Some(b'/') => 0,
            _ => {
                directory::current(bytes).filter(|len| len + path.len() < bytes.len()).unwrap_or(0)
            }
        };
        let (_, rest) = bytes.split_at_mut(directory);
        let rest = match rest.split_first_mut() {
            Some((slash, rest)) if directory > 0 => {
                *slash = b'/';
                rest
            }
            _ => bytes,
        };
        let place = rest.get_mut(..path.len()).ok_or(Failed(libc::ENAMETOOLONG))?;
        place.copy_from_slice(path);
        Ok(Self(kept))
    }

    /// The path.
    pub fn text(&self) -> &CStr {
        // SAFETY: the buffer is this name's own, and a path with the zero byte at its end is in it.
        unsafe { CStr::from_ptr(self.0.at().as_ptr().cast()) }
    }
}

// SAFETY: nothing changes it after it was made.
unsafe impl Sync for Name {}

/// Where a file lies, and how.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The file.
    pub path: &'a CStr,
    /// Its log, if it has one.
    pub log: &'a CStr,
    /// What its log was called in the first version of the format.
    pub old_log: &'a CStr,
    /// What a log that does not fit is called when it is set aside.
    pub aside: &'a CStr,
    /// The file with the sums of its pages, if it has some.
    pub sums: &'a CStr,
    /// What becomes of the sums.
    pub keep: Keep,
    /// A copy compares the pages with their sums.
    pub compares: bool,
    /// A number that no other file has.
    pub identity: u64,
    /// Offsets at which the file itself has that number. `None`: it has it nowhere. Another file may have taken the path since the number was
    /// read: such a file is not touched.
    pub identity_at: Option<[u64; 2]>,
    /// How it is to be used.
    pub choice: Choice,
    /// With [`Choice::Mapped`]: a file that cannot be mapped is an error. Otherwise such a file is used with a log.
    pub insists: bool,
    /// Bytes that it may have at most.
    pub limit: usize,
    /// Where it is to be mapped; `None`: anywhere.
    pub base: Option<usize>,
    /// Offset of the line in which another process requests a copy; see [`crate::loan`].
    pub asking: usize,
    /// Offset of the two pages that tie the file to its log; see [`crate::tie`].
    pub tie: u64,
    /// The file is of the first version of the format: the two pages may be zero, and the log may have its old name.
    pub is_old: bool,
    /// How long a copy waits for the process that has the file mapped.
    pub wait: Duration,
    /// A log that does not fit is set aside, and the file is opened without it: what only the log has is given up. A copy ignores such a
    /// log.
    pub forgives: bool,
}

impl Media {
    /// Opens a file. With [`Choice::Auto`] a file that has a log is used with it; the file system decides about one without a log. A file
    /// that is to be mapped first gets the records of its log.
    ///
    /// # Errors
    /// As for [`Mapped::of`] and [`File::open`]; [`Failed::HUGE_PAGES`], [`Failed::COPY_ON_WRITE`]. A file whose log cannot be used is
    /// not opened, unless [`Place::forgives`].
    pub fn open(place: &Place<'_>) -> Result<Self, Failed> {
        let image = files::locked(place)?;
        if image.has_huge_pages_only() {
            return Err(Failed::HUGE_PAGES);
        }
        let in_memory = filesystem::is_in_memory(place.path);
        let is_mapped = match place.choice {
            Choice::Logged => false,
            Choice::Mapped if !image.is_copied_on_write() => true,
            Choice::Mapped if place.insists => return Err(Failed::COPY_ON_WRITE),
            Choice::Mapped => false,
            Choice::Auto if !matches!(files::open_log(place.log, Access::Read), Ok(None)) => false,
            Choice::Auto if in_memory => true,
            // Persistent memory is known when it is mapped.
            Choice::Auto => Mapped::is_persistent(&image),
        };
        if is_mapped && place.keep == Keep::Always {
            return Err(Failed::MAPPED_SUMS);
        }
        if is_mapped {
            let image = files::absorb(image, place)?;
            image.take_all_room(in_memory).map_err(Failed)?;
            let mut mapped = Mapped::of(image, place.limit, place.base)?;
            mapped.watch_name(place.path)?;
            mapped.forget_logs(place.tie, place.identity);
            return Ok(Self::of(Inner::Mapped(mapped)));
        }
        Ok(Self::of(Inner::Logged(File::of(image, place, Written::watch)?)))
    }

    /// A copy in memory of a file: as it was closed, as of the last checkpoint of its owner, or, of a file that is mapped, as its owner
    /// lends it. The content of the file does not change.
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

/// Reads the first bytes of a file. Returns the number of bytes that were read, and the length of the file.
///
/// # Errors
/// The error's number: `ELOOP` for a symbolic link, `EINVAL` for what is no file.
pub fn peek(path: &CStr, into: &mut [u8]) -> Result<(usize, u64), Failed> {
    let image = Image::open(path, Access::Read).map_err(Failed)?;
    let read = image.read_at(into, 0).map_err(Failed)?;
    Ok((read, image.bytes().map_err(Failed)?))
}

// SAFETY: `base` and `bytes` are those of the medium in `inner`, which lives as long as this and keeps the promise.
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
            Inner::Copied(medium) => medium.limit(),
        }
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        match &self.inner {
            Inner::Mapped(medium) => medium.grow(bytes),
            Inner::Logged(medium) => medium.grow(bytes),
            Inner::Copied(medium) => medium.grow(bytes),
        }
    }

    fn is_private(&self) -> bool {
        matches!(&self.inner, Inner::Copied(_))
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

    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        match &self.inner {
            Inner::Mapped(medium) => medium.checkpoint_still(still),
            Inner::Logged(medium) => medium.checkpoint_still(still),
            Inner::Copied(_) => Ok(()),
        }
    }

    unsafe fn give_back(&self) -> usize {
        match &self.inner {
            // SAFETY: passed on from the caller.
            Inner::Logged(medium) => unsafe { medium.give_back() },
            Inner::Mapped(_) | Inner::Copied(_) => 0,
        }
    }

    fn settle(&self) -> Result<(), Failed> {
        match &self.inner {
            Inner::Logged(file) => file.settle(),
            _ => Ok(()),
        }
    }

    fn compare_sums(&self, see: &mut dyn FnMut(u64, Mismatch)) -> Result<Standing, Failed> {
        match &self.inner {
            Inner::Logged(file) => file.compare_sums(see),
            Inner::Copied(copy) => copy.compare_sums(see),
            Inner::Mapped(_) => Ok(Standing::Absent),
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
