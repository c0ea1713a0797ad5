//! The memory of a ring.
//!
//! Where the file lies on a disk, records are stored here, written to the file from here, and read by the replica. A record that the state's file has needs no memory: the next records get it.
//! Fresh pages for each record cost a quarter of the writer's time: the kernel takes a fault for each and clears it, and the caches have none of them.
//!
//! Memory moves by chunks, whose tables of pages move as a whole. A chunk is *used*: it may hold what is needed; or *spare*: it has memory, which no thread reads; or *bare*: it has none.
//!
//! - The replica makes chunks spare or bare, before the writer gets room at any of their positions: so it has stored nothing to them since. What is spare may be stored to from then on: the replica
//!   touches its memory under the lock only.
//! - The writer takes a spare chunk's memory when it comes to a bare one.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use spandrel_os::vm::{self, Move};
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::{Buffer, Failed};
use spandrel_redolog::ring;
use spandrel_sync::Lock;

/// Bytes of a chunk: what one table of pages maps.
const CHUNK_BYTES: usize = 2 << 20;
/// What lies in front of the first chunk.
const FIRST: usize = ring::FIRST as usize;
/// Chunks of a ring whose memory is used again, at least: the parts that are not whole chunks are few then.
const LEAST_CHUNKS: usize = 8;
/// Chunks of a ring whose memory is used again, at most, 16 GiB: a chunk whose memory has moved is a mapping of its own, of which the kernel allows a process 65,530.
const MOST_CHUNKS: usize = 1 << 13;
/// Chunks that are spare at a time: the replica is not further behind, where it keeps up.
const MOST_SPARES: usize = 4;
/// No chunk.
const NONE: usize = usize::MAX;

/// What the memory of a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    Used = 0,
    Spare = 1,
    Bare = 2,
}

/// What the writer and the replica know of the chunks.
struct Chunks {
    /// A [`Kind`] each.
    kinds: Buffer,
    spares: [usize; MOST_SPARES],
    count: usize,
}

impl Chunks {
    fn kind(&self, chunk: usize) -> Kind {
        match self.kinds.held().get(chunk) {
            Some(1) => Kind::Spare,
            Some(2) => Kind::Bare,
            _ => Kind::Used,
        }
    }

    fn set(&mut self, chunk: usize, kind: Kind) {
        if let Some(byte) = self.kinds.bytes().get_mut(chunk) {
            *byte = kind as u8;
        }
    }

    /// Makes a chunk spare; false: there are enough of these.
    fn put(&mut self, chunk: usize) -> bool {
        let Some(place) = self.spares.get_mut(self.count) else { return false };
        *place = chunk;
        self.count += 1;
        self.set(chunk, Kind::Spare);
        true
    }

    /// Takes the chunk that became spare last, whose memory is most likely in the cache. It is bare then.
    fn take(&mut self) -> Option<usize> {
        self.count = self.count.checked_sub(1)?;
        let chunk = self.spares.get(self.count).copied()?;
        self.set(chunk, Kind::Bare);
        Some(chunk)
    }

    /// Uses a chunk. The spare one whose memory it is to have.
    fn enter(&mut self, chunk: usize) -> Option<usize> {
        let is_bare = self.kind(chunk) == Kind::Bare;
        self.keep(chunk);
        if is_bare { self.take() } else { None }
    }

    /// Uses a chunk, with the memory that it has.
    fn keep(&mut self, chunk: usize) {
        self.set(chunk, Kind::Used);
        let spares = self.spares.get_mut(..self.count).unwrap_or(&mut []);
        if let Some(place) = spares.iter().position(|spare| *spare == chunk) {
            spares.copy_within(place + 1.., place);
            self.count -= 1;
        }
    }

    /// A chunk is bare, unless it is spare.
    fn settle(&mut self, chunk: usize) {
        if self.kind(chunk) == Kind::Used {
            self.set(chunk, Kind::Bare);
        }
    }
}

/// Whether memory of a ring of that length is used again.
fn is_long(bytes: usize) -> bool {
    (LEAST_CHUNKS..=MOST_CHUNKS).contains(&(bytes / CHUNK_BYTES))
}

/// See the head of this file.
pub(crate) struct RingMemory {
    /// The records, which lie at [`FIRST`] of it, begin at a multiple of the chunk.
    at: NonNull<u8>,
    len: usize,
    chunks: Lock<Chunks>,
    /// The chunk that was stored to last.
    current: AtomicUsize,
    /// Whether memory is used again.
    has_chunks: AtomicBool,
}

// SAFETY: the mapping belongs to the value, whose users share it by the rules of the ring.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Of that many zeroes, which take no memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(len: usize) -> Result<Self, Failed> {
        let full = Failed(libc::ENOMEM);
        let wide = len.checked_add(CHUNK_BYTES).ok_or(full)?;
        let kinds = Buffer::new(len.div_ceil(CHUNK_BYTES))?;
        let chunks = Lock::new(Chunks { kinds, spares: [0; MOST_SPARES], count: 0 });
        // SAFETY: at an address that the kernel chooses.
        let wider = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let how = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(core::ptr::null_mut(), wide, access, how)
        };
        let wider = wider.map_err(|why| Failed(why.raw_os_error()))?.cast::<u8>();
        let before = wider.wrapping_add(FIRST).align_offset(CHUNK_BYTES);
        let at = wider.wrapping_add(before);
        // SAFETY: the ends of the mapping that was just made.
        unsafe {
            if before > 0 {
                let _ = munmap(wider.cast(), before);
            }
            let _ = munmap(at.wrapping_add(len).cast(), CHUNK_BYTES - before);
        }
        let at = NonNull::new(at).ok_or(full)?;
        let memory = Self {
            at,
            len,
            chunks,
            current: AtomicUsize::new(NONE),
            has_chunks: AtomicBool::new(false),
        };
        if is_long(len - FIRST.min(len)) {
            // A chunk is a huge page then, which is written to the disk as one piece: 6 % more SETs of 1 KB on a disk.
            // SAFETY: the mapping that was just made.
            unsafe { vm::advise_huge(memory.chunk(0), len - FIRST) };
        }
        Ok(memory)
    }

    /// Where it begins.
    pub fn at(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Its bytes: whole pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes at that place.
    pub fn place(&self, at: usize, len: usize) -> Option<*mut u8> {
        let fits = at.checked_add(len)? <= self.len;
        fits.then(|| self.at().wrapping_add(at))
    }

    fn chunk(&self, number: usize) -> *mut u8 {
        self.at().wrapping_add(FIRST + number * CHUNK_BYTES)
    }

    /// The ring takes that number of bytes of the file, which may be longer. Before a record is stored.
    pub fn set_capacity(&self, bytes: u64) {
        self.has_chunks.store(usize::try_from(bytes).is_ok_and(is_long), Relaxed);
    }

    /// Whether memory is used again.
    pub fn has_chunks(&self) -> bool {
        self.has_chunks.load(Relaxed)
    }

    /// The writer is about to store records there.
    ///
    /// # Errors
    /// `ENOMEM`: the place has no memory any more, and gets none.
    pub fn enter(&self, at: usize, len: usize) -> Result<(), Failed> {
        let Some(at) = at.checked_sub(FIRST) else { return Ok(()) };
        let (first, last) = (at / CHUNK_BYTES, (at + len).saturating_sub(1) / CHUNK_BYTES);
        if first == last && self.current.load(Relaxed) == first || !self.has_chunks() {
            return Ok(());
        }
        for chunk in first..=last {
            let spare = self.chunks.lock().enter(chunk);
            let Some(spare) = spare else { continue };
            let (from, to) = (self.chunk(spare), self.chunk(chunk));
            // SAFETY: whole chunks of the private mapping; neither holds what is needed, and no other thread uses them.
            match unsafe { vm::move_pages(from, to, CHUNK_BYTES) } {
                Move::Done => {}
                // Also said near the limit of the number of mappings, where nothing has changed.
                Move::TargetLost if !vm::is_mapped(to) => return Err(Failed(libc::ENOMEM)),
                // The chunk gets pages of its own.
                Move::Refused | Move::SeveralMappings | Move::TargetLost => {
                    self.discard(spare * CHUNK_BYTES, CHUNK_BYTES)
                }
            }
        }
        self.current.store(last, Relaxed);
        Ok(())
    }

    /// What no thread reads any more, and the writer has not stored to since, from `at` on. Chunks become spare; parts of chunks are bare, but for the last one's if more of that chunk follows:
    /// its length is returned.
    pub fn pass(&self, at: usize, len: usize, follows: bool) -> usize {
        let mut from = at.saturating_sub(FIRST);
        let end = from + len;
        while from < end {
            let chunk = from / CHUNK_BYTES;
            let to = end.min((chunk + 1) * CHUNK_BYTES);
            if follows && to == end && !end.is_multiple_of(CHUNK_BYTES) {
                return to - from;
            }
            let is_whole = to - from == CHUNK_BYTES && self.has_chunks();
            if is_whole {
                // The chunk that was stored to last may be the next one too, a turn of the ring later: it is entered anew. Before the head moves, and so before that.
                let _ = self.current.compare_exchange(chunk, NONE, Relaxed, Relaxed);
            }
            if !(is_whole && self.chunks.lock().put(chunk)) {
                // First: the writer moves memory to bare chunks.
                self.discard(from, to - from);
            }
            if is_whole {
                self.chunks.lock().settle(chunk);
            }
            from = to;
        }
        0
    }

    /// Gives the memory of all spare chunks to the kernel.
    pub fn rest(&self) {
        loop {
            // Under the lock: the writer may be about to store there, as the head has moved over it.
            let mut chunks = self.chunks.lock();
            let Some(spare) = chunks.take() else { return };
            self.discard(spare * CHUNK_BYTES, CHUNK_BYTES);
        }
    }

    /// Gives the memory of whole pages to the kernel, `at` bytes behind the first chunk's beginning.
    fn discard(&self, at: usize, len: usize) {
        let first = (FIRST + at).next_multiple_of(PAGE_BYTES);
        let end = (FIRST + at + len) / PAGE_BYTES * PAGE_BYTES;
        if let Some(bytes) = end.checked_sub(first).filter(|bytes| *bytes > 0)
            && let Some(place) = self.place(first, bytes)
        {
            // SAFETY: whole pages of the mapping, whose contents are not needed. A refusal costs memory only.
            unsafe { vm::discard(place, bytes) };
        }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: `drop` has the mapping exclusively.
        let _ = unsafe { munmap(self.at().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests;
