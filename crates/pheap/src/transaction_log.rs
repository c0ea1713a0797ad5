//! The log of a transaction: what was there before each change, so that all of them can be undone, at once or by recovery.
//!
//! Format. A line of the superblock, behind the version of the undo log ([`crate::undo`]), says whether a transaction is open:
//!
//! | offset in the line | word |
//! |---|---|
//! | +32 | bytes of the first chunk |
//! | +40 | the transaction's version, a number that no earlier log had |
//! | +48 | where the first chunk is, as a pointer; 0: no transaction is open |
//! | +56 | check of the three |
//!
//! A chunk is an object of the heap: +0 where the next chunk is, +8 bytes of that, +16 check of both, +24 unused, and records from
//! +32 on. A record is +0 where (an offset in the heap), +8 how many words, shifted left by 8, and the kind, +16 where the record
//! before is, 0 for the first, +24 check of the record and its place, the version and the words, and then the words that were there.
//! What does not have its check was not written to the end, and ends the log: no word that it names has changed. Where a transaction
//! within another one was undone, a record says so, and that the record before it is the last one before that transaction.
//!
//! Order: records are durable before the words that they name change; the changes are durable before the line says that no
//! transaction is open. Undoing goes from the last record to the first, and may be cut off and begun again.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_pmem::Medium;
use spandrel_sync::Lock;

use crate::error::Error;
use crate::heap::Heap;
use crate::layout::{BLOCK_BYTES, GRANULE_BYTES};
use crate::pointer::{PPtr, offset_of};
use crate::shared::Core;
use crate::superblock::{ROOTS, UNDO_LOG};
use crate::trace::mix;

const LINE: usize = UNDO_LOG + 32;
const BYTES_AT: usize = LINE;
const VERSION_AT: usize = LINE + 8;
const FIRST_AT: usize = LINE + 16;
const CHECK_AT: usize = LINE + 24;

const NEXT_BYTES_AT: usize = 8;
const NEXT_CHECK_AT: usize = 16;
const CHUNK_HEAD: usize = 32;
const LEAST_CHUNK: usize = 4096;
const MOST_CHUNK: usize = BLOCK_BYTES;

const RECORD_HEAD: usize = 32;
const SIZE_AT: usize = 8;
const BEFORE_AT: usize = 16;
const RECORD_CHECK_AT: usize = 24;
/// Room that words leave in a chunk for records of allocated and freed objects.
const SPARE: usize = 2048;

/// Words that were there.
const WORDS: u64 = 1;
/// An object that was allocated, or 0. Means something only to the process that wrote it, and is not part of the check.
const ALLOCATED: u64 = 2;
/// An object to be freed at the end, or 0; as above.
const FREED: u64 = 3;
/// The records between this one and the one before it, as it names that, were undone.
const UNDONE: u64 = 4;

fn load(medium: &impl Medium, at: usize) -> u64 {
    // SAFETY: the callers have looked that the word is on the medium; words of the log and those that it names are this thread's.
    unsafe { medium.base().as_ptr().add(at).cast::<u64>().read_volatile() }
}

fn store(medium: &impl Medium, at: usize, word: u64) {
    // SAFETY: as above.
    unsafe { medium.store_word(at, word) };
}

fn check(words: &[u64]) -> u64 {
    words.iter().fold(0x7472_616e_7361_6374, |sum, word| mix(sum, *word))
}

/// What is checked of a record: all but where an object is that was allocated or freed.
fn record_check(medium: &impl Medium, record: usize, version: u64) -> u64 {
    let size = load(medium, record + SIZE_AT);
    let at = if size & 0xff == WORDS { load(medium, record) } else { 0 };
    let head = check(&[version, record as u64, at, size, load(medium, record + BEFORE_AT)]);
    let words = (size >> 8) as usize;
    let each = |number: usize| load(medium, record + RECORD_HEAD + number * 8);
    (0..words).fold(head, |sum, number| mix(sum, each(number)))
}

/// Transactions of a heap.
pub struct Transactions {
    /// Held by the transaction that is open.
    pub lock: Lock<()>,
    /// The open transaction's number; 0: none is.
    open: AtomicU64,
    /// Of the last one that was begun.
    last: AtomicU64,
    /// The open transaction's log, which the thread that holds the lock uses.
    log: core::cell::UnsafeCell<Log>,
}

// SAFETY: the log is used by the thread that holds the lock.
unsafe impl Sync for Transactions {}

impl Transactions {
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(()),
            open: AtomicU64::new(0),
            last: AtomicU64::new(0),
            log: core::cell::UnsafeCell::new(Log::new(0)),
        }
    }

    /// The open transaction's number; 0: none is.
    #[inline]
    pub fn open_id(&self) -> u64 {
        self.open.load(Acquire)
    }

    /// Begins one. The calling thread holds the lock.
    pub fn begin(&self) -> *mut Log {
        let id = self.last.fetch_add(1, Relaxed) + 1;
        // SAFETY: the calling thread holds the lock, and no log is in use.
        unsafe { self.log.get().write(Log::new(id)) };
        self.open.store(id, Release);
        self.log.get()
    }

    /// No transaction is open any more. The calling thread holds the lock.
    pub fn end(&self) {
        self.open.store(0, Release);
    }
}

/// The log of the transaction that is open.
pub struct Log {
    id: u64,
    version: u64,
    /// The first chunk; 0: nothing was logged yet.
    first: usize,
    first_bytes: usize,
    /// The last chunk, and where its room ends.
    chunk: usize,
    end: usize,
    /// Where the next record goes, and where the last one is.
    place: usize,
    last: usize,
}

impl Log {
    const fn new(id: u64) -> Self {
        let (first, first_bytes, chunk, end, place, last) = (0, 0, 0, 0, 0, 0);
        Self { id, version: 0, first, first_bytes, chunk, end, place, last }
    }

    /// The transaction's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where the last record is: what a transaction within this one is rolled back to.
    pub fn position(&self) -> usize {
        self.last
    }

    /// Has at least `bytes` bytes of room for records.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn reserve<M: Medium>(&mut self, heap: &Heap<M>, bytes: usize) -> Result<(), Error> {
        if self.end - self.place >= bytes {
            return Ok(());
        }
        let last = if self.first == 0 { 0 } else { self.end - self.chunk };
        let least = bytes.checked_add(CHUNK_HEAD).ok_or(Error::Size(bytes))?;
        let bytes = (last * 2).clamp(LEAST_CHUNK, MOST_CHUNK).max(least).next_multiple_of(8);
        let core = heap.core();
        let chunk = heap.new_bytes(bytes, GRANULE_BYTES)?;
        let pointer = PPtr::<u8>::to(chunk).raw();
        // The check of a chunk without a next one does not hold.
        core.store(chunk + NEXT_CHECK_AT, 0);
        core.write_back(chunk, CHUNK_HEAD);
        if self.first == 0 {
            // What an earlier log has left in the chunk has another version, also if that one's line was not durable.
            self.version = mix(core.load(VERSION_AT).wrapping_add(1), spandrel_os::clock::nanos());
            core.store(BYTES_AT, bytes as u64);
            core.store(VERSION_AT, self.version);
            core.store(CHECK_AT, check(&[bytes as u64, self.version, pointer]));
            // Last: of a line the words that were stored first are durable first.
            core.store(FIRST_AT, pointer);
            core.write_back(LINE, 32);
            (self.first, self.first_bytes) = (chunk, bytes);
        } else {
            let sum = check(&[self.version, self.chunk as u64, pointer, bytes as u64]);
            core.store(self.chunk, pointer);
            core.store(self.chunk + NEXT_BYTES_AT, bytes as u64);
            core.store(self.chunk + NEXT_CHECK_AT, sum);
            core.write_back(self.chunk, CHUNK_HEAD);
        }
        (self.chunk, self.place, self.end) = (chunk, chunk + CHUNK_HEAD, chunk + bytes);
        Ok(())
    }

    /// Writes a record, for which there is room.
    fn note<M: Medium>(&mut self, heap: &Heap<M>, kind: u64, at: usize, words: usize) {
        let (core, record) = (heap.core(), self.place);
        core.store(record, at as u64);
        core.store(record + SIZE_AT, (words as u64) << 8 | kind);
        core.store(record + BEFORE_AT, self.last as u64);
        for number in 0..words {
            core.store(record + RECORD_HEAD + number * 8, core.load(at + number * 8));
        }
        core.store(record + RECORD_CHECK_AT, record_check(&core.medium, record, self.version));
        core.write_back(record, RECORD_HEAD + words * 8);
        self.place = record + RECORD_HEAD + words * 8;
        self.last = record;
    }

    /// Notes what words hold. They may change after the next fence.
    ///
    /// # Errors
    /// As for [`Log::reserve`].
    pub fn note_words<M: Medium>(
        &mut self,
        heap: &Heap<M>,
        at: usize,
        words: usize,
    ) -> Result<(), Error> {
        self.reserve(heap, RECORD_HEAD + words * 8 + SPARE)?;
        self.note(heap, WORDS, at, words);
        Ok(())
    }

    /// Notes an object that was allocated: it is freed if the transaction is rolled back. Without room for that it stays until the
    /// next recovery.
    pub fn note_alloc<M: Medium>(&mut self, heap: &Heap<M>, at: usize) {
        if self.reserve(heap, RECORD_HEAD).is_ok() {
            self.note(heap, ALLOCATED, at, 0);
        }
    }

    /// The object that was noted last was freed.
    pub fn forget_alloc<M: Medium>(&mut self, heap: &Heap<M>, at: usize) {
        let core = heap.core();
        self.each(&core.medium, 0, |record, kind, object| {
            if kind == ALLOCATED && object == at {
                core.store(record, 0);
            }
        });
    }

    /// Notes an object that is to be freed at the transaction's end. Without room for that it stays until the next recovery.
    pub fn note_free<M: Medium>(&mut self, heap: &Heap<M>, at: usize) {
        if self.reserve(heap, RECORD_HEAD).is_ok() {
            self.note(heap, FREED, at, 0);
        }
    }

    /// Calls for each record behind `from`, the last first: where it is, its kind, and what it names.
    fn each(&self, medium: &impl Medium, from: usize, call: impl FnMut(usize, u64, usize)) {
        each(medium, self.last, from, call);
    }

    /// Has all words be what they were when the log was at a position, and frees what was allocated since. At position 0 the transaction
    /// has ended with that.
    pub fn roll_back<M: Medium>(&mut self, heap: &Heap<M>, position: usize) {
        let core = heap.core();
        self.each(&core.medium, position, |record, kind, _| {
            if kind == WORDS {
                restore(&core.medium, record);
            }
        });
        core.fence();
        let last = self.last;
        if position == 0 {
            self.close(heap);
        } else if self.reserve(heap, RECORD_HEAD).is_ok() {
            // Recovery does not undo it once more: objects of it may be another thread's by then.
            self.last = position;
            self.note(heap, UNDONE, 0, 0);
            core.fence();
        } else {
            // Undone once more it is the same. Its objects stay until the next recovery.
            self.each(&core.medium, position, |record, kind, _| forget(core, record, kind));
            return;
        }
        each(&core.medium, last, position, |_, kind, at| {
            if kind == ALLOCATED && at != 0 {
                // SAFETY: allocated since, and nothing leads to it any more.
                let _ = unsafe { heap.safe_free(core.at(at)) };
            }
        });
        if position == 0 {
            self.give_back(heap);
        }
    }

    /// Ends the transaction with all that it has changed.
    pub fn commit<M: Medium>(&mut self, heap: &Heap<M>) {
        if self.first == 0 {
            return;
        }
        let core = heap.core();
        core.fence();
        self.close(heap);
        self.each(&core.medium, 0, |_, kind, at| {
            if kind == FREED && at != 0 {
                // SAFETY: nothing leads to it, durably.
                let _ = unsafe { heap.free(core.at(at)) };
            }
        });
        self.give_back(heap);
    }

    /// No transaction is open, durably.
    fn close<M: Medium>(&self, heap: &Heap<M>) {
        if self.first != 0 {
            close(&heap.core().medium);
        }
    }

    /// Frees the chunks.
    fn give_back<M: Medium>(&mut self, heap: &Heap<M>) {
        let core = heap.core();
        let mut chunk = self.first;
        while chunk != 0 {
            let next = if chunk == self.chunk { None } else { offset_of(core.load(chunk)) };
            // SAFETY: the log's own, and nothing leads to it any more.
            let _ = unsafe { heap.safe_free(core.at(chunk)) };
            chunk = next.unwrap_or(0);
        }
        *self = Self::new(self.id);
    }
}

/// Calls for each record from the last one back to `from`, which is not one of them.
fn each(medium: &impl Medium, last: usize, from: usize, mut call: impl FnMut(usize, u64, usize)) {
    let mut record = last;
    while record != from && record != 0 {
        let (at, kind) = (load(medium, record), load(medium, record + SIZE_AT) & 0xff);
        let before = load(medium, record + BEFORE_AT) as usize;
        call(record, kind, at as usize);
        record = before;
    }
}

/// A record of an object names none any more.
fn forget<M: Medium>(core: &Core<M>, record: usize, kind: u64) {
    if kind == ALLOCATED || kind == FREED {
        core.store(record, 0);
    }
}

/// The words that a record names are what they were.
fn restore(medium: &impl Medium, record: usize) {
    let (at, words) = (load(medium, record) as usize, load(medium, record + SIZE_AT) >> 8);
    for number in 0..words as usize {
        store(medium, at + number * 8, load(medium, record + RECORD_HEAD + number * 8));
    }
    medium.write_back(at, words as usize * 8);
}

fn close(medium: &impl Medium) {
    store(medium, FIRST_AT, 0);
    medium.write_back(LINE, 32);
    medium.fence();
}

fn is_object(medium: &impl Medium, at: usize, bytes: usize) -> bool {
    let has = medium.bytes();
    at.is_multiple_of(GRANULE_BYTES) && at >= BLOCK_BYTES && bytes <= has && at <= has - bytes
}

/// The last record of a transaction that was open when the heap was left, and its version; `None`: none was.
///
/// # Errors
/// [`Error::Damaged`]: the line in the superblock is none, or a record names what is no part of the heap.
fn last_record(medium: &impl Medium) -> Result<Option<usize>, Error> {
    let (bytes, first) = (load(medium, BYTES_AT), load(medium, FIRST_AT));
    let version = load(medium, VERSION_AT);
    if first == 0 {
        return Ok(None);
    }
    let damaged = |at: usize| Error::Damaged { at: at as u64, what: "the log of a transaction" };
    if load(medium, CHECK_AT) != check(&[bytes, version, first]) {
        return Err(damaged(LINE));
    }
    let mut chunk = offset_of(first).ok_or(damaged(LINE))?;
    let (mut bytes, mut last) = (bytes as usize, 0);
    // A chain of chunks that are checked ends: each has its place in its check.
    for _ in 0..=medium.bytes() / LEAST_CHUNK {
        if !is_object(medium, chunk, bytes) {
            return Err(damaged(LINE));
        }
        let (mut record, end) = (chunk + CHUNK_HEAD, chunk + bytes);
        while end.saturating_sub(record) >= RECORD_HEAD {
            let (size, at) = (load(medium, record + SIZE_AT), load(medium, record) as usize);
            let words = (size >> 8) as usize;
            let needs = words.checked_mul(8).and_then(|bytes| bytes.checked_add(RECORD_HEAD));
            let Some(needs) = needs.filter(|needs| *needs <= end - record) else { break };
            let is_whole = load(medium, record + RECORD_CHECK_AT)
                == record_check(medium, record, version)
                && (size & 0xff == UNDONE || load(medium, record + BEFORE_AT) as usize == last);
            if !is_whole {
                break;
            }
            let is_word = at.is_multiple_of(8)
                && at >= ROOTS
                && !(UNDO_LOG..UNDO_LOG + 4096).contains(&at)
                && at <= medium.bytes() - words * 8;
            if size & 0xff == WORDS && !is_word {
                return Err(damaged(record));
            }
            last = record;
            record += needs;
        }
        let (next, next_bytes) = (load(medium, chunk), load(medium, chunk + NEXT_BYTES_AT));
        if load(medium, chunk + NEXT_CHECK_AT) != check(&[version, chunk as u64, next, next_bytes])
        {
            break;
        }
        chunk = offset_of(next).ok_or(damaged(chunk))?;
        bytes = next_bytes as usize;
    }
    Ok(Some(last))
}

/// Whether a transaction was begun and not ended.
///
/// # Errors
/// As for [`replay`].
pub fn is_open(medium: &impl Medium) -> Result<bool, Error> {
    last_record(medium).map(|last| last.is_some())
}

/// Undoes a transaction that was begun and not ended. May be cut off and begun again.
///
/// # Errors
/// [`Error::Damaged`]: the log is. Nothing has changed then.
pub fn replay(medium: &impl Medium) -> Result<(), Error> {
    let Some(mut record) = last_record(medium)? else { return Ok(()) };
    while record != 0 {
        if load(medium, record + SIZE_AT) & 0xff == WORDS {
            restore(medium, record);
        }
        record = load(medium, record + BEFORE_AT) as usize;
    }
    medium.fence();
    close(medium);
    Ok(())
}

/// Forgets what stands in the line of a heap that was closed: no transaction of it is open. Whether there was anything.
pub fn forget_closed(medium: &impl Medium) -> bool {
    let is_any = load(medium, FIRST_AT) != 0;
    if is_any {
        close(medium);
    }
    is_any
}

/// Forgets a log that is damaged.
pub fn wipe(medium: &impl Medium) {
    close(medium);
}

/// The log that a thread's word leads to.
pub fn at(word: *mut ()) -> Option<ptr::NonNull<Log>> {
    ptr::NonNull::new(word.cast())
}
