//! Transactions over any collections of a heap: all of their changes, or none.

use core::ptr::NonNull;

use spandrel_pmem::Medium;
use spandrel_sync::LockGuard;

use crate::collections::Lent;
use crate::error::Error;
use crate::gate::Entered;
use crate::heap::Heap;
use crate::shared::Core;
pub use crate::transaction_log::{Log, Transactions};

impl<M: Medium> Heap<M> {
    /// Does several operations all or none of which are there after a failure: those of any collections of this heap, of [`Root::set`],
    /// [`Heap::set_root`], [`Heap::set_roots`], [`Heap::remove_root`], [`Heap::replace`], [`Heap::new_object`] and
    /// [`Heap::free_object`] that the calling thread does within `work`. On a file all of them are durable with the next checkpoint,
    /// or none.
    ///
    /// If `work` fails or panics, all of it is undone. A transaction within another one is part of it, and undone by itself if it fails.
    /// Objects that are freed within a transaction are freed when it has ended.
    ///
    /// One transaction of a heap runs at a time; another thread's waits. Other threads see what was changed before the transaction ends,
    /// and must not change it: a collection under a lock stays locked until the transaction has ended, or their operations are
    /// refused ([`Error::InTransaction`]). Within a transaction there is no checkpoint ([`Error::InOperation`]), and nothing must wait
    /// for another thread that uses the heap. Not part of it are [`Heap::alloc`], [`Heap::free`], stores of the program's own, and
    /// the making of a collection or of a root's name.
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
    /// // What fails leaves nothing.
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
    /// That of `work`; [`Error::Forked`], [`Error::NeedsRecovery`], [`Error::Full`]. Nothing has changed then.
    pub fn transaction<R>(&self, work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        self.try_transaction(work)
    }

    /// The same with an error of the program's own.
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

/// A transaction that is open. Dropped, it is rolled back.
pub struct Transaction<'c, M: Medium> {
    heap: Lent<M>,
    core: &'c Core<M>,
    log: NonNull<Log>,
    /// Where the log was when the transaction began.
    begin: usize,
    is_done: bool,
    /// `None`: it is part of another one.
    lock: Option<LockGuard<'c, ()>>,
    inside: Entered<'c>,
}

impl<'c, M: Medium> Transaction<'c, M> {
    /// Begins one, or a part of the one that the thread is in.
    ///
    /// # Errors
    /// As for [`Heap::transaction`].
    pub fn begin(core: &'c Core<M>) -> Result<Self, Error> {
        let inside = core.gate.enter()?;
        core.check_collected()?;
        let heap = Lent::of(NonNull::from(core));
        let row = inside.row();
        let word = row.transaction();
        if let Some(log) = crate::transaction_log::at(word.get()) {
            // SAFETY: the log of the transaction that this thread is in, of which it has no other reference now.
            let begin = unsafe { log.as_ref() }.position();
            return Ok(Self { heap, core, log, begin, is_done: false, lock: None, inside });
        }
        let lock = core.transactions.lock.lock();
        let log = core.transactions.begin();
        word.set(log.cast());
        // SAFETY: the address of a field.
        let log = unsafe { NonNull::new_unchecked(log) };
        Ok(Self { heap, core, log, begin: 0, is_done: false, lock: Some(lock), inside })
    }

    /// Ends it with all that was changed.
    ///
    /// # Errors
    /// [`Error::Forked`]: this is a child that was made within the transaction, which is the parent's.
    pub fn commit(mut self) -> Result<(), Error> {
        self.core.check_process()?;
        self.is_done = true;
        if self.lock.is_some() {
            // SAFETY: as in `begin`.
            unsafe { self.log.as_mut() }.commit(&self.heap);
        }
        Ok(())
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
            self.inside.row().transaction().set(core::ptr::null_mut());
            self.core.transactions.end();
        }
    }
}
