//! Heaps in files: made, opened, copied.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use spandrel_os::image;
use spandrel_pmem::{Choice, Failed, Media, Medium as _, Place, peek};

use crate::error::Error;
use crate::heap::{Heap, Opened};
use crate::layout::LEAST_BYTES;
use crate::registry;
use crate::roots::RootType;
use crate::shared::Core;
use crate::superblock::{ASKING, Identity};

/// Bytes that a heap is made with, if nobody says.
pub const SIZE: usize = 64 << 20;
/// Bytes that it may have, if nobody says: address space, and nothing else.
pub const LIMIT: usize = 256 << 30;
/// How long a copy waits for whoever has the heap open to come to a checkpoint, if nobody says.
pub const WAIT: Duration = Duration::from_secs(10);
/// Heaps with a base of their own lie from 88 to 103 TiB, which the allocators leave free.
const WINDOW: core::ops::Range<u64> = 88 << 40..103 << 40;
const GIB: u64 = 1 << 30;
/// What a log is called: the heap's name, and this.
pub(crate) const LOG: &[u8] = b".log";
pub(crate) const PATH_BYTES: usize = 4096;

/// How a heap is made or opened.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    size: usize,
    limit: Option<usize>,
    is_fixed: bool,
    choice: Choice,
    layout: u64,
    types: &'a [RootType<'a>],
    recovers: bool,
    wait: Duration,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A path that ends with a zero byte, and that of the log.
struct Paths {
    file: [u8; PATH_BYTES],
    log: [u8; PATH_BYTES],
}

impl Paths {
    fn new(path: &[u8]) -> Result<Self, Error> {
        let wrong = if path.contains(&0) { libc::EINVAL } else { libc::ENAMETOOLONG };
        if path.contains(&0) || path.len() + LOG.len() >= PATH_BYTES {
            return Err(Error::System(wrong));
        }
        let mut paths = Self { file: [0; PATH_BYTES], log: [0; PATH_BYTES] };
        paths.file[..path.len()].copy_from_slice(path);
        paths.log[..path.len()].copy_from_slice(path);
        paths.log[path.len()..][..LOG.len()].copy_from_slice(LOG);
        Ok(paths)
    }

    fn of(bytes: &[u8; PATH_BYTES]) -> &CStr {
        CStr::from_bytes_until_nul(bytes).unwrap_or(c"")
    }

    fn place(&self, identity: &Identity, choice: Choice, limit: usize) -> Place<'_> {
        let base = usize::try_from(identity.base).ok().filter(|base| *base != 0);
        let (path, log) = (Self::of(&self.file), Self::of(&self.log));
        let (identity, asking, wait) = (identity.uuid[0], ASKING, Duration::ZERO);
        Place { path, log, identity, choice, limit, base, asking, wait }
    }
}

impl<'a> Options<'a> {
    /// What nobody says: 64 MiB to begin with, anywhere, on the medium that suits the file.
    pub const fn new() -> Self {
        Self {
            size: SIZE,
            limit: None,
            is_fixed: false,
            choice: Choice::Auto,
            layout: 0,
            types: &[],
            recovers: true,
            wait: WAIT,
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

    /// What it lies on. The file remembers what it was made with, and who opens it need not say; said, it holds as long as the heap is open,
    /// and loses nothing: what is only in the log of a heap that is to be mapped is written to the file first.
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

    /// How long [`Options::copy`] waits for whoever has the heap open, where there is no log, to come to a checkpoint; 10 s if nobody says. Zero: he
    /// is not asked.
    pub const fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Makes a heap.
    ///
    /// # Errors
    /// [`Error::System`] with `EEXIST` if there is a file of that name; [`Error::Size`]: a heap has 704 KiB at least;
    /// [`Error::Full`]. No file is left then that was not there before.
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<Heap<Media>, Error> {
        let paths = Paths::new(path.as_ref())?;
        if self.size < LEAST_BYTES {
            return Err(Error::Size(self.size));
        }
        let uuid = image::unique();
        let room = WINDOW.end - WINDOW.start - (self.limit.unwrap_or(LIMIT) as u64).min(14 << 40);
        let base = WINDOW.start + uuid[1] % (room / GIB) * GIB;
        let base = if self.is_fixed { base } else { 0 };
        let identity = Identity { uuid, base, medium: self.choice };
        let media = self.with_limit(self.size, |limit| {
            Media::create(&paths.place(&identity, self.choice, limit), self.size)
        })?;
        let heap = Heap::make(media, identity, self.layout);
        let settled = heap.and_then(|heap| {
            heap.medium().settle()?;
            bind(&heap);
            Ok(heap)
        });
        settled.inspect_err(|_| {
            image::discard(Paths::of(&paths.file));
            image::discard(Paths::of(&paths.log));
        })
    }

    /// Opens a heap, and recovers it if it was not closed.
    ///
    /// # Errors
    /// As for [`Heap::open`]; [`Error::System`] with `ENOENT` if there is none, [`Error::Locked`].
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        let media = self.open_medium(path)?;
        Heap::open(media, self.layout, self.recovers.then_some(self.types))
            .inspect(|(heap, _)| bind(heap))
    }

    /// Opens what a heap lies on, and not the heap: for who mends it with [`repair`](crate::repair). Nobody else has it then.
    ///
    /// # Errors
    /// As for [`Options::open`], but for what only the heap's records say.
    pub fn open_medium(&self, path: impl AsRef<[u8]>) -> Result<Media, Error> {
        let paths = Paths::new(path.as_ref())?;
        let identity = identify(&paths)?;
        let choice = if self.choice == Choice::Auto { identity.medium } else { self.choice };
        let open = |limit| Media::open(&paths.place(&identity, choice, limit));
        self.with_limit(0, open).map_err(|why| told(why, &identity))
    }

    /// Opens a copy in memory of what a file holds, as of its last checkpoint if somebody has it open. What the file holds stays as it is.
    ///
    /// Where there is no log (on tmpfs, on persistent memory, and of heaps that were made [`Choice::Mapped`]) whoever has the heap open is asked, and lends it
    /// at his next [`Heap::checkpoint`]; then he goes on. That takes the right to write to the file. Of objects that other threads of his
    /// store to meanwhile the copy has something of before and something of after, as of any that a checkpoint finds them at.
    ///
    /// # Errors
    /// As for [`Options::open`]; [`Error::NoCheckpoint`]: he was asked and has not come to one in the time; [`Error::Locked`]: he could not be
    /// asked, or was not to be.
    pub fn copy(&self, path: impl AsRef<[u8]>) -> Result<(Heap<Media>, Opened), Error> {
        Heap::open(self.copy_medium(path)?, self.layout, self.recovers.then_some(self.types))
    }

    /// The copy itself, which is not opened: for who looks at it with [`check`](crate::check), or writes it elsewhere.
    ///
    /// # Errors
    /// As for [`Options::copy`], but for what only the heap's records say.
    pub fn copy_medium(&self, path: impl AsRef<[u8]>) -> Result<Media, Error> {
        let paths = Paths::new(path.as_ref())?;
        let identity = identify(&paths)?;
        let place = Place { wait: self.wait, ..paths.place(&identity, Choice::Auto, 0) };
        Media::copy(&place).map_err(|why| told(why.into(), &identity))
    }

    /// Tries with less address space if nobody has said how much there has to be.
    fn with_limit(
        &self,
        least: usize,
        open: impl Fn(usize) -> Result<Media, Failed>,
    ) -> Result<Media, Error> {
        let mut limit = self.limit.unwrap_or(LIMIT);
        loop {
            match open(limit) {
                Err(Failed(libc::ENOMEM))
                    if self.limit.is_none() && limit / 2 > least.max(GIB as usize) =>
                {
                    limit /= 2;
                }
                opened => return Ok(opened?),
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
/// Nobody closes it meanwhile.
pub unsafe fn with_fixed<R>(base: u64, work: impl FnOnce(&Heap<Media>) -> R) -> Option<R> {
    let core = registry::bound(base)?.cast::<Core<Media>>();
    // Not dropped: it is somebody's.
    let heap = core::mem::ManuallyDrop::new(Heap::of(core));
    Some(work(&heap))
}

/// What the system's numbers mean for a heap of that identity.
fn told(why: Error, identity: &Identity) -> Error {
    match why {
        Error::System(libc::EEXIST) => Error::BaseTaken(identity.base),
        Error::System(libc::EBADMSG) => Error::ForeignLog,
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

/// What a file says that it is.
fn identify(paths: &Paths) -> Result<Identity, Error> {
    let mut bytes = [0; 64];
    let (read, has) = peek(Paths::of(&paths.file), &mut bytes)?;
    if read < bytes.len() {
        return Err(Error::NotAHeap);
    }
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    let identity = Identity::parse(core::array::from_fn(|_| words.next().unwrap_or(0)))?;
    // The line is written last: there was more.
    let needs = LEAST_BYTES as u64;
    if has < needs { Err(Error::Truncated { has, needs }) } else { Ok(identity) }
}
