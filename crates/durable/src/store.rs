//! The state in memory and the files that make it durable: made, opened, committed, closed.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use spandrel_capture::Sizes;
use spandrel_os::draft::Draft;
use spandrel_os::filesystem::is_in_memory;
use spandrel_os::image::{self, Access, Image};
use spandrel_pages::PAGE_BYTES;
use spandrel_pheap::replicated::{self, Replica as State, TIE_AT};
use spandrel_pheap::{Heap, LEAST_BYTES, Opened};
use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::one_file::OneFile;
use spandrel_pmem::tie::{self, Found, Ties};
use spandrel_pmem::{Captured, Failed, Medium};
use spandrel_redolog::{Point, Ring, ring};
use spandrel_sync::Lock;

use crate::directory::{Directory, Paths, check_file, patiently};
use crate::error::Error;
use crate::exchange::put_log;
use crate::inspect::no_state;
use crate::log_file::{BlankLog, capacity_of, make_log};
use crate::notes::{BatchNotes, How};
use crate::recovery::{Recovered, recover};
use crate::ring_file::RingFile;
use crate::shadow::Pages;
use crate::state_file::StateFile;
use crate::zeroes;

/// The medium of the state.
pub type Memory = Captured<BatchNotes>;

/// How a state is made and opened.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a new state, which grows as it needs.
    pub size: usize,
    /// The most bytes that a state may have: address space that is reserved for it.
    pub limit: usize,
    /// Bytes of the log; `None`: those that it has, 64 MiB for a new one.
    pub log: Option<u64>,
    /// A number for the layout of the program's types; 0: any.
    pub layout: u64,
    /// How stores are found.
    pub how: How,
    /// How they are noted.
    pub capture: Sizes,
}

impl Default for Settings {
    /// A state of 1 MiB that may grow to 64 GiB.
    fn default() -> Self {
        let capture = Sizes::default();
        let how = How::default();
        Self { size: 1 << 20, limit: 64 << 30, log: None, layout: 0, how, capture }
    }
}

/// Both files.
pub struct Files {
    state: StateFile,
    ring: UnsafeCell<RingFile>,
    syncs: AtomicU64,
}

// SAFETY: the ring's file is shared by references only, but while `set_ring` has it alone.
unsafe impl Sync for Files {}

impl Files {
    /// The ring's file.
    pub fn ring(&self) -> &RingFile {
        // SAFETY: no `set_ring` runs, as its caller promises.
        unsafe { &*self.ring.get() }
    }

    /// Times that the state's file was synced since it was opened.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    /// Puts another ring's file in the place of the one before.
    ///
    /// # Safety
    /// No other thread uses the files, and no reference to the ring's file lives.
    pub(crate) unsafe fn set_ring(&self, ring: RingFile) {
        // SAFETY: promised by the caller.
        unsafe { *self.ring.get() = ring };
    }

    /// Reads a part of the state's file into memory: where the file has holes, memory that is zero is not stored to, and takes none.
    ///
    /// # Errors
    /// The error's number.
    pub fn read_sparsely(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failed> {
        let image = self.state.image();
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let from = offset.saturating_add(at as u64);
            let data = image.next_data(from).map_err(Failed)?;
            let within = |to: u64| {
                usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).min(rest.len())
            };
            let (begin, end) =
                data.map_or((rest.len(), rest.len()), |(from, to)| (within(from), within(to)));
            let (hole, rest) = rest.split_at_mut(begin);
            let full = hole.chunks_mut(PAGE_BYTES).filter(|page| !zeroes::are(page));
            full.for_each(|page| page.fill(0));
            let part = rest.get_mut(..end - begin).unwrap_or(&mut []);
            let read = image.read_at(part, from + begin as u64).map_err(Failed)?;
            part.get_mut(read..).unwrap_or(&mut []).fill(0);
            at += end;
        }
        Ok(())
    }

    /// Makes the state's file longer, to that number of bytes.
    ///
    /// # Errors
    /// The error's number: there is no room.
    pub fn lengthen(&self, bytes: u64) -> Result<(), Failed> {
        self.state.lengthen(bytes)
    }
}

impl Disk for Files {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        match which {
            Which::Image => self.state.read(into, at),
            _ => spandrel_redolog::Storage::read(self.ring(), at, into),
        }
    }

    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        match which {
            Which::Image => self.state.write(at, bytes),
            _ => spandrel_redolog::Storage::write(self.ring(), at, bytes),
        }
    }

    fn allow(&self, which: Which, end: u64) -> Result<(), Failed> {
        match which {
            Which::Image => self.state.allow(end),
            _ => Ok(()),
        }
    }

    fn sync(&self, which: Which) -> Result<(), Failed> {
        match which {
            Which::Image => {
                self.syncs.fetch_add(1, Relaxed);
                let synced = self.state.image().sync().map_err(Failed);
                // What was written may be lost whatever the reason is; a full disk is no exception.
                synced.map_err(|why| if why.is_full() { Failed(libc::EIO) } else { why })
            }
            _ => spandrel_redolog::Storage::sync(self.ring()),
        }
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        match which {
            Which::Image => self.state.image().bytes().map_err(Failed),
            _ => spandrel_redolog::Storage::bytes(self.ring()),
        }
    }

    fn is_mapped(&self) -> bool {
        self.state.is_mapped()
    }
}

/// A state whose files say that they are complete, and its copy in memory. The calling thread's first batch has begun: opening the heap is a part of it.
pub struct Loaded {
    /// The directory, locked.
    pub directory: Directory,
    /// Its files.
    pub files: Files,
    /// The ring, whose epoch has begun.
    pub ring: Ring,
    /// What the state's file says of itself.
    pub ties: Ties,
    /// The heap in memory.
    pub heap: Heap<Memory>,
    /// How the heap was opened.
    pub opened: Opened,
    /// Batches that recovery has brought into the state.
    pub replayed: u64,
    /// When the last of them was written, in nanoseconds since 1970; 0: there was none.
    pub time: u64,
}

/// Whether a directory has a state.
///
/// # Errors
/// [`Error::MissingState`]: it has a log only; [`Error::System`].
pub fn has_state(paths: &Paths) -> Result<bool, Error> {
    let is_there = |path, other: Error| match Image::open(path, Access::Read) {
        Ok(_) => Ok(true),
        Err(libc::ENOENT) => Ok(false),
        // A link, a directory, a pipe.
        Err(libc::ELOOP | libc::EINVAL | libc::EISDIR | libc::ENXIO) => Err(other),
        Err(why) => Err(Error::System(why)),
    };
    let state = is_there(paths.state.as_c(), Error::NotAState)?;
    match (state, is_there(paths.log.as_c(), Error::NotALog)?) {
        (false, true) => Err(Error::MissingState),
        (state, _) => Ok(state),
    }
}

/// Makes a heap in memory for a new state. What is stored there is not noted.
///
/// # Errors
/// [`Error::Heap`], [`Error::System`].
pub fn make_heap(settings: &Settings) -> Result<Heap<Memory>, Error> {
    /// Other threads may map memory at a base that was found free.
    const TURNS: usize = 8;
    let size = settings.size.max(LEAST_BYTES).next_multiple_of(PAGE_BYTES);
    let (mut turns, mut limit) = (0, settings.limit.max(size));
    loop {
        turns += 1;
        let uuid = image::unique();
        let base = match replicated::free_base(uuid[1], limit) {
            Err(spandrel_pheap::Error::NoMemory) if limit / 2 >= size.max(LEAST_LIMIT) => {
                limit /= 2;
                continue;
            }
            found => found?,
        };
        let base = usize::try_from(base).map_err(|_| Error::System(libc::ENOMEM))?;
        match reserve(base, size, settings) {
            Err(Error::Heap(spandrel_pheap::Error::BaseTaken(_))) if turns < TURNS => {}
            made => return Ok(Heap::create_replicated(made?, uuid, settings.layout)?),
        }
    }
}

/// Where the address space is limited (`ulimit -v`), less is reserved for a state than it may have, down to this.
const LEAST_LIMIT: usize = 64 << 20;

/// Memory for a state at its base, with room to grow.
fn reserve(base: usize, bytes: usize, settings: &Settings) -> Result<Memory, Error> {
    let mut limit = settings.limit.max(bytes);
    loop {
        let notes = BatchNotes::new(settings.capture, settings.how)?;
        match Captured::new(Some(base), bytes, limit, notes) {
            Err(Failed(libc::ENOMEM)) if limit / 2 >= bytes.max(LEAST_LIMIT) => limit /= 2,
            // Another state begins in the room that this one has to grow.
            Err(Failed(libc::EADDRINUSE))
                if limit / 2 >= bytes.max(LEAST_LIMIT) && !replicated::begins_in_use(base) =>
            {
                limit /= 2;
            }
            Err(Failed(libc::EADDRINUSE)) => {
                return Err(spandrel_pheap::Error::BaseTaken(base as u64).into());
            }
            // The copy of the state takes as much again.
            Ok(_)
                if settings.how.has_copy()
                    && limit / 2 >= bytes.max(LEAST_LIMIT)
                    && !Pages::has_room(limit) =>
            {
                limit /= 2;
            }
            made => return Ok(made?),
        }
    }
}

/// Writes a heap that was made in memory to the files of a directory, which has none. A failure leaves no state.
///
/// # Errors
/// [`Error::System`].
pub fn publish(paths: &Paths, heap: &Heap<Memory>, settings: &Settings) -> Result<(), Error> {
    let medium = heap.medium();
    let identity = heap.uuid()[0];
    let (base, bytes) = (medium.base().as_ptr(), medium.bytes());
    let epoch = image::unique()[0];
    let draft = Draft::new(paths.state.as_c()).map_err(Error::System)?;
    let image = draft.image().map_err(Error::System)?;
    image.grow(0, bytes as u64).map_err(Error::System)?;
    for at in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: open bytes of the medium, which no thread stores to.
        let page = unsafe { core::slice::from_raw_parts(base.add(at), PAGE_BYTES) };
        if !zeroes::are(page) {
            image.write_at(page, at as u64).map_err(Error::System)?;
        }
    }
    image.write_at(&Ties::fresh(identity, epoch, bytes as u64), TIE_AT).map_err(Error::System)?;
    image.sync().map_err(Error::System)?;
    draft.publish(paths.state.as_c()).map(drop).map_err(Error::System)?;
    make_log(paths, identity, Point { epoch, sequence: 0 }, settings.log)
}

/// Opens both files of a state, and has the state hold all batches. A missing log is made anew where the state needs none.
///
/// # Errors
/// See [`Error`]. Nothing was changed then, unless the disk refused.
pub fn recover_files(
    paths: &Paths,
    settings: &Settings,
    see: &mut dyn FnMut(u64, u64),
) -> Result<(Files, State, Recovered), Error> {
    let image = Image::open(paths.state.as_c(), Access::Write).map_err(|why| match why {
        libc::ENOENT => no_state(paths),
        libc::ELOOP | libc::EINVAL | libc::EISDIR | libc::ENXIO => Error::NotAState,
        why => Error::System(why),
    })?;
    check_file(&image)?;
    let lock = || image.lock(Access::Write);
    patiently(|| {
        lock().map_err(|why| match why {
            libc::EWOULDBLOCK => Error::Locked,
            why => Error::System(why),
        })
    })?;
    let state = State::of(&image)?;
    let log = match Image::open(paths.log.as_c(), Access::Write) {
        Err(libc::ENOENT) => {
            let base = complete_point(&image, state.identity)?.ok_or(Error::MissingLog)?;
            make_log(paths, state.identity, base, settings.log)?;
            Image::open(paths.log.as_c(), Access::Write)
        }
        opened => opened,
    };
    let log = log.map_err(|why| match why {
        libc::ELOOP | libc::EINVAL | libc::EISDIR => Error::NotALog,
        why => Error::System(why),
    })?;
    check_file(&log)?;
    // Before anything else: a log of another version may have another length.
    let mut head = [0; ring::HEAD_BYTES];
    let read = log.read_at(&mut head, 0).map_err(Error::System)?;
    let parsed = ring::parse_head(head.get(..read).unwrap_or(&[]), state.identity);
    parsed.map_err(|why| Error::from(Failed::from(why)))?;
    let is_in_memory = is_in_memory(paths.log.as_c());
    let ring = RingFile::new(&log, is_in_memory)?;
    let image = StateFile::new(image, is_in_memory, settings.limit);
    let syncs = AtomicU64::new(0);
    let files = Files { state: image, ring: UnsafeCell::new(ring), syncs };
    let lengthen = |bytes| files.lengthen(bytes);
    let mut recovered = recover(&files, (state.identity, TIE_AT), &lengthen, see)?;
    let shape = recovered.ring.shape();
    let is_other = settings.log.is_some() && shape.capacity != capacity_of(settings.log)?;
    // One that was made in memory: a page has several records.
    let is_dense = shape.align < PAGE_BYTES as u64 && !is_in_memory;
    if is_other || is_dense {
        // SAFETY: no other thread has the files.
        recovered.ring = unsafe {
            let blank = BlankLog::new(paths, settings.log, &mut || true)?;
            put_log(&files, paths, state.identity, &recovered, blank)??
        };
    }
    let bytes = files.state.image().bytes().map_err(Error::System)?;
    let bytes = usize::try_from(bytes).map_err(|_| Error::System(libc::EFBIG))?;
    Ok((files, State { bytes, ..state }, recovered))
}

/// The state that a file is in that needs no log; `None`: it needs its log.
fn complete_point(image: &Image, identity: u64) -> Result<Option<Point>, Error> {
    match Ties::read(&OneFile(image), TIE_AT, identity)? {
        Found::Ties(ties) => {
            Ok(Some(ties.newest()).filter(|tie| tie.is_complete).map(|tie| tie.point))
        }
        Found::Nothing => Err(Error::DamagedState),
    }
}

/// Runs its argument in one thread or in several at a time, and returns when it has returned in all of them.
pub type Crew<'c> = &'c dyn Fn(&(dyn Fn() + Sync));

/// Opens a state: recovery, the ring's next epoch, the copy in memory, which the crew reads.
///
/// # Errors
/// See [`Error`].
pub fn load(
    paths: &Paths,
    directory: Directory,
    settings: &Settings,
    crew: Crew<'_>,
) -> Result<Loaded, Error> {
    let (files, state, mut recovered) = recover_files(paths, settings, &mut |_, _| ())?;
    let (layout, _) = replicated::record_of(files.state.image())?;
    if settings.layout != 0 && layout != settings.layout {
        return Err(Error::Layout { state: layout, given: settings.layout });
    }
    let memory = reserve(state.base, state.bytes, settings)?;
    files.state.image().expect_reads(true);
    read_all(files.state.image(), &memory, state.bytes, crew)?;
    files.state.image().expect_reads(false);
    begin_first(&memory)?;
    let (heap, opened) = Heap::open(memory, settings.layout, Some(&[]))?;
    recovered.ring.begin(&LogOf(&files), image::unique()[0])?;
    let Recovered { ring, ties, records: replayed, time } = recovered;
    // Remains of other epochs.
    let shape = ring.shape();
    files.ring().forget(shape, ring.end(), ring.end() + shape.capacity);
    Ok(Loaded { directory, files, ring, ties, heap, opened, replayed, time })
}

/// What is stored from now on is noted, by the calling thread alone, until it ends its first batch.
///
/// # Errors
/// [`Error::System`] with `EINVAL`: the memory has no room in the address space.
pub fn begin_first(memory: &Memory) -> Result<(), Error> {
    let (at, reserved) = memory.reserved();
    // SAFETY: the calling thread has the memory to itself.
    unsafe { memory.notes().cover(at.as_ptr(), memory.bytes(), reserved)? };
    memory.notes().begin();
    Ok(())
}

/// Bytes that one thread reads before it looks for others.
const PIECE_BYTES: usize = 8 << 20;

/// Reads the state's file into memory of zeroes, a piece at a time in each thread of the crew.
fn read_all(image: &Image, memory: &Memory, bytes: usize, crew: Crew<'_>) -> Result<(), Error> {
    let (next, failed) = (AtomicUsize::new(0), Lock::new(None));
    let read = || loop {
        let from = next.fetch_add(PIECE_BYTES, Relaxed);
        if from >= bytes {
            return;
        }
        if let Err(why) = read_into(image, memory, from, bytes.min(from + PIECE_BYTES)) {
            next.store(bytes, Relaxed);
            failed.lock().get_or_insert(why);
        }
    };
    if bytes > 2 * PIECE_BYTES {
        crew(&read)
    } else {
        read()
    }
    let failed = failed.lock().take();
    failed.map_or(Ok(()), Err)
}

/// Reads a part of the state's file into memory of zeroes; holes stay as they are.
pub(crate) fn read_into(
    image: &Image,
    memory: &impl Medium,
    at: usize,
    end: usize,
) -> Result<(), Error> {
    let mut at = at as u64;
    while let Some((from, to)) = image.next_data(at).map_err(Error::System)? {
        let (from, to) = (from.min(end as u64), to.min(end as u64));
        if from >= to {
            break;
        }
        let len = usize::try_from(to - from).unwrap_or(0);
        // SAFETY: open bytes of the medium, which no other thread reads into or has yet.
        let into = unsafe {
            core::slice::from_raw_parts_mut(memory.base().as_ptr().add(from as usize), len)
        };
        if image.read_at(into, from).map_err(Error::System)? < len {
            return Err(Error::DamagedState);
        }
        at = to;
    }
    Ok(())
}

/// Calls `see` with the parts of a run that lie in the state's open bytes and not in its tie, which is the file's own.
pub fn clip(memory: &Memory, at: *const u8, len: usize, see: &mut dyn FnMut(*const u8, usize)) {
    let base = memory.base().as_ptr().cast_const();
    let from = (at as usize).wrapping_sub(base as usize);
    let to = from.saturating_add(len).min(memory.bytes());
    let (tie_from, tie_to) = (TIE_AT as usize, TIE_AT as usize + tie::BYTES);
    for (from, to) in [(from, to.min(tie_from)), (from.max(tie_to), to)] {
        if from < to {
            see(base.wrapping_add(from), to - from);
        }
    }
}
