//! Heaps in files: made, opened, copied.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use spandrel_os::draft;
use spandrel_os::image::{self, Access, Image};
use spandrel_pmem::{Choice, Draft, Failed, Keep, Media, Place, peek};

use crate::error::Error;
use crate::heap::{FORMATTED_BYTES, Heap, Opened, format};
use crate::identify::identify;
use crate::layout::LEAST_BYTES;
use crate::limits::{CPath, check_new, check_path};
use crate::registry;
use crate::roots::RootType;
use crate::shared::Core;
use crate::superblock::{ASKING, IDENTITY_COPY, Identity, Record, TIE, UUID_AT, VERSION};
use crate::window;

/// Bytes that a heap is made with by default.
pub const SIZE: usize = 64 << 20;
/// The default of [`Options::limit`] in bytes. It costs address space and no memory. It is less where the address space is limited
/// (`ulimit -v`), and for a fixed heap that has neighbours.
pub const LIMIT: usize = 256 << 30;
/// How long a copy waits by default for the process that has the heap open to come to a checkpoint.
pub const WAIT: Duration = Duration::from_secs(10);
/// The name of a log is the heap's name and this suffix. It is not `.log`, which programs that rotate logs look for.
pub(crate) const LOG: &[u8] = b".wal";
/// The suffix in the first version of the format.
const OLD_LOG: &[u8] = b".log";
/// The suffix of a log that does not fit and is set aside; no longer than [`LOG`].
const ASIDE: &[u8] = b".bad";
/// The suffix of the file with the sums of pages; no longer than [`LOG`].
pub(crate) const SUMS: &[u8] = b".sum";

/// How a heap is made or opened.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    size: usize,
    limit: Option<usize>,
    is_fixed: bool,
    /// The base of a new heap; 0: none, or one that is found if `is_fixed` is set.
    base: u64,
    choice: Choice,
    layout: u64,
    types: &'a [RootType<'a>],
    recovers: bool,
    /// See [`Heap::take_as_replica`].
    is_replica: bool,
    is_read_only: bool,
    wait: Duration,
    forgets_log: bool,
    pub(crate) keep: Keep,
    pub(crate) compares: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// The path of a heap, and those of the files beside it.
struct Paths {
    file: CPath,
    log: CPath,
    old_log: CPath,
    aside: CPath,
    sums: CPath,
}

impl Paths {
    fn new(path: &[u8]) -> Result<Self, Error> {
        let with = |suffix| CPath::new(path, suffix).map_err(Error::System);
        Ok(Self {
            file: with(b"")?,
            log: with(LOG)?,
            old_log: with(OLD_LOG)?,
            aside: with(ASIDE)?,
            sums: with(SUMS)?,
        })
    }

    /// The place of a heap with that identity, and how the heap is used: as `wanted`, or as it was made if that is [`Choice::Auto`].
    fn place(
        &self,
        (identity, version): (&Identity, u64),
        wanted: Choice,
        limit: usize,
    ) -> Place<'_> {
        Place {
            path: self.file.as_c(),
            log: self.log.as_c(),
            old_log: self.old_log.as_c(),
            aside: self.aside.as_c(),
            sums: self.sums.as_c(),
            keep: Keep::IfThere,
            compares: false,
            identity: identity.uuid[0],
            identity_at: Some([UUID_AT, IDENTITY_COPY as u64 + UUID_AT]),
            choice: if wanted == Choice::Auto { identity.medium } else { wanted },
            insists: wanted == Choice::Mapped,
            limit,
            base: usize::try_from(identity.base).ok().filter(|base| *base != 0),
            asking: ASKING,
            tie: TIE as u64,
            is_old: version != VERSION,
            wait: Duration::ZERO,
            forgives: false,
        }
    }
}

impl<'a> Options<'a> {
    /// The defaults: 64 MiB to begin with, at any address, on the medium that suits the file.
    pub const fn new() -> Self {
        Self {
            size: SIZE,
            limit: None,
            is_fixed: false,
            base: 0,
            choice: Choice::Auto,
            layout: 0,
            types: &[],
            recovers: true,
            is_replica: false,
            is_read_only: false,
            wait: WAIT,
            forgets_log: false,
            keep: Keep::IfThere,
            compares: false,
        }
    }

    /// Bytes of a new heap, which grows as it needs.
    pub const fn size(mut self, bytes: usize) -> Self {
        self.size = bytes;
        self
    }

    /// The most bytes that the heap may have: the address space that is reserved for it.
    pub const fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// A new heap gets a base: an address at which it is always mapped, so that addresses of objects may be stored in it.
    pub const fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// A new heap gets that base, or none if it is 0.
    pub(crate) const fn at_base(mut self, base: u64) -> Self {
        (self.base, self.is_fixed) = (base, false);
        self
    }

    /// The medium of the heap. The file remembers the medium that it was made with. Another medium holds as long as the heap is open, and
    /// loses nothing: what only the log has is written to the file before that is mapped.
    pub const fn medium(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// A number for the layout of the program's types. A heap that was made with another number is refused; 0: any.
    pub const fn layout(mut self, layout: u64) -> Self {
        self.layout = layout;
        self
    }

    /// The types of roots, for recovery. Without a type each word that looks like a pointer is followed.
    pub const fn roots(mut self, types: &'a [RootType<'a>]) -> Self {
        self.types = types;
        self
    }

    /// A heap that was not closed is opened without recovery: it refuses allocations before [`Heap::collect`].
    pub const fn offline(mut self) -> Self {
        self.recovers = false;
        self
    }

    /// See [`Heap::take_as_replica`].
    pub(crate) const fn replica(mut self) -> Self {
        self.is_replica = true;
        self
    }

    /// The heap is opened to be read only: [`Options::open`] takes a copy in memory of the last checkpoint, as [`Options::copy`] does, and
    /// changes are refused ([`Error::ReadOnly`]). Other processes may have the heap open. Neither the file nor its directory need be
    /// writable.
    ///
    /// The copy takes as many bytes of memory as the heap has, and does not follow later changes.
    pub const fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// The time that [`Options::copy`] waits for a checkpoint of the process that has the heap open, where there is no log: 10 s by
    /// default. Zero: no copy is requested of the process.
    pub const fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Opens a heap whose log does not fit, is damaged or is missing: the log is set aside (`FILE.bad`), and the heap is what the file has.
    /// What only the log has is given up. The file may have a part of a checkpoint: run [`check`](crate::check) afterwards.
    pub const fn forget_log(mut self) -> Self {
        self.forgets_log = true;
        self
    }

    /// Makes a heap.
    ///
    /// # Errors
    /// [`Error::System`] with `EEXIST`: there is a file of that name, also one that another process has begun to use since. [`Error::Size`]: a heap has 704 KiB at least.
    /// [`Error::Full`], [`Error::DiskFull`], [`Error::FileSize`], [`Error::NoMemory`]: there is no room. [`Error::WindowFull`],
    /// [`Error::TooManyHeaps`], [`Error::NameTooLong`], [`Error::PathTooLong`], [`Error::FileSystem`]: a limit is reached. No file is left
    /// then that was not there before. [`Error::Locked`]: another process opened the new heap before this call did, and keeps it.
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<Heap<Media>, Error> {
        /// Bases that are tried for a fixed heap: another thread may map memory at the one that was found free.
        const TURNS: usize = 8;
        if self.is_read_only {
            return Err(Error::ReadOnly);
        }
        let path = path.as_ref();
        check_new(path, LOG.len())?;
        let paths = Paths::new(path)?;
        if self.size < LEAST_BYTES {
            return Err(Error::Size(self.size));
        }
        let mut turns = 0;
        loop {
            turns += 1;
            self.publish(&paths)?;
            match self.open_new(path, &paths) {
                Err(Error::BaseTaken(_)) if self.is_fixed && turns < TURNS => {}
                opened => return opened,
            }
        }
    }

    /// Writes a new heap to its file, which other processes can open from then on.
    fn publish(&self, paths: &Paths) -> Result<(), Error> {
        // No file has the sums of a heap that is made now.
        if self.keep == Keep::Always
            && !matches!(peek(paths.sums.as_c(), &mut []), Err(Failed(libc::ENOENT)) | Ok((_, 0)))
        {
            return Err(Error::ForeignSums);
        }
        let uuid = image::unique();
        let base = if self.is_fixed { self.find_base(uuid[1])? } else { self.base };
        let identity = Identity { uuid, base, medium: self.choice };
        let draft = Draft::new(self.size)?;
        format(&draft, identity, self.layout)?;
        draft.publish(&paths.place((&identity, VERSION), self.choice, 0), FORMATTED_BYTES)?;
        Ok(())
    }

    /// Opens a heap that this call has published. A heap that another process has used since is that process's, as if its file had been there
    /// before. A heap that cannot be opened, and that no other process has used, is removed.
    fn open_new(&self, path: &[u8], paths: &Paths) -> Result<Heap<Media>, Error> {
        let has_sums = self.keep == Keep::Always;
        match self.open(path).inspect_err(|_| withdraw(paths, has_sums))? {
            (heap, Opened { created: true, .. }) => Ok(heap),
            _ => Err(Error::System(libc::EEXIST)),
        }
    }

    /// A base for a new heap.
    fn find_base(&self, drawn: u64) -> Result<u64, Error> {
        self.with_limit(self.size, |limit| {
            let bytes = limit.max(self.size);
            window::place(drawn, bytes, Ok)
        })
    }

    /// Opens a heap, and recovers it if it was not closed.
    ///
    /// # Errors
    /// As for [`Heap::open`]; [`Error::System`] with `ENOENT` if there is none, [`Error::Locked`].
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        if self.is_read_only {
            return self.copy(path).inspect(|(heap, _)| {
                heap.core().gate.origin().make_read_only();
            });
        }
        // First, as opening the medium may already write to the file: the tie to its log.
        registry::check_free()?;
        of_one_file(|| {
            let media = self.open_medium(&path)?;
            let recovers = self.recovers && !self.is_replica;
            let opened = Heap::open(media, self.layout, recovers.then_some(self.types))?;
            if self.is_replica {
                opened.0.take_as_replica();
            }
            Ok(opened)
        })
        .inspect(|(heap, _)| bind(heap))
    }

    /// Opens a heap, or makes it if there is none: [`Opened::created`] says which. A heap that was not closed is recovered.
    ///
    /// If several processes begin at once, one of them gets the new heap. That may be another one than the process that has written the file.
    ///
    /// # Errors
    /// As for [`Options::open`] and [`Options::create`].
    pub fn open_or_create(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        /// Other processes may make or remove the file in between.
        const TURNS: usize = 4;
        let path = path.as_ref();
        let mut last = Error::System(libc::ENOENT);
        for _ in 0..TURNS {
            match self.open(path) {
                Err(Error::System(libc::ENOENT)) if !self.is_read_only => {}
                opened => return opened,
            }
            let new = Opened { created: true, was_clean: true, ..Opened::default() };
            match self.create(path) {
                Err(why @ Error::System(libc::EEXIST)) => last = why,
                made => return made.map(|heap| (heap, new)),
            }
        }
        Err(last)
    }

    /// Opens the medium of a heap, to mend it with [`repair`](crate::repair). The file is locked until the medium is dropped.
    ///
    /// # Errors
    /// As for [`Options::open`], except those that follow from the heap's records.
    pub fn open_medium(&self, path: impl AsRef<[u8]>) -> Result<Media, Error> {
        if self.is_read_only {
            return Err(Error::ReadOnly);
        }
        check_path(path.as_ref(), LOG.len())?;
        let paths = Paths::new(path.as_ref())?;
        of_one_file(|| {
            let (identity, version, bytes) = identify(paths.file.as_c())?;
            self.with_limit(bytes, |limit| {
                let place = paths.place((&identity, version), self.choice, limit);
                let media =
                    Media::open(&Place { forgives: self.forgets_log, keep: self.keep, ..place });
                media.map_err(|why| translated(why.into(), &identity))
            })
        })
    }

    /// Opens a copy in memory of a heap, as of its last checkpoint if a process has it open. The file does not change.
    ///
    /// Where there is no log (on tmpfs, on persistent memory, and of heaps that were made [`Choice::Mapped`]) the process that has the heap
    /// open is asked, and lends it at its next [`Heap::checkpoint`]; then it goes on. That takes the right to write to the file. An object
    /// that another thread of that process stores to meanwhile is in the copy word by word, as in a checkpoint.
    ///
    /// # Errors
    /// As for [`Options::open`]; [`Error::NoCheckpoint`]: the process made no checkpoint in the time; [`Error::Locked`]: the process could
    /// not be asked, or [`Options::wait`] is zero.
    pub fn copy(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        Heap::open(self.copy_medium(path)?, self.layout, self.recovers.then_some(self.types))
    }

    /// The medium of such a copy, for [`check`](crate::check), or to write it elsewhere.
    ///
    /// # Errors
    /// As for [`Options::copy`], except those that follow from the heap's records.
    pub fn copy_medium(&self, path: impl AsRef<[u8]>) -> Result<Media, Error> {
        check_path(path.as_ref(), LOG.len())?;
        let paths = Paths::new(path.as_ref())?;
        of_one_file(|| {
            let (identity, version, _) = identify(paths.file.as_c())?;
            let place = paths.place((&identity, version), Choice::Auto, 0);
            let (forgives, compares) = (self.forgets_log, self.compares);
            let place = Place { wait: self.wait, forgives, compares, ..place };
            Media::copy(&place).map_err(|why| translated(why.into(), &identity))
        })
    }

    /// Calls `open` with the program's limit, or, without one, with [`LIMIT`] and half of it each time that fails for want of address
    /// space: `ulimit -v` or a fixed heap's neighbours may leave less.
    ///
    /// The first limit is at most half of the address space that is left, so that a program under `ulimit -v` has the other half.
    fn with_limit<T>(
        &self,
        least: usize,
        open: impl Fn(usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(limit) = self.limit {
            return open(limit);
        }
        let least = least.max(SIZE);
        let mut limit = LIMIT.max(least);
        while limit > least && !window::has_room(limit.saturating_mul(2)) {
            limit = (limit / 2).max(least);
        }
        loop {
            match open(limit) {
                Err(Error::BaseTaken(base)) if window::begins_in_use(base) => {
                    return Err(Error::BaseTaken(base));
                }
                Err(Error::NoMemory | Error::WindowFull(_) | Error::BaseTaken(_))
                    if limit > least =>
                {
                    limit = (limit / 2).max(least);
                }
                opened => return opened,
            }
        }
    }
}

/// Registers a fixed heap by its base, for [`with_fixed`].
fn bind(heap: &Heap<Media>) {
    let core = heap.core();
    if core.identity.base != 0 {
        let number = core.number.load(Relaxed);
        registry::bind(number, core.identity.base, core::ptr::from_ref(core).cast_mut().cast());
    }
}

/// Calls `work` with the fixed heap that has this base; `None`: this process does not have it open. See [`Options::fixed`].
///
/// # Safety
/// No thread closes it meanwhile.
pub unsafe fn with_fixed<R>(base: u64, work: impl FnOnce(&Heap<Media>) -> R) -> Option<R> {
    let core = registry::bound(base)?.cast::<Core<Media>>();
    // Not dropped: the program owns it.
    let heap = core::mem::ManuallyDrop::new(Heap::of(core));
    Some(work(&heap))
}

/// Removes the file of a new heap that could not be opened, its log, and its sums if it was to have some: no files had these names before.
///
/// The file has had its name since it was published, and another process may have opened it. The file stays if that process has it open, and
/// if the record says that it was opened: the heap may hold that process's data.
fn withdraw(paths: &Paths, has_sums: bool) {
    if let Ok(image) = Image::open(paths.file.as_c(), Access::Write)
        && image.lock(Access::Write).is_ok()
        && let Ok(Some(record)) = Record::of_file(|into, at| image.read_at(into, at))
        && record.generation == 0
        && draft::remove_name(paths.file.as_c(), &image).is_ok()
    {
        let _ = image::remove(paths.log.as_c());
        if has_sums {
            let _ = image::remove(paths.sums.as_c());
        }
    }
}

/// What the system's error means for a heap of that identity.
fn translated(why: Error, identity: &Identity) -> Error {
    match why {
        Error::System(libc::EADDRINUSE) => Error::BaseTaken(identity.base),
        why => why,
    }
}

/// The medium of a copy in memory; see [`Options::copy_medium`].
///
/// # Errors
/// As there.
pub fn copy(path: impl AsRef<[u8]>) -> Result<Media, Error> {
    Options::new().copy_medium(path)
}

/// Calls `open` again if another file has taken the path since its identity was read.
fn of_one_file<T>(open: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    /// Each time another file is put in the place of the one before.
    const TURNS: usize = 16;
    let mut turns = 0;
    loop {
        turns += 1;
        match open() {
            Err(Error::System(libc::ESTALE) | Error::Replaced) if turns < TURNS => {}
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::prelude::v1::*;

    use super::*;
    use crate::collections::HashMap;

    /// A heap with its name, which the call that makes it has not opened yet.
    struct New {
        place: tempfile::TempDir,
        options: Options<'static>,
    }

    impl New {
        fn published() -> [Self; 2] {
            [Choice::Mapped, Choice::Logged].map(|choice| {
                let place = tempfile::tempdir().unwrap();
                let options = Options::new().size(1 << 20).medium(choice).layout(7);
                let new = Self { place, options };
                options.publish(&Paths::new(new.path().as_bytes()).unwrap()).unwrap();
                new
            })
        }

        fn path(&self) -> String {
            self.place.path().join("a.heap").to_str().unwrap().to_string()
        }

        /// The end of `create`. With another layout than that of the new heap it fails.
        fn opened(&self, layout: u64) -> Result<Heap<Media>, Error> {
            let path = self.path();
            self.options.layout(layout).open_new(path.as_bytes(), &Paths::new(path.as_bytes())?)
        }

        /// Another process, or another thread: its file descriptors are its own.
        fn used_by_another(&self) -> Heap<Media> {
            let (heap, opened) = Options::new().open(self.path()).unwrap();
            assert!(opened.was_clean && opened.created, "the first that opens it");
            HashMap::<u64, u64>::open(&heap, "map").unwrap().insert(1, 2).unwrap();
            heap
        }

        fn has_its_data(&self) -> bool {
            let (heap, opened) = Options::new().open_or_create(self.path()).unwrap();
            assert!(!opened.created);
            HashMap::<u64, u64>::open(&heap, "map").unwrap().get(&1) == Some(2)
        }
    }

    #[test]
    fn a_new_heap_that_another_process_has_opened_first_is_that_process_s() {
        for new in New::published() {
            let other = new.used_by_another();
            assert_eq!(new.opened(7).err(), Some(Error::Locked));
            other.checkpoint().unwrap();
            other.abandon();
            assert!(new.has_its_data());
        }
    }

    #[test]
    fn a_new_heap_that_another_process_has_used_is_not_removed() {
        for new in New::published() {
            new.used_by_another().close().unwrap();
            assert_eq!(new.opened(7).err(), Some(Error::System(libc::EEXIST)));
            assert!(new.has_its_data());
            assert_eq!(new.opened(8).err(), Some(Error::Layout { heap: 7, given: 8 }));
            assert!(new.has_its_data());
        }
    }

    #[test]
    fn a_new_heap_that_cannot_be_opened_leaves_no_file() {
        for new in New::published() {
            assert_eq!(new.opened(8).err(), Some(Error::Layout { heap: 7, given: 8 }));
            assert_eq!(std::fs::read_dir(new.place.path()).unwrap().count(), 0);
        }
    }
}
