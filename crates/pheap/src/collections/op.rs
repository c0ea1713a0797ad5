//! An operation that changes a collection: after a failure all of its changes are there, or none.

use core::arch::asm;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use spandrel_pmem::Medium;

use super::held::Lent;
use crate::error::Error;
use crate::gate::Entered;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::shared::Core;
use crate::trace::Trace;
use crate::transaction::{Line, Log};
use crate::undo::ENTRIES;

/// Bytes of a transaction's log that are reserved for an operation's records of allocated and freed objects: none of these fails for
/// want of room before the log has taken 48 of them.
const RESERVE: usize = 2048;

/// One of several places that change together.
pub(crate) enum Part<'v> {
    /// A word, at a multiple of 8.
    Word(usize, u64),
    /// Bytes, which may begin and end within words.
    Bytes(usize, &'v [MaybeUninit<u8>]),
}

impl<'v> Part<'v> {
    /// The bytes of a value.
    pub fn of<T: Trace>(at: usize, value: &'v mut T) -> Self {
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

/// The bytes of a value. Those between its fields are zero, as far as its type names them.
pub(crate) fn bytes_of<T: Trace>(value: &mut T) -> &[MaybeUninit<u8>] {
    // SAFETY: the value is borrowed exclusively.
    unsafe { T::clear_padding(value) };
    bytes_of_all(core::slice::from_ref(value))
}

/// The bytes of several values. Those between their fields may have no value.
pub(crate) fn bytes_of_all<T>(values: &[T]) -> &[MaybeUninit<u8>] {
    // SAFETY: the values' own bytes, as long as they are borrowed; a `MaybeUninit` may have no value.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Bytes that are stored at once where they may include padding. What the undo log holds is one piece, so that no word of it is in two.
const PIECE: usize = 512;
const _: () = assert!(PIECE >= ENTRIES * 8);

/// A copy of bytes of which each has a value: of padding any.
fn settled<'b>(buffer: &'b mut [MaybeUninit<u8>; PIECE], bytes: &[MaybeUninit<u8>]) -> &'b [u8] {
    let buffer = &mut buffer[..bytes.len()];
    buffer.copy_from_slice(bytes);
    let at = buffer.as_mut_ptr().cast::<u8>();
    // SAFETY: no instruction. To the compiler it may have written all of the buffer, as it has the buffer's address: so no byte of it is
    // without a value any more.
    unsafe { asm!("/* {0} */", in(reg) at, options(nostack, preserves_flags)) };
    // SAFETY: as above; within the buffer, which is borrowed as long.
    unsafe { core::slice::from_raw_parts(at, bytes.len()) }
}

/// Stores bytes, of which padding may have no value.
///
/// # Safety
/// As for [`Medium::store`].
pub(crate) unsafe fn store(medium: &impl Medium, at: usize, bytes: &[MaybeUninit<u8>]) {
    let mut buffer = [MaybeUninit::uninit(); PIECE];
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        // SAFETY: promised by the caller.
        unsafe { medium.store(at + number * PIECE, settled(&mut buffer, piece)) };
    }
}

/// See the head of this file.
pub(crate) struct Op<'c, M: Medium> {
    core: &'c Core<M>,
    heap: Lent<M>,
    _inside: Entered<'c>,
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
        let mut op = Self { core, heap: Lent::of(NonNull::from(core)), _inside: inside, log };
        op.reserve()?;
        Ok(op)
    }

    /// Reserves room in the transaction's log for the records of objects: without a record an object would be lost when the transaction
    /// ends.
    #[inline]
    fn reserve(&mut self) -> Result<(), Error> {
        self.log().map_or(Ok(()), |(log, heap)| log.reserve(heap, RESERVE))
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
        self.reserve()?;
        let at = self.heap.new_bytes(bytes, align)?;
        self.note_new(at);
        Ok(at)
    }

    /// Allocates an object of zeroes. The rollback of a transaction frees it.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_zeroed(&mut self, bytes: usize) -> Result<usize, Error> {
        self.reserve()?;
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
    /// As for [`Heap::free`]. In a transaction [`Error::Full`]: there is no room in its log, and the commit does not free the object. That
    /// cannot be before 48 objects are freed without another change. The commit ignores an object that cannot be freed.
    ///
    /// # Safety
    /// Nothing leads to it any more; in a transaction, nothing does when that has ended.
    pub unsafe fn free(&mut self, at: usize) -> Result<(), Error> {
        match self.log() {
            Some((log, heap)) => log.note_free(heap, at),
            // SAFETY: promised by the caller.
            None => unsafe { self.heap.free(self.core().at(at)) },
        }
    }

    /// Frees an object that a change has replaced; 0: none. The change has taken effect: if the object cannot be freed, the heap was damaged
    /// before, and a collection frees it.
    ///
    /// # Safety
    /// Nothing leads to it any more.
    pub unsafe fn free_replaced(&mut self, at: usize) {
        if at != 0 {
            // SAFETY: promised by the caller.
            let _ = unsafe { self.free(at) };
        }
    }

    /// Stores bytes of an object that nothing leads to yet, and writes them back.
    ///
    /// # Safety
    /// There is room for them, and no other thread reads or writes it.
    pub unsafe fn put(&self, at: usize, bytes: &[MaybeUninit<u8>]) {
        // SAFETY: promised by the caller.
        unsafe { store(&self.core().medium, at, bytes) };
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
    pub unsafe fn put_aside(&mut self, at: usize, bytes: &[MaybeUninit<u8>]) -> Result<(), Error> {
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
            log.note_durable(heap);
            self.store(parts);
            return Ok(());
        }
        if self.core.medium.is_atomic() {
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

    /// Changes more words than the undo log holds.
    #[cold]
    fn change_much(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        self.at_once(|op| op.change(parts))
    }

    /// Runs `work` with a log of its own: after a failure all of its changes are there, or none; after an error none. Waits for such changes
    /// of other threads, which wait for nothing but the allocator, and not for transactions: the caller may hold a lock of the program that
    /// the thread of a transaction waits for. `work` calls no code of the program but comparisons of keys.
    ///
    /// The operation is outside of transactions.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn at_once(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        debug_assert!(self.log.is_none());
        let core = self.core;
        let lock = core.transactions.large.lock();
        let mut log = Log::new(0, Line::CHANGE);
        let log = NonNull::from(&mut log);
        self.log = Some(log);
        let own = OwnLog { op: self, log };
        // An error or a panic drops the log, which undoes what was done.
        work(&mut *own.op)?;
        let log = own.commit();
        drop(lock);
        log.free_all(&self.heap);
        Ok(())
    }

    fn store(&self, parts: &[Part<'_>]) {
        each_word(self.core(), parts, |at, word| self.core().store(at, word));
        for part in parts {
            let (at, words) = part.words();
            self.core().write_back(at, words * 8);
        }
    }
}

/// The log of a large change. A drop without [`OwnLog::commit`] undoes the change.
struct OwnLog<'o, 'c, M: Medium> {
    op: &'o mut Op<'c, M>,
    /// The log lies in the frame of [`Op::at_once`], which outlives this.
    log: NonNull<Log>,
}

impl<M: Medium> OwnLog<'_, '_, M> {
    /// Ends the log, and returns it.
    fn commit(self) -> Log {
        let mut own = ManuallyDrop::new(self);
        own.op.log = None;
        let mut log = own.log;
        // SAFETY: see the field; the operation uses it no more.
        let log = unsafe { log.as_mut() };
        log.commit(&own.op.heap);
        core::mem::replace(log, Log::new(0, Line::CHANGE))
    }
}

impl<M: Medium> Drop for OwnLog<'_, '_, M> {
    fn drop(&mut self) {
        self.op.log = None;
        // SAFETY: see the field; the operation uses it no more.
        unsafe { self.log.as_mut() }.roll_back(&self.op.heap, 0);
    }
}

/// An object that an operation has allocated. It is freed again if it is not put in place: after an error, and after a panic of a closure of
/// the program.
pub(crate) struct Fresh<'o, 'c, M: Medium> {
    op: &'o mut Op<'c, M>,
    at: usize,
}

impl<'o, 'c, M: Medium> Fresh<'o, 'c, M> {
    /// An object that the operation has allocated, and that nothing leads to.
    pub fn new(op: &'o mut Op<'c, M>, at: usize) -> Self {
        Self { op, at }
    }

    /// Where it is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Its operation.
    pub fn op(&self) -> &Op<'c, M> {
        self.op
    }

    /// Has the head at `head` lead to the object instead of to `old` (0: to nothing), and frees that one. What was put into the object is
    /// durable before.
    ///
    /// # Errors
    /// As for [`Op::publish`]. Nothing has changed then.
    ///
    /// # Safety
    /// Nothing but the head leads to the old object.
    pub unsafe fn put_in_place(self, head: usize, old: usize) -> Result<(), Error> {
        self.op.fence();
        self.op.publish(head, PPtr::<u8>::to(self.at).raw())?;
        let mut fresh = ManuallyDrop::new(self);
        // SAFETY: promised by the caller.
        unsafe { fresh.op.free_replaced(old) };
        Ok(())
    }
}

impl<M: Medium> Drop for Fresh<'_, '_, M> {
    fn drop(&mut self) {
        // SAFETY: nothing leads to it.
        unsafe { self.op.give_back(self.at) };
    }
}

/// Calls `each` for every word of the parts, with its place and its new content.
fn each_word<M: Medium>(core: &Core<M>, parts: &[Part<'_>], mut each: impl FnMut(usize, u64)) {
    for part in parts {
        match *part {
            Part::Word(at, word) => each(at, word),
            Part::Bytes(at, bytes) => {
                let (mut place, mut buffer) = (at, [MaybeUninit::uninit(); PIECE]);
                for piece in bytes.chunks(PIECE) {
                    let mut rest = settled(&mut buffer, piece);
                    while !rest.is_empty() {
                        let (from, skipped) = (place & !7, place % 8);
                        let count = rest.len().min(8 - skipped);
                        let (now, later) = rest.split_at(count);
                        let mut word = core.load(from).to_le_bytes();
                        word[skipped..skipped + count].copy_from_slice(now);
                        each(from, u64::from_le_bytes(word));
                        (rest, place) = (later, place + count);
                    }
                }
            }
        }
    }
}
