//! Transactions over any collections of a heap: all of their changes, or none.

use core::ptr::NonNull;

use spandrel_pmem::Medium;
use spandrel_sync::LockGuard;

use crate::collections::Lent;
use crate::error::Error;
use crate::gate::Begun;
use crate::heap::Heap;
use crate::shared::Core;
pub use crate::transaction_log::{Line, Log, Transactions};

impl<M: Medium> Heap<M> {
    /// Runs `work` as a transaction: after a failure at any time all of its operations are there, or none. On a file they are durable
    /// with the next checkpoint.
    ///
    /// Part of a transaction is what the calling thread does within `work`:
    /// - each operation that changes a collection of this heap,
    /// - [`Root::set`], [`Heap::set_root`], [`Heap::set_roots`], [`Heap::remove_root`],
    /// - [`Heap::replace`], [`Heap::new_object`], and [`Heap::free_object`], which takes effect when the transaction has ended.
    ///
    /// No part of it are [`Heap::alloc`], [`Heap::free`], stores of the program's own, and the creation of a collection or of a root's
    /// name.
    ///
    /// An error or a panic of `work` rolls all of it back. A nested transaction is part of the outer one; its own error rolls back only
    /// the nested one.
    ///
    /// Rules:
    /// - One transaction of a heap runs at a time: that of another thread waits.
    /// - Other threads see changes before the transaction ends, and do not change the same collections and roots. A program takes the locks
    ///   of its collections before the transaction, and releases them after it. Before the end other threads neither change nor open a
    ///   collection that the transaction has changed, nor set, remove or open a root that it has changed ([`Error::InTransaction`]). The
    ///   transaction's thread does not open a collection by such a root either.
    /// - Another thread that has the handle of a changed collection reads what the transaction has stored so far. If the transaction is then
    ///   rolled back, each read has all of it or nothing. An iterator goes on with what was restored: it may leave keys out or repeat them.
    /// - `work` must not wait for another thread that uses the heap: that thread may wait for the end of the transaction.
    /// - A checkpoint within a transaction is refused ([`Error::InOperation`]).
    ///
    /// The log takes room in the heap: 32 bytes for each change, beside the words that it overwrites, until the transaction ends.
    ///
    /// ```
    /// use spandrel_pheap::{Error, Options};
    /// use spandrel_pheap::collections::{HashMap, Vector};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("bank.heap");
    /// # let path = path.to_str().unwrap();
    /// let heap = Options::new().create(path)?;
    /// let mut accounts = HashMap::<u64, i64>::open(&heap, "accounts")?;
    /// let mut transfers = Vector::<[i64; 3]>::open(&heap, "transfers")?;
    /// heap.transaction(|| {
    ///     accounts.insert(1, -50)?;
    ///     accounts.insert(2, 50)?;
    ///     transfers.push([1, 2, 50])
    /// })?;
    /// // An error rolls back.
    /// let failed = heap.transaction(|| {
    ///     accounts.insert(1, 0)?;
    ///     Err::<(), _>(Error::Full)
    /// });
    /// assert_eq!((failed, accounts.get(&1)), (Err(Error::Full), Some(-50)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// [`Root::set`]: crate::collections::Root::set
    ///
    /// # Errors
    /// The error of `work`; [`Error::Forked`], [`Error::ReadOnly`], [`Error::NeedsRecovery`], [`Error::Full`]. Nothing has changed then.
    pub fn transaction<R>(&self, work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        self.try_transaction(work)
    }

    /// As [`Heap::transaction`], with an error type of the program's own.
    ///
    /// # Errors
    /// As for [`Heap::transaction`].
    pub fn try_transaction<R, E: From<Error>>(
        &self,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let transaction = Transaction::begin(self.core())?;
        // An error or a panic drops the transaction, which rolls it back.
        let done = work()?;
        transaction.commit()?;
        Ok(done)
    }
}

/// An open transaction. A drop without [`Transaction::commit`] rolls it back.
pub struct Transaction<'c, M: Medium> {
    heap: Lent<M>,
    core: &'c Core<M>,
    log: NonNull<Log>,
    /// The log's position when the transaction began: a rollback stops there.
    begin: usize,
    is_done: bool,
    /// `None`: the transaction is nested in another one.
    lock: Option<LockGuard<'c, ()>>,
    begun: Begun<'c>,
}

impl<'c, M: Medium> Transaction<'c, M> {
    /// Begins a transaction, nested in the one that the thread is in. Waits for the end of another thread's.
    ///
    /// # Errors
    /// As for [`Heap::transaction`].
    pub fn begin(core: &'c Core<M>) -> Result<Self, Error> {
        let begun = core.gate.begin()?;
        core.check_collected()?;
        let heap = Lent::of(NonNull::from(core));
        let row = begun.inside().row();
        let word = row.transaction();
        if let Some(log) = NonNull::new(word.get().cast::<Log>()) {
            // SAFETY: the log of the transaction that this thread is in; no other reference to it lives.
            let begin = unsafe { log.as_ref() }.position();
            return Ok(Self { heap, core, log, begin, is_done: false, lock: None, begun });
        }
        let lock = core.transactions.lock.lock();
        let log = core.transactions.begin();
        word.set(log.cast());
        // SAFETY: the address of a field.
        let log = unsafe { NonNull::new_unchecked(log) };
        Ok(Self { heap, core, log, begin: 0, is_done: false, lock: Some(lock), begun })
    }

    /// Makes all changes durable; those of a nested transaction become durable with the outer one.
    ///
    /// # Errors
    /// [`Error::Forked`]: the process is a child that was forked within the transaction, which is the parent's.
    pub fn commit(mut self) -> Result<(), Error> {
        self.core.check_process()?;
        self.is_done = true;
        let Some(lock) = self.lock.take() else { return Ok(()) };
        // SAFETY: as in `begin`.
        unsafe { self.log.as_mut() }.commit(&self.heap);
        let log = self.end();
        drop(lock);
        log.free_all(&self.heap);
        Ok(())
    }

    /// The thread is in the transaction no more. It holds the lock.
    fn end(&self) -> Log {
        self.begun.inside().row().transaction().set(core::ptr::null_mut());
        self.core.transactions.end()
    }
}

impl<M: Medium> Drop for Transaction<'_, M> {
    fn drop(&mut self) {
        // In a child of a fork the log is the parent's.
        if !self.is_done && self.core.check_process().is_ok() {
            // SAFETY: as in `begin`.
            unsafe { self.log.as_mut() }.roll_back(&self.heap, self.begin);
        }
        if self.lock.is_some() {
            self.end();
        }
    }
}
