//! An operation that changes a collection: after a failure all of its changes are there, or none.

use core::ptr::NonNull;

use spandrel_pmem::Medium;

use super::held::Lent;
use crate::error::Error;
use crate::gate::Entered;
use crate::heap::Heap;
use crate::shared::Core;
use crate::transaction::{Log, Transaction};
use crate::undo::ENTRIES;

/// Bytes of a transaction's log that are reserved for an operation's records of allocated and freed objects: none of these fails for
/// want of room before the log has taken 64 of them.
const RESERVE: usize = 2048;

/// One of several places that change together.
pub(crate) enum Part<'v> {
    /// A word, at a multiple of 8.
    Word(usize, u64),
    /// Bytes, which may begin and end within words.
    Bytes(usize, &'v [u8]),
}

impl<'v> Part<'v> {
    /// The bytes of a value.
    pub fn of<T: Copy>(at: usize, value: &'v T) -> Self {
        Self::Bytes(at, bytes_of(value))
    }

    /// Where the first word is, and the number of words that the part touches.
    fn words(&self) -> (usize, usize) {
        match *self {
            Self::Word(at, _) => (at, 1),
            Self::Bytes(at, bytes) => {
                let from = at & !7;
                (from, (at + bytes.len() - from).div_ceil(8))
            }
        }
    }
}

/// The bytes of a value; padding between its fields has any content.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    let bytes = NonNull::from(value).cast::<u8>();
    // SAFETY: the value's own bytes, as long as it is borrowed.
    unsafe { core::slice::from_raw_parts(bytes.as_ptr(), size_of::<T>()) }
}

/// See the head of this file.
pub(crate) struct Op<'c, M: Medium> {
    core: &'c Core<M>,
    heap: Lent<M>,
    inside: Entered<'c>,
    log: Option<NonNull<Log>>,
}

impl<'c, M: Medium> Op<'c, M> {
    /// Begins an operation. It is part of the transaction that the thread is in.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`]; [`Error::Full`]: there is no room for the records of a transaction.
    #[inline]
    pub fn begin(core: &'c Core<M>) -> Result<Self, Error> {
        let inside = core.gate.enter()?;
        let log = NonNull::new(inside.row().transaction().get().cast::<Log>());
        let mut op = Self { core, heap: Lent::of(NonNull::from(core)), inside, log };
        if let Some((log, heap)) = op.log() {
            log.reserve(heap, RESERVE)?;
        }
        Ok(op)
    }

    /// The transaction's number.
    #[inline]
    pub fn transaction(&self) -> Option<u64> {
        // SAFETY: set by the transaction that this thread is in, which lives; the thread has no other reference to its log.
        self.log.map(|log| unsafe { log.as_ref() }.id())
    }

    fn log(&mut self) -> Option<(&mut Log, &Heap<M>)> {
        // SAFETY: as above; this operation is the thread's innermost, and borrowed.
        self.log.map(|mut log| (unsafe { log.as_mut() }, &*self.heap))
    }

    #[inline]
    pub fn core(&self) -> &'c Core<M> {
        self.core
    }

    /// Allocates an object. The rollback of a transaction frees it.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc(&mut self, bytes: usize, align: usize) -> Result<usize, Error> {
        let at = self.heap.new_bytes(bytes, align)?;
        self.note_new(at);
        Ok(at)
    }

    /// Allocates an object of zeroes. The rollback of a transaction frees it.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_zeroed(&mut self, bytes: usize) -> Result<usize, Error> {
        let at = self.heap.core().offset(self.heap.alloc_zeroed(bytes)?.as_ptr());
        self.note_new(at);
        Ok(at)
    }

    fn note_new(&mut self, at: usize) {
        if let Some((log, heap)) = self.log() {
            log.note_alloc(heap, at);
        }
    }

    /// Frees an object that this operation has allocated.
    ///
    /// # Safety
    /// Nothing leads to it.
    pub unsafe fn give_back(&mut self, at: usize) {
        if let Some((log, heap)) = self.log() {
            log.forget_alloc(heap, at);
        }
        // SAFETY: promised by the caller. An object that cannot be freed is free after the next recovery.
        let _ = unsafe { self.heap.safe_free(self.core().at(at)) };
    }

    /// Frees an object; in a transaction its commit does.
    ///
    /// # Errors
    /// As for [`Heap::free`]. In a transaction none: the commit ignores an object that cannot be freed.
    ///
    /// # Safety
    /// Nothing leads to it any more.
    pub unsafe fn free(&mut self, at: usize) -> Result<(), Error> {
        match self.log() {
            Some((log, heap)) => {
                log.note_free(heap, at);
                Ok(())
            }
            // SAFETY: promised by the caller.
            None => unsafe { self.heap.free(self.core().at(at)) },
        }
    }

    /// Stores bytes of an object that nothing leads to yet, and writes them back.
    ///
    /// # Safety
    /// There is room for them, and no other thread reads or writes it.
    pub unsafe fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: promised by the caller.
        unsafe { self.core().medium.store(at, bytes) };
        self.core().write_back(at, bytes.len());
    }

    /// Stores bytes at an unused place of an object in use, and writes them back. A transaction logs what was there: before it the place
    /// may have been in use.
    ///
    /// # Errors
    /// [`Error::Full`]: there is no room in the transaction's log.
    ///
    /// # Safety
    /// As for [`Op::put`].
    pub unsafe fn put_aside(&mut self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.log.is_some() {
            return self.change(&[Part::Bytes(at, bytes)]);
        }
        // SAFETY: promised by the caller.
        unsafe { self.put(at, bytes) };
        Ok(())
    }

    /// Waits until what was put is durable.
    pub fn fence(&self) {
        self.core().fence();
    }

    /// Stores a word. It is durable when this returns; in a transaction, when that has ended.
    ///
    /// # Errors
    /// As for [`Op::change`].
    pub fn publish(&mut self, at: usize, word: u64) -> Result<(), Error> {
        if self.log.is_some() {
            return self.change(&[Part::Word(at, word)]);
        }
        self.core().store(at, word);
        self.core().write_back(at, 8);
        self.core().fence();
        Ok(())
    }

    /// Changes several places, all or none of which are durable.
    ///
    /// # Errors
    /// [`Error::Full`]: there is no room to log what was there. Nothing has changed.
    pub fn change(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        if let Some((log, heap)) = self.log() {
            for part in parts {
                let (at, words) = part.words();
                log.note_words(heap, at, words)?;
            }
            heap.core().fence();
            self.store(parts);
            return Ok(());
        }
        let words: usize = parts.iter().map(|part| part.words().1).sum();
        if words > ENTRIES {
            return self.change_much(parts);
        }
        let (mut all, mut count) = ([(0, 0); ENTRIES], 0);
        each_word(self.core(), parts, |at, word| {
            if let Some(place) = all.get_mut(count) {
                *place = (at, word);
                count += 1;
            }
        });
        self.core().change(&all[..count]);
        Ok(())
    }

    /// Changes more words than the undo log holds, in a transaction of its own. It waits for one of another thread.
    #[cold]
    fn change_much(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        let transaction = Transaction::begin(self.core)?;
        self.log = NonNull::new(self.inside.row().transaction().get().cast());
        let outcome = self.change(parts);
        self.log = None;
        outcome?;
        transaction.commit()
    }

    fn store(&self, parts: &[Part<'_>]) {
        each_word(self.core(), parts, |at, word| self.core().store(at, word));
        for part in parts {
            let (at, words) = part.words();
            self.core().write_back(at, words * 8);
        }
    }
}

/// Calls `each` for every word of the parts, with its place and its new content.
fn each_word<M: Medium>(core: &Core<M>, parts: &[Part<'_>], mut each: impl FnMut(usize, u64)) {
    for part in parts {
        match *part {
            Part::Word(at, word) => each(at, word),
            Part::Bytes(at, bytes) => {
                let mut rest = bytes;
                let mut place = at;
                while !rest.is_empty() {
                    let (from, skipped) = (place & !7, place % 8);
                    let count = rest.len().min(8 - skipped);
                    let (now, later) = rest.split_at(count);
                    let mut word = core.load(from).to_le_bytes();
                    word[skipped..skipped + count].copy_from_slice(now);
                    each(from, u64::from_le_bytes(word));
                    (rest, place) = (later, from + 8);
                }
            }
        }
    }
}
