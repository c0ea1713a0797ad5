//! How a heap in a file is made or opened.

use core::time::Duration;

use spandrel_pheap::{Choice, Heap, Media, OpenError, Opened, Restoring, RootType, Shrunk, State};

use super::AsPath;

/// How a heap is made or opened. What is not set has a default that suits most programs.
///
/// ```
/// use spandrel::heap::Options;
///
/// # let directory = tempfile::tempdir().unwrap();
/// let path = directory.path().join("visits.heap"); // a `PathBuf`, a `Path`, a `String`, a `&str`
/// let (heap, opened) = Options::new().size(1 << 20).open_or_create(&path)?;
/// assert!(opened.created);
/// heap.close()?;
/// let why = Options::new().create(&path).err().unwrap();
/// assert!(why.to_string().ends_with("File exists (os error 17); open what is there, name another file, or remove it"));
/// # Ok::<(), spandrel::heap::OpenError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a>(spandrel_pheap::Options<'a>);

impl<'a> Options<'a> {
    /// The defaults: 64 MiB to begin with, at any address, on the medium that suits the file.
    pub const fn new() -> Self {
        Self(spandrel_pheap::Options::new())
    }

    /// Bytes that a new heap begins with, 704 KiB at least; it grows as it needs.
    pub const fn size(self, bytes: usize) -> Self {
        Self(self.0.size(bytes))
    }

    /// Bytes that the heap may have at most, for which address space is set aside: by default [`LIMIT`](super::LIMIT), or less where there
    /// is less address space (`ulimit -v`).
    pub const fn limit(self, bytes: usize) -> Self {
        Self(self.0.limit(bytes))
    }

    /// A new heap gets an address of its own, at which it is opened ever after: addresses of objects may be stored in it.
    pub const fn fixed(self) -> Self {
        Self(self.0.fixed())
    }

    /// What the heap lies on. The file remembers what it was made with; another medium holds as long as the heap is open, and loses
    /// nothing: what is only in the log of a heap that is to be mapped is written to the file first.
    pub const fn medium(self, choice: Choice) -> Self {
        Self(self.0.medium(choice))
    }

    /// A number for the layout of the program's types: a heap that was made with another one is refused. 0: any.
    pub const fn layout(self, layout: u64) -> Self {
        Self(self.0.layout(layout))
    }

    /// The types of the roots, for recovery. Below other roots every word is looked at.
    pub const fn roots(self, types: &'a [RootType<'a>]) -> Self {
        Self(self.0.roots(types))
    }

    /// The heap is not recovered when it is opened: nothing can be allocated then before [`Heap::collect`].
    pub const fn offline(self) -> Self {
        Self(self.0.offline())
    }

    /// The heap is opened read only: [`Options::open`] takes a copy in memory of its last checkpoint, as [`Options::copy`] does, and
    /// operations that would change it are refused ([`ReadOnly`](super::Error::ReadOnly)). Another process may have it open meanwhile.
    /// Neither the file nor its directory need be writable, with one exception: where another process has a mapped heap open, the copy is
    /// requested of that process through the file, which takes the right to write to it.
    ///
    /// The copy takes as much memory as the heap has, and does not follow what is changed later.
    ///
    /// ```
    /// use spandrel::heap::{Error, Options, collections::HashMap};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("visits.heap");
    /// # let heap = spandrel::heap::open(&path)?;
    /// # HashMap::<u64, u64>::open(&heap, "visits")?.insert(1, 2)?;
    /// # heap.close()?;
    /// let (heap, _) = Options::new().read_only().open(&path)?;
    /// assert_eq!(HashMap::<u64, u64>::open(&heap, "visits")?.get(&1), Some(2));
    /// assert_eq!(heap.alloc(100), Err(Error::ReadOnly));
    /// # Ok::<(), spandrel::heap::OpenError>(())
    /// ```
    pub const fn read_only(self) -> Self {
        Self(self.0.read_only())
    }

    /// How long [`Options::copy`] waits for a checkpoint of a process that has the heap open without a log: 10 s by default. Zero: it
    /// does not wait, and no copy of such a heap is made.
    pub const fn wait(self, time: Duration) -> Self {
        Self(self.0.wait(time))
    }

    /// A logged heap has a sum of each of its pages of 4 KiB, in a file beside it (`FILE.sum`), so that `spandrel heap check` and
    /// [`Heap::verify_sums`] find bits that have flipped in what the program has stored. A heap that has none gets them when it is opened,
    /// for which all of it is read. Later openings keep them up without this option. With `false` the file is removed.
    ///
    /// ```
    /// use spandrel::heap::{Choice, Options};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// let path = directory.path().join("visits.heap");
    /// let options = Options::new().medium(Choice::Logged).sums(true);
    /// let (heap, _) = options.open_or_create(&path)?;
    /// heap.checkpoint()?;
    /// assert_eq!(heap.verify_sums(&mut |finding| println!("{finding}"))?.pages, 0);
    /// heap.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Opening compares nothing. A page that the program writes to before it was compared gets the sum of what it then holds.
    ///
    /// A mapped heap is refused ([`Error::MappedSums`](super::Error::MappedSums)), and so is a file of that name that is none of this heap
    /// ([`Error::ForeignSums`](super::Error::ForeignSums)).
    pub const fn sums(self, keeps: bool) -> Self {
        Self(self.0.sums(keeps))
    }

    /// Computes the sums of a heap that has some once more, of what the file holds now: damage that they have shown is not reported again.
    pub const fn accept_sums(self) -> Self {
        Self(self.0.accept_sums())
    }

    /// Opens the heap as the file has it, also where its log does not fit, is damaged or is missing. The log is set aside as `FILE.bad`,
    /// and what only the log has is lost. The file may have a part of a checkpoint: [`check`](super::check()) it afterwards.
    pub const fn forget_log(self) -> Self {
        Self(self.0.forget_log())
    }

    /// Makes a heap in a new file.
    ///
    /// # Errors
    /// [`System`](super::Error::System) with `EEXIST` if there is a file of that name, [`Size`](super::Error::Size),
    /// [`NameTooLong`](super::Error::NameTooLong), and others that say what is full or missing. No file is left then that was not there
    /// before.
    pub fn create(&self, path: impl AsPath) -> Result<Heap, OpenError> {
        with(path, |path| self.0.create(path))
    }

    /// Opens a heap, and recovers it if it was not closed.
    ///
    /// # Errors
    /// [`System`](super::Error::System) with `ENOENT` if there is none, [`Locked`](super::Error::Locked) if it is open already, and others
    /// that say what is wrong with the file.
    pub fn open(&self, path: impl AsPath) -> Result<(Heap, Opened), OpenError> {
        with(path, |path| self.0.open(path))
    }

    /// Opens a heap, or makes it if there is none: [`Opened::created`] says which. One that was not closed is recovered.
    ///
    /// Of several processes that begin at once one makes it.
    ///
    /// # Errors
    /// As for [`Options::open`] and [`Options::create`].
    pub fn open_or_create(&self, path: impl AsPath) -> Result<(Heap, Opened), OpenError> {
        with(path, |path| self.0.open_or_create(path))
    }

    /// Opens what a heap lies on, and not the heap: to mend it with [`repair`](super::repair()). It is locked until the medium is dropped.
    ///
    /// # Errors
    /// As for [`Options::open`], but for what only the heap's records say.
    pub fn open_medium(&self, path: impl AsPath) -> Result<Media, OpenError> {
        with(path, |path| self.0.open_medium(path))
    }

    /// Cuts a heap's file behind its last object. The heap must not be open; one that was not closed is recovered. A failure at any time
    /// leaves it whole.
    ///
    /// Objects do not move, so that an object at the end keeps all blocks before it. Objects that cannot be reached stay as well:
    /// [`Heap::collect`] frees them.
    ///
    /// # Errors
    /// As for [`Options::open`] and [`Heap::close`].
    pub fn shrink(&self, path: impl AsPath) -> Result<Shrunk, OpenError> {
        with(path, |path| self.0.shrink(path))
    }

    /// Makes a heap that is to get objects which lay in another one, at the same offsets; fixed at `base`, or at none if that is 0.
    /// [`Restoring::finish`] opens it.
    ///
    /// # Errors
    /// As for [`Options::create`]; [`BaseTaken`](super::Error::BaseTaken).
    pub fn restore(&self, path: impl AsPath, base: u64) -> Result<Restoring<'a>, OpenError> {
        with(path, |path| self.0.restore(path, base))
    }

    /// Opens a copy in memory of a heap: of a closed one, or of the last checkpoint of one that is open. The file stays as it is.
    ///
    /// Where there is no log (on tmpfs, on persistent memory, and of heaps that were made [`Choice::Mapped`]) the process that has the heap
    /// open is asked, and lends it at its next [`Heap::checkpoint`]. That takes the right to write to the file.
    ///
    /// # Errors
    /// As for [`Options::open`]; [`NoCheckpoint`](super::Error::NoCheckpoint): the process was asked and has come to none in the time.
    pub fn copy(&self, path: impl AsPath) -> Result<(Heap, Opened), OpenError> {
        with(path, |path| self.0.copy(path))
    }

    /// The copy itself, which is not opened: to look at it with [`check`](super::check()), or to write it elsewhere.
    ///
    /// # Errors
    /// As for [`Options::copy`], but for what only the heap's records say.
    pub fn copy_medium(&self, path: impl AsPath) -> Result<Media, OpenError> {
        with(path, |path| self.0.copy_medium(path))
    }

    /// Writes a copy of a heap to a new file: a backup, also of a heap that is open. The copy holds what [`Options::copy`] has. It opens as
    /// any heap; the result says whether that recovers it, which it does unless the heap was closed.
    ///
    /// The new file is there whole or not at all, and durable when this returns. The copy of a mapped heap that this process has open waits
    /// for a checkpoint of another thread.
    ///
    /// # Errors
    /// As for [`Options::copy`]; [`System`](super::Error::System) with `EEXIST` if there is a file `to`, or a log beside it that is not
    /// empty; [`DiskFull`](super::Error::DiskFull). The error has the path of the file that is meant.
    pub fn copy_to(&self, from: impl AsPath, to: impl AsPath) -> Result<State, OpenError> {
        self.0.copy_to(from.path_bytes(), to.path_bytes())
    }
}

/// Opens the heap of a file, or makes it, with the defaults.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # std::env::set_current_dir(&directory).unwrap();
/// let heap = spandrel::heap::open("visits.heap")?;
/// # Ok::<(), spandrel::heap::OpenError>(())
/// ```
///
/// # Errors
/// As for [`Options::open_or_create`].
pub fn open(path: impl AsPath) -> Result<Heap, OpenError> {
    Options::new().open_or_create(path).map(|(heap, _)| heap)
}

/// A copy in memory of what a file holds; see [`Options::copy_medium`].
///
/// # Errors
/// As there.
pub fn copy(path: impl AsPath) -> Result<Media, OpenError> {
    Options::new().copy_medium(path)
}

/// Runs `work` with a path, and adds the path to its error.
fn with<T>(
    path: impl AsPath,
    work: impl FnOnce(&[u8]) -> Result<T, spandrel_pheap::Error>,
) -> Result<T, OpenError> {
    let path = path.path_bytes();
    work(path).map_err(|why| OpenError::new(path, why))
}
