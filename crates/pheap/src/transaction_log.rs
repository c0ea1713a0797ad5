//! The undo log of a transaction: each record holds the words of one place before they change. A rollback or recovery restores them.
//!
//! A change of one operation that has more words than the undo log of 63 entries ([`crate::undo`]) has such a log of its own, so that it
//! waits for no transaction.
//!
//! Format. Each of two lines of the superblock names an open log: that of a transaction the line with the version of the undo log, that of
//! a large change the line at +2048 in the first record's page.
//!
//! | offset in the line | word |
//! |---|---|
//! | +24 | where the last record is that is known to be durable, in the lower 48 bits; in the upper ones a check of it and the version |
//! | +32 | bytes of the first chunk |
//! | +40 | the log's version, a number that no earlier log had |
//! | +48 | where the first chunk is, as a pointer; 0: no log is open |
//! | +56 | check of the three |
//!
//! A chunk is an object of the heap. Records begin at +32, one behind the other.
//!
//! | offset in a chunk | word |
//! |---|---|
//! | +0 | where the next chunk is, as a pointer |
//! | +8 | bytes of the next chunk |
//! | +16 | check of both, the version and this chunk's place; it does not hold in the last chunk |
//! | +24 | unused |
//!
//! | offset in a record | word |
//! |---|---|
//! | +0 | offset in the heap of the words, or of the object |
//! | +8 | number of words, shifted left by 8, and the kind in the lower 8 bits |
//! | +16 | where the record before is; 0: this is the first |
//! | +24 | check of the record, its place, the version and the words |
//! | +32 | the words before the change |
//!
//! A record whose check does not hold was not written to the end, and ends the log: no word that it names has changed. If it comes before
//! the record that the line names as durable, the log is damaged. An [`UNDONE`] record ends a nested transaction that was rolled back: its record before is the last one before that transaction.
//!
//! Order:
//! 1. Records are durable before the words that they name change.
//! 2. Changes are durable before the line says that no log is open.
//! 3. The line names a record as durable when it is, and before the words that it names change. The line itself may become durable later.
//! 4. Undo runs from the last record to the first. It is idempotent: recovery that is cut off begins it anew.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_pmem::Medium;
use spandrel_sync::{CachePadded, Lock};

use crate::error::Error;
use crate::heap::Heap;
use crate::layout::{BLOCK_BYTES, GRANULE_BYTES, SUPERBLOCK};
use crate::pointer::{PPtr, offset_of};
use crate::shared::Core;
use crate::superblock::UNDO_LOG;
use crate::trace::mix;
use crate::transaction_readers::Rollbacks;
pub use crate::transaction_recovery::{forget_closed, is_open, replay, wipe};

/// A line of the superblock that names an open log.
#[derive(Clone, Copy)]
pub struct Line(usize);

impl Line {
    /// Of the open transaction.
    pub const TRANSACTION: Self = Self(UNDO_LOG);
    /// Of a large change outside of transactions.
    pub const CHANGE: Self = Self(SUPERBLOCK + 2048);
    /// Both.
    pub const ALL: [Self; 2] = [Self::TRANSACTION, Self::CHANGE];

    /// Where the line is.
    pub const fn at(self) -> usize {
        self.0
    }

    pub const fn durable_at(self) -> usize {
        self.0 + 24
    }

    pub const fn bytes_at(self) -> usize {
        self.0 + 32
    }

    pub const fn version_at(self) -> usize {
        self.0 + 40
    }

    pub const fn first_at(self) -> usize {
        self.0 + 48
    }

    pub const fn check_at(self) -> usize {
        self.0 + 56
    }

    fn write_back(self, medium: &impl Medium) {
        medium.write_back(self.durable_at(), 40);
    }

    /// Makes it durable that no log is open.
    pub fn close(self, medium: &impl Medium) {
        store(medium, self.durable_at(), 0);
        store(medium, self.first_at(), 0);
        self.write_back(medium);
        medium.fence();
    }
}

/// The word that names a record as durable.
pub fn durable_word(record: usize, version: u64) -> u64 {
    const LOW: u64 = (1 << 48) - 1;
    record as u64 & LOW | check(&[version, record as u64]) & !LOW
}

pub const NEXT_BYTES_AT: usize = 8;
pub const NEXT_CHECK_AT: usize = 16;
pub const CHUNK_HEAD: usize = 32;
pub const LEAST_CHUNK: usize = 4096;
const MOST_CHUNK: usize = BLOCK_BYTES;

pub const RECORD_HEAD: usize = 32;
pub const SIZE_AT: usize = 8;
pub const BEFORE_AT: usize = 16;
pub const RECORD_CHECK_AT: usize = 24;
/// Room that words leave in a chunk for records of allocated and freed objects.
const SPARE: usize = 2048;
/// Room that the records of objects leave: each nested transaction that is rolled back writes one record, also where the heap is full.
const KEPT: usize = 512;

/// Words before their change.
pub const WORDS: u64 = 1;
/// An object that was allocated; 0: a rollback frees none. Recovery ignores the place, which is not part of the check.
const ALLOCATED: u64 = 2;
/// An object that the commit frees; 0: it frees none. Recovery ignores the place, as above.
const FREED: u64 = 3;
/// A nested transaction was rolled back: its records lie between this one and the one that this one names as the record before.
pub const UNDONE: u64 = 4;

pub fn load(medium: &impl Medium, at: usize) -> u64 {
    // SAFETY: the callers have checked that the word lies on the medium. The words of the log, and those that it names, are this thread's.
    unsafe { medium.base().as_ptr().add(at).cast::<u64>().read_volatile() }
}

pub fn store(medium: &impl Medium, at: usize, word: u64) {
    // SAFETY: as for `load`.
    unsafe { medium.store_word(at, word) };
}

pub fn check(words: &[u64]) -> u64 {
    words.iter().fold(0x7472_616e_7361_6374, |sum, word| mix(sum, *word))
}

/// The check of a record: of all words but the place of an object that was allocated or freed.
pub fn record_check(medium: &impl Medium, record: usize, version: u64) -> u64 {
    let size = load(medium, record + SIZE_AT);
    let at = if size & 0xff == WORDS { load(medium, record) } else { 0 };
    let head = check(&[version, record as u64, at, size, load(medium, record + BEFORE_AT)]);
    let words = (size >> 8) as usize;
    let each = |number: usize| load(medium, record + RECORD_HEAD + number * 8);
    (0..words).fold(head, |sum, number| mix(sum, each(number)))
}

/// The number of the last transaction that was begun, of any heap: no two transactions of a process have one number.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The transactions of a heap, of which one runs at a time, and the large changes, of which one runs at a time as well.
pub struct Transactions {
    /// The open transaction's number; 0: none is. On a line of its own: each read of a collection loads it.
    open: CachePadded<AtomicU64>,
    /// The open transaction holds it.
    pub lock: Lock<()>,
    /// The log of the open transaction. Only the thread that holds the lock uses it.
    log: UnsafeCell<Log>,
    /// A large change holds it. The thread waits for nothing but the allocator meanwhile.
    pub large: Lock<()>,
    /// The rollbacks of transactions.
    pub rollbacks: Rollbacks,
    /// The number of the last transaction whose rollback frees no object.
    kept: AtomicU64,
}

// SAFETY: the log is used by the thread that holds the lock.
unsafe impl Sync for Transactions {}

impl Transactions {
    pub fn new() -> Self {
        Self {
            open: CachePadded::new(AtomicU64::new(0)),
            lock: Lock::new(()),
            log: UnsafeCell::new(Log::new(0, Line::TRANSACTION)),
            large: Lock::new(()),
            rollbacks: Rollbacks::new(),
            kept: AtomicU64::new(0),
        }
    }

    /// The open transaction's number; 0: none is.
    #[inline]
    pub fn open_id(&self) -> u64 {
        self.open.load(Acquire)
    }

    /// Has the rollback of the open transaction free no object: references to some were lent that may outlive it. Until the next recovery
    /// or collection these objects stay allocated.
    #[cold]
    pub fn keep_objects(&self) {
        self.kept.store(self.open_id(), Release);
    }

    /// Begins a transaction. The calling thread holds the lock.
    pub fn begin(&self) -> *mut Log {
        let id = LAST.fetch_add(1, Relaxed) + 1;
        // SAFETY: the calling thread holds the lock, and no log is in use.
        unsafe { self.log.get().write(Log::new(id, Line::TRANSACTION)) };
        self.open.store(id, Release);
        self.log.get()
    }

    /// Ends the open transaction, and returns its log. The calling thread holds the lock, and has no reference to the log.
    pub fn end(&self) -> Log {
        // SAFETY: as above.
        let log = unsafe { self.log.get().replace(Log::new(0, Line::TRANSACTION)) };
        self.open.store(0, Release);
        log
    }
}

/// A log that is open.
pub struct Log {
    id: u64,
    line: Line,
    version: u64,
    /// The first chunk; 0: the log has no chunk yet.
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
    /// An empty log: that of the transaction of a number, or that of a large change (number 0).
    pub const fn new(id: u64, line: Line) -> Self {
        let (first, first_bytes, chunk, end, place, last) = (0, 0, 0, 0, 0, 0);
        Self { id, line, version: 0, first, first_bytes, chunk, end, place, last }
    }

    /// The transaction's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where the last record is: a nested transaction that begins here is rolled back to it.
    pub fn position(&self) -> usize {
        self.last
    }

    /// Makes room for `bytes` bytes of records, in a new chunk if the last one has less.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn reserve<M: Medium>(&mut self, heap: &Heap<M>, bytes: usize) -> Result<(), Error> {
        if self.end - self.place >= bytes {
            return Ok(());
        }
        let last = if self.first == 0 { 0 } else { self.end - self.chunk };
        let least = bytes.checked_add(CHUNK_HEAD).ok_or(Error::Size(bytes))?;
        let least = least.max(LEAST_CHUNK).next_multiple_of(8);
        let bytes = (last * 2).clamp(least, MOST_CHUNK.max(least));
        let core = heap.core();
        // A heap without a free block may have room for a smaller chunk.
        let (chunk, bytes) = match heap.new_bytes(bytes, GRANULE_BYTES) {
            Err(why) if why.is_full() && bytes > least => {
                (heap.new_bytes(least, GRANULE_BYTES)?, least)
            }
            chunk => (chunk?, bytes),
        };
        let pointer = PPtr::<u8>::to(chunk).raw();
        // The last chunk has a check that does not hold.
        core.store(chunk + NEXT_CHECK_AT, 0);
        core.write_back(chunk, CHUNK_HEAD);
        if self.first == 0 {
            // The version differs from that of every earlier log, whose records the chunk may hold, also where that log's line was
            // not durable: the clock is part of it.
            let line = self.line;
            self.version =
                mix(core.load(line.version_at()).wrapping_add(1), spandrel_os::clock::nanos());
            core.store(line.durable_at(), 0);
            core.store(line.bytes_at(), bytes as u64);
            core.store(line.version_at(), self.version);
            core.store(line.check_at(), check(&[bytes as u64, self.version, pointer]));
            // Last: words of one line become durable in the order of their stores.
            core.store(line.first_at(), pointer);
            line.write_back(&core.medium);
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

    /// Writes a record. The last chunk has room for it.
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

    /// Logs what words hold. The caller changes them after the next fence.
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

    /// The records are durable: there was a fence. Recovery then tells a damaged record from one that was not written to the end.
    pub fn note_durable<M: Medium>(&self, heap: &Heap<M>) {
        if self.first != 0 {
            let at = self.line.durable_at();
            heap.core().store(at, durable_word(self.last, self.version));
            heap.core().write_back(at, 8);
        }
    }

    /// Logs an allocated object: a rollback frees it. The caller has reserved room for the record before it has allocated the object.
    pub fn note_alloc<M: Medium>(&mut self, heap: &Heap<M>, at: usize) {
        debug_assert!(self.end - self.place >= RECORD_HEAD);
        self.note(heap, ALLOCATED, at, 0);
    }

    /// The transaction has freed an object that it allocated: a rollback does not free it again. Takes time linear in the log.
    pub fn forget_alloc<M: Medium>(&mut self, heap: &Heap<M>, at: usize) {
        let core = heap.core();
        self.each(&core.medium, 0, |record, kind, object| {
            if kind == ALLOCATED && object == at {
                core.store(record, 0);
            }
        });
    }

    /// Logs an object that the commit frees.
    ///
    /// # Errors
    /// As for [`Log::reserve`]; none behind [`Log::note_words`], before 48 records. The commit does not free the object then.
    pub fn note_free<M: Medium>(&mut self, heap: &Heap<M>, at: usize) -> Result<(), Error> {
        self.reserve(heap, RECORD_HEAD + KEPT)?;
        self.note(heap, FREED, at, 0);
        Ok(())
    }

    /// Calls `call` for each record behind `from`, the last first, with its place, its kind and the place that it names.
    fn each(&self, medium: &impl Medium, from: usize, call: impl FnMut(usize, u64, usize)) {
        each(medium, self.last, from, call);
    }

    /// Restores all words to what they held when the log was at `position`, and frees the objects that were allocated since. At
    /// position 0 that ends the log.
    pub fn roll_back<M: Medium>(&mut self, heap: &Heap<M>, position: usize) {
        let core = heap.core();
        core.transactions.rollbacks.run(|| {
            self.each(&core.medium, position, |record, kind, _| {
                if kind == WORDS {
                    restore(&core.medium, record);
                }
            });
        });
        core.fence();
        let last = self.last;
        if position == 0 {
            self.close(heap);
        } else if last == position {
            return;
        } else if self.reserve(heap, RECORD_HEAD).is_ok() {
            // Recovery must not restore these words again: their objects are freed below, and another thread may own them by then.
            self.last = position;
            self.note(heap, UNDONE, 0, 0);
            core.fence();
            self.note_durable(heap);
        } else {
            // No room for that record, after as many as `KEPT` has room for: recovery restores the words again, to the same values. So
            // their objects are not freed, and stay allocated until the next recovery or collection.
            self.each(&core.medium, position, |record, kind, _| forget(core, record, kind));
            return;
        }
        let are_kept = self.id != 0 && core.transactions.kept.load(Acquire) == self.id;
        each(&core.medium, last, position, |_, kind, at| {
            if kind == ALLOCATED && at != 0 && !are_kept {
                // SAFETY: the transaction allocated it, and all words that led to it are restored.
                let _ = unsafe { heap.safe_free(core.at(at)) };
            }
        });
        if position == 0 {
            self.give_back(heap);
        }
    }

    /// Makes all changes durable, and ends the log. [`Log::free_all`] frees what it has.
    pub fn commit<M: Medium>(&mut self, heap: &Heap<M>) {
        if self.first != 0 {
            heap.core().fence();
            self.close(heap);
        }
    }

    /// Frees the objects that the transaction has freed, and the log. The free callback may run meanwhile, and use the heap: no thread is
    /// in the transaction any more.
    pub fn free_all<M: Medium>(mut self, heap: &Heap<M>) {
        let core = heap.core();
        self.each(&core.medium, 0, |_, kind, at| {
            if kind == FREED && at != 0 {
                // SAFETY: the transaction is durable, and with it that nothing leads to the object.
                let _ = unsafe { heap.free(core.at(at)) };
            }
        });
        self.give_back(heap);
    }

    /// Makes it durable that the log is not open.
    fn close<M: Medium>(&self, heap: &Heap<M>) {
        if self.first != 0 {
            self.line.close(&heap.core().medium);
        }
    }

    /// Frees the chunks.
    fn give_back<M: Medium>(&mut self, heap: &Heap<M>) {
        let core = heap.core();
        let mut chunk = self.first;
        while chunk != 0 {
            let next = if chunk == self.chunk { None } else { offset_of(core.load(chunk)) };
            // SAFETY: the log owns its chunks, and the superblock leads to none of them any more.
            let _ = unsafe { heap.safe_free(core.at(chunk)) };
            chunk = next.unwrap_or(0);
        }
        *self = Self::new(self.id, self.line);
    }
}

/// Calls `call` for each record from `last` back to `from`, without `from`.
fn each(medium: &impl Medium, last: usize, from: usize, mut call: impl FnMut(usize, u64, usize)) {
    let mut record = last;
    while record != from && record != 0 {
        let (at, kind) = (load(medium, record), load(medium, record + SIZE_AT) & 0xff);
        let before = load(medium, record + BEFORE_AT) as usize;
        call(record, kind, at as usize);
        record = before;
    }
}

/// Clears the place in a record of an object.
fn forget<M: Medium>(core: &Core<M>, record: usize, kind: u64) {
    if kind == ALLOCATED || kind == FREED {
        core.store(record, 0);
    }
}

/// Stores the words of a record where they were.
pub fn restore(medium: &impl Medium, record: usize) {
    let (at, words) = (load(medium, record) as usize, load(medium, record + SIZE_AT) >> 8);
    for number in 0..words as usize {
        store(medium, at + number * 8, load(medium, record + RECORD_HEAD + number * 8));
    }
    medium.write_back(at, words as usize * 8);
}
