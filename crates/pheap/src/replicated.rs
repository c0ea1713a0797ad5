//! What the file of a heap that lives in memory is, for the code that makes that memory durable: the replica.
//!
//! A replica is a heap's file like any other. Between two batches it is the heap as it was in memory; a tie ([`spandrel_pmem::tie`]) says up to
//! which batch, and whether parts of later ones may be in it.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use spandrel_os::image::Image;
use spandrel_pmem::{Choice, Medium};

use crate::error::Error;
use crate::heap::Heap;
use crate::identify::identity_of;
use crate::layout::BLOCK_BYTES;
use crate::partial::Partial;
pub use crate::shrink::shrink_replica;
use crate::superblock::{Identity, Record, State};
use crate::window;

/// Where in the file the tie lies.
pub const TIE_AT: u64 = crate::superblock::TIE as u64;

/// Bytes of the file that are not the heap's: a request of another process for a copy, and the tie.
pub const FILES_OWN: Range<u64> =
    crate::superblock::ASKING as u64..crate::superblock::IDENTITY_COPY as u64;

/// A base for a heap that may grow to `bytes` bytes.
///
/// # Errors
/// [`Error::WindowFull`], [`Error::NoMemory`].
pub fn free_base(drawn: u64, bytes: usize) -> Result<u64, Error> {
    window::place(drawn, bytes, Ok)
}

/// Whether the first page of a heap at that base is taken. Then a smaller limit does not help.
pub fn begins_in_use(base: usize) -> bool {
    window::begins_in_use(base as u64)
}

/// What the file of a replica says of itself, whatever batch it is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The first word of the heap's number, by which its log is known.
    pub identity: u64,
    /// Where the heap lies in memory.
    pub base: usize,
    /// Bytes of the file.
    pub bytes: usize,
}

impl Replica {
    /// Reads it of a file that this process has locked. What it says never changes, and holds in the middle of a batch.
    ///
    /// # Errors
    /// [`Error::NotAHeap`], [`Error::Damaged`], and those of the file; [`Error::Version`], [`Error::Features`]: another version of the program has made it;
    /// [`Error::BaseTaken`] with 0: the heap has no base of its own.
    pub fn of(image: &Image) -> Result<Self, Error> {
        let (identity, _, bytes) = identity_of(image)?;
        // In the middle of a batch there may be no whole one: the log has it then, of the program that has written the log.
        let record = Record::of_file(|into, at| image.read_at(into, at));
        record.map_err(Error::System)?.iter().try_for_each(Record::check_features)?;
        match usize::try_from(identity.base) {
            Ok(base) if base != 0 => Ok(Self { identity: identity.uuid[0], base, bytes }),
            _ => Err(Error::BaseTaken(0)),
        }
    }
}

/// The layout of the user's types (0: any), and whether the heap was closed, of a file that is between two batches.
///
/// # Errors
/// [`Error::NotAHeap`], and those of the file.
pub fn record_of(image: &Image) -> Result<(u64, bool), Error> {
    let record = Record::of_file(|into, at| image.read_at(into, at));
    let record = record.map_err(Error::System)?.ok_or(Error::NotAHeap)?;
    Ok((record.layout, record.state == State::Clean))
}

impl<M: Medium> Heap<M> {
    /// Makes a heap with a base of its own of a medium of zeroes that lies there, to be replicated to a file.
    ///
    /// # Errors
    /// As for [`Heap::create`].
    pub fn create_replicated(medium: M, uuid: [u64; 2], layout: u64) -> Result<Self, Error> {
        let base = medium.base().as_ptr() as u64;
        let identity = Identity { uuid, base, medium: Choice::Logged };
        crate::heap::format(&medium, identity, layout)?;
        Self::open(medium, layout, Some(&[])).map(|(heap, _)| heap)
    }

    /// The file of this heap is a replica between two batches. Its headers and mark bits are exact, also if it was not closed: it needs no collection, which
    /// would free what no word that is aligned and a plain address leads to.
    pub fn take_as_replica(&self) {
        let core = self.core();
        core.is_replica.store(true, Relaxed);
        core.needs_collection.store(false, Relaxed);
    }

    /// Forgets what is known beside the memory, whose bytes were put back to what they were at an earlier time. The memory has the length of that time again. Where it
    /// cannot become shorter, its length is stored for the next batch.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::Damaged`].
    ///
    /// # Safety
    /// No other thread uses the heap, and no operation of it is under way.
    pub unsafe fn reload(&self) -> Result<(), Error> {
        let core = self.core();
        for partial in &core.partial {
            *partial.lock() = Partial::new();
        }
        core.empties.store(0, Relaxed);
        let mut blocks = core.blocks.lock();
        core.forget_blocks(&mut blocks);
        let mut now = Record::read(&core.medium)?;
        // SAFETY: no other thread uses the heap, which had no object there.
        unsafe { core.medium.shrink(usize::try_from(now.bytes).unwrap_or(usize::MAX)) };
        blocks.count = core.medium.bytes() / BLOCK_BYTES;
        let bytes = blocks.count * BLOCK_BYTES;
        core.note_bytes(bytes);
        core.note_continued(blocks.count);
        drop(blocks);
        if now.bytes != bytes as u64 {
            now.bytes = bytes as u64;
            now.put(&core.medium);
        }
        *core.record.lock() = now;
        *core.damage.lock() = None;
        Ok(())
    }

    /// Has the heap say that it is closed, without releasing it: the caller makes that durable, and changes nothing any more.
    ///
    /// # Errors
    /// As for [`Heap::close`].
    pub fn seal(&self) -> Result<(), Error> {
        self.core().close()
    }

    /// The number of handles of collections that were opened so far.
    pub fn handles(&self) -> u64 {
        self.core().handles.load(Relaxed)
    }

    /// Whether the process is a child of the one that has opened the heap, at the cost of one load.
    pub fn is_forked(&self) -> bool {
        self.core().gate.origin().is_forked()
    }

    /// The number of the heap, which no other one has.
    pub fn uuid(&self) -> [u64; 2] {
        self.core().identity.uuid
    }
}
