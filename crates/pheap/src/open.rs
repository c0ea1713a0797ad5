//! Heaps in files: made, opened, copied.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use spandrel_os::image;
use spandrel_pmem::{Choice, Draft, Media, Place, peek_at};

use crate::error::Error;
use crate::heap::{FORMATTED_BYTES, Heap, Opened, format};
use crate::layout::LEAST_BYTES;
use crate::limits::{PATH_BYTES, check_new, check_path};
use crate::registry;
use crate::roots::RootType;
use crate::shared::Core;
use crate::superblock::{ASKING, IDENTITY_COPY, Identity, TIE, VERSION};
use crate::window;

/// Bytes that a heap is made with by default.
pub const SIZE: usize = 64 << 20;
/// Bytes that it may have by default: address space, and nothing else. Where there is less (`ulimit -v`), or for a fixed heap where
/// others lie near, it is less.
pub const LIMIT: usize = 256 << 30;
/// How long a copy waits by default for the process that has the heap open to come to a checkpoint.
pub const WAIT: Duration = Duration::from_secs(10);
/// What a log is called: the heap's name, and this. Programs and rotations of logs know `.log`.
pub(crate) const LOG: &[u8] = b".wal";
/// What it was called in the first version of the format.
const OLD_LOG: &[u8] = b".log";
/// What a log that does not fit is called when it is set aside; no longer than the log's.
const ASIDE: &[u8] = b".bad";

/// How a heap is made or opened.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    size: usize,
    limit: Option<usize>,
    is_fixed: bool,
    /// The base of a heap that is made, if it is not to be found for it.
    base: u64,
    choice: Choice,
    layout: u64,
    types: &'a [RootType<'a>],
    recovers: bool,
    is_read_only: bool,
    wait: Duration,
    forgets_log: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A path that ends with a zero byte, and those of the files beside it.
struct Paths {
    file: [u8; PATH_BYTES],
    log: [u8; PATH_BYTES],
    old_log: [u8; PATH_BYTES],
    aside: [u8; PATH_BYTES],
}

impl Paths {
    fn new(path: &[u8]) -> Result<Self, Error> {
        let with = |end: &[u8]| {
            let wrong = if path.contains(&0) { libc::EINVAL } else { libc::ENAMETOOLONG };
            let mut bytes = [0; PATH_BYTES];
            let (name, rest) = bytes.split_at_mut_checked(path.len()).unwrap_or_default();
            // A zero byte stays at the end.
            let place = rest.get_mut(..end.len() + 1).and_then(|rest| rest.get_mut(..end.len()));
            match place {
                Some(place) if !path.contains(&0) => {
                    name.copy_from_slice(path);
                    place.copy_from_slice(end);
                    Ok(bytes)
                }
                _ => Err(Error::System(wrong)),
            }
        };
        Ok(Self { file: with(b"")?, log: with(LOG)?, old_log: with(OLD_LOG)?, aside: with(ASIDE)? })
    }

    fn of(bytes: &[u8; PATH_BYTES]) -> &CStr {
        CStr::from_bytes_until_nul(bytes).unwrap_or(c"")
    }

    /// Where a heap lies that says so of itself, and how it is used if `wanted` leaves that to it.
    fn place(
        &self,
        (identity, version): (&Identity, u64),
        wanted: Choice,
        limit: usize,
    ) -> Place<'_> {
        Place {
            path: Self::of(&self.file),
            log: Self::of(&self.log),
            old_log: Self::of(&self.old_log),
            aside: Self::of(&self.aside),
            identity: identity.uuid[0],
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
            is_read_only: false,
            wait: WAIT,
            forgets_log: false,
        }
    }

    /// Bytes that it is made with; it grows as it needs.
    pub const fn size(mut self, bytes: usize) -> Self {
        self.size = bytes;
        self
    }

    /// Bytes that it may have at most: the address space that is set aside for it.
    pub const fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// It is made for one address, at which it is opened ever after: addresses of objects may be stored in it.
    pub const fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// It is made for that address, or for any if it is 0.
    pub(crate) const fn at_base(mut self, base: u64) -> Self {
        (self.base, self.is_fixed) = (base, false);
        self
    }

    /// What the heap lies on. The file remembers what it was made with. Another medium holds as long as the heap is open, and loses nothing:
    /// what is only in the log of a heap that is to be mapped is written to the file first.
    pub const fn medium(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// A number for the layout of the program's types: a heap that was made with another one is refused. 0: any.
    pub const fn layout(mut self, layout: u64) -> Self {
        self.layout = layout;
        self
    }

    /// Of what types its roots are, for recovery. Of others every word is looked at.
    pub const fn roots(mut self, types: &'a [RootType<'a>]) -> Self {
        self.types = types;
        self
    }

    /// It is not recovered when it is opened: nothing can be allocated then before [`Heap::collect`].
    pub const fn offline(mut self) -> Self {
        self.recovers = false;
        self
    }

    /// The heap is opened to be read only: [`Options::open`] takes a copy in memory of its last checkpoint, as [`Options::copy`] does, and what
    /// would change it is refused ([`Error::ReadOnly`]). Other processes may have it open, and go on. Neither the file nor its directory
    /// need be writable.
    ///
    /// The copy takes as much memory as the heap has, and does not follow what is changed later.
    pub const fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// How long [`Options::copy`] waits for the process that has the heap open, where there is no log, to come to a checkpoint: 10 s by
    /// default. Zero: the process is not asked.
    pub const fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// A log that does not fit, is damaged or is missing is no reason to refuse the heap: it is set aside (`FILE.bad`), and the heap taken as the
    /// file has it. What only the log has is given up, and the file may have a part of a checkpoint: a look at it with
    /// [`check`](crate::check) belongs to it.
    pub const fn forget_log(mut self) -> Self {
        self.forgets_log = true;
        self
    }

    /// Makes a heap.
    ///
    /// # Errors
    /// [`Error::System`] with `EEXIST` if there is a file of that name; [`Error::Size`]: a heap has 704 KiB at least;
    /// [`Error::Full`]. No file is left then that was not there before.
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<Heap<Media>, Error> {
        /// Places of a fixed heap that are tried: another thread may map something there in between.
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
            let uuid = image::unique();
            let base = if self.is_fixed { self.find_base(uuid[1])? } else { self.base };
            let identity = Identity { uuid, base, medium: self.choice };
            let draft = Draft::new(self.size)?;
            format(&draft, identity, self.layout)?;
            let place = paths.place((&identity, VERSION), self.choice, 0);
            draft.publish(&place, FORMATTED_BYTES)?;
            match self.open(path) {
                Ok((heap, _)) => return Ok(heap),
                Err(why) => {
                    // It holds nothing, and is of no use; there was no log of that name before.
                    let _ = (image::remove(place.path), image::remove(place.log));
                    if turns == TURNS || !matches!(why, Error::BaseTaken(_)) {
                        return Err(why);
                    }
                }
            }
        }
    }

    /// An address at which a new heap finds room.
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
        // To open what it lies on may write to it already: what ties it to its log.
        registry::check_free()?;
        let media = self.open_medium(path)?;
        Heap::open(media, self.layout, self.recovers.then_some(self.types))
            .inspect(|(heap, _)| bind(heap))
    }

    /// Opens a heap, or makes it if there is none: [`Opened::created`] says which. One that was not closed is recovered.
    ///
    /// Of several processes that begin at once one makes it.
    ///
    /// # Errors
    /// As for [`Options::open`] and [`Options::create`].
    pub fn open_or_create(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        /// Others may make or remove the file in between.
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

    /// Opens what a heap lies on, and not the heap: to mend it with [`repair`](crate::repair). It is locked until the medium is dropped.
    ///
    /// # Errors
    /// As for [`Options::open`], but for what only the heap's records say.
    pub fn open_medium(&self, path: impl AsRef<[u8]>) -> Result<Media, Error> {
        if self.is_read_only {
            return Err(Error::ReadOnly);
        }
        check_path(path.as_ref(), LOG.len())?;
        let paths = Paths::new(path.as_ref())?;
        let (identity, version, bytes) = identify(&paths)?;
        self.with_limit(bytes, |limit| {
            let place = paths.place((&identity, version), self.choice, limit);
            let media = Media::open(&Place { forgives: self.forgets_log, ..place });
            media.map_err(|why| told(why.into(), &identity))
        })
    }

    /// Opens a copy in memory of what a file holds, as of its last checkpoint if a process has it open. What the file holds stays as it is.
    ///
    /// Where there is no log (on tmpfs, on persistent memory, and of heaps that were made [`Choice::Mapped`]) the process that has the heap
    /// open is asked, and lends it at its next [`Heap::checkpoint`]; then it goes on. That takes the right to write to the file. Of objects
    /// that its other threads store to meanwhile the copy has something of before and something of after, as of any that a checkpoint finds
    /// them at.
    ///
    /// # Errors
    /// As for [`Options::open`]; [`Error::NoCheckpoint`]: the process was asked and has not come to one in the time; [`Error::Locked`]: it
    /// could not be asked, or was not to be.
    pub fn copy(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        Heap::open(self.copy_medium(path)?, self.layout, self.recovers.then_some(self.types))
    }

    /// The copy itself, which is not opened: to look at it with [`check`](crate::check), or to write it elsewhere.
    ///
    /// # Errors
    /// As for [`Options::copy`], but for what only the heap's records say.
    pub fn copy_medium(&self, path: impl AsRef<[u8]>) -> Result<Media, Error> {
        check_path(path.as_ref(), LOG.len())?;
        let paths = Paths::new(path.as_ref())?;
        let (identity, version, _) = identify(&paths)?;
        let place = paths.place((&identity, version), Choice::Auto, 0);
        let place = Place { wait: self.wait, forgives: self.forgets_log, ..place };
        Media::copy(&place).map_err(|why| told(why.into(), &identity))
    }

    /// Tries with less and less address space, unless the program has said how much there has to be: `ulimit -v` or a fixed heap's
    /// neighbours may leave no more.
    ///
    /// A heap takes half of what address space is left at most, so that a program under such a limit has the other half.
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

/// A heap with a base of its own can be found by that, as long as it is open.
fn bind(heap: &Heap<Media>) {
    let core = heap.core();
    if core.identity.base != 0 {
        let number = core.number.load(Relaxed);
        registry::bind(number, core.identity.base, core::ptr::from_ref(core).cast_mut().cast());
    }
}

/// Does something with the heap that has this base, if this process has it open. See [`Options::fixed`].
///
/// # Safety
/// No thread closes it meanwhile.
pub unsafe fn with_fixed<R>(base: u64, work: impl FnOnce(&Heap<Media>) -> R) -> Option<R> {
    let core = registry::bound(base)?.cast::<Core<Media>>();
    // Not dropped: the program owns it.
    let heap = core::mem::ManuallyDrop::new(Heap::of(core));
    Some(work(&heap))
}

/// What the system's numbers mean for a heap of that identity.
fn told(why: Error, identity: &Identity) -> Error {
    match why {
        Error::System(libc::EADDRINUSE) => Error::BaseTaken(identity.base),
        why => why,
    }
}

/// A copy in memory of what a file holds; see [`Options::copy_medium`].
///
/// # Errors
/// As there.
pub fn copy(path: impl AsRef<[u8]>) -> Result<Media, Error> {
    Options::new().copy_medium(path)
}

/// What a file says that it is, in which version, and how many bytes it has.
fn identify(paths: &Paths) -> Result<(Identity, u64, usize), Error> {
    let line = |at: usize| {
        let mut bytes = [0; 64];
        let (read, has) = peek_at(Paths::of(&paths.file), at as u64, &mut bytes)?;
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        let words: [u64; 8] = core::array::from_fn(|_| words.next().unwrap_or(0));
        Ok::<_, Error>((words, read, has))
    };
    let ((first, read, has), (copy, ..)) = (line(0)?, line(IDENTITY_COPY)?);
    if read < 64 {
        return Err(Error::NotAHeap);
    }
    let (identity, version) = Identity::choose(first, copy)?;
    // The line is written last: there was more.
    let needs = LEAST_BYTES as u64;
    if has < needs {
        return Err(Error::Truncated { has, needs });
    }
    Ok((identity, version, usize::try_from(has).map_err(|_| Error::FileSize)?))
}
